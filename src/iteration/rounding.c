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

static void load_plan(struct rounding *rounding, const struct timecost_plan *plan)
{
    double tick_s = rounding->tables->tick_s, unit_w = rounding->tables->slope_unit_w;
    for (size_t p = 0; p < rounding->count; p++) {
        struct place *place = &rounding->places[p];
        int32_t ticks = plan->duration[place->instruction], *flow = place->before_flow;
        rounding->planned_start[p] = plan->start[place->instruction] * tick_s;
        rounding->planned_duration[p] = ticks * tick_s;
        rounding->price_w[p] = (double)plan->flow[place->instruction] * unit_w;
        for (int k = 0; k < 2; k++)
            place->before_w[k] = flow[k] < 0 ? 0 : (double)plan->flow[flow[k]] * unit_w;
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

/* From all starts again, but for a plan in blocks, where the plan lies in wide gaps. */
static void search_blocks(struct rounding *rounding, const struct timecost_plan *plan,
                          double deadline_s, double planned_j, struct erg_rng *rng, double *best_j)
{
    struct timecost_plan blocks = timecost_plan_new(rounding->problem);
    double before_j = *best_j;
    if (rounding_blocks(rounding, plan, before_j - planned_j, &blocks)) {
        load_plan(rounding, &blocks);
        for (int kind = DIFFUSED; kind <= BEAM; kind++)
            if (start_from(rounding, (enum start_kind)kind, BEAM_NARROWEST, deadline_s)) {
                rounding_search(rounding, deadline_s, first_effort(rounding), rng);
                compete(rounding, deadline_s, best_j);
            }
    }
    if (*best_j == before_j)
        load_plan(rounding, plan);
    timecost_plan_free(&blocks);
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

void rounding_round(struct rounding *rounding, const struct timecost_plan *plan, double deadline_s,
                    const struct rounding_effort *effort, uint32_t *option)
{
    struct erg_rng rng;
    uint64_t seed = erg_hash_u64((uint64_t)plan->duration[0], rounding->count);
    erg_rng_seed(&rng, erg_hash_u64(seed, rounding->seed));
    double best_j = DBL_MAX;
    deadline_s *= 1 + 2 * ROUNDING_MARGIN;
    load_plan(rounding, plan);
    compete_starts(rounding, deadline_s, &best_j);
    int idle = 0; /* rounds in a row without a gain */
    for (int round = 0; round < effort->most; round++) {
        if (round >= effort->least && is_done(effort, round, idle, best_j))
            break;
        double before_j = best_j;
        search_round(rounding, deadline_s, round, effort, &rng, &best_j);
        if (round == 0 && effort->most > 1 &&
            (effort->least > 1 || best_j > effort->planned_j * (1 + effort->enough)))
            search_blocks(rounding, plan, deadline_s, effort->planned_j, &rng, &best_j);
        idle = best_j < before_j ? 0 : idle + 1;
    }
    for (size_t p = 0; p < rounding->count; p++)
        option[rounding->places[p].instruction] =
            rounding->places[p].options[rounding->best[p]].index;
}
