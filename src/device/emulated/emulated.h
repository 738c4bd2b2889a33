/*
 * Emulated GPU: a deterministic, fast model of one GPU (one of a lockstep group).
 *
 * A calibrated approximation, not a simulator of real kernels: a fluid event loop for the two
 * streams of a step (SM share, HBM contention, wave quantisation, launch gaps, persistent GEMMs), a
 * power model on top of it (static, active, per FLOP, per byte, spinning communication blocks,
 * voltage rising above a knee), and a cap on the mean power that lowers the clock. All constants
 * are data (hardware/hardware.h). This model has no noise, heat or sensors; erg_emulated_open()
 * opens the device that adds them.
 *
 * SI units; everything is per GPU.
 */
#ifndef ERG_DEVICE_EMULATED_H
#define ERG_DEVICE_EMULATED_H

#include "device/device.h"
#include "device/work.h"
#include "ergon/error.h"
#include "hardware/hardware.h"
#include "thermal/thermal.h"

#include <stddef.h>

struct erg_emulated_result {
    double time_s;
    double energy_j;
    double power_w;             /* energy_j / time_s */
    double clock_effective_mhz; /* below the request if the power cap acts */
    double throttle;            /* 0: the cap does not act; towards 1: it sets the clock */
    double exposed_s;           /* communication running with no compute left, before any throttling
                                   dither */
};

/*
 * Runs `steps` back to back at the requested SM clock, all under one power cap: they share one
 * clock, so a step of low power leaves its budget to the others. Use one call for an instruction of
 * many partitions, and a call with one step to profile a partition alone. The op list or the
 * communication may be empty. Fails (ERG_FAILED) on an invalid clock, slot, SM count or size.
 */
int erg_emulated_run(const struct erg_gpu *gpu, const struct erg_stack *stack,
                     const struct erg_step *steps, size_t count, int clock_mhz,
                     struct erg_emulated_result *out, struct erg_error *err);

/* The same at any die temperature, and at any clock. */
int erg_emulated_run_at(const struct erg_gpu *gpu, const struct erg_stack *stack,
                        const struct erg_step *steps, size_t count, double clock_mhz,
                        double temperature_c, struct erg_emulated_result *out,
                        struct erg_error *err);

/* The work over time, for figures. */
enum erg_span_lane { ERG_SPAN_COMPUTE, ERG_SPAN_COMM, ERG_SPAN_JOIN };

struct erg_emulated_span {
    size_t step;
    enum erg_span_lane lane;
    size_t op; /* of ERG_SPAN_COMPUTE */
    double start_s, end_s;
};

struct erg_emulated_timeline { /* all-zero is a valid empty one */
    struct erg_emulated_span *spans;
    size_t count, capacity;
};

/*
 * The spans of one erg_emulated_run(), in the order in which they start or end; launch gaps are the
 * gaps between them. Replaces the content of `timeline`.
 */
int erg_emulated_timeline(const struct erg_gpu *gpu, const struct erg_stack *stack,
                          const struct erg_step *steps, size_t count, int clock_mhz,
                          struct erg_emulated_timeline *timeline, struct erg_error *err);
void erg_emulated_timeline_release(struct erg_emulated_timeline *timeline);

/*
 * A constant that a search may calibrate against its own measurements: the log of its ratio to the
 * catalogue's value has a normal prior of standard deviation `log_sd`.
 */
struct erg_calibratable {
    const char *name;
    size_t offset; /* of a double in struct erg_gpu; in struct erg_stack if in_stack */
    int in_stack;
    double log_sd;
};

const struct erg_calibratable *erg_emulated_calibratables(size_t *count);

/*
 * Copies gpu and stack with constant i multiplied by exp(log_ratio[i]). The copies share the
 * originals' strings: do not free them. Constants of the library's collectives scale like those of
 * our own kernels.
 */
void erg_emulated_calibrate(const struct erg_gpu *gpu, const struct erg_stack *stack,
                            const double *log_ratio, struct erg_gpu *gpu_out,
                            struct erg_stack *stack_out);

/* How the emulated device differs from the exact model, and what it refuses. */
struct erg_emulated_options {
    size_t gpus; /* of the lockstep group; >= 1 */
    uint64_t seed;
    bool noise; /* false: no random factors at all (sensors stay quantised) */
    bool heat;  /* false: the die stays at the reference temperature */
    /*
     * The GPUs have the temperature of the hottest GPU of this chassis after hours of the same
     * training on all its GPUs. It outlives the device. NULL: the temperature in the GPU's file.
     */
    const struct erg_chassis *chassis;
    bool refuse_clocks;  /* clock locks are refused, as without privileges */
    bool refuse_counter; /* the energy counter cannot be read */
    bool refuse_power;   /* the power cannot be read, either */
};

struct erg_emulated_options erg_emulated_options_default(void);

/* "constants 1f2e…": the part of a device's identity that changes with any number of the GPU's or
 * the stack's file. */
enum { ERG_EMULATED_CONSTANTS_BYTES = 32 };
void erg_emulated_constants(const struct erg_gpu *gpu, const struct erg_stack *stack,
                            char text[ERG_EMULATED_CONSTANTS_BYTES]);

/*
 * A device in virtual time (device/device.h). `gpu` and `stack` must outlive it. Work comes from a
 * replayed queue, so the host sets no lower limit to its time.
 */
int erg_emulated_open(struct erg_device **device, const struct erg_gpu *gpu,
                      const struct erg_stack *stack, const struct erg_emulated_options *options,
                      struct erg_error *err);

#endif
