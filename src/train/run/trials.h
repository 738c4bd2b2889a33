/*
 * Trials: find the best way to run a step by timing the run's own steps.
 *
 * A block is several consecutive steps in one way. During trials the ways alternate: a round has a
 * block of each, and the first way is the reference. So slow changes, such as heat, affect all
 * equally, and two ways are compared round by round. From the third round on, ways that are shown
 * to be slower than the best so far drop out; with a deadline or an energy budget, those whose
 * mean energy is lower stay. The trials end with the round in which their budget ends, or when more
 * rounds would change nothing. Later series, which begin when conditions change, have at least
 * three rounds. Disturbed blocks are repeated; if they use up the budget, any series ends at once.
 *
 * Then the best way runs, and each of its blocks is compared with its trials. If its time, or its
 * power if known, differs by more than the variation of blocks, and by more than ERG_FOLLOW_NOISE,
 * in the same direction for ERG_TRIALS_PATIENCE consecutive blocks, conditions have changed: all
 * ways are tried again, but only once the latest series is at most ERG_TRIALS_SHARE of the time
 * since it began. The running way then continues unless another one is shown to be better.
 *
 * "Shown": the two-sided 95 % interval of the difference, by Student's t over rounds, excludes 0.
 * The decisions depend on blocks alone, so they are equal on all ranks.
 */
#ifndef ERG_TRAIN_RUN_TRIALS_H
#define ERG_TRAIN_RUN_TRIALS_H

#include "base/statistics.h"
#include "frontier/goal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ERG_TRIALS_WAYS = 8,
    ERG_TRIALS_ROUNDS = 3,       /* before a way may drop out */
    ERG_TRIALS_MOST_ROUNDS = 32, /* in one series of trials */
    ERG_TRIALS_PATIENCE = 8,
    ERG_TRIALS_MOST_STEPS = 10000, /* of a block */
};

/*
 * The default budget: 5 % of the remaining steps, at most ten minutes. Steps of trials train like
 * all others, so they only cost the difference to the fastest way: at 5 %, rarely more than a
 * hundredth of the run. A minute would be too short: steps of large jobs take 5 s and more, and two
 * ways in three rounds of two steps, with a step to settle, are 18 steps.
 */
#define ERG_TRIALS_SHARE 0.05
#define ERG_TRIALS_MOST_S 600.0

/* A block on all ranks: times of the slowest rank, sums of their energies and uncertainties. */
struct erg_trial_block {
    double step_s;                /* mean of its steps, without the settling step */
    double step_j, uncertainty_j; /* mean, and 95 % of the sensors; NaN: unknown */
    double spent_s;               /* of all its steps */
    bool disturbed;               /* disturbed by other work: not used */
};

struct erg_trials_options {
    size_t ways;     /* at most ERG_TRIALS_WAYS; the first is the reference */
    double budget_s; /* 0: the default */
    uint64_t steps;  /* remaining in the run */
    /*
     * For a step; only `deadline_s` and `energy_j` count. Without both: the fastest way, unless
     * another one is not shown to be slower and is shown to need less energy.
     */
    struct erg_goal goal;
};

struct erg_trials {
    struct erg_trials_options options;
    double budget_s;  /* 0: unknown yet */
    bool trying;      /* false: the best way runs */
    bool unmet;       /* no tried way is within the goal's bound */
    size_t way;       /* of the next block */
    size_t best;      /* of the latest finished series, or kept; before: 0 */
    size_t tried;     /* series try the first `tried` ways, as many as the budget allows, and
                         later ones also the running way; 0: unknown yet */
    size_t series;    /* finished series of trials; a kept way counts as one */
    size_t rounds;    /* complete ones, of this series or the latest */
    double spent_s;   /* by this series or the latest */
    double running_s; /* run since the latest series ended */
    uint64_t steps;   /* steps of a block that count; the settling step comes first */
    struct erg_trials_way {
        bool out;
        struct erg_trial_block blocks[ERG_TRIALS_MOST_ROUNDS]; /* of this series or the latest */
        size_t count;
    } ways[ERG_TRIALS_WAYS];
    /* Watches the running way: its trial blocks, and how later ones differ. */
    struct erg_trials_watch {
        double sum, squares; /* of `count` blocks; of `changes` differences of neighbours */
        size_t count, changes;
        double last;
        int side;      /* of the last block; -1 or 1: beyond the limit, 0: within */
        size_t beyond; /* consecutive blocks beyond */
    } time, power;
    /* Why the latest trials began: "time" or "power" had changed; NULL: the first. */
    const char *why;
};

/* Begins trials of all ways. */
void erg_trials_init(struct erg_trials *trials, const struct erg_trials_options *options);

/*
 * After erg_trials_init(): skips the first series and runs this way, which earlier trials found.
 * Its first undisturbed block sets the length of blocks; later ones are compared with the three
 * that follow it.
 */
void erg_trials_keep(struct erg_trials *trials, size_t way);

enum erg_trials_event {
    ERG_TRIALS_GO_ON,
    ERG_TRIALS_ENDED, /* trials ended: the best way runs */
    ERG_TRIALS_BEGAN, /* new trials began: conditions have changed */
};

/* Adds the block that ran in `way`, and sets `way` and length of the next one. */
enum erg_trials_event erg_trials_add(struct erg_trials *trials,
                                     const struct erg_trial_block *block);

/*
 * Time and energy of a way: means over its blocks with 95 % intervals, for energy including the
 * sensors' error. NaN: unknown.
 */
struct erg_trials_cost {
    double step_s, step_s_half;
    double step_j, step_j_half;
};
void erg_trials_cost(struct erg_trials_cost *cost, const struct erg_trials *trials, size_t way);

/*
 * The share of the reference's time and energy that a way saves, round by round, so that common
 * errors of the sensors cancel. NaN: unknown.
 */
struct erg_trials_saved {
    double time, time_half;
    double energy, energy_half;
};
void erg_trials_saved(struct erg_trials_saved *saved, const struct erg_trials *trials, size_t way);

#endif
