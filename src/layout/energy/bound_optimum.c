/* Raises bounds to the optimum of the continuous problem, as far as that is worth its time. */
#include "layout/energy/bound.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

struct bound_raise {
    const struct erg_layout_bound *before;
    struct {
        struct erg_bound_point *items; /* of the optimum, in falling order of time */
        size_t count, capacity;
    } optimum;
    double rise_w; /* rise of the optimum's energy per second less, at the last point */
    struct erg_layout_bound raised;
    const struct erg_goal *query;
    double enough;
    bool enough_known; /* `enough` was reached before the fastest time */
};

static void add_point(struct erg_layout_bound *bound, double time_s, double energy_j)
{
    if (!bound->count || time_s > bound->points[bound->count - 1].time_s * (1 + ERG_BOUND_ROUNDING))
        bound->points[bound->count++] = (struct erg_bound_point){time_s, energy_j};
}

/* A line below all plans: energy rises by `rise_w` per second less. */
struct bound_line {
    double time_s, energy_j, rise_w;
};

static double on_line(const struct bound_line *line, double time_s)
{
    return line->energy_j + line->rise_w * (line->time_s - time_s);
}

/* The maximum of a bound and a line, until `end_s`. */
static void add_higher(struct erg_layout_bound *raised, const struct erg_layout_bound *bound,
                       const struct bound_line *line, double end_s)
{
    double from_s = 0, from_j = 0; /* the bound above the line */
    for (size_t i = 0; i < bound->count && from_s < end_s; i++) {
        const struct erg_bound_point *point = &bound->points[i];
        double time_s = fmin(point->time_s, end_s);
        double bound_j =
            point->time_s <= end_s ? point->energy_j : erg_layout_bound_energy(bound, time_s);
        double above_j = bound_j - on_line(line, time_s);
        if (i > 0 && (above_j > 0) != (from_j > 0)) {
            double crossing_s = from_s + (time_s - from_s) * from_j / (from_j - above_j);
            add_point(raised, crossing_s, on_line(line, crossing_s));
        }
        if (time_s < end_s)
            add_point(raised, time_s, fmax(bound_j, on_line(line, time_s)));
        from_s = time_s;
        from_j = above_j;
    }
}

static void join(struct bound_raise *at)
{
    const struct erg_bound_point *optimum = at->optimum.items;
    struct erg_layout_bound *raised = &at->raised;
    size_t count = at->optimum.count;
    double first_s = at->before->points[0].time_s;
    raised->points =
        erg_xrealloc(raised->points, 2 * at->before->count + count + 1, sizeof *raised->points);
    raised->count = 0;
    raised->optimum_s = optimum[count - 1].time_s;
    /* The optimum is convex: before its last point it is above the line through its last piece. */
    const struct bound_line line = {optimum[count - 1].time_s, optimum[count - 1].energy_j,
                                    at->rise_w};
    add_higher(raised, at->before, &line, raised->optimum_s);
    for (size_t i = count; i-- > 0;)
        if (optimum[i].time_s >= first_s)
            add_point(raised, optimum[i].time_s, optimum[i].energy_j);
}

bool erg_layout_bound_is_optimum(const struct erg_layout_bound *bound, const struct erg_goal *query)
{
    const double rounding = 1 - 1e-6; /* the continuous problem's own */
    struct erg_bound_point answer;
    return !erg_layout_bound_answer(&answer, bound, query) ||
           answer.time_s >= bound->optimum_s * rounding;
}

/* The check after this number of pieces: after every piece it would take longer than the pieces. */
enum { PIECES = 8 };

static bool go_on(void *context, struct erg_breakpoint now, double slope_w)
{
    struct bound_raise *at = context;
    const struct erg_bound_scale *scale = &at->before->scale;
    const struct erg_bound_point point = erg_bound_scale_at(scale, now.time_s, now.cost_j);
    ERG_PUSH(&at->optimum, items, point);
    at->rise_w = scale->replicas * (slope_w - scale->stages_w);
    if (at->optimum.count % PIECES)
        return true;
    join(at);
    at->enough_known = erg_layout_bound_is_optimum(&at->raised, at->query) ||
                       erg_layout_bound_objective(&at->raised, at->query) >= at->enough;
    return !at->enough_known;
}

int erg_layout_bound_raise(struct erg_layout_bound *bound, const struct erg_clocked_layout *clocked,
                           const struct erg_goal *query, double enough, struct erg_error *err)
{
    const size_t count = erg_clocked_layout_table_count(clocked->layout);
    struct bound_raise at = {.before = bound, .raised = *bound, .query = query, .enough = enough};
    double *hops_s = erg_xcalloc((size_t)clocked->layout->pipeline, sizeof *hops_s);
    const struct erg_pipeline pipeline = erg_clocked_layout_pipeline(clocked, hops_s);
    struct erg_frontier *tables = erg_clocked_layout_tables(clocked);
    at.raised.points = NULL;
    int status = erg_iteration_sweep(&pipeline, tables, go_on, &at, err);
    if (status == 0) {
        join(&at);
        if (!at.enough_known)
            at.raised.optimum_s = at.raised.points[0].time_s;
        erg_layout_bound_release(bound);
        *bound = at.raised;
    } else {
        erg_layout_bound_release(&at.raised);
    }
    erg_clocked_layout_free_tables(tables, count);
    free(at.optimum.items);
    free(hops_s);
    return status;
}
