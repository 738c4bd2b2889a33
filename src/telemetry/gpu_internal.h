/* A vendor's implementation of telemetry/gpu.h. Private to the room. */
#ifndef ERG_TELEMETRY_GPU_INTERNAL_H
#define ERG_TELEMETRY_GPU_INTERNAL_H

#include "telemetry/gpu.h"
#include "telemetry/knobs.h"

#include <stdatomic.h>

/* One GPU of a list. The pointers are to literals; monitors read them in other threads. */
struct erg_open_gpu {
    struct erg_gpu_info info;
    void *handle; /* the vendor's own state of this GPU; NULL if the GPU has trouble */
    _Atomic(const char *) sources[ERG_METRICS];
    _Atomic(const char *) refusals[ERG_METRICS];
    _Atomic uint64_t narrow; /* counters of 32 bits */
};

/* The request of a read of one GPU. */
struct erg_gpu_query {
    struct erg_open_gpu *gpu;
    struct erg_gpu_sample *sample;
    uint64_t metrics; /* requested */
};

static inline bool erg_gpu_wants(const struct erg_gpu_query *at, enum erg_metric metric)
{
    return at->metrics >> metric & 1;
}

/* Stores a value and its source; an impossible value is refused instead. */
void erg_gpu_put(const struct erg_gpu_query *at, enum erg_metric metric, int64_t value,
                 int64_t time_ns, const char *source);

/* Stores the reason for a missing value; a literal. */
void erg_gpu_refuse(const struct erg_gpu_query *at, enum erg_metric metric, const char *reason);

struct erg_clock_list;

/* For one GPU, from any thread. Only telemetry/clocks.c and its guardian request locks. */
struct erg_clock_methods {
    int (*supported)(const struct erg_open_gpu *gpu, struct erg_clock_list *list,
                     struct erg_error *err);
    int (*lock)(const struct erg_open_gpu *gpu, int clock_mhz, struct erg_error *err);
    int (*unlock)(const struct erg_open_gpu *gpu, struct erg_error *err);
    int (*read)(const struct erg_open_gpu *gpu, int *clock_mhz, struct erg_error *err);
};

/* For one GPU, with the driver's own result. Used only by telemetry/knobs.c. */
struct erg_knob_methods {
    int (*bounds)(const struct erg_open_gpu *gpu, enum erg_knob knob, int64_t *least,
                  int64_t *most);
    int (*limit_default)(const struct erg_open_gpu *gpu, int64_t *limit_mw);
    int (*set)(const struct erg_open_gpu *gpu, enum erg_knob knob, int64_t low, int64_t high);
    int (*reset)(const struct erg_open_gpu *gpu, enum erg_knob knob);
    int (*read)(const struct erg_open_gpu *gpu, enum erg_knob knob, int64_t *value);
    int (*persistence)(const struct erg_open_gpu *gpu, bool *on);
    int (*set_persistence)(const struct erg_open_gpu *gpu, bool on);
    const char *(*reason)(int result); /* the meaning of a result other than 0 */
};

enum { ERG_CUDA_UUID_BYTES = 44 };

struct erg_vendor {
    const struct erg_clock_methods *clocks; /* NULL: clocks cannot be locked */
    const struct erg_knob_methods *knobs;   /* NULL: knobs cannot be set */
    /*
     * Environment variables that select the GPUs that a program sees, ended by NULL; each selects
     * from the GPUs that the previous ones left.
     */
    const char *const *visible;
    /*
     * The UUIDs of the GPUs that a program sees, in the order of those variables' indices; NULL:
     * PCI bus order. False if the order is unknown.
     */
    bool (*order)(char (*uuids)[ERG_CUDA_UUID_BYTES], size_t capacity, size_t *count);
    void (*read)(const struct erg_gpu_query *at);
    void (*close)(struct erg_gpus *gpus); /* handles and the library */
};

struct erg_gpus {
    const struct erg_vendor *vendor;
    void *library; /* the vendor's own state of the library, if it has one */
    struct erg_open_gpu *items;
    size_t count;  /* that are visible */
    size_t opened; /* of items; a selection hides the last ones */
    atomic_int owners;
};

/* A new list of `count` zeroed GPUs. */
struct erg_gpus *erg_gpus_new(const struct erg_vendor *vendor, size_t count);

/*
 * All GPUs of NVIDIA's driver (nvml.c). ERG_NO_DEVICE if the library, the driver or every GPU is
 * missing.
 */
int erg_nvml_open(struct erg_gpus **gpus, struct erg_error *err);

/*
 * All GPUs of AMD's driver (amdgpu.c), in the order of the PCI bus. `root` is the driver's folder;
 * NULL: $ERGON_AMDGPU, or /sys/bus/pci/drivers/amdgpu. ERG_NO_DEVICE if the driver or every GPU is
 * missing.
 */
int erg_amdgpu_open(struct erg_gpus **gpus, const char *root, struct erg_error *err);

/*
 * The GPUs that CUDA shows to programs: the UUIDs of up to `capacity` of them in CUDA's order,
 * which puts the fastest GPU first if kinds differ, unless CUDA_DEVICE_ORDER is PCI_BUS_ID. False
 * without an answer.
 */
bool erg_cuda_order(char (*uuids)[ERG_CUDA_UUID_BYTES], size_t capacity, size_t *count);

/* Restricts an open list to the GPUs in `select` (telemetry/gpu.h). */
int erg_gpus_select(struct erg_gpus *gpus, const char *select, struct erg_error *err);

#endif
