/* Lower bounds of layouts' frontiers, and queries of them. */
#include "layout/energy/bound.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* ---- the options of one instruction ---- */

/* The lower hull of time and energy beyond that of waiting, the fastest first. */
struct hull {
    struct erg_bound_point *points; /* [count] */
    size_t count;
};

static int by_time(const void *left, const void *right)
{
    const struct erg_bound_point *a = left, *b = right;
    if (a->time_s != b->time_s)
        return a->time_s < b->time_s ? -1 : 1;
    return (a->energy_j > b->energy_j) - (a->energy_j < b->energy_j);
}

/* The energy in J that one more second saves between two points. */
static double saving_w(const struct erg_bound_point *from, const struct erg_bound_point *to)
{
    return (from->energy_j - to->energy_j) / (to->time_s - from->time_s);
}

/* Sorts and keeps the convex, falling part. */
static void make_hull(struct hull *hull)
{
    struct erg_bound_point *points = hull->points;
    size_t kept = 0;
    qsort(points, hull->count, sizeof *points, by_time);
    for (size_t i = 0; i < hull->count; i++) {
        if (kept && points[i].energy_j >= points[kept - 1].energy_j)
            continue;
        while (kept > 1 && saving_w(&points[kept - 1], &points[i]) >=
                               saving_w(&points[kept - 2], &points[kept - 1]))
            kept--;
        points[kept++] = points[i];
    }
    hull->count = kept;
}

static void fill_hull(struct hull *hull, const struct erg_clocked_layout *clocked, long stage,
                      long chunk, bool backward)
{
    const struct erg_clock_table *table =
        &clocked->tables[erg_clocked_layout_place(clocked, stage)];
    double waiting_w = table->request->gpu->blocking_power_w;
    hull->count = table->count;
    for (size_t i = 0; i < table->count; i++) {
        struct erg_pass_cost cost = erg_clocked_layout_cost(clocked, stage, chunk, backward, i);
        hull->points[i] =
            (struct erg_bound_point){cost.time_s, cost.total_j - waiting_w * cost.time_s};
    }
    make_hull(hull);
}

/* ---- the sum over stages ---- */

/* A change of the function's slope, and the time at which it occurs: an end of a linear piece. */
struct change {
    double time_s, slope_w;
};

/* The parameters that determine the hull of an instruction. */
struct kind {
    size_t place;
    long layers, dense;
    bool backward, head;
    enum erg_recompute recompute;
    double offload;
};

static bool same_kind(const struct kind *a, const struct kind *b)
{
    return a->place == b->place && a->layers == b->layers && a->dense == b->dense &&
           a->backward == b->backward && a->head == b->head && a->recompute == b->recompute &&
           a->offload == b->offload;
}

/* Hulls are cached: most stages are equal. */
enum { KINDS = 8 };

struct bound_sum {
    const struct erg_clocked_layout *clocked;
    const struct erg_layout *layout;
    struct hull hulls[KINDS];
    struct kind kinds[KINDS];
    size_t used, next; /* number of hulls, and the one to replace next */
    size_t most_rows;  /* of any table */
    double shortest_s; /* the longest of the chains at their fastest */
    double energy_j;   /* all at their fastest, beyond waiting, for one GPU of each stage */
    struct {
        struct change *items;
        size_t count, capacity;
    } changes;
};

static const struct hull *hull_of(struct bound_sum *at, long stage, long chunk, bool backward)
{
    const struct erg_layout *layout = at->layout;
    const size_t place_of_stage = erg_clocked_layout_place(at->clocked, stage);
    const struct erg_model *model = at->clocked->tables[0].request->time.model;
    const long layers = erg_layout_chunk_layers(layout, model->layers, stage, chunk);
    const struct kind kind = {.place = place_of_stage,
                              .layers = layers,
                              .dense = erg_layout_dense_layers(layout, model, stage, layers),
                              .backward = backward,
                              .head = stage + 1 == layout->pipeline &&
                                      chunk + 1 == layout->virtual_stages,
                              .recompute = erg_layout_recompute(layout, stage),
                              .offload = erg_layout_offload(layout, stage)};
    for (size_t i = 0; i < at->used; i++)
        if (same_kind(&at->kinds[i], &kind))
            return &at->hulls[i];
    size_t place = at->used < KINDS ? at->used++ : at->next++ % KINDS;
    if (!at->hulls[place].points)
        at->hulls[place].points = erg_xcalloc(at->most_rows, sizeof(struct erg_bound_point));
    at->kinds[place] = kind;
    fill_hull(&at->hulls[place], at->clocked, stage, chunk, backward);
    return &at->hulls[place];
}

/* A stage's own instructions of one kind: their numbers on its chain and off it. */
struct share {
    long chunk;
    bool backward;
    double on_chain, beside;
};

static int steepest_first(const void *left, const void *right)
{
    const struct change *a = left, *b = right;
    return (a->slope_w < b->slope_w) - (a->slope_w > b->slope_w);
}

/* `pieces`: scratch for the length and the saving of pieces. */
static void add_stage(struct bound_sum *at, long stage, const struct share *shares, size_t count,
                      double others_s)
{
    size_t most = count * at->most_rows, pieces = 0;
    struct change *list = erg_xcalloc(most, sizeof *list);
    double time_s = others_s;
    for (size_t i = 0; i < count; i++) {
        const struct hull *hull = hull_of(at, stage, shares[i].chunk, shares[i].backward);
        const struct erg_bound_point *points = hull->points;
        at->energy_j += shares[i].on_chain * points[0].energy_j +
                        shares[i].beside * points[hull->count - 1].energy_j;
        time_s += shares[i].on_chain * points[0].time_s;
        for (size_t k = 1; k < hull->count; k++)
            list[pieces++] =
                (struct change){shares[i].on_chain * (points[k].time_s - points[k - 1].time_s),
                                saving_w(&points[k - 1], &points[k])};
    }
    qsort(list, pieces, sizeof *list, steepest_first);
    at->shortest_s = fmax(at->shortest_s, time_s);
    for (size_t i = 0; i < pieces; i++) {
        ERG_PUSH(&at->changes, items, (struct change){time_s, -list[i].slope_w});
        time_s += list[i].time_s;
        ERG_PUSH(&at->changes, items, (struct change){time_s, list[i].slope_w});
    }
    free(list);
}

/* The fastest time of a chain on its way to a stage and back: one chunk of every stage before it or
 * after it, forward and backward. */
struct passage {
    double before_s, after_s;
};

static double chunk_s(struct bound_sum *at, long stage, long chunk)
{
    return hull_of(at, stage, chunk, false)->points[0].time_s +
           hull_of(at, stage, chunk, true)->points[0].time_s;
}

/*
 * 1F1B with enough microbatches for the chain through all stages to reach the stage's steady part.
 */
static void add_steady(struct bound_sum *at, long stage, const struct passage *passage)
{
    const struct erg_layout *layout = at->layout;
    double after = (double)(layout->pipeline - 1 - stage);
    double on_chain = (double)layout->microbatches - after;
    const struct share shares[] = {{0, false, on_chain, after}, {0, true, on_chain, after}};
    add_stage(at, stage, shares, 2, passage->before_s + 2 * passage->after_s);
}

static void add_busy(struct bound_sum *at, long stage, const struct passage *passage)
{
    const struct erg_layout *layout = at->layout;
    long chunks = layout->virtual_stages, last = chunks - 1;
    double microbatches = (double)layout->microbatches;
    struct share *shares = erg_xcalloc(2 * (size_t)chunks, sizeof *shares);
    size_t count = 0;
    for (long chunk = 0; chunk < chunks; chunk++) {
        bool head = stage + 1 == layout->pipeline && chunk == last;
        bool alike = !layout->chunk_layers && chunk > 0 && !head;
        for (int backward = 0; backward < 2; backward++) {
            if (alike)
                shares[backward].on_chain += microbatches;
            else
                shares[count++] = (struct share){chunk, backward, microbatches, 0};
        }
    }
    /* If there are as many microbatches as stages, all forwards come first. */
    bool turn = chunks > 1 && layout->microbatches == layout->pipeline;
    add_stage(at, stage, shares, count, passage->before_s + (turn ? passage->after_s : 0));
    free(shares);
}

static void add_stages(struct bound_sum *at)
{
    const struct erg_layout *layout = at->layout;
    bool steady = layout->virtual_stages == 1 && layout->microbatches > layout->pipeline;
    const long last = layout->virtual_stages - 1;
    double *hops_s = erg_xcalloc((size_t)layout->pipeline, sizeof *hops_s);
    struct passage passage = {0};
    erg_time_hops(hops_s, at->clocked->places, at->clocked->count, layout);
    for (long stage = 1; stage < layout->pipeline; stage++)
        passage.after_s += chunk_s(at, stage, last) + 2 * hops_s[stage - 1];
    for (long stage = 0; stage < layout->pipeline; stage++) {
        (steady ? add_steady : add_busy)(at, stage, &passage);
        passage.before_s += chunk_s(at, stage, 0) + 2 * hops_s[stage];
        if (stage + 1 < layout->pipeline)
            passage.after_s -= chunk_s(at, stage + 1, last) + 2 * hops_s[stage];
    }
    free(hops_s);
}

static int earliest_first(const void *left, const void *right)
{
    const struct change *a = left, *b = right;
    return (a->time_s > b->time_s) - (a->time_s < b->time_s);
}

/* The range of the pipeline's times. */
struct limits {
    double shortest_s, slowest_s;
};

/* The limits from the schedule at the highest and the lowest clocks. */
static struct limits follow_schedule(const struct erg_clocked_layout *clocked)
{
    const size_t count = erg_clocked_layout_table_count(clocked->layout);
    double *hops_s = erg_xcalloc((size_t)clocked->layout->pipeline, sizeof *hops_s);
    const struct erg_pipeline pipeline = erg_clocked_layout_pipeline(clocked, hops_s);
    struct erg_frontier *tables = erg_clocked_layout_tables(clocked);
    struct limits limits = {0};
    if (erg_pipeline_time(&limits.shortest_s, &pipeline, tables, false, NULL) == 0)
        erg_pipeline_time(&limits.slowest_s, &pipeline, tables, true, NULL);
    erg_clocked_layout_free_tables(tables, count);
    free(hops_s);
    return limits;
}

static struct limits find_scale(struct erg_bound_scale *scale, const struct bound_sum *at,
                                bool exact)
{
    const struct erg_clocked_layout *clocked = at->clocked;
    double stages = (double)at->layout->pipeline;
    struct limits limits = {INFINITY, INFINITY};
    struct erg_layout_tail tail;
    if (exact)
        limits = follow_schedule(clocked);
    erg_clocked_layout_tail(&tail, clocked, limits.shortest_s);
    if (!exact)
        limits.shortest_s = fmax(at->shortest_s, clocked->closed_s - tail.time_s);
    *scale = (struct erg_bound_scale){
        .replicas = (double)erg_layout_gpus(at->layout) / stages,
        .stages_w = erg_clocked_layout_waiting_w(clocked) * stages,
        .tail_s = tail.time_s,
        .tail_j = tail.total_j,
    };
    return limits;
}

static void add_point(struct erg_layout_bound *bound, double pipeline_s, double beyond_j)
{
    const struct erg_bound_point point = erg_bound_scale_at(&bound->scale, pipeline_s, beyond_j);
    if (bound->count &&
        point.time_s <= bound->points[bound->count - 1].time_s * (1 + ERG_BOUND_ROUNDING))
        bound->count--; /* several changes at the same time */
    bound->points[bound->count++] = point;
}

/* Stages other than the slowest have changes before the shortest time already. */
static void integrate(struct erg_layout_bound *bound, const struct bound_sum *at, bool exact)
{
    const struct limits limits = find_scale(&bound->scale, at, exact);
    const struct erg_bound_scale *scale = &bound->scale;
    const struct change *changes = at->changes.items;
    double time_s = 0, beyond_j = at->energy_j, slope_w = 0;
    size_t i = 0;
    bound->points = erg_xcalloc(at->changes.count + 1, sizeof *bound->points);
    for (; i < at->changes.count && changes[i].time_s <= limits.shortest_s; i++) {
        beyond_j += slope_w * (changes[i].time_s - time_s);
        time_s = changes[i].time_s;
        slope_w += changes[i].slope_w;
    }
    beyond_j += slope_w * (limits.shortest_s - time_s);
    time_s = limits.shortest_s;
    add_point(bound, time_s, beyond_j);
    for (; i < at->changes.count; i++) {
        beyond_j += slope_w * (changes[i].time_s - time_s);
        time_s = changes[i].time_s;
        slope_w += changes[i].slope_w;
        add_point(bound, time_s, beyond_j);
    }
    bound->waiting_w = scale->replicas * scale->stages_w;
    bound->slowest_s = limits.slowest_s + scale->tail_s;
    bound->optimum_s = INFINITY;
}

void erg_layout_bound_init(struct erg_layout_bound *bound, const struct erg_clocked_layout *clocked,
                           bool exact)
{
    struct bound_sum at = {.clocked = clocked, .layout = clocked->layout};
    for (size_t i = 0; i < clocked->count; i++)
        if (clocked->tables[i].count > at.most_rows)
            at.most_rows = clocked->tables[i].count;
    *bound = (struct erg_layout_bound){0};
    add_stages(&at);
    qsort(at.changes.items, at.changes.count, sizeof *at.changes.items, earliest_first);
    integrate(bound, &at, exact);
    for (size_t i = 0; i < KINDS; i++)
        free(at.hulls[i].points);
    free(at.changes.items);
}

void erg_layout_bound_release(struct erg_layout_bound *bound)
{
    free(bound->points);
    *bound = (struct erg_layout_bound){0};
}

/* ---- queries ---- */

/* The value of the line from point `i` on. */
static double follow(const struct erg_layout_bound *bound, size_t i, double time_s)
{
    const struct erg_bound_point *from = &bound->points[i];
    double slope_w =
        i + 1 < bound->count ? -saving_w(from, &bound->points[i + 1]) : bound->waiting_w;
    return from->energy_j + slope_w * (time_s - from->time_s);
}

double erg_layout_bound_energy(const struct erg_layout_bound *bound, double time_s)
{
    size_t low = 0, high = bound->count;
    if (time_s < bound->points[0].time_s || time_s > bound->slowest_s * (1 + ERG_BOUND_ROUNDING))
        return INFINITY;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(bound->points[middle].time_s <= time_s ? &low : &high) = middle;
    }
    return follow(bound, low, time_s);
}

/*
 * Shrinks [*from_s, *to_s] to where energy is at most most_j + most_w * time: the function is
 * convex, so that is one interval. False: there is none.
 */
static bool keep_below(const struct erg_layout_bound *bound, double most_j, double most_w,
                       double *from_s, double *to_s)
{
    const struct erg_bound_point *points = bound->points;
    double first_s = INFINITY, last_s = -INFINITY;
    for (size_t i = 0; i < bound->count; i++) {
        bool end = i + 1 == bound->count;
        double until_s = end ? INFINITY : points[i + 1].time_s;
        double excess_j = points[i].energy_j - most_j - most_w * points[i].time_s;
        double slope_w = (end ? bound->waiting_w : -saving_w(&points[i], &points[i + 1])) - most_w;
        double crossing_s = points[i].time_s - excess_j / slope_w;
        if (excess_j <= 0) {
            first_s = fmin(first_s, points[i].time_s);
            last_s = slope_w > 0 ? fmin(crossing_s, until_s) : until_s;
        } else if (slope_w < 0 && crossing_s <= until_s) {
            first_s = fmin(first_s, crossing_s);
            last_s = until_s;
        }
    }
    *from_s = fmax(*from_s, first_s);
    *to_s = fmin(*to_s, last_s);
    return *from_s <= *to_s;
}

static double power_of(const struct erg_bound_point *at)
{
    return at->energy_j / at->time_s;
}

static double value_of(const struct erg_bound_point *at, enum erg_objective goal)
{
    if (goal == ERG_FASTEST)
        return at->time_s;
    return goal == ERG_LEAST_POWER ? power_of(at) : at->energy_j;
}

/* The point of least energy: energy falls before it and rises after it. */
static size_t least_energy(const struct erg_layout_bound *bound)
{
    size_t at = 0;
    while (at + 1 < bound->count && bound->points[at + 1].energy_j <= bound->points[at].energy_j)
        at++;
    return at;
}

/* Power has its minimum at an end of a linear piece. */
static struct erg_bound_point least_power_between(const struct erg_layout_bound *bound,
                                                  double from_s, double to_s)
{
    struct erg_bound_point least = {from_s, erg_layout_bound_energy(bound, from_s)};
    struct erg_bound_point last = {to_s, erg_layout_bound_energy(bound, to_s)};
    for (size_t i = 0; i < bound->count; i++) {
        const struct erg_bound_point *point = &bound->points[i];
        if (point->time_s > from_s && point->time_s < to_s && power_of(point) < power_of(&least))
            least = *point;
    }
    return power_of(&last) < power_of(&least) ? last : least;
}

double erg_layout_bound_least_power(const struct erg_layout_bound *bound)
{
    double least_w = bound->waiting_w;
    for (size_t i = 0; i < bound->count; i++)
        least_w = fmin(least_w, power_of(&bound->points[i]));
    return least_w;
}

bool erg_layout_bound_answer(struct erg_bound_point *answer, const struct erg_layout_bound *bound,
                             const struct erg_goal *query)
{
    const double rounding = 1 + 1e-9; /* erg_layout_pick() uses the same tolerance */
    double from_s = bound->points[0].time_s, to_s = bound->slowest_s;
    if (query->deadline_s > 0)
        to_s = fmin(to_s, query->deadline_s * rounding);
    assert(query->objective != ERG_LEAST_POWER || isfinite(to_s));
    if (from_s > to_s ||
        (query->energy_j > 0 &&
         !keep_below(bound, query->energy_j * rounding, 0, &from_s, &to_s)) ||
        (query->power_w > 0 && !keep_below(bound, 0, query->power_w * rounding, &from_s, &to_s)))
        return false;
    if (query->objective == ERG_LEAST_POWER) {
        *answer = least_power_between(bound, from_s, to_s);
        return true;
    }
    if (query->objective == ERG_LEAST_ENERGY)
        from_s = fmin(fmax(from_s, bound->points[least_energy(bound)].time_s), to_s);
    *answer = (struct erg_bound_point){from_s, erg_layout_bound_energy(bound, from_s)};
    return true;
}

double erg_layout_bound_objective(const struct erg_layout_bound *bound,
                                  const struct erg_goal *query)
{
    struct erg_bound_point answer;
    return erg_layout_bound_answer(&answer, bound, query) ? value_of(&answer, query->objective)
                                                          : INFINITY;
}
