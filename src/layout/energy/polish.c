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
    if (!planned->frontier.iteration.planned || query->energy_j > 0 || query->power_w > 0)
        return INFINITY;
    double within_s = query->time_s > 0 ? query->time_s : INFINITY;
    if (query->goal == ERG_LAYOUT_FASTEST)
        within_s = best->time_s;
    return best->energy_j / erg_layout_frontier_optimum(&planned->frontier, within_s) - 1;
}

int erg_layout_choosing_polish(struct erg_layout_choosing *at, struct erg_error *err)
{
    struct erg_layout_choice *choice = at->choice;
    const struct erg_layout_query *query = &at->request->query;
    const struct erg_layout_pick *best = &choice->picks[0];
    double deadlines_s[] = {best->time_s, 0.996 * best->time_s, 0.992 * best->time_s};
    bool budget = query->goal == ERG_LAYOUT_FASTEST && (query->energy_j > 0 || query->power_w > 0);
    struct erg_layout_planned *planned = &choice->layouts[best->option];
    struct erg_layout_contender harder = {.candidate = planned->candidate,
                                          .deadlines = {deadlines_s, budget ? 3 : 1, 0}};
    struct erg_layout_frontier polished;
    if (gain_left(at, planned, best) <= ENOUGH * at->request->tolerance)
        return 0;
    if (erg_layout_choosing_solve(&polished, at->request, &harder, 0, false, err) != 0)
        return -1;
    erg_layout_frontier_take(&planned->frontier, &polished);
    return erg_layout_choice_rank(choice, query, err);
}
