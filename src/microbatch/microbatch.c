/* Microbatch: composes partitions and whole layers to the options of an instruction. */
#include "microbatch/microbatch.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * sums[clock * count + k] is the frontier of the first k+1 partition types at that clock, over
 * (time, effective energy); its recipe pairs a point of the sum before with a point of type k's
 * own list, so that any point can be walked back to one configuration per type.
 */
struct erg_layer {
    size_t clock_count, count;
    struct erg_frontier *own;  /* [clock][type]: occurrences x (time, effective energy) */
    struct erg_frontier *sums; /* [clock][type] */
    int kernels;
    struct erg_host_model host;
    double blocking_power_w;
};

const char *const erg_mode_names[] = {
    [ERG_MODE_OVERLAP] = "overlap",
    [ERG_MODE_SEQUENTIAL] = "sequential",
    [ERG_MODE_NANOBATCH] = "nanobatch",
    NULL,
};

const char *erg_mode_name(enum erg_mode mode)
{
    return erg_mode_names[mode];
}

struct erg_cost erg_host_floor(const struct erg_host_model *host, struct erg_cost layer,
                               int kernels)
{
    double floor_s = host->host_per_kernel_s * kernels;
    if (floor_s <= 0)
        return layer;
    assert(layer.time_s > 0);
    double ratio = floor_s / layer.time_s;
    double time_s = layer.time_s * pow(1 + pow(ratio, 6), 1.0 / 6);
    return (struct erg_cost){time_s,
                             layer.energy_j + host->static_power_w * (time_s - layer.time_s)};
}

struct erg_layer *erg_layer_compose(const struct erg_partition_table *tables, size_t count,
                                    size_t clock_count, const struct erg_host_model *host,
                                    double blocking_power_w)
{
    struct erg_layer *layer = erg_xcalloc(1, sizeof *layer);
    layer->clock_count = clock_count;
    layer->count = count;
    layer->own = erg_xcalloc(clock_count * count, sizeof *layer->own);
    layer->sums = erg_xcalloc(clock_count * count, sizeof *layer->sums);
    layer->host = *host;
    layer->blocking_power_w = blocking_power_w;
    for (size_t k = 0; k < count; k++)
        layer->kernels += tables[k].occurrences * tables[k].kernels;

    for (size_t clock = 0; clock < clock_count; clock++) {
        for (size_t k = 0; k < count; k++) {
            struct erg_frontier *own = &layer->own[clock * count + k];
            const struct erg_frontier *given = &tables[k].clocks[clock];
            for (size_t i = 0; i < given->count; i++) {
                const struct erg_point *point = &given->points[i];
                double times = tables[k].occurrences;
                erg_frontier_add(own, times * point->time_s,
                                 times * (point->energy_j - blocking_power_w * point->time_s),
                                 point->recipe);
            }
            erg_frontier_filter(own);
            struct erg_frontier *sum = &layer->sums[clock * count + k];
            if (k == 0)
                erg_frontier_copy(sum, own);
            else
                erg_frontier_sum(sum, &layer->sums[clock * count + k - 1], own);
        }
    }
    return layer;
}

void erg_layer_free(struct erg_layer *layer)
{
    if (!layer)
        return;
    for (size_t i = 0; i < layer->clock_count * layer->count; i++) {
        erg_frontier_release(&layer->own[i]);
        erg_frontier_release(&layer->sums[i]);
    }
    free(layer->own);
    free(layer->sums);
    free(layer);
}

/* Walks point `index` of the last sum at `clock` back to one configuration per type. */
static void decode(const struct erg_layer *layer, size_t clock, size_t index,
                   int64_t *configurations)
{
    for (size_t k = layer->count; k-- > 0;) {
        const struct erg_frontier *own = &layer->own[clock * layer->count + k];
        size_t mine = index; /* the first sum is a copy, so its points are those of the own list */
        if (k > 0) {
            int64_t recipe = layer->sums[clock * layer->count + k].points[index].recipe;
            mine = (size_t)recipe % own->count;
            index = (size_t)recipe / own->count;
        }
        configurations[k] = own->points[mine].recipe;
    }
}

static struct erg_cost overlap_cost(const struct erg_layer *layer, size_t clock, size_t index,
                                    int layers, const struct erg_cost *fixed)
{
    const struct erg_point *point =
        &layer->sums[clock * layer->count + layer->count - 1].points[index];
    struct erg_cost one = {point->time_s,
                           point->energy_j + layer->blocking_power_w * point->time_s};
    one = erg_host_floor(&layer->host, one, layer->kernels);
    return (struct erg_cost){layers * one.time_s + fixed[clock].time_s,
                             layers * one.energy_j + fixed[clock].energy_j};
}

void erg_microbatch_add_overlap(struct erg_microbatch *microbatch, const struct erg_layer *layer,
                                int layers, const struct erg_cost *fixed)
{
    microbatch->partition_count = layer->count;
    if (!layer->count)
        return;
    /* Filter over all clocks first: most points die, and only survivors need decoding. */
    struct erg_frontier all = {0};
    for (size_t clock = 0; clock < layer->clock_count; clock++) {
        const struct erg_frontier *sum = &layer->sums[clock * layer->count + layer->count - 1];
        for (size_t i = 0; i < sum->count; i++) {
            struct erg_cost cost = overlap_cost(layer, clock, i, layers, fixed);
            erg_frontier_add(&all, cost.time_s,
                             cost.energy_j - layer->blocking_power_w * cost.time_s,
                             (int64_t)(i * layer->clock_count + clock));
        }
    }
    erg_frontier_filter(&all);
    for (size_t kept = 0; kept < all.count; kept++) {
        size_t clock = (size_t)all.points[kept].recipe % layer->clock_count;
        size_t index = (size_t)all.points[kept].recipe / layer->clock_count;
        struct erg_cost cost = overlap_cost(layer, clock, index, layers, fixed);
        struct erg_microbatch_option option = {
            .time_s = cost.time_s,
            .energy_j = cost.energy_j,
            .mode = ERG_MODE_OVERLAP,
            .clock = (int)clock,
            .configurations = erg_xcalloc(layer->count, sizeof *option.configurations),
        };
        decode(layer, clock, index, option.configurations);
        ERG_PUSH(microbatch, options, option);
    }
    erg_frontier_release(&all);
}

void erg_microbatch_add_whole(struct erg_microbatch *microbatch, enum erg_mode mode,
                              const struct erg_cost *cost, int kernels, int layers,
                              const struct erg_cost *fixed, size_t clock_count,
                              const struct erg_host_model *host)
{
    for (size_t clock = 0; clock < clock_count; clock++) {
        if (cost[clock].time_s <= 0)
            continue;
        struct erg_cost one = erg_host_floor(host, cost[clock], kernels);
        struct erg_microbatch_option option = {
            .time_s = layers * one.time_s + fixed[clock].time_s,
            .energy_j = layers * one.energy_j + fixed[clock].energy_j,
            .mode = mode,
            .clock = (int)clock,
        };
        ERG_PUSH(microbatch, options, option);
    }
}

void erg_microbatch_filter(struct erg_microbatch *microbatch, double blocking_power_w)
{
    struct erg_frontier frontier = {0};
    for (size_t i = 0; i < microbatch->count; i++) {
        const struct erg_microbatch_option *option = &microbatch->options[i];
        erg_frontier_add(&frontier, option->time_s,
                         option->energy_j - blocking_power_w * option->time_s, (int64_t)i);
    }
    erg_frontier_filter(&frontier);
    struct erg_microbatch_option *kept = erg_xcalloc(frontier.count, sizeof *kept);
    for (size_t i = 0; i < frontier.count; i++) {
        struct erg_microbatch_option *option = &microbatch->options[frontier.points[i].recipe];
        assert(frontier.points[i].recipe >= 0 &&
               (size_t)frontier.points[i].recipe < microbatch->count);
        kept[i] = *option;
        option->configurations = NULL; /* moved */
    }
    size_t count = frontier.count;
    size_t partition_count = microbatch->partition_count;
    erg_frontier_release(&frontier);
    erg_microbatch_release(microbatch);
    *microbatch = (struct erg_microbatch){kept, count, count, partition_count};
}

void erg_microbatch_release(struct erg_microbatch *microbatch)
{
    for (size_t i = 0; i < microbatch->count; i++)
        free(microbatch->options[i].configurations);
    free(microbatch->options);
    *microbatch = (struct erg_microbatch){0};
}
