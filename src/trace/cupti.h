/*
 * CUPTI: the kernels, copies and fills of this process on its GPUs, as NVIDIA's tracing library
 * records them, on the clock of erg_now_ns().
 *
 * The library is opened at run time; $ERGON_CUPTI selects another file. The layout of its records
 * depends on its version, so that must be the version that ergon was built for. The library allows
 * one client per process and refuses if another profiler is active.
 *
 * Records fill 8 buffers of 4 MiB, which a thread of ergon empties. If none is free, the library
 * drops records, and ergon refuses the trace.
 */
#ifndef ERG_TRACE_CUPTI_H
#define ERG_TRACE_CUPTI_H

#include "ergon/error.h"
#include "trace/kernel_record.h"

struct erg_cupti;

/*
 * ERG_NO_DEVICE if the library is missing or has another version, or if ergon was built without its
 * header. One at a time.
 */
int erg_cupti_open(struct erg_cupti **cupti, struct erg_error *err);
void erg_cupti_close(struct erg_cupti *cupti); /* NULL is fine */

/* Records kernels that begin from now on. */
int erg_cupti_start(struct erg_cupti *cupti, struct erg_error *err);

/*
 * Launches of this thread between the two calls get this number, which must not be 0. The calls
 * nest. NULL is allowed and does not record.
 */
void erg_cupti_push(struct erg_cupti *cupti, uint64_t number);
void erg_cupti_pop(struct erg_cupti *cupti);

/* Unordered and without categories. Valid until the next start or close. */
struct erg_cupti_records {
    const struct erg_kernel_record *items;
    const uint64_t *numbers; /* of each record: the number of its launch; 0: none */
    size_t count;
    int64_t overhead_ns; /* overhead that the library reports, of all threads */
};

/* Call it after the GPU has finished the recorded work. Fails if records were dropped. */
int erg_cupti_stop(struct erg_cupti *cupti, struct erg_cupti_records *records,
                   struct erg_error *err);

#endif
