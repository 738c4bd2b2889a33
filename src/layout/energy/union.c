/*
 * The union of the frontiers of all layouts that were solved, as fine as that of one.
 *
 * Each layout was solved at deadlines of its own, so at some time between two points another layout
 * could do better than the union shows. What each could do is known for all times: the optimum of
 * its continuous problem. So the layout whose optimum is least is solved again where it is less
 * than what the union has there: at times a small step apart, and where points are already.
 */
#include "layout/energy/choice_internal.h"

#include "base/memory.h"

#include <math.h>

/* The solved layout that could take least energy within a time, and how much; INFINITY: none is
 * that fast. */
static double least_optimum(size_t *option, const struct erg_layout_choice *choice, double time_s)
{
    double least_j = INFINITY;
    for (size_t i = 0; i < choice->count; i++) {
        double optimum_j = erg_layout_frontier_optimum(&choice->layouts[i].frontier, time_s);
        if (optimum_j < least_j) {
            least_j = optimum_j;
            *option = i;
        }
    }
    return least_j;
}

/* Whether a time shows more than `tolerance` below what the union has until then: if so, the layout
 * that could do it is asked for it. */
static void ask_at(struct erg_layout_choosing *at, const struct erg_frontier *all, double time_s,
                   double tolerance)
{
    size_t option = 0;
    double least_j = least_optimum(&option, at->choice, time_s);
    ptrdiff_t has = erg_frontier_pick_deadline(all, time_s);
    if (isfinite(least_j) && (has < 0 || all->points[has].energy_j > (1 + tolerance) * least_j))
        ERG_PUSH(&at->solved[option]->times, items, time_s);
}

int erg_layout_choosing_show(struct erg_layout_choosing *at, struct erg_error *err)
{
    const struct erg_layout_choice *choice = at->choice;
    struct erg_frontier all = {0};
    for (size_t i = 0; i < choice->count; i++)
        erg_frontier_union(&all, &choice->options[i].frontier->points, 0);
    const double last_s = all.count ? all.points[all.count - 1].time_s : 0;
    for (size_t i = 0; i < all.count; i++)
        ask_at(at, &all, all.points[i].time_s, at->request->tolerance);
    for (double s = all.count ? all.points[0].time_s : INFINITY; s < last_s;
         s *= 1 + ERG_LAYOUT_SHOWN_STEP)
        ask_at(at, &all, s, ERG_LAYOUT_TIE);
    erg_frontier_release(&all);
    return erg_layout_choosing_solve_again(at, err);
}
