#include "iteration/rounding_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* More searches in a row without a gain than this: hardly one to come. */
enum { IDLE = 2 };

/* Moves of the first annealing: less than 0.1 s. Each further one makes so many times as many;
 * after some of them it takes hardly more than this part of the loss away. */
enum { FIRST_MOVES = 200000, SURE = 4 };
static const double growth = 3.3, gain = 0.04;

/* Looking ahead weighs so many options on either side of the one just below the plan. */
enum { AHEAD = 4 };

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
    option_tables_span_s(tables, schedule, true, start_s);
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

struct rounding *rounding_new(const struct erg_schedule *schedule,
                              const struct option_tables *tables, uint64_t seed)
{
    struct rounding *rounding = erg_xcalloc(1, sizeof *rounding);
    size_t count = schedule->count;
    rounding->tables = tables;
    rounding->count = count;
    rounding->seed = seed;
    rounding->stage_power_w = tables->blocking_power_w * (double)schedule->pipeline.stages;
    rounding->places = erg_xcalloc(count, sizeof *rounding->places);
    rounding->start = erg_xcalloc(5 * count, sizeof *rounding->start);
    rounding->latest = rounding->start + count;
    rounding->planned_start = rounding->start + 2 * count;
    rounding->planned_duration = rounding->start + 3 * count;
    rounding->price_w = rounding->start + 4 * count;
    rounding->choice = erg_xcalloc(4 * count, sizeof *rounding->choice);
    rounding->best = rounding->choice + count;
    rounding->floor = rounding->choice + 2 * count;
    rounding->kept = rounding->choice + 3 * count;
    rounding->microbatches = schedule->pipeline.microbatches;
    rounding->place_of = erg_xcalloc(count, sizeof *rounding->place_of);
    uint32_t *order = order_by_time(schedule, tables);
    int32_t *place_of = erg_xcalloc(count, sizeof *place_of);
    for (size_t p = 0; p < count; p++)
        place_of[order[p]] = (int32_t)p;
    for (size_t p = 0; p < count; p++) {
        uint32_t i = order[p];
        size_t t = erg_table_index(&schedule->pipeline, &schedule->instructions[i]);
        struct place *place = &rounding->places[p];
        *place = (struct place){.options = tables->tables[t].options,
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
    free(place_of);
    free(order);
    rounding->beam = beam_new(rounding);
    rounding->annealing = annealing_new(rounding);
    return rounding;
}

void rounding_free(struct rounding *rounding)
{
    if (!rounding)
        return;
    beam_free(rounding->beam);
    annealing_free(rounding->annealing);
    free(rounding->places);
    free(rounding->place_of);
    free(rounding->start);
    free(rounding->choice);
    free(rounding);
}

/* Latest finishes for a deadline with the current durations. */
static void find_latest(struct rounding *rounding, double deadline_s)
{
    for (size_t p = rounding->count; p-- > 0;)
        rounding->latest[p] = rounding_limit(rounding, &rounding->places[p], deadline_s);
}

/* Starts of the current choice; returns the makespan. */
static double forward(struct rounding *rounding)
{
    double end = 0;
    for (size_t p = 0; p < rounding->count; p++) {
        rounding->start[p] = rounding_ready(rounding, &rounding->places[p]);
        double finish = rounding->start[p] + rounding_time(rounding, (int32_t)p);
        end = finish > end ? finish : end;
    }
    return end;
}

static double total_j(const struct rounding *rounding, double time_s)
{
    double sum = rounding->stage_power_w * time_s;
    for (size_t p = 0; p < rounding->count; p++)
        sum += rounding->places[p].options[rounding->choice[p]].cost_j;
    return sum;
}

/*
 * Gives slack to those that save most by it, measured by the price of their time in the
 * continuous plan: a step along the hull at a planned duration saves exactly that price. Safe in
 * one forward pass, since every instruction later in the order still has the duration with which
 * the latest finishes were computed.
 */
static void reclaim(struct rounding *rounding, double deadline_s)
{
    static const double shares[] = {1, 0.97, 0.94, 0.9, 0.8, 0.6, 0.3, 0};
    deadline_s *= 1 - ROUNDING_MARGIN;
    for (size_t pass = 0; pass < sizeof shares / sizeof *shares; pass++) {
        find_latest(rounding, deadline_s);
        for (size_t p = 0; p < rounding->count; p++) {
            rounding->start[p] = rounding_ready(rounding, &rounding->places[p]);
            rounding_slow_down(rounding, (int32_t)p, shares[pass]);
        }
    }
}

/* --- the starts; each leaves its options in `choice` --- */

/*
 * When the successor of place `p` on its stage can start without regard to `p`: as its other
 * predecessor really is, or, if that is not chosen yet, as planned.
 */
static double ready_beside(const struct rounding *rounding, int32_t p, int32_t next)
{
    const struct place *place = &rounding->places[next];
    double from = 0;
    for (int k = 0; k < 2; k++) {
        int32_t before = place->before[k];
        if (before < 0 || before == p)
            continue;
        double ready = rounding->planned_start[next];
        if (before < p)
            ready = rounding->start[before] + rounding_time(rounding, before) + place->before_s[k];
        from = ready > from ? ready : from;
    }
    return from;
}

/* What the next on the stage costs at the slowest option with which it finishes as planned, for
 * rising starts; `slowest` bounds the options and falls. */
static double cost_ahead(const struct rounding *rounding, int32_t next, double start,
                         uint32_t *slowest)
{
    const struct place *place = &rounding->places[next];
    double finish = rounding->planned_start[next] + rounding->planned_duration[next];
    while (*slowest > 0 && start + place->options[*slowest].time_s > finish)
        --*slowest;
    return place->options[*slowest].cost_j;
}

static void diffuse(struct rounding *rounding)
{
    for (size_t p = 0; p < rounding->count; p++) {
        const struct place *place = &rounding->places[p];
        double start = rounding->start[p] = rounding_ready(rounding, place);
        double finish = rounding->planned_start[p] + rounding->planned_duration[p];
        double from = 0, least_j = DBL_MAX;
        int32_t next = place->after[0];
        uint32_t slowest = 0, floor = rounding->floor[p];
        if (next >= 0) {
            from = ready_beside(rounding, (int32_t)p, next);
            slowest = rounding->floor[next] + (uint32_t)AHEAD;
            if (slowest >= rounding->places[next].option_count)
                slowest = rounding->places[next].option_count - 1;
        }
        rounding->choice[p] = (uint16_t)floor; /* always in time for the plan */
        for (uint32_t o = floor > AHEAD ? floor - AHEAD : 0;
             o <= floor + AHEAD && o < place->option_count; o++) {
            double end = start + place->options[o].time_s, cost = place->options[o].cost_j;
            if (end > finish)
                break;
            if (next >= 0) {
                double begin = end + place->after_s[0];
                cost += cost_ahead(rounding, next, begin > from ? begin : from, &slowest);
            }
            if (cost <= least_j) {
                least_j = cost;
                rounding->choice[p] = (uint16_t)o;
            }
        }
    }
}

/*
 * From a choice that is on time towards `wanted`, which is slower: in topological order each
 * takes the slowest option up to the wanted one that leaves its successors time as they are.
 */
static void approach(struct rounding *rounding, const uint16_t *wanted, double deadline_s)
{
    find_latest(rounding, deadline_s * (1 - ROUNDING_MARGIN));
    for (size_t p = 0; p < rounding->count; p++) {
        const struct place *place = &rounding->places[p];
        double start = rounding->start[p] = rounding_ready(rounding, place);
        uint16_t option = wanted[p];
        while (option > rounding->choice[p] &&
               start + place->options[option].time_s > rounding->latest[p])
            option--;
        rounding->choice[p] = option;
    }
}

/* The current choice, if it is on time and the cheapest so far, is the best. */
static void compete(struct rounding *rounding, double deadline_s, double *best_j)
{
    double time_s = forward(rounding);
    if (time_s > deadline_s)
        return;
    double energy = total_j(rounding, time_s);
    if (energy < *best_j) {
        *best_j = energy;
        memcpy(rounding->best, rounding->choice, rounding->count * sizeof *rounding->best);
    }
}

enum start_kind { DIFFUSED, FLOOR, BEAM };

/* Fills `choice` with a start and reclaims its slack. false if it is not on time, which happens
 * within the last tick of the shortest time. */
static bool start_from(struct rounding *rounding, enum start_kind kind, size_t width,
                       double deadline_s)
{
    if (kind == DIFFUSED)
        diffuse(rounding);
    else if (kind == FLOOR)
        memcpy(rounding->choice, rounding->floor, rounding->count * sizeof *rounding->choice);
    else if (!rounding_beam(rounding, deadline_s, width))
        return false;
    if (forward(rounding) > deadline_s)
        return false;
    reclaim(rounding, deadline_s);
    return true;
}

static void load_plan(struct rounding *rounding, const int32_t *start, const int32_t *duration,
                      const int64_t *flow)
{
    double tick_s = rounding->tables->tick_s, unit_w = rounding->tables->slope_unit_w;
    for (size_t p = 0; p < rounding->count; p++) {
        struct place *place = &rounding->places[p];
        int32_t ticks = duration[place->instruction];
        rounding->planned_start[p] = start[place->instruction] * tick_s;
        rounding->planned_duration[p] = ticks * tick_s;
        rounding->price_w[p] = (double)flow[place->instruction] * unit_w;
        for (int k = 0; k < 2; k++)
            place->before_w[k] =
                place->before_flow[k] < 0 ? 0 : (double)flow[place->before_flow[k]] * unit_w;
        uint32_t low = 0, high = place->option_count; /* the slowest that is not over the plan */
        while (high - low > 1) {
            uint32_t middle = (low + high) / 2;
            if (place->options[middle].ticks <= ticks)
                low = middle;
            else
                high = middle;
        }
        rounding->floor[p] = (uint16_t)low;
    }
}

/* From all starts. Some of them are always on time, but within the last tick. */
static void compete_starts(struct rounding *rounding, double deadline_s, double *best_j)
{
    for (int kind = DIFFUSED; kind <= BEAM; kind++)
        if (start_from(rounding, (enum start_kind)kind, BEAM_NARROWEST, deadline_s))
            compete(rounding, deadline_s, best_j);
    if (*best_j < DBL_MAX)
        return;
    memset(rounding->choice, 0, rounding->count * sizeof *rounding->choice);
    approach(rounding, rounding->floor, deadline_s);
    reclaim(rounding, deadline_s);
    compete(rounding, deadline_s, best_j);
    assert(*best_j < DBL_MAX && "all at the fastest option is always on time");
}

/* Looks at each instruction in the first search: milliseconds for a plan. */
static size_t first_effort(const struct rounding *rounding)
{
    size_t effort = 100000 / rounding->count;
    return effort < 16 ? 16 : effort > 100 ? 100 : effort;
}

/*
 * The first search improves the best start, the next what annealing makes of the best so far. Where
 * a search ends is decided by where it begins far more than by how long it takes, and the best
 * start does not lead to the best end: so the others begin anew, from each kind in turn.
 */
static void search_round(struct rounding *rounding, double deadline_s, int round,
                         const struct rounding_effort *effort, struct erg_rng *rng, double *best_j)
{
    size_t searched = first_effort(rounding);
    int anew = round - 1 - effort->annealings;
    if (anew < 0)
        memcpy(rounding->choice, rounding->best, rounding->count * sizeof *rounding->choice);
    else if (start_from(rounding, (enum start_kind)(anew % 3), BEAM_NARROWEST << (1 + anew / 3 % 3),
                        deadline_s))
        searched *= 4;
    else
        return;
    if (round > 0 && anew < 0) {
        size_t moves = (size_t)(FIRST_MOVES * pow(growth, round - 1));
        rounding_anneal(rounding, deadline_s, moves, rng);
    }
    rounding_search(rounding, deadline_s, searched, rng);
    compete(rounding, deadline_s, best_j);
}

/*
 * Enough, or bearable and no longer getting better; or so far from bearable that the annealings to
 * come cannot get there: options with wide gaps allow no better.
 */
static bool is_done(const struct rounding_effort *effort, int round, int idle, double best_j)
{
    double loss = best_j / effort->planned_j - 1;
    bool sure = round > SURE && round <= effort->annealings;
    double reach = sure ? pow(1 - gain, effort->annealings + 1 - round) : 0;
    return loss <= effort->enough || (idle > IDLE && loss <= effort->bearable) ||
           loss * reach > effort->bearable;
}

void rounding_round(struct rounding *rounding, const int32_t *start, const int32_t *duration,
                    const int64_t *flow, double deadline_s, const struct rounding_effort *effort,
                    uint32_t *option)
{
    struct erg_rng rng;
    uint64_t plan = erg_hash_u64((uint64_t)duration[0], rounding->count);
    erg_rng_seed(&rng, erg_hash_u64(plan, rounding->seed));
    double best_j = DBL_MAX;
    load_plan(rounding, start, duration, flow);
    compete_starts(rounding, deadline_s, &best_j);
    int idle = 0; /* rounds in a row without a gain */
    for (int round = 0; round < effort->most; round++) {
        if (round >= effort->least && is_done(effort, round, idle, best_j))
            break;
        double before_j = best_j;
        search_round(rounding, deadline_s, round, effort, &rng, &best_j);
        idle = best_j < before_j ? 0 : idle + 1;
    }
    for (size_t p = 0; p < rounding->count; p++)
        option[rounding->places[p].instruction] =
            rounding->places[p].options[rounding->best[p]].index;
}
