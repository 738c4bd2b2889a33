/*
 * A lower bound of a layout's frontier of time and energy, without solving its pipeline. It rules
 * out layouts that need not be solved (choice.h).
 *
 * Every chain of instructions that a schedule runs one after the other takes no longer than the
 * iteration. For each stage one chain is taken, on which the instructions of other stages run at
 * their fastest; the time that is left is a budget for the stage's own instructions:
 *
 *   - 1F1B: the first forward down all stages, its backward up to the stage, there forwards and
 *     backwards in turn, the last forward down to the last stage, its backward up to the first;
 *   - interleaved, and with few microbatches: down to the stage, all its instructions, up again;
 *     with as many microbatches as stages also down and up between its forwards and its backwards.
 *
 * Within the budget each stage may choose the clock of each of its instructions, or a mixture of
 * two: the lower hull of the options. Waiting costs the blocking power. The sum over stages is a
 * convex function of time, made of some hundred straight pieces.
 *
 * In our runs the bound was one to five per cent below the solver's optimum. The gap was smallest
 * at the least energy and with many microbatches. No plan is faster than the closed form at the
 * highest clock.
 */
#ifndef ERG_LAYOUT_ENERGY_BOUND_H
#define ERG_LAYOUT_ENERGY_BOUND_H

#include "layout/energy/clock_table.h"

struct erg_layout_bound {
    /* Time up, convex; no plan takes less than the first's time; after the last energy rises by
     * `waiting_w`. All GPUs. */
    struct erg_bound_point {
        double time_s, energy_j;
    } * points;
    size_t count;
    double waiting_w;
    double slowest_s; /* no plan takes more; INFINITY: not known */
    double optimum_s; /* from here on it is the continuous problem's optimum; INFINITY: nowhere */
    /* From the pipeline's time and cost beyond waiting, of one GPU of each stage, to those of the
     * iteration over all GPUs. */
    struct erg_bound_scale {
        double replicas, stages_w, tail_s, tail_j;
    } scale;
};

/*
 * Some ten microseconds. `exact`: the pipeline's schedule is followed at the highest and at the
 * lowest clocks, some ten nanoseconds an instruction: the bound is higher then where the closed
 * form is longer than the schedule. To be released.
 */
void erg_layout_bound_init(struct erg_layout_bound *bound, const struct erg_clocked_layout *clocked,
                           bool exact);
void erg_layout_bound_release(struct erg_layout_bound *bound);

/*
 * Raises an exact bound to the optimum of the continuous problem (iteration.h), which no plan beats
 * and which plans come within some hundredths of a per cent of: from the slowest time on down to
 * where that answers the query, or shows that nothing is better than `enough`; and for earlier
 * times to the value by the optimum's slope there. Milliseconds to the least energy of some
 * thousand instructions, up to seconds to the fastest. Fails only when interrupted.
 */
int erg_layout_bound_raise(struct erg_layout_bound *bound, const struct erg_clocked_layout *clocked,
                           const struct erg_goal *query, double enough, struct erg_error *err);

/* Whether the bound's answer to the query is the optimum's, so that it cannot be raised further. */
bool erg_layout_bound_is_optimum(const struct erg_layout_bound *bound,
                                 const struct erg_goal *query);

static inline struct erg_bound_point erg_bound_scale_at(const struct erg_bound_scale *scale,
                                                        double pipeline_s, double cost_j)
{
    double time_s = pipeline_s + scale->tail_s;
    return (struct erg_bound_point){
        time_s, scale->replicas * (cost_j + scale->stages_w * pipeline_s) + scale->tail_j};
}

/* Times that differ by less are the same. */
#define ERG_BOUND_ROUNDING 1e-11

/* INFINITY where no plan is. */
double erg_layout_bound_energy(const struct erg_layout_bound *bound, double time_s);

/*
 * Where the bound is best by the query's goal within its bounds of time, energy and power: no plan
 * of the layout within them is faster, or takes less energy or power, whichever is the goal. False:
 * none is within them. Without a deadline the least power is asked of an exact bound only.
 */
bool erg_layout_bound_answer(struct erg_bound_point *answer, const struct erg_layout_bound *bound,
                             const struct erg_goal *query);

/* Watts that no plan's mean power is below, however slow it is. */
double erg_layout_bound_least_power(const struct erg_layout_bound *bound);

/* The least value of the goal there; INFINITY: no plan is within the query's bounds. */
double erg_layout_bound_objective(const struct erg_layout_bound *bound,
                                  const struct erg_goal *query);

#endif
