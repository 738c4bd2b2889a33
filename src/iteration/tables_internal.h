/*
 * Option tables as the solver and the rounding need them: for rounding every option that no other
 * beats in time and cost beyond blocking power, for the solver the lower convex hull of those on
 * integer ticks and slopes.
 */
#ifndef ERG_ITERATION_TABLES_INTERNAL_H
#define ERG_ITERATION_TABLES_INTERNAL_H

#include "iteration/iteration.h"
#include "iteration/timecost_internal.h"

struct option {
    double time_s, cost_j; /* cost = energy - blocking power * time */
    int32_t ticks;         /* time rounded up, so that a plan in ticks has room for the truth */
    uint32_t index;        /* in the caller's table */
};

struct option_table {
    struct option *options; /* fast to slow: time strictly up, cost strictly down */
    size_t count;
    struct timecost_table hull;
    int32_t *durations; /* owned by hull */
    int64_t *slopes;
};

struct option_tables {
    struct option_table *tables; /* as the request's tables */
    size_t count;
    double tick_s;
    double slope_unit_w; /* one unit of integer slope */
    double blocking_power_w;
};

/* tick_s 0 chooses it. Fails for an empty table, for values that are not finite, for times <= 0
 * and energies < 0, and for a tick so short that the slowest schedule has 2^29 of them. */
int erg_option_tables_init(struct option_tables *tables, const struct erg_schedule *schedule,
                           const struct erg_frontier *given, double tick_s, struct erg_error *err);
void erg_option_tables_release(struct option_tables *tables);

/* Whether the problem below has a dependency of its own for `before[i][k]`; one that is there twice
 * counts once. */
static inline bool option_tables_depends(const struct erg_schedule *schedule, uint32_t i, int k)
{
    const uint32_t *before = schedule->before[i];
    return before[k] != ERG_NONE && !(k == 1 && before[1] == before[0]);
}

/* The DAG of a schedule with these tables. `problem` points into `tables`; its
 * dependencies go by instruction and its `before`. */
void erg_option_tables_problem(const struct option_tables *tables,
                               const struct erg_schedule *schedule,
                               struct timecost_problem *problem);
void erg_option_tables_problem_release(struct timecost_problem *problem);

/* The cost of all instructions at their cheapest options: C at the slow end. */
double erg_option_tables_cheapest_j(const struct option_tables *tables,
                                    const struct erg_schedule *schedule);

/* Longest path with every instruction at its fastest or slowest option, in true times; the starts
 * too when start_s is not NULL. */
double erg_option_tables_span_s(const struct option_tables *tables,
                                const struct erg_schedule *schedule, bool fastest, double *start_s);

#endif
