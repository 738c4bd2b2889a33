/*
 * From a continuous plan to one measured option per instruction, never beyond the deadline.
 *
 * Candidates, of which the cheapest feasible one wins:
 *  - error diffusion: in topological order, the option just above the planned duration when the
 *    actual start leaves room for it, otherwise the one just below; unused time flows downstream;
 *  - the same, but each option chosen together with what then fits for the next on its stage;
 *  - floor: always the option just below;
 *  - nearest, then repaired where a finish comes too late for fast successors.
 * Each then has its slack reclaimed: instructions move to slower options, the best savings
 * for the price of their time first. A local search then perturbs the winner.
 */
#ifndef ERG_ITERATION_ROUNDING_INTERNAL_H
#define ERG_ITERATION_ROUNDING_INTERNAL_H

#include "base/random.h"
#include "iteration/tables_internal.h"

/* Latest finishes keep this relative distance from the deadline, for the errors of addition. */
#define ROUNDING_MARGIN 1e-12

/* An instruction at its place in the topological order; links are places, -1 for none. */
struct place {
    int32_t before[2], after[2];
    double before_s[2], after_s[2]; /* latencies */
    const struct option *options;
    uint32_t option_count;
    uint32_t table, instruction, microbatch;
};

struct rounding {
    const struct option_tables *tables;
    size_t count;
    int32_t reach;          /* the most places between an instruction and its successor */
    uint64_t seed;          /* of the local search */
    double stage_power_w;   /* P * S */
    struct place *places;   /* by start time of the fastest schedule: a range is a slice of time */
    double *start, *latest; /* per place: start, latest finish */
    double *planned_start, *planned_duration;
    double *price_w; /* per place: what a second more or less is worth in the continuous plan */
    uint16_t *choice, *best, *floor; /* per place: index into its options */
    uint16_t *kept;                  /* the search's copy of one range */
    size_t microbatches;
    int32_t *place_of; /* [table * microbatches + microbatch] */
};

struct rounding *rounding_new(const struct erg_schedule *schedule,
                              const struct option_tables *tables, uint64_t seed);
void rounding_free(struct rounding *rounding);

/*
 * start and duration in ticks and flow per instruction, as the solver gives them; deadline_s at
 * least the true shortest time. Writes the index of the chosen option into `option` (as the
 * caller's tables count). The local search looks at every instruction about `effort` times.
 */
void rounding_round(struct rounding *rounding, const int32_t *start, const int32_t *duration,
                    const int64_t *flow, double deadline_s, size_t effort, uint32_t *option);

/*
 * Improves `choice`, which must be on time. First pairs of an instruction and its successor trade
 * time until no pair gains. Then, again and again, takes a random slice of time, speeds up some of
 * its instructions or copies the options that other microbatches have found, gives the slack away
 * again in another order, lets pairs trade and keeps what costs no more.
 */
void rounding_search(struct rounding *rounding, double deadline_s, size_t effort,
                     struct erg_rng *rng);

static inline double rounding_time(const struct rounding *rounding, int32_t p)
{
    return rounding->places[p].options[rounding->choice[p]].time_s;
}

/* Earliest start of a place, its predecessors' starts and choices being settled. */
static inline double rounding_ready(const struct rounding *rounding, const struct place *place)
{
    double start = 0;
    for (int k = 0; k < 2; k++) {
        int32_t before = place->before[k];
        if (before < 0)
            continue;
        double ready =
            rounding->start[before] + rounding_time(rounding, before) + place->before_s[k];
        start = ready > start ? ready : start;
    }
    return start;
}

/* Latest finish of a place, its successors' latest finishes and choices being settled. */
static inline double rounding_limit(const struct rounding *rounding, const struct place *place,
                                    double deadline_s)
{
    double latest = deadline_s;
    for (int k = 0; k < 2; k++) {
        int32_t after = place->after[k];
        if (after < 0)
            continue;
        double limit = rounding->latest[after] - rounding_time(rounding, after) - place->after_s[k];
        latest = limit < latest ? limit : latest;
    }
    return latest;
}

/* The slowest option that fits between start and latest finish and saves `share` of the price. */
static inline void rounding_slow_down(struct rounding *rounding, int32_t p, double share)
{
    const struct place *place = &rounding->places[p];
    const struct option *now = &place->options[rounding->choice[p]];
    double least_w = share * rounding->price_w[p];
    for (uint32_t o = rounding->choice[p] + 1u; o < place->option_count; o++) {
        const struct option *to = &place->options[o];
        if (rounding->start[p] + to->time_s > rounding->latest[p])
            break;
        if (now->cost_j - to->cost_j >= least_w * (to->time_s - now->time_s))
            rounding->choice[p] = (uint16_t)o;
    }
}

#endif
