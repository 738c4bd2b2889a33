/*
 * The time-cost tradeoff problem on a DAG of activities, solved exactly for every deadline.
 *
 * Integers throughout: durations and times in ticks, slopes in cost units per tick. An activity's
 * table goes from slow to fast: duration[0] > duration[1] > … > duration[levels - 1], and
 * slope[i], strictly increasing from slope[0] = 0, is the cost per tick between duration[i - 1]
 * and duration[i]; slope[levels] = TIMECOST_INFINITE. C is counted from "all at duration[0]".
 *
 * Dual view: the Lagrange multipliers of the precedences are a flow, its value F = -dC/dT. An
 * activity with flow f is best with duration[i] for slope[i] < f < slope[i + 1] and anything
 * between duration[i] and duration[i - 1] for f = slope[i].
 */
#ifndef ERG_ITERATION_TIMECOST_INTERNAL_H
#define ERG_ITERATION_TIMECOST_INTERNAL_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TIMECOST_INFINITE INT64_C(4000000000000000000)

__extension__ typedef __int128 erg_cost; /* F * ticks exceeds 64 bits */

struct timecost_table {
    int32_t levels; /* at least 1 */
    const int32_t *duration;
    const int64_t *slope; /* levels + 1 of them */
};

struct timecost_arc {
    uint32_t before, after; /* activities */
    int32_t latency;        /* ticks, >= 0 */
};

struct timecost_problem {
    size_t activity_count;
    const struct timecost_table *const *table; /* per activity */
    size_t dependency_count;
    const struct timecost_arc *dependencies; /* no cycle */
};

/*
 * Optimal start and duration of every activity for one deadline, and the flows of the activities
 * and then of the dependencies: the value of one tick more or less for it alone.
 */
struct timecost_plan {
    int32_t *start, *duration; /* ticks */
    int64_t *flow;
};

struct timecost_plan erg_timecost_plan_new(const struct timecost_problem *problem);
size_t erg_timecost_plan_bytes(const struct timecost_problem *problem);
void erg_timecost_plan_copy(struct timecost_plan *to, const struct timecost_plan *from,
                            const struct timecost_problem *problem);
void erg_timecost_plan_free(struct timecost_plan *plan);

/*
 * The sweep goes from the slowest schedule to the fastest. Both calls may change `deadline`, the
 * next time in ticks that needs a plan (each smaller than the one before); anything below the
 * fastest schedule means "none any more". With `enough` set the sweep ends after the plans of that
 * piece.
 */
struct timecost_visitor {
    void *context;
    int64_t deadline;
    bool enough;
    /* C rises linearly by slope * (from - to) while T falls from `from` to `to`. */
    void (*piece)(struct timecost_visitor *visitor, int32_t from, int32_t to, int64_t slope);
    /* For T = visitor->deadline. */
    void (*plan)(struct timecost_visitor *visitor, const struct timecost_plan *plan);
};

/* Longest path with all activities at their slowest (level 0) or fastest duration. */
int64_t erg_timecost_longest_path(const struct timecost_problem *problem, int fastest);

/*
 * Runs the sweep; the longest path must be below 2^30 ticks. Fails only when interrupted.
 * O(pieces * (activities + dependencies) log) time, linear memory.
 */
int erg_timecost_sweep(const struct timecost_problem *problem, struct timecost_visitor *visitor,
                       struct erg_error *err);

#endif
