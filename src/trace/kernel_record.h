/*
 * Kernel records: the kernels of a GPU with their times and categories; a trace contains those of
 * one rank.
 *
 * Times are nanoseconds of any one clock; a trace gives the clock's offset from Unix time.
 */
#ifndef ERG_TRACE_KERNEL_RECORD_H
#define ERG_TRACE_KERNEL_RECORD_H

#include "ergon/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum erg_kernel_sub {
    ERG_SUB_NONE,
    ERG_SUB_ATTENTION,
    ERG_SUB_ROUTER,
    ERG_SUB_PERMUTE,
    ERG_SUB_OPTIMIZER,
    ERG_SUB_OVERLAP, /* communication of a product that runs concurrently */
    ERG_SUB_COPY,
    ERG_SUB_ALL_TO_ALL,
    ERG_SUBS,
};

/* "MatMul", "Memory/Elementwise"; "", "attention". Both lists end with NULL. */
extern const char *const erg_kernel_category_names[];
extern const char *const erg_kernel_sub_names[];
/* The index of a word in such a list; -1: none. */
int erg_kernel_name_index(const char *word, const char *const *names);

static inline bool erg_kernel_communicates(enum erg_kernel_category category)
{
    return category >= ERG_CATEGORY_SEND_RECV && category <= ERG_CATEGORY_ALL_REDUCE;
}
bool erg_kernel_name_communicates(const char *category);

enum erg_kernel_source {
    ERG_SOURCE_KERNEL, /* a kernel */
    ERG_SOURCE_MEMCPY, /* the copy engines, which compute nothing */
    ERG_SOURCE_MEMSET,
};

/* An exchange between ranks; unknown texts are NULL, unknown numbers 0. */
struct erg_kernel_collective {
    const char *name;  /* "all_to_all"; NULL for other kernels */
    const char *dtype; /* "BFloat16" */
    const char *group; /* its name */
    const char *ranks; /* "[0, 1]" */
    int64_t in_elements, out_elements;
    int32_t group_size;
};

struct erg_kernel_record {
    int64_t start_ns, end_ns;
    int64_t wait_ns; /* of an exchange: until its last peer started; -1: unknown */
    const char *name;
    int32_t device, stream;
    enum erg_kernel_source source;
    bool told; /* the trace itself contains its category */
    enum erg_kernel_category category;
    enum erg_kernel_sub sub;
    uint32_t correlation;      /* links it to the call that launched it */
    int32_t grid[3], block[3]; /* 0: unknown */
    uint64_t bytes;            /* copied or filled; for an exchange: a rank's contribution */
    uint64_t flops;            /* 0: unknown */
    struct erg_kernel_collective collective;
    const size_t *needs; /* indices of earlier records of the trace that it waited for */
    size_t need_count;
};

/* Whether it hides concurrent communication and copies. */
static inline bool erg_kernel_computes(const struct erg_kernel_record *record)
{
    return record->source == ERG_SOURCE_KERNEL && !erg_kernel_communicates(record->category);
}

/* A span over kernels, such as an instruction; and a value of a counter from a time on. */
struct erg_kernel_span {
    const char *name;
    int32_t device, stream;
    int64_t start_ns, end_ns;
};

struct erg_kernel_counter {
    const char *name; /* "power W" */
    int32_t device;
    int64_t time_ns;
    double value;
};

struct erg_kernel_device {
    int32_t id;
    const char *name, *uuid; /* NULL: unknown */
    uint64_t memory_bytes;   /* 0: unknown */
};

/* The caller owns all arrays. */
struct erg_kernel_trace {
    int rank, world;
    const char *backend; /* of exchanges: "nccl" */
    int64_t unix_ns;     /* Unix time of moment 0 of all times */
    const struct erg_kernel_device *devices;
    size_t device_count;
    const struct erg_kernel_record *records; /* within a stream, in order of their start */
    size_t record_count;
    const struct erg_kernel_span *spans;
    size_t span_count;
    const struct erg_kernel_counter *counters;
    size_t counter_count;
};

#endif
