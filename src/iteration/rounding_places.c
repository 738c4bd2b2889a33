/* The state of a rounding: instructions in the order of time, with their options and neighbours. */
#include "iteration/rounding_internal.h"

#include "base/memory.h"

#include <stdlib.h>

struct start {
    double start_s;
    uint32_t rank, instruction;
};

static int by_start(const void *left, const void *right)
{
    const struct start *a = left, *b = right;
    if (a->start_s != b->start_s)
        return a->start_s < b->start_s ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* The instructions by start time of the fastest schedule, which is a topological order too. */
static uint32_t *order_by_time(const struct erg_schedule *schedule,
                               const struct option_tables *tables)
{
    struct start *starts = erg_xcalloc(schedule->count, sizeof *starts);
    double *start_s = erg_xcalloc(schedule->count, sizeof *start_s);
    erg_option_tables_span_s(tables, schedule, true, start_s);
    for (size_t rank = 0; rank < schedule->count; rank++) {
        uint32_t i = schedule->order[rank];
        starts[rank] = (struct start){start_s[i], (uint32_t)rank, i};
    }
    qsort(starts, schedule->count, sizeof *starts, by_start);
    uint32_t *order = erg_xcalloc(schedule->count, sizeof *order);
    for (size_t p = 0; p < schedule->count; p++)
        order[p] = starts[p].instruction;
    free(start_s);
    free(starts);
    return order;
}

/* The solver reports the flows of all instructions, then of the dependencies. */
static void find_flows(struct rounding *rounding, const struct erg_schedule *schedule,
                       const int32_t *place_of)
{
    int32_t next = (int32_t)schedule->count;
    for (size_t i = 0; i < schedule->count; i++)
        for (int k = 0; k < 2; k++)
            rounding->places[place_of[i]].before_flow[k] =
                option_tables_depends(schedule, (uint32_t)i, k) ? next++ : -1;
}

static void find_phases(struct rounding *rounding, const struct erg_schedule *schedule,
                        const int32_t *place_of)
{
    int32_t before[2] = {0};
    for (size_t i = 0; i < schedule->count; i++) {
        enum erg_direction direction = schedule->instructions[i].direction;
        if (i % schedule->per_stage == 0)
            before[ERG_FORWARD] = before[ERG_BACKWARD] = 0;
        rounding->places[place_of[i]].phase =
            before[direction == ERG_FORWARD ? ERG_BACKWARD : ERG_FORWARD];
        before[direction]++;
    }
    rounding->phases = (int32_t)(schedule->per_stage / 2) + 1;
}

struct rounding *erg_rounding_new(const struct erg_schedule *schedule,
                                  const struct option_tables *tables,
                                  const struct rounding_cycles *cycles, uint64_t seed)
{
    struct rounding *rounding = erg_xcalloc(1, sizeof *rounding);
    size_t count = schedule->count;
    rounding->tables = tables;
    rounding->cycles = cycles;
    rounding->count = count;
    rounding->seed = seed;
    rounding->stage_power_w = tables->blocking_power_w * (double)schedule->pipeline.stages;
    rounding->places = erg_xcalloc(count, sizeof *rounding->places);
    rounding->start = erg_xcalloc(3 * count, sizeof *rounding->start);
    rounding->latest = rounding->start + count;
    rounding->price_w = rounding->start + 2 * count;
    rounding->choice = erg_xcalloc(6 * count, sizeof *rounding->choice);
    rounding->best = rounding->choice + count;
    rounding->floor = rounding->choice + 2 * count;
    rounding->kept = rounding->choice + 3 * count;
    rounding->cycle[0] = rounding->choice + 4 * count;
    rounding->cycle[1] = rounding->choice + 5 * count;
    rounding->microbatches = schedule->pipeline.microbatches;
    rounding->place_of = erg_xcalloc(count, sizeof *rounding->place_of);
    uint32_t *order = order_by_time(schedule, tables);
    int32_t *place_of = erg_xcalloc(count, sizeof *place_of);
    for (size_t p = 0; p < count; p++)
        place_of[order[p]] = (int32_t)p;
    for (size_t p = 0; p < count; p++) {
        uint32_t i = order[p];
        size_t t = erg_table_index(&schedule->pipeline, &schedule->instructions[i]);
        struct rounding_place *place = &rounding->places[p];
        *place = (struct rounding_place){.options = tables->tables[t].options,
                                         .option_count = (uint32_t)tables->tables[t].count,
                                         .table = (uint32_t)t,
                                         .instruction = i,
                                         .microbatch = schedule->instructions[i].microbatch};
        rounding->place_of[t * rounding->microbatches + place->microbatch] = (int32_t)p;
        for (int k = 0; k < 2; k++) {
            uint32_t before = schedule->before[i][k], after = schedule->after[i][k];
            place->before[k] = before == ERG_NONE ? -1 : place_of[before];
            place->after[k] = after == ERG_NONE ? -1 : place_of[after];
            if (place->after[k] - (int32_t)p > rounding->reach)
                rounding->reach = place->after[k] - (int32_t)p;
            if (before != ERG_NONE)
                place->before_s[k] = erg_schedule_latency_s(schedule, before, i);
            if (after != ERG_NONE)
                place->after_s[k] = erg_schedule_latency_s(schedule, after, i);
        }
    }
    find_flows(rounding, schedule, place_of);
    find_phases(rounding, schedule, place_of);
    free(place_of);
    free(order);
    rounding->beam = erg_beam_new(rounding);
    return rounding;
}

void erg_rounding_free(struct rounding *rounding)
{
    if (!rounding)
        return;
    erg_beam_free(rounding->beam);
    free(rounding->places);
    free(rounding->place_of);
    free(rounding->start);
    free(rounding->choice);
    free(rounding);
}
