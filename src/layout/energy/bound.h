/*
 * A lower bound of a layout's frontier of time and energy, without solving its pipeline. It rules
 * out layouts that need not be solved (choice.h).
 *
 * Every chain of instructions that a schedule runs in sequence takes no longer than the iteration.
 * The bound uses one chain for each stage, on which the instructions of other stages run at their
 * fastest; the rest of the time is a budget for the stage's own instructions:
 *
 *   - 1F1B: the first forward down all stages, its backward up to the stage, there forwards and
 *     backwards in turn, the last forward down to the last stage, its backward up to the first;
 *   - interleaved, and with few microbatches: down to the stage, all its instructions, up again;
 *     with as many microbatches as stages also down and up between its forwards and its backwards.
 *
 * Within the budget each stage may choose the clock of each of its instructions, or a mixture of
 * two: the lower hull of the options. Waiting costs the blocking power. The sum over stages is a
 * convex function of time with some hundred linear pieces.
 *
 * In our runs the bound was one to five per cent below the solver's optimum. The gap was smallest
 * at the least energy and with many microbatches. No plan is faster than the closed form at the
 * highest clock.
 */
#ifndef ERG_LAYOUT_ENERGY_BOUND_H
#define ERG_LAYOUT_ENERGY_BOUND_H

#include "layout/energy/clock_table.h"

struct erg_layout_bound {
    /*
     * Points in order of time, convex, over all GPUs. No plan is faster than the first; after the
     * last, energy rises by `waiting_w`.
     */
    struct erg_bound_point {
        double time_s, energy_j;
    } * points;
    size_t count;
    double waiting_w;
    double slowest_s; /* no plan is slower; INFINITY: unknown */
    double optimum_s; /* from here on the bound is the optimum; INFINITY: nowhere */
    /*
     * Converts the pipeline's time and cost beyond waiting, for one GPU of each stage, to those of
     * the iteration over all GPUs.
     */
    struct erg_bound_scale {
        double replicas, stages_w, tail_s, tail_j;
    } scale;
};

/*
 * Takes some ten microseconds. `exact`: follows the pipeline's schedule at the highest and the
 * lowest clocks, some ten nanoseconds per instruction; the bound is then higher if the closed form
 * is longer than the schedule. Release it.
 */
void erg_layout_bound_init(struct erg_layout_bound *bound, const struct erg_clocked_layout *clocked,
                           bool exact);
void erg_layout_bound_release(struct erg_layout_bound *bound);

/*
 * Raises an exact bound to the optimum of the continuous problem (iteration.h), which no plan beats
 * and plans approach to some hundredths of a per cent. It starts at the slowest time and stops
 * where that answers the query, or shows that nothing is better than `enough`; earlier times get
 * the value by the optimum's slope there. For some thousand instructions it takes milliseconds to
 * reach the least energy, up to seconds to reach the fastest time. Fails only when interrupted.
 */
int erg_layout_bound_raise(struct erg_layout_bound *bound, const struct erg_clocked_layout *clocked,
                           const struct erg_goal *query, double enough, struct erg_error *err);

/* Whether the bound's answer to the query is the optimum's, and cannot be raised further. */
bool erg_layout_bound_is_optimum(const struct erg_layout_bound *bound,
                                 const struct erg_goal *query);

static inline struct erg_bound_point erg_bound_scale_at(const struct erg_bound_scale *scale,
                                                        double pipeline_s, double cost_j)
{
    double time_s = pipeline_s + scale->tail_s;
    return (struct erg_bound_point){
        time_s, scale->replicas * (cost_j + scale->stages_w * pipeline_s) + scale->tail_j};
}

/* Times that differ by less are equal. */
#define ERG_BOUND_ROUNDING 1e-11

/* INFINITY: there is no plan at this time. */
double erg_layout_bound_energy(const struct erg_layout_bound *bound, double time_s);

/*
 * The point of the bound that is best by the query's goal within its bounds of time, energy and
 * power: no plan of the layout within them is better in time, energy or power, as the goal says.
 * False: no plan is within them. Without a deadline, the goal of least power needs an exact bound.
 */
bool erg_layout_bound_answer(struct erg_bound_point *answer, const struct erg_layout_bound *bound,
                             const struct erg_goal *query);

/* A lower bound in W of any plan's mean power, at any time. */
double erg_layout_bound_least_power(const struct erg_layout_bound *bound);

/* The least value of the goal; INFINITY: no plan is within the query's bounds. */
double erg_layout_bound_objective(const struct erg_layout_bound *bound,
                                  const struct erg_goal *query);

#endif
