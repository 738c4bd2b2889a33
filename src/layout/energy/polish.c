/* The answer's plan, searched harder than those that were only compared. */
#include "layout/energy/choice_internal.h"

#include <math.h>

/* Of the tolerance: less is not worth searches that take as long as all others together. */
#define ENOUGH 0.1

/*
 * How much less energy another plan of the layout could take in the answer's place, as a share: by
 * the continuous problem, which no plan beats. INFINITY: not known.
 */
static double gain_left(const struct erg_layout_choosing *at,
                        const struct erg_layout_planned *planned,
                        const struct erg_layout_pick *best)
{
    const struct erg_layout_query *query = &at->request->query;
    const struct erg_layout_frontier *frontier = &planned->frontier;
    const struct erg_iteration *iteration = &frontier->iteration;
    if (!iteration->planned || query->energy_j > 0 || query->power_w > 0)
        return INFINITY;
    const struct erg_plan *plan = &iteration->plans[frontier->points.points[best->point].recipe];
    double least_j = erg_iteration_planned_energy(iteration, plan->time_s);
    if (query->goal == ERG_LAYOUT_LEAST_ENERGY) { /* any time that is within the deadline */
        double most_s = query->time_s > 0 ? query->time_s - frontier->tail.time_s : INFINITY;
        for (size_t i = 0; i < iteration->planned_count; i++) {
            double time_s = fmin(iteration->planned[i].time_s, most_s);
            least_j = fmin(least_j, erg_iteration_planned_energy(iteration, time_s));
        }
    }
    return plan->energy_j / least_j - 1;
}

int erg_layout_choosing_polish(struct erg_layout_choosing *at, struct erg_error *err)
{
    struct erg_layout_choice *choice = at->choice;
    const struct erg_layout_query *query = &at->request->query;
    const struct erg_layout_pick *best = &choice->picks[0];
    const double deadlines_s[] = {best->time_s, 0.996 * best->time_s, 0.992 * best->time_s};
    bool budget = query->goal == ERG_LAYOUT_FASTEST && (query->energy_j > 0 || query->power_w > 0);
    struct erg_layout_planned *planned = &choice->layouts[best->option];
    struct erg_layout_frontier polished;
    struct erg_layout_pick pick;
    if (gain_left(at, planned, best) <= ENOUGH * at->request->tolerance)
        return 0;
    if (erg_layout_choosing_solve(&polished, at->request, &planned->candidate, deadlines_s,
                                  budget ? 3 : 1, false, err) != 0)
        return -1;
    const struct erg_layout_option option = {&planned->candidate.layout, &polished,
                                             planned->candidate.peak_bytes};
    bool better =
        erg_layout_pick(&pick, &option, 1, query, NULL) == 0 &&
        erg_layout_pick_value(&pick, query->goal) <= erg_layout_pick_value(best, query->goal);
    erg_layout_frontier_release(better ? &planned->frontier : &polished);
    if (better)
        planned->frontier = polished;
    return better ? erg_layout_choice_rank(choice, query, err) : 0;
}
