/*
 * Trials: find the best of several ways to run a step from steps of the run itself.
 *
 * A block is some steps in a row in one way. While ways are tried they take turns: a round has a
 * block of each, the first way being the reference. So what changes slowly, such as heat, meets all
 * alike, and two ways are compared round by round. From the third round on a way drops out that is
 * shown to be no answer. The trials end with the round in which their budget does, or where more
 * rounds would change nothing; later ones, which begin when conditions change, not before the
 * third.
 *
 * Then the best way runs, and each of its blocks is compared with its trials. Where its time, or
 * its power where that is known, has been beyond what blocks vary by, and beyond ERG_FOLLOW_NOISE,
 * for ERG_TRIALS_PATIENCE blocks in a row and on one side, conditions have changed: all ways are
 * tried again, but not before the latest trials are ERG_TRIALS_SHARE of the time or less. A way
 * then keeps running unless another one is shown to be better.
 *
 * "Shown" is at 95 %, by Student's t over rounds. Nothing here asks a clock or a rank: equal blocks
 * give equal decisions on all ranks.
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
    ERG_TRIALS_MOST_ROUNDS = 32, /* of one series of trials */
    ERG_TRIALS_PATIENCE = 8,
    ERG_TRIALS_MOST_STEPS = 10000, /* of a block */
};

/*
 * The default budget: 5 % of the steps that are left, and at most ten minutes. Steps of trials
 * train as all others do, so they only cost the difference to the fastest way: at 5 %, hardly ever
 * more than a hundredth of the run. A minute would be too short: steps of large jobs take 5 s and
 * more, and two ways in three rounds of two steps, with a step to settle, are 18 steps.
 */
#define ERG_TRIALS_SHARE 0.05
#define ERG_TRIALS_MOST_S 600.0

/* Time and energy of a block, over all ranks. */
struct erg_trial_block {
    double step_s;                /* mean of its steps, without the first */
    double step_j, uncertainty_j; /* likewise, 95 % of the sensors; NaN: not known */
    double spent_s;               /* of all its steps */
    bool disturbed;               /* disturbed by other work: not used */
};

struct erg_trials_options {
    size_t ways;          /* at most ERG_TRIALS_WAYS; the first is the reference */
    double budget_s;      /* 0: the default */
    uint64_t steps;       /* that are left of the run */
    struct erg_goal goal; /* of a step. Neither deadline nor energy: as fast as the fastest, and of
                           * those that are not shown to be slower the one with least energy */
};

struct erg_trials {
    struct erg_trials_options options;
    double budget_s;  /* 0: not known yet */
    bool trying;      /* else the best way runs */
    bool unmet;       /* no way that was tried is within the goal's bound */
    size_t way;       /* of the next block */
    size_t best;      /* of the trials so far */
    size_t tried;     /* ways that the budget has room for: the first ones */
    size_t series;    /* of trials, that have ended */
    size_t rounds;    /* whole ones, of this series or the latest */
    double spent_s;   /* of it */
    double running_s; /* since it ended */
    uint64_t steps;   /* of a block that count; one more comes first, to settle */
    struct erg_trials_way {
        bool out;
        struct erg_trial_block blocks[ERG_TRIALS_MOST_ROUNDS]; /* of this series or the latest */
        size_t count;
    } ways[ERG_TRIALS_WAYS];
    /* The running way, with which each block is compared. */
    struct erg_trials_watch {
        double sum, squares; /* of `count` blocks; of `changes` differences of neighbours */
        size_t count, changes;
        double last;
        int side;      /* of the last block: -1 or 1: beyond, 0: not */
        size_t beyond; /* blocks in a row */
    } time, power;
    const char *why; /* the latest trials began: "time" or "power" had changed; NULL: the first */
};

/* All ways are tried. */
void erg_trials_init(struct erg_trials *trials, const struct erg_trials_options *options);

/* Instead: this one runs, as trials before have found; its first blocks say what to expect. */
void erg_trials_keep(struct erg_trials *trials, size_t way);

enum erg_trials_event {
    ERG_TRIALS_GO_ON,
    ERG_TRIALS_ENDED, /* trials: the best way runs */
    ERG_TRIALS_BEGAN, /* anew: conditions have changed */
};

/* Adds the block that ran in `way`. The way of the next one follows, and how long it is. */
enum erg_trials_event erg_trials_add(struct erg_trials *trials,
                                     const struct erg_trial_block *block);

/* Time and energy of a way: means over its blocks and their 95 % intervals, for energy with the
 * sensors' error. NaN: not known. */
struct erg_trials_cost {
    double step_s, step_s_half;
    double step_j, step_j_half;
};
void erg_trials_cost(struct erg_trials_cost *cost, const struct erg_trials *trials, size_t way);

/* The share of the reference's time and energy that a way saves, round by round, so that common
 * errors of the sensors cancel. NaN: not known. */
struct erg_trials_saved {
    double time, time_half;
    double energy, energy_half;
};
void erg_trials_saved(struct erg_trials_saved *saved, const struct erg_trials *trials, size_t way);

#endif
