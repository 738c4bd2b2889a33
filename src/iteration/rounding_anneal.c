#include "iteration/rounding_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* An event looks so many changes of option into the past and into the future. */
enum { STEPS = 12 };

/* Sweeps over all events: fewer find little, more find hardly more, but in proportion where there
 * are more than LONG events: what time is left over travels through all of them. */
enum { FEWEST = 150, MOST = 10000, LONG = 4096 };

/*
 * Temperatures, in units of what the next slower option saves on average, fall linearly from each
 * of these parts of the sweeps to the next. The hottest lets every mixture of options come about:
 * those that a table mixes may lie several steps apart. Most plans freeze on the long slope.
 */
static const struct cooling {
    double part, temperature;
} cooling[] = {{0, 0.4}, {0.2, 0.22}, {0.9, 0.12}, {1, 0.04}};

/* A stretch of time shorter than this part of the deadline does not count, and events stay half
 * of it away from either end: no error of addition makes a plan late. */
#define GRAIN 8e-15

enum { LOGARITHMS = 4096 };

/* What ends by a time and what starts at it: places, -1 for none. */
struct event {
    int32_t ending[2], starting[2];
};

/* Options of a table; one more on either side: time_s[count] and cost_j[-1] are infinite. */
struct curve {
    double *time_s, *cost_j;
};

struct annealing {
    struct event *events; /* by time */
    size_t event_count;
    struct curve *curves; /* per table */
    size_t curve_count;
    double exponential[LOGARITHMS]; /* quantiles of the exponential distribution */
};

/* --- events --- */

static bool same_before(const struct place *a, const struct place *b)
{
    return (a->before[0] == b->before[0] && a->before[1] == b->before[1]) ||
           (a->before[0] == b->before[1] && a->before[1] == b->before[0]);
}

/* Another place that starts by the same predecessors, or -1. */
static int32_t find_sibling(const struct rounding *rounding, int32_t p)
{
    const struct place *place = &rounding->places[p];
    int32_t before = place->before[place->before[0] < 0];
    for (int k = 0; k < 2; k++) {
        int32_t q = rounding->places[before].after[k];
        if (q >= 0 && q != p && same_before(place, &rounding->places[q]))
            return q;
    }
    return -1;
}

static void add_event(struct annealing *annealing, const struct place *place, int32_t p,
                      int32_t sibling)
{
    struct event *event = &annealing->events[annealing->event_count++];
    *event =
        (struct event){.ending = {place->before[0], place->before[1]}, .starting = {p, sibling}};
    if (event->ending[0] == event->ending[1])
        event->ending[1] = -1;
}

/*
 * In the steady state of 1F1B two instructions wait for the same two others: they move together.
 * Where latencies hold them apart they also move alone.
 */
static void find_events(struct annealing *annealing, const struct rounding *rounding)
{
    annealing->events = erg_xcalloc(2 * rounding->count, sizeof *annealing->events);
    for (int32_t p = 0; p < (int32_t)rounding->count; p++) {
        const struct place *place = &rounding->places[p];
        if (place->before[0] < 0 && place->before[1] < 0)
            continue;
        int32_t sibling = find_sibling(rounding, p);
        if (sibling < 0 || sibling > p)
            add_event(annealing, place, p, sibling);
        if (sibling >= 0 && (place->before_s[0] > 0 || place->before_s[1] > 0))
            add_event(annealing, place, p, -1);
    }
}

static struct curve new_curve(const struct option_table *table)
{
    struct curve curve = {.time_s = erg_xcalloc(table->count + 1, sizeof(double)),
                          .cost_j = erg_xcalloc(table->count + 1, sizeof(double))};
    *curve.cost_j++ = INFINITY;
    for (size_t o = 0; o < table->count; o++) {
        curve.time_s[o] = table->options[o].time_s;
        curve.cost_j[o] = table->options[o].cost_j;
    }
    curve.time_s[table->count] = INFINITY;
    return curve;
}

struct annealing *annealing_new(const struct rounding *rounding)
{
    struct annealing *annealing = erg_xcalloc(1, sizeof *annealing);
    find_events(annealing, rounding);
    annealing->curve_count = rounding->tables->count;
    annealing->curves = erg_xcalloc(annealing->curve_count, sizeof *annealing->curves);
    for (size_t t = 0; t < annealing->curve_count; t++)
        annealing->curves[t] = new_curve(&rounding->tables->tables[t]);
    for (size_t i = 0; i < LOGARITHMS; i++)
        annealing->exponential[i] = -log(((double)i + 0.5) / LOGARITHMS);
    return annealing;
}

void annealing_free(struct annealing *annealing)
{
    for (size_t t = 0; t < annealing->curve_count; t++) {
        free(annealing->curves[t].time_s);
        free(annealing->curves[t].cost_j - 1);
    }
    free(annealing->curves);
    free(annealing->events);
    free(annealing);
}

/* --- moving one event --- */

/* An instruction at an event, the times of all other events fixed. */
struct arm {
    const double *time_s, *cost_j;
    double at;    /* when it starts, if it ends by the event; else by when it has to end */
    double limit; /* when it has to end for others, if it ends by the event */
    int32_t place, option;
};

/* A stretch of time in which the event can lie without a change of options, and what they cost
 * more than now. */
struct stretch {
    double from, to, more_j;
};

static const double no_time_s[] = {-INFINITY, INFINITY}, no_cost_j[2];

static struct arm no_arm(void)
{
    return (struct arm){.time_s = no_time_s, .cost_j = no_cost_j, .limit = INFINITY, .place = -1};
}

static struct arm arm_of(const struct rounding *rounding, int32_t p)
{
    const struct curve *curve = &rounding->annealing->curves[rounding->places[p].table];
    return (struct arm){.time_s = curve->time_s,
                        .cost_j = curve->cost_j,
                        .limit = INFINITY,
                        .place = p,
                        .option = rounding->choice[p]};
}

/* Times count as those of the first that starts; a second one follows at its present distance. */
static struct arm ending_arm(const struct rounding *rounding, const struct event *event, int k,
                             double deadline_s)
{
    int32_t p = event->ending[k];
    if (p < 0)
        return no_arm();
    const struct place *place = &rounding->places[p];
    struct arm arm = arm_of(rounding, p);
    double lag_s = -INFINITY, limit = deadline_s, event_s = rounding->start[event->starting[0]];
    for (int side = 0; side < 2; side++) {
        int32_t after = place->after[side];
        if (after < 0)
            continue;
        double start = rounding->start[after] - place->after_s[side];
        if (after == event->starting[0] || after == event->starting[1])
            lag_s = event_s - start > lag_s ? event_s - start : lag_s;
        else
            limit = start < limit ? start : limit;
    }
    arm.at = rounding->start[p] + lag_s;
    arm.limit = limit + lag_s;
    return arm;
}

static struct arm starting_arm(const struct rounding *rounding, const struct event *event, int k,
                               double deadline_s)
{
    int32_t p = event->starting[k];
    if (p < 0)
        return no_arm();
    const struct place *place = &rounding->places[p];
    struct arm arm = arm_of(rounding, p);
    double latest = deadline_s;
    for (int side = 0; side < 2; side++) {
        int32_t after = place->after[side];
        if (after < 0)
            continue;
        double start = rounding->start[after] - place->after_s[side];
        latest = start < latest ? start : latest;
    }
    arm.at = latest - (rounding->start[p] - rounding->start[event->starting[0]]);
    return arm;
}

static double least_of(const double *next)
{
    double a = next[0] < next[1] ? next[0] : next[1], b = next[2] < next[3] ? next[2] : next[3];
    return a < b ? a : b;
}

/*
 * Lists the stretches ahead of an event that cost at most `most_j` more than now, and where the
 * present one ends. `gain` are the two that have more time the further it moves, `lose` the two
 * that have less. Ahead is the future, or, for direction -1, the past with all times negative.
 */
static size_t look_ahead(const struct arm *gain, const struct arm *lose, double direction,
                         double most_j, double grain, struct stretch *stretches, size_t count,
                         double *end)
{
    const double *time_s[] = {gain[0].time_s, gain[1].time_s, lose[0].time_s, lose[1].time_s};
    const double *cost_j[] = {gain[0].cost_j, gain[1].cost_j, lose[0].cost_j, lose[1].cost_j};
    int32_t option[] = {gain[0].option, gain[1].option, lose[0].option, lose[1].option};
    double at[] = {direction * gain[0].at, direction * gain[1].at, direction * lose[0].at,
                   direction * lose[1].at};
    double limit[] = {gain[0].limit, gain[1].limit}, next[4], more_j = 0;
    for (int k = 0; k < 4; k++) {
        next[k] = k < 2 ? at[k] + time_s[k][option[k] + 1] : at[k] - time_s[k][option[k]];
        if (k < 2 && next[k] > limit[k])
            next[k] = INFINITY;
    }
    double from = least_of(next);
    *end = from;
    for (int step = 0; step < STEPS && from < INFINITY; step++) {
        int a = next[1] < next[0], b = 2 + (next[3] < next[2]), k = next[b] < next[a] ? b : a;
        double now_j = cost_j[k][option[k]];
        option[k] += k < 2 ? 1 : -1;
        more_j += cost_j[k][option[k]] - now_j;
        if (more_j == INFINITY) /* one of `lose` was at its fastest */
            break;
        next[k] = k < 2 ? at[k] + time_s[k][option[k] + 1] : at[k] - time_s[k][option[k]];
        if (k < 2 && next[k] > limit[k])
            next[k] = INFINITY;
        double to = least_of(next);
        stretches[count] = (struct stretch){from, to, more_j};
        count += (more_j <= most_j) & (to - from > grain);
        from = to;
    }
    return count;
}

/* The slowest option for an arm with the event at `event_s`. */
static uint16_t refit(const struct arm *arm, bool ends, double event_s)
{
    double start = ends ? arm->at : event_s, end = ends ? event_s : arm->at;
    int32_t option = arm->option;
    end = ends && arm->limit < end ? arm->limit : end;
    while (start + arm->time_s[option + 1] <= end)
        option++;
    while (option > 0 && start + arm->time_s[option] > end)
        option--;
    return (uint16_t)option;
}

static void place_event(struct rounding *rounding, const struct event *event, double event_s)
{
    double by_s = event_s - rounding->start[event->starting[0]];
    rounding->start[event->starting[0]] = event_s;
    if (event->starting[1] >= 0)
        rounding->start[event->starting[1]] += by_s;
}

/*
 * Moves an event, to another stretch where the temperature allows one, to its early or its late
 * end: so what time is left over is in one piece, and sweeps carry it along.
 */
static void move_event(struct rounding *rounding, const struct event *event, double deadline_s,
                       double temperature_j, bool late, struct erg_rng *rng)
{
    struct stretch stretches[1 + 2 * STEPS];
    struct arm ending[2], starting[2];
    for (int k = 0; k < 2; k++) {
        ending[k] = ending_arm(rounding, event, k, deadline_s);
        starting[k] = starting_arm(rounding, event, k, deadline_s);
    }
    uint64_t random = erg_rng_next(rng);
    double most_j = temperature_j * rounding->annealing->exponential[random % LOGARITHMS];
    double grain = GRAIN * deadline_s, from, to;
    size_t ahead = look_ahead(ending, starting, 1, most_j, grain, stretches, 1, &to);
    size_t count = look_ahead(starting, ending, -1, most_j, grain, stretches, ahead, &from);
    for (size_t i = ahead; i < count; i++)
        stretches[i] = (struct stretch){-stretches[i].to, -stretches[i].from, stretches[i].more_j};
    stretches[0] = (struct stretch){-from, to, 0};
    size_t pick = count > 1 ? 1 + (size_t)(((random >> 32) * (count - 1)) >> 32) : 0;
    const struct stretch *stretch = &stretches[pick];
    double event_s = late ? stretch->to - grain / 2 : stretch->from + grain / 2;
    if (!(stretch->to - stretch->from > grain) || isinf(event_s))
        return;
    for (int k = 0; pick && k < 2; k++) {
        if (ending[k].place >= 0)
            rounding->choice[ending[k].place] = refit(&ending[k], true, event_s);
        if (starting[k].place >= 0)
            rounding->choice[starting[k].place] = refit(&starting[k], false, event_s);
    }
    place_event(rounding, event, event_s);
}

/* What the next slower option saves, on average over those that have one. */
static double mean_saving(const struct rounding *rounding)
{
    double sum = 0;
    size_t count = 0;
    for (size_t p = 0; p < rounding->count; p++) {
        const struct place *place = &rounding->places[p];
        uint32_t option = rounding->choice[p];
        if (option + 1 < place->option_count) {
            sum += place->options[option].cost_j - place->options[option + 1].cost_j;
            count++;
        }
    }
    return count ? sum / (double)count : 0;
}

/* Earliest starts, and what room they leave given to whoever has it. Returns when all must end. */
static double settle(struct rounding *rounding, double deadline_s)
{
    double latest = deadline_s * (1 - ROUNDING_MARGIN);
    for (size_t p = 0; p < rounding->count; p++) {
        rounding->start[p] = rounding_ready(rounding, &rounding->places[p]);
        double finish = rounding->start[p] + rounding_time(rounding, (int32_t)p);
        latest = finish > latest ? finish : latest;
    }
    for (size_t p = 0; p < rounding->count; p++) {
        struct event alone = {.ending = {-1, -1}, .starting = {(int32_t)p, -1}};
        struct arm arm = starting_arm(rounding, &alone, 0, latest);
        uint16_t option = refit(&arm, false, rounding->start[p]);
        if (option > rounding->choice[p])
            rounding->choice[p] = option;
    }
    return latest;
}

static double temperature_at(double part)
{
    const struct cooling *to = &cooling[1];
    while (part > to->part)
        to++;
    double along = (part - to[-1].part) / (to->part - to[-1].part);
    return to[-1].temperature + (to->temperature - to[-1].temperature) * along;
}

void rounding_anneal(struct rounding *rounding, double deadline_s, size_t moves,
                     struct erg_rng *rng)
{
    const struct annealing *annealing = rounding->annealing;
    size_t count = annealing->event_count, sweeps = moves / (count + 1);
    size_t most = count > LONG ? MOST * count / LONG : MOST;
    sweeps = sweeps < FEWEST ? FEWEST : sweeps > most ? most : sweeps;
    double latest = settle(rounding, deadline_s), unit_j = mean_saving(rounding);
    for (size_t sweep = 0; sweep < sweeps; sweep++) {
        double temperature_j = unit_j * temperature_at((double)sweep / (double)sweeps);
        bool late = sweep / 2 % 2;
        for (size_t i = 0; i < count; i++)
            move_event(rounding, &annealing->events[late ? count - 1 - i : i], latest,
                       temperature_j, late, rng);
    }
}
