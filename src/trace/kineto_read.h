/*
 * Kineto traces, as PyTorch's profiler and ergon train write them, read as a stream: kernels,
 * copies and fills of GPUs. All other events are skipped.
 */
#ifndef ERG_TRACE_KINETO_READ_H
#define ERG_TRACE_KINETO_READ_H

#include "ergon/error.h"
#include "trace/kernel_record.h"

enum { ERG_KINETO_DEVICES = 64, ERG_KINETO_UUID_BYTES = 64 };

/* Further values of the document. */
struct erg_kineto_about {
    int64_t base_ns; /* Unix time of moment 0 of all its times; with has_base */
    bool has_base;
    int rank, world; /* -1: absent */
    struct {
        int32_t id;
        char uuid[ERG_KINETO_UUID_BYTES]; /* "": absent */
    } devices[ERG_KINETO_DEVICES];
    size_t device_count;
    size_t events; /* of any kind */
};

/*
 * Texts of the record are valid during the call; its category is set if the trace contains it.
 * Return -1 to stop reading.
 */
typedef int erg_kineto_each(void *context, const struct erg_kernel_record *record,
                            struct erg_error *err);

/* Failures name file, line and byte. A trace without any kernel is a failure. */
int erg_kineto_read(struct erg_kineto_about *about, const char *path, erg_kineto_each *each,
                    void *context, struct erg_error *err);

#endif
