/*
 * Layers of stages that may differ: the fastest of all splits that fit.
 *
 * A stage has room for the layers that fit in the chunks with the least memory (stage_chunks.c),
 * and gets the most even chunks that fit.
 *
 * More offloading lets stages have more layers, and slows all of them. So a split is fastest either
 * without offloading or at a ratio at which some stage can just hold one more layer. The search
 * visits those ratios in rising order, each with the fastest split of the layers that the stages
 * can hold there (time/split.h), until even the fastest split regardless of memory would be slower.
 */
#include "base/memory.h"
#include "layout/search/layout_search_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* A stage with fewer microbatches in flight may need more memory if it offloads more. */
enum { FEW_GROUPS = 8 };

struct split_problem {
    struct erg_layout_splitter *splitter;
    const struct erg_layout_places *places;
    const struct erg_layout *layout;
    long layers; /* of the model */
    double pace_weight, sum_weight;
};

void erg_layout_splitter_init(struct erg_layout_splitter *splitter, long layers)
{
    size_t count = (size_t)layers;
    *splitter = (struct erg_layout_splitter){
        .groups = erg_xcalloc(count, sizeof *splitter->groups),
        .rooms = erg_xcalloc(count, sizeof *splitter->rooms),
        .stage_layers = erg_xcalloc(count, sizeof *splitter->stage_layers),
        .chunk_layers = erg_xcalloc(count, sizeof *splitter->chunk_layers),
        .round_layers = erg_xcalloc(count, sizeof *splitter->round_layers),
        .turns_s = erg_xcalloc(count, sizeof *splitter->turns_s),
        .longest_s = erg_xcalloc(count, sizeof *splitter->longest_s),
        .layer_s = erg_xcalloc(count, sizeof *splitter->layer_s),
        .follower = erg_time_follower_new(),
    };
}

void erg_layout_splitter_release(struct erg_layout_splitter *splitter)
{
    free(splitter->groups);
    free(splitter->rooms);
    free(splitter->stage_layers);
    free(splitter->chunk_layers);
    free(splitter->round_layers);
    free(splitter->turns_s);
    free(splitter->longest_s);
    free(splitter->layer_s);
    erg_time_follower_free(splitter->follower);
}

static struct split_problem problem_of(struct erg_layout_splitter *splitter,
                                       const struct erg_layout_places *places,
                                       const struct erg_layout *layout)
{
    double share = 1 / (double)layout->virtual_stages;
    return (struct split_problem){
        .splitter = splitter,
        .places = places,
        .layout = layout,
        .layers = places->on[0].search->model->layers,
        .pace_weight = (double)layout->microbatches - share,
        .sum_weight = share,
    };
}

static const struct erg_layout_on *on(const struct split_problem *at, long stage)
{
    return &at->places->on[erg_layout_place_of(at->places, stage)];
}

/* ---- time ---- */

/* The fewest layers of a stage: the first one has all layers without experts. */
static long least_layers(const struct split_problem *at, long stage)
{
    const long dense = at->places->on[0].search->model->experts.dense_layers;
    const long least = at->layout->virtual_stages;
    return stage == 0 && dense > least ? dense : least;
}

static void fill_group(struct erg_split_group *group, const struct split_problem *at, long stage,
                       double offload)
{
    struct erg_layout layout = *at->layout;
    struct erg_time_stage cost;
    layout.offload = offload;
    erg_time_stage_init(&cost, &at->places->time[erg_layout_place_of(at->places, stage)], &layout,
                        stage);
    *group = (struct erg_split_group){
        .count = 1,
        .layer_s = cost.layer_s,
        .fixed_s = cost.fixed_s,
        .layer_once_s = cost.layer_once_s,
        .fixed_once_s = cost.fixed_once_s,
        .least = least_layers(at, stage),
        .most = at->layers,
    };
}

static const struct erg_time_place *place_of(const struct split_problem *at, long stage)
{
    return &at->places->time[erg_layout_place_of(at->places, stage)];
}

/* The number of stages from this one on that take equally long with the same layers. */
static long alike(const struct split_problem *at, long stage)
{
    return erg_time_alike(place_of(at, stage), at->layout, stage);
}

/*
 * The number of stages from this one on whose memory falls along the pipeline: all of a place
 * except its ends.
 */
static long alike_in_memory(const struct split_problem *at, long stage)
{
    const struct erg_time_place *place = place_of(at, stage);
    if (erg_layout_is_short(at->layout) || stage == place->first || stage == place->end - 1)
        return 1;
    return place->end - 1 - stage;
}

/* The two ends of each place, and the stages between them by their messages to both sides. */
enum { MOST_ALIKE = 6 * ERG_LAYOUT_MOST_KINDS };

/* Adds stages to the group of equal ones. */
static size_t add_alike(struct erg_split_group *groups, size_t count,
                        const struct erg_split_group *own)
{
    size_t i = 0;
    while (i < count &&
           (groups[i].layer_s != own->layer_s || groups[i].fixed_s != own->fixed_s ||
            groups[i].layer_once_s != own->layer_once_s || groups[i].least != own->least ||
            groups[i].fixed_once_s != own->fixed_once_s))
        i++;
    assert(i < MOST_ALIKE);
    if (i == count)
        groups[count++] = *own;
    else
        groups[i].count += own->count;
    return count;
}

/* One group for each set of equal stages. */
static size_t fill_alike(struct erg_split_group *groups, const struct split_problem *at,
                         double offload)
{
    size_t count = 0;
    for (long stage = 0, same; stage < at->layout->pipeline; stage += same) {
        struct erg_split_group own;
        same = alike(at, stage);
        fill_group(&own, at, stage, offload);
        own.count = same;
        count = add_alike(groups, count, &own);
    }
    return count;
}

/* One group for each stage, with the layers for which it has room. */
static void fill_stages(struct erg_split_group *groups, const struct split_problem *at,
                        double offload)
{
    for (long stage = 0, same; stage < at->layout->pipeline; stage += same) {
        same = alike(at, stage);
        fill_group(&groups[stage], at, stage, offload);
        for (long i = stage; i < stage + same; i++) {
            groups[i] = groups[stage];
            groups[i].most = at->splitter->rooms[i].layers;
        }
    }
}

/* Seconds that do not depend on the split, with this ratio of offloading. */
static double fixed_waits(const struct erg_layout_places *places, const struct erg_layout *layout,
                          double offload)
{
    double most = 0;
    for (size_t i = 0; offload > 0 && i < places->count; i++) {
        const struct erg_time_place *place = &places->time[i];
        for (long stage = place->first; stage < place->end;
             stage = place->level ? place->end : stage + erg_time_alike(place, layout, stage))
            most = fmax(most, erg_time_stalls(place, layout, stage, layout->recompute, offload));
    }
    return most + erg_time_passage(places->time, places->count, layout);
}

static double solve(const struct split_problem *at, struct erg_split_group *groups, size_t count,
                    double offload, double limit)
{
    struct erg_split split = {
        .groups = groups,
        .count = count,
        .layers = at->layers,
        .pace_weight = at->pace_weight,
        .sum_weight = at->sum_weight,
    };
    double constant = fixed_waits(at->places, at->layout, offload);
    return erg_split_solve(&split, limit - constant) + constant;
}

static double bound(const struct split_problem *at, double offload, double limit)
{
    struct erg_split_group groups[MOST_ALIKE];
    return solve(at, groups, fill_alike(groups, at, offload), offload, limit);
}

/* ---- memory ---- */

/* Whether the layers fit into a stage, with this ratio of all stages whose GPUs offload. */
static bool holds(const struct split_problem *at, long stage, long layers, double offload)
{
    return erg_layout_stage_holds(at->splitter->chunk_layers, at->places, at->layout, stage, layers,
                                  offload);
}

/* The smallest ratio from `offload` on with which the layers fit into a stage. */
static double ratio_for(const struct split_problem *at, long stage, long layers, double offload)
{
    return erg_layout_stage_ratio(at->splitter->chunk_layers, at->places, at->layout, stage, layers,
                                  offload);
}

static double next_ratio(const struct split_problem *at, long stage, double offload)
{
    const struct erg_layout_room *room = &at->splitter->rooms[stage];
    if (room->layers >= room->useful || !erg_layout_can_offload(on(at, stage), at->layout))
        return INFINITY;
    return ratio_for(at, stage, room->layers + 1, offload);
}

/*
 * The useful layers: with more the stage alone would take too long. All stages together take at
 * least `least_sum` seconds of a microbatch.
 */
static long useful_layers(const struct split_problem *at, long stage, double least_sum,
                          double limit)
{
    struct erg_split_group group;
    long most = at->layers - (at->layout->pipeline - 1) * at->layout->virtual_stages;
    fill_group(&group, at, stage, 0);
    double longest = (limit - at->sum_weight * least_sum) / at->pace_weight;
    double useful = floor((longest - group.fixed_s) / group.layer_s * (1 + 1e-12));
    return useful < (double)most ? (long)fmax(useful, 0) : most;
}

/*
 * Finds the most layers of each stage in a split that takes less than `limit`, and its least layers
 * with the others full. Returns a ratio of offloading below which no split fits; INFINITY if it is
 * above 1.
 */
static double find_useful(const struct split_problem *at, double limit)
{
    struct erg_layout_room *rooms = at->splitter->rooms;
    double offload = 0, cheapest = INFINITY;
    long stages = at->layout->pipeline, spare = -at->layers;
    for (size_t i = 0; i < at->places->count; i++) {
        struct erg_split_group group;
        const struct erg_time_dense *dense = &at->places->time[i].parts->dense;
        fill_group(&group, at, at->places->time[i].first, 0);
        cheapest = fmin(cheapest, group.layer_s);
        if (at->places->on[0].search->model->experts.dense_layers > 0)
            cheapest = fmin(cheapest, dense->forward_s + dense->backward_s);
    }
    for (long stage = 0, same; stage < stages; stage += same) {
        same = alike(at, stage);
        long useful = useful_layers(at, stage, cheapest * (double)at->layers, limit);
        for (long i = stage; i < stage + same; i++)
            rooms[i].useful = useful;
        spare += same * useful;
    }
    if (spare < 0)
        return INFINITY;
    for (long stage = 0; stage < stages; stage++) {
        long least = rooms[stage].useful - spare;
        rooms[stage].layers = least > least_layers(at, stage) ? least : least_layers(at, stage);
    }
    for (long stage = 0; stage < stages && offload <= 1; stage += alike_in_memory(at, stage))
        offload = fmax(offload, ratio_for(at, stage, rooms[stage].layers, offload));
    return offload;
}

/*
 * Finds the most layers per stage at the first ratio. Among equal stages, each holds at least as
 * many layers as the previous one.
 */
static void find_rooms(const struct split_problem *at, double offload)
{
    struct erg_layout_room *rooms = at->splitter->rooms;
    for (long stage = 0, same = 0; stage < at->layout->pipeline; stage++, same--) {
        bool follows = same > 0;
        if (!follows)
            same = alike_in_memory(at, stage);
        long low = rooms[stage].layers - 1, high = rooms[stage].useful + 1;
        if (follows && rooms[stage - 1].layers > low)
            low = rooms[stage - 1].layers;
        if (low + 1 < high && holds(at, stage, high - 1, offload))
            low = high - 1;
        while (low + 1 < high) {
            long middle = (low + high) / 2;
            if (holds(at, stage, middle, offload))
                low = middle;
            else
                high = middle;
        }
        rooms[stage].layers = low;
    }
}

static void find_next_ratios(const struct split_problem *at, double offload)
{
    for (long stage = 0; stage < at->layout->pipeline; stage++)
        at->splitter->rooms[stage].next = next_ratio(at, stage, offload);
}

/* Updates the rooms to the next ratio at which one grows, and returns it; INFINITY: none grows. */
static double grow_rooms(const struct split_problem *at)
{
    struct erg_layout_room *rooms = at->splitter->rooms;
    long stages = at->layout->pipeline;
    double offload = INFINITY;
    for (long stage = 0; stage < stages; stage++)
        offload = fmin(offload, rooms[stage].next);
    for (long stage = 0; stage < stages && offload <= 1; stage++) {
        struct erg_layout_room *room = &rooms[stage];
        bool grows = room->next <= offload, shrinks = false;
        bool may_shrink = on(at, stage)->kind->host_bytes > 0 ||
                          erg_memory_groups(at->layout, stage) < FEW_GROUPS;
        room->layers += grows;
        for (; may_shrink && room->layers > 0 && !holds(at, stage, room->layers, offload);
             shrinks = true)
            room->layers--;
        if (shrinks)
            room->next = INFINITY; /* more offloading needs even more memory */
        else if (grows)
            room->next = next_ratio(at, stage, offload);
    }
    return offload;
}

static bool hold_all(const struct split_problem *at)
{
    long sum = 0;
    for (long stage = 0; stage < at->layout->pipeline; stage++) {
        if (at->splitter->rooms[stage].layers < least_layers(at, stage))
            return false;
        sum += at->splitter->rooms[stage].layers;
    }
    return sum >= at->layers;
}

/* ---- both ---- */

/* Stores the stages' layers of the latest solution. */
static void take_layers(const struct split_problem *at)
{
    struct erg_layout_splitter *splitter = at->splitter;
    const struct erg_split split = {
        .groups = splitter->groups,
        .count = (size_t)at->layout->pipeline,
        .layers = at->layers,
    };
    erg_split_layers(splitter->stage_layers, &split);
}

double erg_layout_split_bound(struct erg_layout_splitter *splitter,
                              const struct erg_layout_places *places,
                              const struct erg_layout *layout, double limit)
{
    const struct split_problem at = problem_of(splitter, places, layout);
    return bound(&at, 0, limit);
}

void erg_layout_split_of_any_memory(struct erg_layout_splitter *splitter,
                                    const struct erg_layout_places *places,
                                    const struct erg_layout *layout)
{
    const struct split_problem at = problem_of(splitter, places, layout);
    for (long stage = 0; stage < layout->pipeline; stage++)
        splitter->rooms[stage].layers = at.layers;
    fill_stages(splitter->groups, &at, 0);
    solve(&at, splitter->groups, (size_t)layout->pipeline, 0, INFINITY);
    take_layers(&at);
    for (long stage = 0; stage < layout->pipeline; stage++)
        erg_layout_set_even(splitter->chunk_layers, layout, stage, splitter->stage_layers[stage]);
}

double erg_layout_split_fastest(struct erg_layout_splitter *splitter,
                                const struct erg_layout_places *places,
                                const struct erg_layout *layout, double limit)
{
    const struct split_problem at = problem_of(splitter, places, layout);
    double best = INFINITY, offload = find_useful(&at, limit);
    bool first = true;
    while (offload <= 1 && bound(&at, offload, limit) < limit) {
        if (first)
            find_rooms(&at, offload);
        if (hold_all(&at)) {
            fill_stages(splitter->groups, &at, offload);
            double total = solve(&at, splitter->groups, (size_t)layout->pipeline, offload, limit);
            if (total < limit) {
                best = limit = total;
                splitter->offload = offload;
                take_layers(&at);
            }
        }
        if (bound(&at, offload, limit) >= limit)
            break;
        if (first)
            find_next_ratios(&at, offload);
        first = false;
        offload = grow_rooms(&at);
    }
    for (long stage = 0; best < INFINITY && stage < layout->pipeline; stage++)
        holds(&at, stage, splitter->stage_layers[stage], splitter->offload);
    return best;
}
