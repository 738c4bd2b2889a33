/* The answer's plan, searched harder than those that were only compared. */
#include "layout/energy/choice_internal.h"

#include <math.h>

/* Of the tolerance: less is not worth searches that take as long as all others together. */
#define ENOUGH 0.1

/*
 * How much better another plan of the layout could be in the answer's place, as a share: by the
 * continuous problem, which no plan beats. INFINITY: not known.
 */
static double gain_left(const struct erg_layout_choosing *at, const struct erg_layout_pick *best)
{
    const struct erg_layout_frontier *frontier = &at->choice->layouts[best->option].frontier;
    const struct erg_layout_bound *bound = &at->solved[best->option]->bound;
    struct erg_goal query = at->request->query;
    bool budget = query.energy_j > 0 || query.power_w > 0;
    if (query.objective == ERG_FASTEST && !budget) /* which it is; then the energy counts */
        query = (struct erg_goal){ERG_LEAST_ENERGY, .deadline_s = best->time_s};
    if (budget && bound->bends && erg_layout_bound_is_optimum(bound, &query))
        return erg_layout_pick_value(best, query.objective) /
                   erg_layout_bound_objective(bound, &query) -
               1;
    if (budget || !frontier->iteration.planned)
        return INFINITY;
    double within_s = query.deadline_s > 0 ? query.deadline_s : INFINITY;
    return best->energy_j / erg_layout_frontier_optimum(frontier, within_s) - 1;
}

/* Solves a layout harder at the answer's time and, for what is the fastest within a budget, just
 * before it. */
static int polish_one(struct erg_layout_choosing *at, size_t option, double time_s,
                      struct erg_error *err)
{
    struct erg_layout_choice *choice = at->choice;
    const struct erg_goal *query = &at->request->query;
    double deadlines_s[] = {time_s, 0.996 * time_s, 0.992 * time_s};
    bool budget = query->objective == ERG_FASTEST && (query->energy_j > 0 || query->power_w > 0);
    struct erg_layout_planned *planned = &choice->layouts[option];
    struct erg_layout_contender harder = {.candidate = planned->candidate,
                                          .deadlines = {deadlines_s, budget ? 3 : 1, 0}};
    struct erg_layout_frontier polished;
    if (erg_layout_choosing_solve(&polished, at->request, &harder, 0, false, err) != 0)
        return -1;
    erg_layout_frontier_take(&planned->frontier, &polished);
    return erg_layout_choice_rank(choice, query, err);
}

/* Whether another layout that was solved may take the answer's place by its bound, though none of
 * its plans does so far: those of a few instructions are far apart. */
static bool may_win(const struct erg_layout_choosing *at, size_t option)
{
    const struct erg_goal *query = &at->request->query;
    const struct erg_layout_pick *best = &at->choice->picks[0];
    const double value = erg_layout_pick_value(best, query->objective);
    return option != best->option && erg_layout_bound_objective(&at->solved[option]->bound, query) <
                                         value * (1 - at->request->tolerance);
}

int erg_layout_choosing_polish(struct erg_layout_choosing *at, struct erg_error *err)
{
    const struct erg_layout_choice *choice = at->choice;
    const struct erg_goal *query = &at->request->query;
    const bool budget = query->energy_j > 0 || query->power_w > 0;
    if (gain_left(at, &choice->picks[0]) > ENOUGH * at->request->tolerance &&
        polish_one(at, choice->picks[0].option, choice->picks[0].time_s, err) != 0)
        return -1;
    for (size_t i = 0; budget && i < choice->count; i++)
        if (may_win(at, i) && polish_one(at, i, choice->picks[0].time_s, err) != 0)
            return -1;
    return 0;
}
