/*
 * Device: one interface to a lockstep group of GPUs, "run these steps under this schedule: how
 * long, how much energy, how hot". The profiler (device/profiler.h) and everything above see only
 * this. The emulated device (device/emulated) implements it in virtual time; a real one implements
 * it on CUDA and NVML.
 *
 * Work is asynchronous, like kernels on a stream, while the host continues; erg_device_now_ns() is
 * the host's time, and spans and samples use the same time axis. A device is used by one thread at
 * a time; several devices may be open at once.
 */
#ifndef ERG_DEVICE_H
#define ERG_DEVICE_H

#include "device/work.h"
#include "ergon/error.h"
#include "telemetry/gpu.h" /* enum erg_clock_reason */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which fields of a sample the device could read. */
enum erg_sense {
    ERG_SENSE_ENERGY = 0x1,
    ERG_SENSE_POWER = 0x2,
    ERG_SENSE_TEMPERATURE = 0x4,
    ERG_SENSE_CLOCK = 0x8,
    ERG_SENSE_REASONS = 0x10,
};

struct erg_sample {
    int64_t time_ns;    /* when it was read */
    uint64_t energy_mj; /* counter; only differences are meaningful, and it moves in steps */
    double power_w;     /* over the last sensor period */
    double temperature_c;
    int clock_mhz;
    uint32_t reasons; /* of enum erg_clock_reason */
    uint32_t valid;   /* of enum erg_sense */
};

/* When something ran on one GPU. */
struct erg_device_span {
    int64_t start_ns, end_ns;
};

struct erg_device;

struct erg_device_methods {
    void (*close)(struct erg_device *device);
    void (*begin)(struct erg_device *device, uint64_t key);
    int (*set_clock)(struct erg_device *device, int clock_mhz, struct erg_error *err);
    int (*enqueue)(struct erg_device *device, const struct erg_step *steps, size_t count,
                   size_t repeats, struct erg_error *err);
    int (*stagger)(struct erg_device *device, const struct erg_step *steps, size_t count,
                   int64_t delay_ns, struct erg_error *err);
    int (*sync)(struct erg_device *device, struct erg_error *err);
    int64_t (*now_ns)(struct erg_device *device);
    void (*sleep_ns)(struct erg_device *device, int64_t duration_ns);
    int (*sense)(struct erg_device *device, struct erg_sample *samples, struct erg_error *err);
    int (*span)(struct erg_device *device, size_t back, size_t gpu, struct erg_device_span *span,
                struct erg_error *err);
};

/* The difference between a tensor of one pass and that of another. */
struct erg_difference {
    char tensor[16];    /* "output"; of gradients: "input", or the weight: "qkv", "fc1", … */
    uint32_t copies;    /* tensors of that name: layers times GPUs */
    uint32_t identical; /* copies that are identical, bit for bit */
    /* |difference| / |reference|, the largest of the copies; NaN if there is one. */
    double relative;
};
enum { ERG_DIFFERENCES = 10 }; /* at most */

enum { ERG_DEVICE_PASSES = 4 };

/* Values of tensors on a device that computes. Only after a sync. */
struct erg_device_numbers {
    /*
     * `repeatable`: later steps give the same bits in every run, even if that is much slower.
     * ERG_NO_DEVICE if it cannot.
     */
    int (*repeat)(struct erg_device *device, bool repeatable, struct erg_error *err);
    /* Clears the gradients of the weights, to which every backward adds. */
    int (*clear)(struct erg_device *device, struct erg_error *err);
    /* Records the current values of the layers' tensors as `pass` < ERG_DEVICE_PASSES. */
    int (*note)(struct erg_device *device, size_t pass, struct erg_error *err);
    /* Compares two recorded passes. `list` has room for ERG_DIFFERENCES. */
    int (*compare)(struct erg_device *device, size_t pass, size_t reference,
                   struct erg_difference *list, size_t *count, struct erg_error *err);
};

/* The first member of every implementation. */
struct erg_device {
    const struct erg_device_methods *methods;
    const struct erg_device_numbers *numbers; /* NULL for a device that does not compute */
    const char *board;    /* the driver's name of its GPUs; NULL for an emulated device */
    const char *identity; /* one line: kind, GPU, number of GPUs, other conditions of results */
    size_t gpus;
    bool fixed_clock; /* clocks cannot be set: everything runs at the GPUs' own clocks */
};

/* The number of latest spans that a device keeps. */
enum { ERG_DEVICE_SPANS = 16 };

static inline void erg_device_close(struct erg_device *device)
{
    if (device)
        device->methods->close(device);
}

/*
 * Starts an independent measurement, named by `key`. Real devices ignore it. The emulated device
 * forgets its past: virtual time, heat, clock, sensor phases and noise restart as a function of its
 * seed and the key alone. So a measurement does not depend on earlier ones, on the thread, or on a
 * kill and resume in between.
 */
static inline void erg_device_begin(struct erg_device *device, uint64_t key)
{
    device->methods->begin(device, key);
}

/*
 * Locks the SM clock of all GPUs; 0 unlocks it. Waits for queued work first; the new clock settles
 * some milliseconds later. ERG_NO_DEVICE if the device refuses clock locks.
 */
static inline int erg_device_set_clock(struct erg_device *device, int clock_mhz,
                                       struct erg_error *err)
{
    return device->methods->set_clock(device, clock_mhz, err);
}

/*
 * Queues `repeats` runs of the steps, back to back after already queued work, and returns
 * immediately for any number: a device with a short queue feeds it from a thread. The steps need to
 * be valid only until it returns.
 */
static inline int erg_device_enqueue(struct erg_device *device, const struct erg_step *steps,
                                     size_t count, size_t repeats, struct erg_error *err)
{
    return device->methods->enqueue(device, steps, count, repeats, err);
}

/*
 * Queues one run of the steps. The first GPU begins immediately and all others `delay_ns` later, so
 * it waits that long for them in the first communication. Needs several GPUs.
 */
static inline int erg_device_stagger(struct erg_device *device, const struct erg_step *steps,
                                     size_t count, int64_t delay_ns, struct erg_error *err)
{
    return device->methods->stagger(device, steps, count, delay_ns, err);
}

/* Waits until all queued work is done. */
static inline int erg_device_sync(struct erg_device *device, struct erg_error *err)
{
    return device->methods->sync(device, err);
}

static inline int64_t erg_device_now_ns(struct erg_device *device)
{
    return device->methods->now_ns(device);
}

/* May return early after a signal. */
static inline void erg_device_sleep_ns(struct erg_device *device, int64_t duration_ns)
{
    device->methods->sleep_ns(device, duration_ns);
}

/*
 * Reads the sensors of all GPUs into samples[device->gpus], as simultaneously as possible; takes
 * some milliseconds. Allowed while work runs.
 */
static inline int erg_device_sense(struct erg_device *device, struct erg_sample *samples,
                                   struct erg_error *err)
{
    return device->methods->sense(device, samples, err);
}

/*
 * The span of the enqueue `back` calls ago (0: the latest; below ERG_DEVICE_SPANS) on `gpu`. Only
 * after a sync.
 */
static inline int erg_device_span(struct erg_device *device, size_t back, size_t gpu,
                                  struct erg_device_span *span, struct erg_error *err)
{
    return device->methods->span(device, back, gpu, span, err);
}

#endif
