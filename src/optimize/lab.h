/*
 * Lab: measurements of steps on a device, each made once.
 *
 * A request for a measurement consists of the steps and the clock; how long the profiler's window
 * and pauses are is part of the question. The lab looks it up in the store, and only if it is not
 * there runs the profiler and stores the result before it returns. So a computation that was killed
 * and is run again asks the same questions and finds its answers. Thread-safe; every thread opens a
 * bench (a device) of its own. There can be any number of emulated devices, but only one real
 * device.
 */
#ifndef ERG_OPTIMIZE_LAB_H
#define ERG_OPTIMIZE_LAB_H

#include "device/device.h"
#include "device/profiler.h"
#include "device/work.h"
#include "ergon/error.h"
#include "hardware/hardware.h"
#include "search/search.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_lab;

struct erg_lab_request {
    const char *store_path; /* SQLite file, created when missing */
    const struct erg_gpu *gpu;
    const struct erg_stack *stack;
    struct erg_device *device; /* a real one, which outlives the lab; NULL: emulated ones ... */
    uint64_t seed;             /* ... with this seed */
    size_t gpus;               /* ... and the number of GPUs in lockstep ... */
    const struct erg_chassis *chassis; /* ... and their cooling; NULL: that of the GPU's file */
    struct erg_profile_options profiler;
};

struct erg_lab_counts {
    size_t energy, time_only; /* measured now */
    size_t cached;            /* answered by the store */
    double device_s;          /* time the device was busy with the new ones, pauses included */
    double mean_clock_mhz;    /* that all energy measurements ran at, cached ones too */
};

int erg_lab_open(struct erg_lab **lab, const struct erg_lab_request *request,
                 struct erg_error *err);
void erg_lab_close(struct erg_lab *lab);

/* One line that names the device and all that makes its results differ. */
const char *erg_lab_identity(const struct erg_lab *lab);
struct erg_lab_counts erg_lab_counts(struct erg_lab *lab);

/* Whether everything is measured at the device's own clock. */
bool erg_lab_fixed_clock(const struct erg_lab *lab);

/* How many benches may be open at once; 0 = any number. */
size_t erg_lab_benches(const struct erg_lab *lab);
int erg_lab_bench(struct erg_lab *lab, struct erg_device **device, struct erg_error *err);
void erg_lab_bench_close(struct erg_lab *lab, struct erg_device *device);

/* The name of a measurement in the store, for people; the steps' content is the key. */
struct erg_lab_name {
    const char *task; /* "fwd_attn", "sequential forward" */
    const char *slot; /* "linear_0"; "" for whole layers */
    int sms;          /* 0 for whole layers */
    bool time_only;   /* a short burst instead of the profiler's window, which has the energy too */
};

int erg_lab_measure(struct erg_lab *lab, struct erg_device *device, struct erg_lab_name name,
                    const struct erg_step *steps, size_t count, int clock_mhz,
                    struct erg_measurement *out, struct erg_error *err);

#endif
