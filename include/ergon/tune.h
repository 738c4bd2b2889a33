/*
 * Tuning: one knob of the GPUs, the power limit or the SM clock, for any training loop.
 *
 *     struct erg_tune_options options;
 *     struct erg_tune *tune;
 *     erg_tune_defaults(&options);
 *     options.knob = ERG_TUNE_POWER;
 *     if (erg_tune_open(&tune, &options, &err) != 0) ...
 *     each step:  erg_tune_step_begin(tune, &err);
 *                 ... the step; wait for the GPU, or let the host run only little ahead ...
 *                 erg_tune_step_end(tune, &err);
 *     erg_tune_close(tune, &err);
 *
 * The tuner measures the steps of the training itself, in blocks of some steps at one value of the
 * knob. A golden section over the values finds the best one. Two values are compared by alternating
 * blocks until the confidence interval of their difference excludes 0 or lies within 1 %, so slow
 * drift, such as heat, does not decide. Then the best value stays set. When time or power of the
 * steps moves by 3 % for 200 steps, the search starts again. The close restores the previous value,
 * and so does the end of the process in any way. Without root's rights the tuner uses "ergon
 * daemon".
 *
 * All GPUs of a tuner get the same value. One thread at a time may use a tuner. A pause between two
 * steps, such as at the end of an epoch, costs only the current block. Structs begin with their
 * size: see ergon/hook.h. Unknown values are NaN.
 *
 * The selectors, their formulas and the profile file are those of Zeus 0.16.0's
 * GlobalPowerLimitOptimizer; the last selector is ours.
 */
#ifndef ERGON_TUNE_H
#define ERGON_TUNE_H

#include "ergon/error.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_tune;

/* The knob must be named. */
enum erg_tune_knob {
    ERG_TUNE_NONE = 0,  /* refused */
    ERG_TUNE_POWER = 1, /* power limit, W */
    ERG_TUNE_CLOCK = 2  /* SM clock, MHz */
};

/* E and T: energy and time of a step, n: number of GPUs, P: the highest power limit. */
enum erg_tune_selector {
    ERG_TUNE_ENERGY = 0,   /* least E */
    ERG_TUNE_TIME = 1,     /* least T */
    ERG_TUNE_COST = 2,     /* least weight E + (1 - weight) P n T */
    ERG_TUNE_SLOWDOWN = 3, /* the lowest value with T <= slowdown T(highest value) */
    ERG_TUNE_BUDGET = 4    /* least T with E <= budget_j */
};

struct erg_tune_options {
    uint32_t size;
    int32_t knob;     /* enum erg_tune_knob */
    int32_t selector; /* enum erg_tune_selector */
    double weight;    /* COST: 0 to 1 */
    double slowdown;  /* SLOWDOWN: at least 1 */
    double budget_j;  /* BUDGET: of a step, of all GPUs */
    const char *gpus; /* as in erg_meter_open() */
    /* A file of measurements in Zeus' format: an existing one replaces the measurements; otherwise
     * it is written. NULL: none. */
    const char *profile;
    int32_t least, most;   /* W or MHz; 0: the range of all GPUs */
    int32_t step;          /* between two values; 0: 25 W, or such that there are 33 clocks */
    int32_t settle_steps;  /* steps after each change that are not measured */
    int32_t measure_steps; /* least steps of a block */
    double measure_s;      /* least seconds of a block */
};

enum erg_tune_state {
    ERG_TUNE_MEASURING = 0,
    ERG_TUNE_DONE = 1,
    ERG_TUNE_FAILED = 2 /* the previous value is restored */
};

struct erg_tune_stats {
    uint32_t size;
    int32_t state;    /* enum erg_tune_state */
    int32_t value;    /* the current one: W or MHz */
    int32_t meets;    /* with DONE: 0 if no value meets the slowdown or budget */
    int32_t points;   /* measured values, for erg_tune_point() */
    int32_t searches; /* searches begun; more than 1: the steps have changed */
    int64_t blocks;   /* measured blocks */
    int64_t steps;    /* ended steps */
};

/* A value that was measured. */
struct erg_tune_point {
    uint32_t size;
    int32_t value;
    int32_t blocks;
    double time_s, energy_j; /* of a step; in a profile of Zeus, of its window */
    double time_uncertainty_s, energy_uncertainty_j; /* 95 %; NaN for one block */
};

/* Sets the size, COST with weight 0.5, slowdown 1, 5 steps to settle, 20 to measure, 2 s. The
 * caller sets the knob. */
void erg_tune_defaults(struct erg_tune_options *options);

/* Takes the right to set the knob, and sets the first value. ERG_NO_DEVICE if the GPU, its energy
 * counter or the permission is missing. */
int erg_tune_open(struct erg_tune **tune, const struct erg_tune_options *options,
                  struct erg_error *err);

int erg_tune_step_begin(struct erg_tune *tune, struct erg_error *err);

/* At the end of a block it waits for the energy counters, about 0.2 s, and sets the next value.
 * After a failure the previous value is restored, and later calls repeat the error. */
int erg_tune_step_end(struct erg_tune *tune, struct erg_error *err);

/* Restores the previous value and frees the tuner, even if the call fails because the value could
 * not be restored. NULL is fine. */
int erg_tune_close(struct erg_tune *tune, struct erg_error *err);

int erg_tune_stats(const struct erg_tune *tune, struct erg_tune_stats *stats);

/* Index from 0, in rising order of values; -1 beyond the last. */
int erg_tune_point(const struct erg_tune *tune, int32_t index, struct erg_tune_point *point);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
