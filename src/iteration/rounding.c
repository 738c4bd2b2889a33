/* Rounding: turns a continuous plan into measured options that meet its deadline. */
#include "iteration/rounding_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <float.h>
#include <string.h>

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
    assert(deadline_s > 0);
    deadline_s *= 1 - ROUNDING_MARGIN;
    for (size_t pass = 0; pass < sizeof shares / sizeof *shares; pass++) {
        find_latest(rounding, deadline_s);
        for (size_t p = 0; p < rounding->count; p++) {
            rounding->start[p] = rounding_ready(rounding, &rounding->places[p]);
            rounding_slow_down(rounding, (int32_t)p, shares[pass]);
        }
    }
}

/*
 * In topological order each instruction takes the slowest option up to the one just below its
 * planned duration that leaves its successors time for their fastest. Always on time; only within
 * the last tick of the shortest time not all of them get the option below the plan.
 */
static void floor_start(struct rounding *rounding, double deadline_s)
{
    memset(rounding->choice, 0, rounding->count * sizeof *rounding->choice);
    find_latest(rounding, deadline_s * (1 - ROUNDING_MARGIN));
    for (size_t p = 0; p < rounding->count; p++) {
        const struct rounding_place *place = &rounding->places[p];
        double start = rounding->start[p] = rounding_ready(rounding, place);
        uint16_t option = rounding->floor[p];
        while (option && start + place->options[option].time_s > rounding->latest[p])
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

static void load_plan(struct rounding *rounding, const struct timecost_plan *plan)
{
    double unit_w = rounding->tables->slope_unit_w;
    for (size_t p = 0; p < rounding->count; p++) {
        struct rounding_place *place = &rounding->places[p];
        int32_t ticks = plan->duration[place->instruction], *flow = place->before_flow;
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

/* The slow choice in the given number of phases, the first or the last ones, and the fast one in
 * the others. */
static double divide(struct rounding *rounding, const uint16_t *fast, const uint16_t *slow,
                     int32_t slow_phases, bool last)
{
    for (size_t p = 0; p < rounding->count; p++) {
        int32_t phase = rounding->places[p].phase;
        bool is_slow = last ? phase >= rounding->phases - slow_phases : phase < slow_phases;
        rounding->choice[p] = is_slow ? slow[p] : fast[p];
    }
    return forward(rounding);
}

/*
 * Phases of a fast choice, which is on time, and of a slow one, which is late, compete: as they
 * are, and with another choice where the pipeline fills and drains.
 */
static void mix(struct rounding *rounding, double deadline_s, const uint16_t *fast,
                const uint16_t *slow, double *best_j)
{
    for (int last = 0; last < 2; last++) {
        int32_t low = 0, high = rounding->phases; /* all slow is too slow */
        while (high - low > 1) {
            int32_t middle = (low + high) / 2;
            if (divide(rounding, fast, slow, middle, last) <= deadline_s)
                low = middle;
            else
                high = middle;
        }
        for (int beam = 0; beam < 2; beam++) {
            divide(rounding, fast, slow, low, last);
            if (beam && !erg_rounding_beam(rounding, deadline_s, true))
                continue;
            reclaim(rounding, deadline_s);
            compete(rounding, deadline_s, best_j);
        }
    }
}

/* A cycle in the steady state, and the options just below the plan before and after it. */
static double repeat_cycle(struct rounding *rounding, size_t cycle, uint16_t *choice)
{
    const uint16_t *option = &rounding->cycles->option[cycle * rounding->cycles->table_count];
    for (size_t p = 0; p < rounding->count; p++) {
        const struct rounding_place *place = &rounding->places[p];
        choice[p] = rounding_is_steady(rounding, place) ? option[place->table] : rounding->best[p];
    }
    memcpy(rounding->choice, choice, rounding->count * sizeof *choice);
    return forward(rounding);
}

/* Cycles compete: the slowest that is on time, mixed with the next. */
static void cycle_start(struct rounding *rounding, double deadline_s, double *best_j)
{
    uint16_t *const *cycle = rounding->cycle;
    size_t low = 0, high = rounding->cycles->hull.count;
    if (!high || repeat_cycle(rounding, 0, cycle[0]) > deadline_s)
        return;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (repeat_cycle(rounding, middle, cycle[1]) <= deadline_s)
            low = middle;
        else
            high = middle;
    }
    repeat_cycle(rounding, low, cycle[0]);
    if (high < rounding->cycles->hull.count) {
        repeat_cycle(rounding, high, cycle[1]);
        mix(rounding, deadline_s, cycle[0], cycle[1], best_j);
    } else {
        reclaim(rounding, deadline_s);
        compete(rounding, deadline_s, best_j);
    }
}

static void search(struct rounding *rounding, double deadline_s,
                   const struct rounding_effort *effort, struct erg_rng *rng, double *best_j)
{
    enum { ROUND = 8 };
    for (size_t done = 0;
         done < effort->least || (done < effort->most && effort->enough_j < *best_j) ||
         (done < effort->utmost && effort->poor_j < *best_j);
         done += ROUND) {
        erg_rounding_search(rounding, deadline_s, ROUND, rng);
        compete(rounding, deadline_s, best_j);
    }
}

static void begin(struct rounding *rounding, const struct timecost_plan *plan, struct erg_rng *rng)
{
    uint64_t seed = erg_hash_u64((uint64_t)plan->duration[0], rounding->count);
    erg_rng_seed(rng, erg_hash_u64(seed, rounding->seed));
    load_plan(rounding, plan);
}

void erg_rounding_round(struct rounding *rounding, const struct timecost_plan *plan,
                        double deadline_s, const struct rounding_effort *effort, uint16_t *choice)
{
    struct erg_rng rng;
    double best_j = DBL_MAX;
    size_t bytes = rounding->count * sizeof *choice;
    begin(rounding, plan, &rng);
    deadline_s *= 1 + 2 * ROUNDING_MARGIN;
    floor_start(rounding, deadline_s);
    reclaim(rounding, deadline_s);
    compete(rounding, deadline_s, &best_j);
    assert(best_j < DBL_MAX && "all at the fastest option is always on time");
    if (erg_rounding_beam(rounding, deadline_s, false)) {
        reclaim(rounding, deadline_s);
        compete(rounding, deadline_s, &best_j);
    }
    cycle_start(rounding, deadline_s, &best_j);
    memcpy(rounding->choice, rounding->best, bytes);
    search(rounding, deadline_s, effort, &rng, &best_j);
    memcpy(choice, rounding->best, bytes);
}

void erg_rounding_mix(struct rounding *rounding, const struct timecost_plan *plan,
                      double deadline_s, const struct rounding_effort *effort, const uint16_t *fast,
                      const uint16_t *slow, uint16_t *choice)
{
    struct erg_rng rng;
    double given_j = DBL_MAX, best_j = DBL_MAX;
    size_t bytes = rounding->count * sizeof *choice;
    begin(rounding, plan, &rng);
    deadline_s *= 1 + 2 * ROUNDING_MARGIN;
    memcpy(rounding->choice, choice, bytes);
    compete(rounding, deadline_s, &given_j);
    mix(rounding, deadline_s, fast, slow, &best_j);
    memcpy(rounding->choice, rounding->best, bytes);
    search(rounding, deadline_s, effort, &rng, &best_j);
    if (best_j < given_j)
        memcpy(choice, rounding->best, bytes);
}

void erg_rounding_measure(struct rounding *rounding, const uint16_t *choice, double *time_s,
                          double *cost_j)
{
    memcpy(rounding->choice, choice, rounding->count * sizeof *choice);
    *time_s = forward(rounding);
    *cost_j = total_j(rounding, 0);
}

void erg_rounding_options(const struct rounding *rounding, const uint16_t *choice, uint32_t *option)
{
    for (size_t p = 0; p < rounding->count; p++) {
        const struct rounding_place *place = &rounding->places[p];
        assert(place->instruction < rounding->count);
        option[place->instruction] = place->options[choice[p]].index;
    }
}
