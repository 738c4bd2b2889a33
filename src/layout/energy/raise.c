/* Bounds raised to the optimum of the continuous problem, as far as that is worth its time. */
#include "layout/energy/bound.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

struct raising {
    const struct erg_layout_bound *before;
    struct {
        struct erg_layout_bend *items; /* of the optimum, time down */
        size_t count, capacity;
    } optimum;
    double rise_w; /* of the optimum's energy for each second less, at the last */
    struct erg_layout_bound raised;
    const struct erg_layout_query *query;
    double enough;
    bool enough_known; /* before the fastest time */
};

static void add_bend(struct erg_layout_bound *bound, double time_s, double energy_j)
{
    if (!bound->count ||
        time_s > bound->bends[bound->count - 1].time_s * (1 + ERG_LAYOUT_BEND_ROUNDING))
        bound->bends[bound->count++] = (struct erg_layout_bend){time_s, energy_j};
}

/* The optimum is convex: before its last bend it is above the line on which it arrived there. */
static double line(const struct raising *raising, double time_s)
{
    const struct erg_layout_bend *last = &raising->optimum.items[raising->optimum.count - 1];
    return last->energy_j + raising->rise_w * (last->time_s - time_s);
}

/* The higher of the bound as it was and the line, until `end_s`. */
static void add_before(struct raising *raising, double end_s)
{
    const struct erg_layout_bound *before = raising->before;
    double from_s = 0, from_j = 0; /* the bound as it was above the line */
    for (size_t i = 0; i < before->count && from_s < end_s; i++) {
        double time_s = fmin(before->bends[i].time_s, end_s);
        double old_j = erg_layout_bound_energy(before, time_s),
               above_j = old_j - line(raising, time_s);
        if (i > 0 && (above_j > 0) != (from_j > 0)) {
            double crossing_s = from_s + (time_s - from_s) * from_j / (from_j - above_j);
            add_bend(&raising->raised, crossing_s, line(raising, crossing_s));
        }
        if (time_s < end_s)
            add_bend(&raising->raised, time_s, fmax(old_j, line(raising, time_s)));
        from_s = time_s;
        from_j = above_j;
    }
}

static void join(struct raising *raising)
{
    const struct erg_layout_bend *optimum = raising->optimum.items;
    struct erg_layout_bound *raised = &raising->raised;
    size_t count = raising->optimum.count;
    double first_s = raising->before->bends[0].time_s;
    raised->bends =
        erg_xrealloc(raised->bends, 2 * raising->before->count + count + 1, sizeof *raised->bends);
    raised->count = 0;
    raised->optimum_s = optimum[count - 1].time_s;
    add_before(raising, raised->optimum_s);
    for (size_t i = count; i-- > 0;)
        if (optimum[i].time_s >= first_s)
            add_bend(raised, optimum[i].time_s, optimum[i].energy_j);
}

bool erg_layout_bound_is_optimum(const struct erg_layout_bound *bound,
                                 const struct erg_layout_query *query)
{
    const double rounding = 1 - 1e-6; /* the continuous problem's own */
    struct erg_layout_bend answer;
    return !erg_layout_bound_answer(&answer, bound, query) ||
           answer.time_s >= bound->optimum_s * rounding;
}

/* Looking after every piece would take longer than finding them. */
enum { PIECES = 8 };

static bool go_on(void *context, struct erg_breakpoint at, double slope_w)
{
    struct raising *raising = context;
    const struct erg_layout_whole *whole = &raising->before->whole;
    const struct erg_layout_bend bend = erg_layout_whole_at(whole, at.time_s, at.cost_j);
    ERG_PUSH(&raising->optimum, items, bend);
    raising->rise_w = whole->replicas * (slope_w - whole->stages_w) - whole->idle_w;
    if (raising->optimum.count % PIECES)
        return true;
    join(raising);
    raising->enough_known =
        erg_layout_bound_is_optimum(&raising->raised, raising->query) ||
        erg_layout_bound_objective(&raising->raised, raising->query) >= raising->enough;
    return !raising->enough_known;
}

int erg_layout_bound_raise(struct erg_layout_bound *bound, const struct erg_layout_climb *climb,
                           const struct erg_layout *layout, const struct erg_layout_query *query,
                           double enough, struct erg_error *err)
{
    struct raising raising = {.before = bound, .raised = *bound, .query = query, .enough = enough};
    raising.raised.bends = NULL;
    double *hops_s = erg_xcalloc((size_t)layout->pipeline, sizeof *hops_s);
    const struct erg_pipeline pipeline = erg_layout_climb_pipeline(climb, layout, hops_s);
    size_t count = 2 * pipeline.stages * pipeline.chunks;
    struct erg_frontier *tables = erg_xcalloc(count, sizeof *tables);
    erg_layout_climb_tables(tables, climb, layout);
    int status = erg_iteration_sweep(&pipeline, tables, go_on, &raising, err);
    if (status == 0) {
        join(&raising);
        if (!raising.enough_known)
            raising.raised.optimum_s = raising.raised.bends[0].time_s;
        erg_layout_bound_release(bound);
        *bound = raising.raised;
    } else {
        erg_layout_bound_release(&raising.raised);
    }
    for (size_t i = 0; i < count; i++)
        erg_frontier_release(&tables[i]);
    free(tables);
    free(hops_s);
    free(raising.optimum.items);
    return status;
}
