/*
 * Exchange waits: how long the ranks of a group wait for the last rank, from the starts of the same
 * exchange on all of them. Kernels of exchanges spin until then, so their time is wait plus
 * transfer.
 *
 * The n-th exchange of a group is the same on all its ranks. Messages between two ranks are
 * excluded, since traces do not contain both ranks.
 */
#ifndef ERG_TRACE_EXCHANGE_WAIT_H
#define ERG_TRACE_EXCHANGE_WAIT_H

#include "trace/kernel_record.h"

/* The limit of exchanges, 16 MiB; with more, no waits are found. */
enum { ERG_EXCHANGES_MOST = 1 << 19 };

struct erg_exchange_waits;

struct erg_exchange_waits *erg_exchange_waits_new(void);
void erg_exchange_waits_free(struct erg_exchange_waits *waits);

/*
 * Adds a record of the GPU `lane`, which needs its category; ignores records other than exchanges
 * of a group.
 */
void erg_exchange_waits_add(struct erg_exchange_waits *waits, uint32_t lane,
                            const struct erg_kernel_record *record);

/*
 * After the last record: calls each() for every exchange whose group is complete. unix_ns() gives
 * the Unix time of a lane's moment 0; false: unknown. Returns false if there were too many
 * exchanges.
 */
bool erg_exchange_waits_find(struct erg_exchange_waits *waits,
                             bool (*unix_ns)(void *context, uint32_t lane, int64_t *time_ns),
                             void (*each)(void *context, uint32_t lane,
                                          enum erg_kernel_category category, int64_t wait_ns),
                             void *context);

#endif
