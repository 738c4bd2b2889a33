/*
 * Exchange waits: how long the ranks of a group wait for the last rank, computed from the start
 * times of the same exchange on all of them. A kernel of an exchange spins until the last rank has
 * started, so its time is wait plus transfer.
 *
 * The n-th exchange of a group is the same on all its ranks. Point-to-point messages are ignored: a
 * record does not name its peer. All-to-all counts as an exchange.
 */
#ifndef ERG_TRACE_EXCHANGE_WAIT_H
#define ERG_TRACE_EXCHANGE_WAIT_H

#include "trace/kernel_record.h"

/* Most records kept (16 MiB). With more, no waits are found. */
enum { ERG_EXCHANGES_MOST = 1 << 19 };

struct erg_exchange_waits;

struct erg_exchange_waits *erg_exchange_waits_new(void);
void erg_exchange_waits_free(struct erg_exchange_waits *waits);

/*
 * Adds a record of GPU `lane`; its category must be set. Ignores all but exchanges of a named group
 * of 2 to 2^24 - 1 ranks whose wait is unknown.
 */
void erg_exchange_waits_add(struct erg_exchange_waits *waits, uint32_t lane,
                            const struct erg_kernel_record *record);

/*
 * After the last record: calls each() for every rank of each exchange of a complete group: every
 * rank has the same number of exchanges, with the same categories in the same order. The wait is at
 * most the kernel's duration. unix_ns() gives the Unix time, ns, of time 0 of a lane's clock;
 * false: unknown, which drops the group's exchanges. Returns false if there were too many records.
 */
bool erg_exchange_waits_find(struct erg_exchange_waits *waits,
                             bool (*unix_ns)(void *context, uint32_t lane, int64_t *time_ns),
                             void (*each)(void *context, uint32_t lane,
                                          enum erg_kernel_category category, int64_t wait_ns),
                             void *context);

#endif
