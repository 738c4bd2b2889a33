/*
 * Exchange waits: how long the ranks of a group wait for the last of them, from the starts of the
 * same exchange on all. Kernels of exchanges spin until then, so their time is wait and transfer.
 *
 * The n-th exchange of a group is the same on all its ranks. Messages between two ranks are left
 * out, since traces do not say between which.
 */
#ifndef ERG_TRACE_EXCHANGE_WAIT_H
#define ERG_TRACE_EXCHANGE_WAIT_H

#include "trace/kernel_record.h"

/* The most exchanges that are held, 16 MiB; the waits of further ones are not known. */
enum { ERG_EXCHANGES_MOST = 1 << 19 };

struct erg_exchange_waits;

struct erg_exchange_waits *erg_exchange_waits_new(void);
void erg_exchange_waits_free(struct erg_exchange_waits *waits);

/* A record of a GPU, `lane`, with its category; ignores records other than exchanges of a group. */
void erg_exchange_waits_add(struct erg_exchange_waits *waits, uint32_t lane,
                            const struct erg_kernel_record *record);

/* After the last: calls each() for every exchange whose group is whole. unix_ns() is the Unix time
 * of moment 0 of a lane; false: not known. Returns false where there were too many exchanges. */
bool erg_exchange_waits_find(struct erg_exchange_waits *waits,
                             bool (*unix_ns)(void *context, uint32_t lane, int64_t *time_ns),
                             void (*each)(void *context, uint32_t lane,
                                          enum erg_kernel_category category, int64_t wait_ns),
                             void *context);

#endif
