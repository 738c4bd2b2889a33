/*
 * SM clocks and power limits by leases of the daemon (telemetry/daemon_client.h): the
 * implementation of telemetry/clocks.h for a process that may not set them itself. The daemon
 * resets a GPU at any end of this process, so no guardian is needed.
 */
#ifndef ERG_TELEMETRY_LEASES_H
#define ERG_TELEMETRY_LEASES_H

#include "telemetry/gpu.h"
#include "telemetry/knobs.h"

struct erg_leases;

/*
 * Connects, and finds the GPUs of the list (which the caller keeps open) in the daemon's list by
 * UUID.
 */
int erg_leases_open(struct erg_leases **leases, const char *socket, const struct erg_gpus *gpus,
                    struct erg_error *err);

/* Releases all leases. In a child of fork(): only frees the handle. */
void erg_leases_close(struct erg_leases *leases);

/* False in a child that the owner forked. */
bool erg_leases_is_mine(const struct erg_leases *leases);

/*
 * Takes a lease of a GPU's clock or power limit. A second call only checks that the lease still
 * exists.
 */
int erg_leases_take(struct erg_leases *leases, size_t gpu, enum erg_knob knob,
                    struct erg_error *err);

/*
 * MHz or mW. Returns once the driver has the value: up to a second later if changes come too fast
 * for the daemon, which is logged once.
 */
int erg_leases_set(struct erg_leases *leases, size_t gpu, enum erg_knob knob, int64_t value,
                   struct erg_error *err);

/* Unlocks the clock, and resets the limit to its value at the beginning of the lease. */
int erg_leases_reset(struct erg_leases *leases, size_t gpu, enum erg_knob knob,
                     struct erg_error *err);

/* Keeps the leases alive until one of them or the daemon has ended (true, with the reason), or
 * `stop` can be read. */
bool erg_leases_await_end(struct erg_leases *leases, int stop, char *reason, size_t capacity);

#endif
