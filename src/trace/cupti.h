/*
 * CUPTI: the kernels, copies and fills of this process on its GPUs, as NVIDIA's tracing library
 * records them, by the clock of erg_now_ns().
 *
 * The library is opened at run time; $ERGON_CUPTI names another one. Its records have the layout of
 * its own version, so that must be the one ergon was built for. A process has one client of it:
 * where a profiler of another program is at work, it refuses.
 *
 * Records lie in 8 buffers of 4 MiB, which a thread of ergon's empties as they fill. Where none is
 * free the library drops records, and the trace is refused.
 */
#ifndef ERG_TRACE_CUPTI_H
#define ERG_TRACE_CUPTI_H

#include "ergon/error.h"
#include "trace/kernel_record.h"

struct erg_cupti;

/* ERG_NO_DEVICE where the library is not there, has another version, or ergon was built without
 * its header. One at a time. */
int erg_cupti_open(struct erg_cupti **cupti, struct erg_error *err);
void erg_cupti_close(struct erg_cupti *cupti); /* NULL is fine */

/* Records kernels that begin from now on. */
int erg_cupti_start(struct erg_cupti *cupti, struct erg_error *err);

/* Launches of this thread between the two calls have this number, which is not 0. The calls nest.
 * NULL is allowed and does not record. */
void erg_cupti_push(struct erg_cupti *cupti, uint64_t number);
void erg_cupti_pop(struct erg_cupti *cupti);

/* In no order; categories are not set. All lives until the next start or close. */
struct erg_cupti_records {
    const struct erg_kernel_record *items;
    const uint64_t *numbers; /* of each, the number of its launch; 0: none */
    size_t count;
    int64_t overhead_ns; /* of overhead by the library's report, on any thread */
};

/* After the GPU has done all that is to be recorded. Fails where records were dropped. */
int erg_cupti_stop(struct erg_cupti *cupti, struct erg_cupti_records *records,
                   struct erg_error *err);

#endif
