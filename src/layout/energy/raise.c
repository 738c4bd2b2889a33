/*
 * Bounds raised: by what prices of other layouts say, and to the optimum of the continuous problem,
 * as far as that is worth its time.
 */
#include "layout/energy/bound.h"

#include "base/memory.h"

#include <assert.h>
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
    const struct erg_goal *query;
    double enough;
    bool enough_known; /* before the fastest time */
};

static void add_bend(struct erg_layout_bound *bound, double time_s, double energy_j)
{
    if (!bound->count ||
        time_s > bound->bends[bound->count - 1].time_s * (1 + ERG_LAYOUT_BEND_ROUNDING))
        bound->bends[bound->count++] = (struct erg_layout_bend){time_s, energy_j};
}

/* A straight line below all plans: `rise_w` more for each second less. */
struct line {
    double time_s, energy_j, rise_w;
};

static double on_line(const struct line *line, double time_s)
{
    return line->energy_j + line->rise_w * (line->time_s - time_s);
}

/* The higher of a bound and a line, until `end_s`; returns how far the bound is above the line at
 * its last bend before. */
static double add_higher(struct erg_layout_bound *raised, const struct erg_layout_bound *bound,
                         const struct line *line, double end_s)
{
    double from_s = 0, from_j = 0; /* the bound above the line */
    for (size_t i = 0; i < bound->count && from_s < end_s; i++) {
        const struct erg_layout_bend *bend = &bound->bends[i];
        double time_s = fmin(bend->time_s, end_s);
        double bound_j =
            bend->time_s <= end_s ? bend->energy_j : erg_layout_bound_energy(bound, time_s);
        double above_j = bound_j - on_line(line, time_s);
        if (i > 0 && (above_j > 0) != (from_j > 0)) {
            double crossing_s = from_s + (time_s - from_s) * from_j / (from_j - above_j);
            add_bend(raised, crossing_s, on_line(line, crossing_s));
        }
        if (time_s < end_s)
            add_bend(raised, time_s, fmax(bound_j, on_line(line, time_s)));
        from_s = time_s;
        from_j = above_j;
    }
    return from_j;
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
    /* The optimum is convex: before its last bend it is above the line on which it came there. */
    const struct line line = {optimum[count - 1].time_s, optimum[count - 1].energy_j,
                              raising->rise_w};
    add_higher(raised, raising->before, &line, raised->optimum_s);
    for (size_t i = count; i-- > 0;)
        if (optimum[i].time_s >= first_s)
            add_bend(raised, optimum[i].time_s, optimum[i].energy_j);
}

bool erg_layout_bound_is_optimum(const struct erg_layout_bound *bound, const struct erg_goal *query)
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

/* The pipeline of a layout, with all that it points to. To be released. */
struct course {
    struct erg_pipeline pipeline;
    double *hops_s;
    struct erg_frontier *tables;
    size_t table_count;
};

static void course_init(struct course *course, const struct erg_layout_climb *climb,
                        const struct erg_layout *layout)
{
    course->hops_s = erg_xcalloc((size_t)layout->pipeline, sizeof *course->hops_s);
    course->pipeline = erg_layout_climb_pipeline(climb, layout, course->hops_s);
    course->table_count = 2 * course->pipeline.stages * course->pipeline.chunks;
    course->tables = erg_xcalloc(course->table_count, sizeof *course->tables);
    erg_layout_climb_tables(course->tables, climb, layout);
}

static void course_release(struct course *course)
{
    for (size_t i = 0; i < course->table_count; i++)
        erg_frontier_release(&course->tables[i]);
    free(course->tables);
    free(course->hops_s);
}

/* Behind the last bend energy rises by waiting, so a line that is higher there is met later. */
static void raise_by(struct erg_layout_bound *bound, const struct line *line)
{
    struct erg_layout_bound raised = *bound;
    raised.bends = erg_xcalloc(2 * bound->count + 1, sizeof *raised.bends);
    raised.count = 0;
    double above_j = add_higher(&raised, bound, line, INFINITY);
    if (above_j < 0) {
        double last_s = bound->bends[bound->count - 1].time_s;
        double crossing_s = last_s - above_j / (bound->waiting_w + line->rise_w);
        add_bend(&raised, crossing_s, on_line(line, crossing_s));
    }
    erg_layout_bound_release(bound);
    *bound = raised;
}

void erg_layout_bound_price(struct erg_layout_bound *bound, const struct erg_layout_climb *climb,
                            const struct erg_layout *layout, const struct erg_prices *prices)
{
    const struct erg_layout_whole *whole = &bound->whole;
    struct course course;
    course_init(&course, climb, layout);
    assert(erg_prices_suit(prices, &course.pipeline));
    double cost_j = erg_prices_cost(prices, &course.pipeline, course.tables);
    const struct erg_layout_bend at = erg_layout_whole_at(whole, 0, cost_j);
    const struct line line = {at.time_s, at.energy_j,
                              whole->replicas * (prices->total_w - whole->stages_w) -
                                  whole->idle_w};
    raise_by(bound, &line);
    course_release(&course);
}

int erg_layout_bound_raise(struct erg_layout_bound *bound, const struct erg_layout_climb *climb,
                           const struct erg_layout *layout, const struct erg_goal *query,
                           double enough, struct erg_prices *prices, struct erg_error *err)
{
    struct raising raising = {.before = bound, .raised = *bound, .query = query, .enough = enough};
    struct course course;
    raising.raised.bends = NULL;
    course_init(&course, climb, layout);
    int status = erg_iteration_sweep(&course.pipeline, course.tables, go_on, &raising, prices, err);
    if (status == 0) {
        join(&raising);
        if (!raising.enough_known)
            raising.raised.optimum_s = raising.raised.bends[0].time_s;
        erg_layout_bound_release(bound);
        *bound = raising.raised;
    } else {
        erg_layout_bound_release(&raising.raised);
    }
    course_release(&course);
    free(raising.optimum.items);
    return status;
}
