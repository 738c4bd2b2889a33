/*
 * What stands behind the door of telemetry/gpu.h: a vendor's methods. Private to the room.
 */
#ifndef ERG_TELEMETRY_GPU_INTERNAL_H
#define ERG_TELEMETRY_GPU_INTERNAL_H

#include "telemetry/cuda_order.h"
#include "telemetry/gpu.h"

#include <stdatomic.h>

/* One GPU of a list. The pointers are to literals; monitors look at them from other threads. */
struct erg_open_gpu {
    struct erg_gpu_info info;
    void *handle; /* the vendor's own state of this GPU; NULL of one in trouble */
    _Atomic(const char *) sources[ERG_METRICS];
    _Atomic(const char *) refusals[ERG_METRICS];
    _Atomic uint64_t narrow; /* counters of 32 bits */
};

struct erg_clock_list;

/* Of one GPU, from any thread. Locks are asked for by telemetry/clocks.c and its guardian only. */
struct erg_clock_methods {
    int (*supported)(const struct erg_open_gpu *gpu, struct erg_clock_list *list,
                     struct erg_error *err);
    int (*lock)(const struct erg_open_gpu *gpu, int clock_mhz, struct erg_error *err);
    int (*unlock)(const struct erg_open_gpu *gpu, struct erg_error *err);
    int (*read)(const struct erg_open_gpu *gpu, int *clock_mhz, struct erg_error *err);
};

struct erg_vendor {
    const struct erg_clock_methods *clocks; /* NULL: cannot be locked */
    /* Environment variables that say which GPUs a program sees, NULL ends; each chooses among those
     * that the ones before it left. */
    const char *const *visible;
    /* The UUIDs of the GPUs that a program sees, in the order in which those variables count; NULL:
     * that of the PCI bus. False where it cannot be found out. */
    bool (*order)(char (*uuids)[ERG_CUDA_UUID_BYTES], size_t capacity, size_t *count);
    void (*read)(struct erg_open_gpu *gpu, uint64_t metrics, struct erg_gpu_sample *sample);
    void (*close)(struct erg_gpus *gpus); /* handles and the library */
};

struct erg_gpus {
    const struct erg_vendor *vendor;
    void *library; /* the vendor's own state of the library, if it has one */
    struct erg_open_gpu *items;
    size_t count;  /* that are in sight */
    size_t opened; /* of items; a list that was selected from hides the last ones */
    atomic_int owners;
};

/* Notes a value and where it came from; one that cannot be is refused instead. */
void erg_gpu_put(struct erg_open_gpu *gpu, struct erg_gpu_sample *sample, enum erg_metric metric,
                 int64_t value, int64_t time_ns, const char *source);

/* Notes why there is none; a literal. */
void erg_gpu_refuse(struct erg_open_gpu *gpu, enum erg_metric metric, const char *reason);

/* Keeps of an open list what `select` asks for (telemetry/gpu.h). */
int erg_gpus_select(struct erg_gpus *gpus, const char *select, struct erg_error *err);

#endif
