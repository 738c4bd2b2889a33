/*
 * Kineto traces, as PyTorch's profiler and ergon train write them, read as a stream: kernels,
 * copies and fills of GPUs; all other events are passed over.
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
    int rank, world; /* -1: it does not say */
    struct {
        int32_t id;
        char uuid[ERG_KINETO_UUID_BYTES]; /* "": it does not say */
    } devices[ERG_KINETO_DEVICES];
    size_t device_count;
    size_t events; /* of any kind */
};

/* Texts of the record live during the call; its category is set where the trace contains it. -1
 * ends the reading. */
typedef int erg_kineto_each(void *context, const struct erg_kernel_record *record,
                            struct erg_error *err);

/* Fails with file, line and byte. A trace without any kernel is none. */
int erg_kineto_read(struct erg_kineto_about *about, const char *path, erg_kineto_each *each,
                    void *context, struct erg_error *err);

#endif
