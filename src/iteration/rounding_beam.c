/* Rounding by beam search: keeps the best partial choices in the order of time. */
#include "iteration/rounding_internal.h"

#include "base/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The number of kept states. Results of more states are found sooner by the search: see
 * bench/bench_solver.c. */
enum { BEAM_WIDTH = 16 };

/* Options tried per instruction: those of least priced cost, and the slowest that fits. */
enum { TRIED = 6 };

/* A way to go on: the state it comes from, the option taken, and when the instruction ends. */
struct beam_step {
    double excess_j, finish;
    uint16_t parent, option;
};

/*
 * States are partial choices, one per place from the first on. `finish[0]` and `finish[1]` hold,
 * now and after the next place, [state][slot] when the instructions end that others still wait
 * for; `excess_j` what each state has cost beyond the continuous plan.
 */
struct beam {
    uint32_t *slot_of; /* per place; places that are never waited for at once may share a slot */
    uint32_t slots;
    double *finish[2], *excess_j, *limit;
    bool keeps_steady;
    struct beam_step *best; /* the next states, cheapest first */
    size_t best_count;
    struct taken {
        uint16_t parent, option;
    } * taken; /* [place][state] */
};

static int32_t last_waiting(const struct rounding_place *place, int32_t p)
{
    for (int k = 0; k < 2; k++)
        p = place->after[k] > p ? place->after[k] : p;
    return p;
}

static void assign_slots(struct beam *beam, const struct rounding *rounding)
{
    uint32_t *unused = erg_xcalloc(rounding->count, sizeof *unused), unused_count = 0;
    for (int32_t p = 0; p < (int32_t)rounding->count; p++) {
        const struct rounding_place *place = &rounding->places[p];
        beam->slot_of[p] = unused_count ? unused[--unused_count] : beam->slots++;
        if (last_waiting(place, p) == p)
            unused[unused_count++] = beam->slot_of[p];
        for (int k = 0; k < 2; k++) {
            int32_t before = place->before[k];
            if (before >= 0 && !(k == 1 && before == place->before[0]) &&
                last_waiting(&rounding->places[before], before) == p)
                unused[unused_count++] = beam->slot_of[before];
        }
    }
    free(unused);
}

struct beam *erg_beam_new(const struct rounding *rounding)
{
    struct beam *beam = erg_xcalloc(1, sizeof *beam);
    size_t count = rounding->count;
    beam->slot_of = erg_xcalloc(count, sizeof *beam->slot_of);
    assign_slots(beam, rounding);
    for (int side = 0; side < 2; side++)
        beam->finish[side] =
            erg_xcalloc((size_t)BEAM_WIDTH * beam->slots, sizeof *beam->finish[side]);
    beam->excess_j = erg_xcalloc(BEAM_WIDTH, sizeof *beam->excess_j);
    beam->limit = erg_xcalloc(count, sizeof *beam->limit);
    beam->best = erg_xcalloc(BEAM_WIDTH, sizeof *beam->best);
    beam->taken = erg_xcalloc(count * BEAM_WIDTH, sizeof *beam->taken);
    return beam;
}

void erg_beam_free(struct beam *beam)
{
    free(beam->slot_of);
    free(beam->finish[0]);
    free(beam->finish[1]);
    free(beam->excess_j);
    free(beam->limit);
    free(beam->best);
    free(beam->taken);
    free(beam);
}

static bool is_kept(const struct beam *beam, const struct rounding *rounding, int32_t p)
{
    return beam->keeps_steady && rounding_is_steady(rounding, &rounding->places[p]);
}

/*
 * Latest finishes while all that follow take the option just below their planned duration or the
 * one that they keep: that one then always fits, so no state comes to a dead end, and some may run
 * late for a while.
 */
static void find_limits(struct beam *beam, const struct rounding *rounding, double deadline_s)
{
    for (size_t p = rounding->count; p-- > 0;) {
        const struct rounding_place *place = &rounding->places[p];
        beam->limit[p] = deadline_s;
        for (int k = 0; k < 2; k++) {
            int32_t after = place->after[k];
            if (after < 0)
                continue;
            const uint16_t *least =
                is_kept(beam, rounding, after) ? rounding->choice : rounding->floor;
            double time_s = rounding->places[after].options[least[after]].time_s;
            double limit = beam->limit[after] - time_s - place->after_s[k];
            beam->limit[p] = limit < beam->limit[p] ? limit : beam->limit[p];
        }
    }
}

static double priced_j(const struct rounding *rounding, int32_t p, uint32_t option)
{
    const struct option *o = &rounding->places[p].options[option];
    return o->cost_j + rounding->price_w[p] * o->time_s;
}

/* The options of least cost with their time priced, best first, or the one that is kept. Returns
 * how many. */
static size_t find_favourites(const struct beam *beam, const struct rounding *rounding, int32_t p,
                              uint32_t *favourites)
{
    size_t count = 0;
    if (is_kept(beam, rounding, p)) {
        favourites[0] = rounding->choice[p];
        return 1;
    }
    for (uint32_t o = 0; o < rounding->places[p].option_count; o++) {
        size_t at = count < TRIED ? count++ : TRIED;
        for (; at > 0 && priced_j(rounding, p, favourites[at - 1]) > priced_j(rounding, p, o); at--)
            if (at < TRIED)
                favourites[at] = favourites[at - 1];
        if (at < TRIED)
            favourites[at] = o;
    }
    return count;
}

static uint32_t slowest_within(const struct rounding_place *place, double room)
{
    uint32_t low = 0, high = place->option_count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (place->options[middle].time_s <= room)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void offer(struct beam *beam, struct beam_step step)
{
    if (beam->best_count == BEAM_WIDTH) {
        if (step.excess_j >= beam->best[BEAM_WIDTH - 1].excess_j)
            return;
        beam->best_count--;
    }
    size_t at = beam->best_count++;
    for (; at > 0 && beam->best[at - 1].excess_j > step.excess_j; at--)
        beam->best[at] = beam->best[at - 1];
    beam->best[at] = step;
}

/* All ways in which one state can go on at place `p`. */
static void extend(struct beam *beam, const struct rounding *rounding, int32_t p, size_t state,
                   const uint32_t *favourites, size_t favourite_count)
{
    const struct rounding_place *place = &rounding->places[p];
    const double *finish = beam->finish[0] + state * beam->slots;
    double ready[2] = {0, 0}, start = 0;
    for (int k = 0; k < 2; k++)
        if (place->before[k] >= 0) {
            ready[k] = finish[beam->slot_of[place->before[k]]] + place->before_s[k];
            start = ready[k] > start ? ready[k] : start;
        }
    if (start + place->options[0].time_s > beam->limit[p])
        return;
    double excess_j = beam->excess_j[state];
    for (int k = 0; k < 2; k++)
        excess_j += place->before_w[k] * (start - ready[k]);
    uint32_t slowest = slowest_within(place, beam->limit[p] - start);
    if (is_kept(beam, rounding, p) && slowest > favourites[0])
        slowest = favourites[0];
    bool offered = false;
    for (size_t f = 0; f <= favourite_count && !(f == favourite_count && offered); f++) {
        uint32_t option = f < favourite_count ? favourites[f] : slowest;
        if (option > slowest)
            continue;
        offered = offered || option == slowest;
        offer(beam, (struct beam_step){.excess_j = excess_j + priced_j(rounding, p, option),
                                       .finish = start + place->options[option].time_s,
                                       .parent = (uint16_t)state,
                                       .option = (uint16_t)option});
    }
}

static void advance(struct beam *beam, int32_t p)
{
    size_t bytes = beam->slots * sizeof **beam->finish;
    for (size_t s = 0; s < beam->best_count; s++) {
        const struct beam_step *step = &beam->best[s];
        double *finish = beam->finish[1] + s * beam->slots;
        memcpy(finish, beam->finish[0] + (size_t)step->parent * beam->slots, bytes);
        finish[beam->slot_of[p]] = step->finish;
        beam->excess_j[s] = step->excess_j;
        beam->taken[(size_t)p * BEAM_WIDTH + s] = (struct taken){step->parent, step->option};
    }
    double *swap = beam->finish[0];
    beam->finish[0] = beam->finish[1];
    beam->finish[1] = swap;
}

bool erg_rounding_beam(struct rounding *rounding, double deadline_s, bool keeps_steady)
{
    struct beam *beam = rounding->beam;
    beam->keeps_steady = keeps_steady;
    int32_t count = (int32_t)rounding->count;
    find_limits(beam, rounding, deadline_s * (1 - ROUNDING_MARGIN));
    beam->excess_j[0] = 0;
    size_t states = 1;
    for (int32_t p = 0; p < count; p++) {
        uint32_t favourites[TRIED];
        size_t favourite_count = find_favourites(beam, rounding, p, favourites);
        beam->best_count = 0;
        for (size_t state = 0; state < states; state++)
            extend(beam, rounding, p, state, favourites, favourite_count);
        if (!beam->best_count)
            return false;
        advance(beam, p);
        states = beam->best_count;
    }
    size_t state = 0;
    for (int32_t p = count; p-- > 0;) {
        struct taken taken = beam->taken[(size_t)p * BEAM_WIDTH + state];
        rounding->choice[p] = taken.option;
        state = taken.parent;
    }
    return true;
}
