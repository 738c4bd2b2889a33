/*
 * From a continuous plan to one measured option per instruction, never beyond the deadline.
 *
 * There are two starts: beam search, in topological order with the partial choices of the least
 * loss so far, and the options just below the planned durations. Then the slack of each is
 * reclaimed: instructions move to slower options, the best savings for the price of their time
 * first. A local search perturbs the better of them. Where plans for neighbouring deadlines may be
 * better, a mixture of them is searched, too.
 *
 * The continuous plan cannot be reached in general: it moves along hulls, options have gaps.
 * bench/bench_solver.c has the bounds that branch and bound proved on small pipelines.
 */
#ifndef ERG_ITERATION_ROUNDING_INTERNAL_H
#define ERG_ITERATION_ROUNDING_INTERNAL_H

#include "base/random.h"
#include "iteration/tables_internal.h"

#include <stdbool.h>

/*
 * Latest finishes are this much after the deadline, relatively, and an end up to this much later
 * still counts as on time: with round times, options fit exactly except for the errors of addition.
 */
#define ROUNDING_MARGIN 1e-12

/* An instruction at its place in the topological order; links are places, -1 for none. */
struct rounding_place {
    int32_t before[2], after[2];
    double before_s[2], after_s[2]; /* latencies */
    int32_t before_flow[2];         /* where the solver reports the flow of the dependency */
    double before_w[2]; /* what a second of slack before it costs, in the continuous plan */
    const struct option *options;
    uint32_t option_count;
    uint32_t table, instruction, microbatch;
    int32_t phase; /* see erg_rounding_mix() */
};

/*
 * The stages of 1F1B in the steady state. Stage s + 1 runs forward(m) and backward(m - k) while
 * stage s runs backward(m - k - 1) and forward(m + 1), in between the same two moments: a cycle of
 * the pipeline takes as long as that of its slowest stage. So at best all stages keep the same
 * time, or change between two times together: the hull is the cost of these, and `option` has the
 * option of every table for each point of the hull. Empty where stages have several chunks.
 */
struct rounding_cycles {
    struct erg_frontier hull;
    size_t table_count;
    uint16_t *option; /* [point][table] */
};

void erg_rounding_cycles_init(struct rounding_cycles *cycles, const struct erg_schedule *schedule,
                              const struct option_tables *tables);
void erg_rounding_cycles_release(struct rounding_cycles *cycles);

struct rounding {
    const struct option_tables *tables;
    const struct rounding_cycles *cycles;
    size_t count;
    int32_t phases;
    int32_t reach;        /* the most places between an instruction and its successor */
    uint64_t seed;        /* of the local search */
    double stage_power_w; /* P * S */
    struct rounding_place
        *places;            /* by start time of the fastest schedule: a range is a slice of time */
    double *start, *latest; /* per place: start, latest finish */
    double *price_w; /* per place: what a second more or less is worth in the continuous plan */
    uint16_t *choice, *best, *floor; /* per place: index into its options */
    uint16_t *kept;                  /* the search's copy of one range */
    uint16_t *cycle[2];              /* per place: a cycle that is on time, and one that is late */
    size_t microbatches;
    int32_t *place_of; /* [table * microbatches + microbatch] */
    struct beam *beam;
};

/* Whether the phase of a place is one in which no stage fills or drains. */
static inline bool rounding_is_steady(const struct rounding *rounding,
                                      const struct rounding_place *place)
{
    int32_t ends = (int32_t)rounding->tables->count / 2; /* a phase per stage */
    return place->phase >= ends && place->phase < rounding->phases - ends;
}

struct rounding *erg_rounding_new(const struct erg_schedule *schedule,
                                  const struct option_tables *tables,
                                  const struct rounding_cycles *cycles, uint64_t seed);
void erg_rounding_free(struct rounding *rounding);

/*
 * How often to look at each instruction: at least, at most until a plan needs enough_j, and at the
 * utmost until it needs poor_j.
 */
struct rounding_effort {
    size_t least, most, utmost;
    double enough_j, poor_j;
};

/*
 * deadline_s at least the true shortest time, met except for the errors of addition. `choice` has
 * one entry per place.
 */
void erg_rounding_round(struct rounding *rounding, const struct timecost_plan *plan,
                        double deadline_s, const struct rounding_effort *effort, uint16_t *choice);

/*
 * Improves `choice`, which is on time, where a mixture of two others does better: `slow`, which is
 * late, in some phases of the iteration, and `fast`, which is not, in those before or after.
 *
 * A phase is the number of instructions of the other direction that the stage has run before: in
 * the steady state of 1F1B without waiting, forward(stage, m) and then backward(stage, m - S +
 * stage + 1) take as long as backward(stage - 1, m - S + stage) and then forward(stage - 1, m + 1),
 * the two ways between the same two moments; so forwards of equal phase may change together, and so
 * may backwards. With phases by microbatch or by time, each change would cost stages another wait.
 */
void erg_rounding_mix(struct rounding *rounding, const struct timecost_plan *plan,
                      double deadline_s, const struct rounding_effort *effort, const uint16_t *fast,
                      const uint16_t *slow, uint16_t *choice);

/* Longest path and cost beyond waiting of a choice. */
void erg_rounding_measure(struct rounding *rounding, const uint16_t *choice, double *time_s,
                          double *cost_j);

/* Writes the index of each chosen option, as the caller's tables count, per instruction. */
void erg_rounding_options(const struct rounding *rounding, const uint16_t *choice,
                          uint32_t *option);

/*
 * Fills `choice` by beam search. By the duality of the continuous problem, the excess cost of a
 * choice over the plan is the sum of its options' costs, with their time at the plan's prices, and
 * of each second of slack on a dependency at that dependency's price. So a partial choice is
 * charged for every mismatch as soon as it arises, and the best ones continue. With `keeps_steady`,
 * the places of the steady state keep their choice. false where not even the options below the plan
 * may fit: within the last tick of the shortest time, and where the kept choices leave too little
 * time.
 */
bool erg_rounding_beam(struct rounding *rounding, double deadline_s, bool keeps_steady);
struct beam *erg_beam_new(const struct rounding *rounding);
void erg_beam_free(struct beam *beam);

/*
 * Improves `choice`, which must be on time. First pairs of an instruction and its successor trade
 * time until no pair gains. Then, again and again, takes a random slice of time, speeds up some of
 * its instructions or copies the options that other microbatches have found, gives the slack away
 * again in another order, lets pairs trade and keeps what costs no more.
 */
void erg_rounding_search(struct rounding *rounding, double deadline_s, size_t effort,
                         struct erg_rng *rng);

static inline double rounding_time(const struct rounding *rounding, int32_t p)
{
    return rounding->places[p].options[rounding->choice[p]].time_s;
}

/* Earliest start of a place, its predecessors' starts and choices being settled, all but
 * `without`'s
 * (-1: of all). */
static inline double rounding_ready_without(const struct rounding *rounding,
                                            const struct rounding_place *place, int32_t without)
{
    double start = 0;
    for (int k = 0; k < 2; k++) {
        int32_t before = place->before[k];
        if (before < 0 || before == without)
            continue;
        double ready =
            rounding->start[before] + rounding_time(rounding, before) + place->before_s[k];
        start = ready > start ? ready : start;
    }
    return start;
}

static inline double rounding_ready(const struct rounding *rounding,
                                    const struct rounding_place *place)
{
    return rounding_ready_without(rounding, place, -1);
}

/* Latest finish of a place, its successors' latest finishes and choices being settled, all but
 * `without`'s (-1: of all). */
static inline double rounding_limit_without(const struct rounding *rounding,
                                            const struct rounding_place *place, double deadline_s,
                                            int32_t without)
{
    double latest = deadline_s;
    for (int k = 0; k < 2; k++) {
        int32_t after = place->after[k];
        if (after < 0 || after == without)
            continue;
        double limit = rounding->latest[after] - rounding_time(rounding, after) - place->after_s[k];
        latest = limit < latest ? limit : latest;
    }
    return latest;
}

static inline double rounding_limit(const struct rounding *rounding,
                                    const struct rounding_place *place, double deadline_s)
{
    return rounding_limit_without(rounding, place, deadline_s, -1);
}

/* The slowest option that fits between start and latest finish and saves `share` of the price. */
static inline void rounding_slow_down(struct rounding *rounding, int32_t p, double share)
{
    const struct rounding_place *place = &rounding->places[p];
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
