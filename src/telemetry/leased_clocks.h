/*
 * SM clocks by leases of the daemon (telemetry/daemon_client.h): what stands behind
 * telemetry/clocks.h where this process has no right to set clocks itself. The daemon gives a GPU
 * back however this process ends, so there is no guardian.
 */
#ifndef ERG_TELEMETRY_LEASED_CLOCKS_H
#define ERG_TELEMETRY_LEASED_CLOCKS_H

#include "telemetry/gpu.h"

struct erg_leased_clocks;

/* Connects, and finds the GPUs of the list (which the caller keeps open) in the daemon's by UUID.
 */
int erg_leased_open(struct erg_leased_clocks **leased, const char *socket,
                    const struct erg_gpus *gpus, struct erg_error *err);

/* Gives all leases back. In a child of fork(): forgets them. */
void erg_leased_close(struct erg_leased_clocks *leased);

/* False in a child that the owner forked. */
bool erg_leased_is_mine(const struct erg_leased_clocks *leased);

/* A lease of a GPU's clock. Asking again only asks whether it is still there. */
int erg_leased_take(struct erg_leased_clocks *leased, size_t gpu, struct erg_error *err);

/* Sets a clock. Where changes come too fast for the daemon it does so later, which is said in the
 * log, once. */
int erg_leased_set(struct erg_leased_clocks *leased, size_t gpu, int clock_mhz,
                   struct erg_error *err);
int erg_leased_reset(struct erg_leased_clocks *leased, size_t gpu, struct erg_error *err);

/* Keeps the leases alive until one of them or the daemon has ended (true, with the reason), or
 * `stop` can be read. */
bool erg_leased_await_end(struct erg_leased_clocks *leased, int stop, char *reason,
                          size_t capacity);

#endif
