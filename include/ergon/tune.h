/*
 * Tuning: one knob of the GPUs, the power limit or the SM clock, for any training loop.
 *
 *     struct erg_tune_options options;
 *     struct erg_tune *tune;
 *     erg_tune_defaults(&options);
 *     options.knob = ERG_TUNE_POWER;
 *     if (erg_tune_open(&tune, &options, &err) != 0) ...
 *     each step:  erg_tune_step_begin(tune, &err);
 *                 ... the step; wait for the GPU, or let the host run ahead by little ...
 *                 erg_tune_step_end(tune, &err);
 *     erg_tune_close(tune, &err);
 *
 * The steps of the training itself are measured, in blocks of some steps at one value of the knob.
 * A golden section over the values finds the best one. Two values are compared by blocks that
 * follow each other, in turn, until the interval of their difference says which is better, or that
 * it matters by less than 1 %. So what drifts meanwhile, such as heat, does not decide. Then the
 * best value stays set. When time or power of the steps moves by 3 % for 200 steps, all is done
 * again. The close sets again what was set before, and so does the end of the process, however it
 * ends; without root's rights all of it goes through "ergon daemon".
 *
 * The GPUs of one tuner get one value. One thread at a time. A pause between two steps, such as at
 * the end of an epoch, costs the block that is under way and nothing else. Structs begin with their
 * size, as in ergon/hook.h. Values that are not known are NaN.
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

/* Nothing is set unless the knob is named. */
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
    const char *gpus; /* as of erg_meter_open() */
    /* A file of measurements, as Zeus writes it too: one that is there is taken instead of
     * measuring, else it is written. NULL: none. */
    const char *profile;
    int32_t least, most;   /* W or MHz; 0: as far as all GPUs go */
    int32_t step;          /* between two values; 0: 25 W, and of clocks as many as make 33 */
    int32_t settle_steps;  /* after each change, not measured */
    int32_t measure_steps; /* of a block, at least */
    double measure_s;      /* likewise */
};

enum erg_tune_state {
    ERG_TUNE_MEASURING = 0,
    ERG_TUNE_DONE = 1,
    ERG_TUNE_FAILED = 2 /* what was set is as before */
};

struct erg_tune_stats {
    uint32_t size;
    int32_t state;    /* enum erg_tune_state */
    int32_t value;    /* that is set: W or MHz */
    int32_t meets;    /* with DONE: 0 if no value keeps to the slowdown or the budget */
    int32_t points;   /* values that were measured, for erg_tune_point() */
    int32_t searches; /* begun; more than 1: steps have changed */
    int64_t blocks;   /* measured */
    int64_t steps;    /* that were ended */
};

/* A value that was measured. */
struct erg_tune_point {
    uint32_t size;
    int32_t value;
    int32_t blocks;
    double time_s, energy_j; /* of a step; of a profile that Zeus wrote, of its window */
    double time_uncertainty_s, energy_uncertainty_j; /* 95 %; NaN of one block */
};

/* Size, COST with weight 0.5, slowdown 1, 5 steps to settle, 20 to measure, 2 s. The knob is left
 * to be named. */
void erg_tune_defaults(struct erg_tune_options *options);

/* Takes the right to set the knob, and sets the first value. ERG_NO_DEVICE where the GPU, its
 * energy or the permission is missing. */
int erg_tune_open(struct erg_tune **tune, const struct erg_tune_options *options,
                  struct erg_error *err);

int erg_tune_step_begin(struct erg_tune *tune, struct erg_error *err);

/* At the end of a block this waits for the energy counters, about 0.2 s, and sets the next value.
 * After a failure all is set as before, and later calls repeat the error. */
int erg_tune_step_end(struct erg_tune *tune, struct erg_error *err);

/* Sets again what was set before. Fails when that failed; the tuner is gone all the same. NULL is
 * fine. */
int erg_tune_close(struct erg_tune *tune, struct erg_error *err);

int erg_tune_stats(const struct erg_tune *tune, struct erg_tune_stats *stats);

/* From 0, in rising order of values; -1 for one that is not there. */
int erg_tune_point(const struct erg_tune *tune, int32_t index, struct erg_tune_point *point);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
