/*
 * Energy at a moment, between the steps of a counter (telemetry/energy_log.h).
 */
#include "telemetry/energy_log_internal.h"

#include "base/statistics.h"

#include <assert.h>
#include <math.h>

enum { NEIGHBOURS = 6 }; /* steps on each side that narrow the time of a step */

/*
 * The share of the widest possible course of power in a gap that covers most hidden energy. A load
 * in step with the counter itself is invisible in all readings.
 */
static const double hidden_share = 0.7;

/* The weight of the variation between the powers of gaps. If the period of a load is near the
 * counter's, this variation is a small part of the variation within each gap. */
static const double unrest_gain = 10;

/* From this share on, the power changes all the time. */
static const double restless_share = 0.1;

/* The assumed power of waiting or idle GPUs, as a share of the power limit, where no lower power
 * was measured. */
static const double idle_share = 0.15;

/* The relative error of the mean power in a period by readings of power without a counter. */
static const double reading_share = 0.35;

/* ---- when a step happened ---- */

/*
 * When a step happened, from the two polls around it. If several steps lie between them, only the
 * last one before the reading is seen, and the host may have returned the reading late.
 */
static void seen_between(const struct erg_energy_log *log, size_t i, double *low_s, double *high_s)
{
    const struct counter_step *step = step_at(log, i);
    *high_s = step->high_s;
    *low_s = log->period_s > 0 ? fmax(step->low_s, step->call_s - log->period_s) : step->low_s;
}

/* A step's time, narrowed by its neighbours' as far as the counter is regular. */
static struct erg_edge refine(const struct erg_energy_log *log, size_t i)
{
    double low_s, high_s, period_s = log->period_s;
    seen_between(log, i, &low_s, &high_s);
    bool vague = high_s - low_s > 0.9 * period_s; /* any tick fits: which one is still open */
    double middle_s = 0.5 * (low_s + high_s), call_s = step_at(log, i)->call_s, end_s = high_s;
    size_t from = first_of(log->step_count, STEPS);
    size_t first = i > from + NEIGHBOURS ? i - NEIGHBOURS : from;
    for (size_t k = first; period_s > 0 && k < log->step_count && k <= i + NEIGHBOURS; k++) {
        double other_low_s, other_high_s;
        seen_between(log, k, &other_low_s, &other_high_s);
        if (k == i || other_high_s - other_low_s > 0.9 * period_s)
            continue;
        double other_s = 0.5 * (other_low_s + other_high_s);
        double ticks =
            vague ? floor((call_s - other_s) / period_s) : round((middle_s - other_s) / period_s);
        double slack_s = log->jitter_s * sqrt(fabs(ticks) + 1) + log->period_error_s * fabs(ticks);
        double shifted_low_s = other_low_s + ticks * period_s - slack_s;
        double shifted_high_s = other_high_s + ticks * period_s + slack_s;
        if (vague && (shifted_high_s > call_s || shifted_low_s < end_s - period_s))
            continue; /* this tick or the next? */
        if (!vague && (shifted_low_s + period_s < high_s || shifted_high_s - period_s > low_s))
            continue; /* both were seen so loosely that a neighbouring tick fits, too */
        if (fmax(low_s, shifted_low_s) < fmin(high_s, shifted_high_s)) { /* otherwise irregular */
            low_s = fmax(low_s, shifted_low_s);
            high_s = fmin(high_s, shifted_high_s);
        }
    }
    return (struct erg_edge){0.5 * (low_s + high_s), step_at(log, i)->energy_j,
                             0.5 * (high_s - low_s)};
}

/* ---- energy at a moment ---- */

/* The surroundings of a moment: the gap between the edges a and b, and the mean power in it, before
 * it and after it. */
struct gap {
    struct erg_edge a, b;
    double length_s, power_w, before_w, after_w;
    double unrest_w; /* of the surrounding gaps */
};

/* Edges with uncertain times may seem closer together than they can be. */
static double power_between(const struct erg_edge *a, const struct erg_edge *b)
{
    double length_s = fmax(b->time_s - a->time_s, 0.5 * (a->half_s + b->half_s));
    return (b->energy_j - a->energy_j) / fmax(length_s, 1e-6);
}

/*
 * The median difference between the power of a gap and the mean of its neighbours. A single change
 * or a ramp does not raise it; a load that comes and goes does.
 */
static double unrest(const struct erg_energy_log *log, size_t low)
{
    double powers_w[2 * NEIGHBOURS], unrests_w[2 * NEIGHBOURS];
    size_t count = 0, unrests = 0, from = first_of(log->step_count, STEPS);
    size_t first = low > from + NEIGHBOURS ? low - NEIGHBOURS : from;
    struct erg_edge a = refine(log, first);
    for (size_t i = first; i + 1 < log->step_count && i < low + NEIGHBOURS; i++) {
        struct erg_edge b = refine(log, i + 1);
        assert(count < sizeof powers_w / sizeof *powers_w);
        powers_w[count++] = power_between(&a, &b);
        a = b;
    }
    for (size_t i = 1; i + 1 < count; i++)
        unrests_w[unrests++] = fabs(powers_w[i] - 0.5 * (powers_w[i - 1] + powers_w[i + 1]));
    return erg_median(unrests_w, unrests);
}

/* Index of the last power reading at or before a moment, or of the first one. */
static size_t reading_before(const struct erg_energy_log *log, double at_s)
{
    assert(log->power_count > 0);
    size_t low = first_of(log->power_count, POWERS), high = log->power_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (reading_at(log, middle)->time_s <= at_s)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The lowest and highest power that may have occurred in the gap, seen or not. */
static void power_range(const struct erg_energy_log *log, const struct gap *gap, double *low_w,
                        double *high_w)
{
    *low_w = fmin(gap->power_w, fmin(gap->before_w, gap->after_w));
    *high_w = fmax(gap->power_w, fmax(gap->before_w, gap->after_w));
    for (size_t i = first_of(log->power_count, POWERS); i < log->power_count; i++) {
        *low_w = fmin(*low_w, reading_at(log, i)->power_w);
        *high_w = fmax(*high_w, reading_at(log, i)->power_w);
    }
    *high_w = log->limit_w > 0 ? fmax(*high_w, log->limit_w) : 1.5 * *high_w;
    *low_w = fmin(*low_w, idle_share * *high_w);
}

/* Energy at a fraction `x` of the gap, from the two lines, or linear if they do not meet. */
static double energy_in_gap(const struct gap *gap, double x)
{
    assert(gap->length_s > 0 && x <= 1);
    double linear_j = gap->a.energy_j + x * (gap->b.energy_j - gap->a.energy_j);
    double noise_w = gap->power_w * (gap->a.half_s + gap->b.half_s) / gap->length_s;
    double difference_w = gap->before_w - gap->after_w;
    if (fabs(difference_w) <= 2 * noise_w)
        return linear_j;
    double meet = (gap->power_w - gap->after_w) / difference_w;
    if (meet < 0 || meet > 1)
        return linear_j;
    if (x < meet)
        return gap->a.energy_j + gap->before_w * x * gap->length_s;
    return gap->b.energy_j - gap->after_w * (1 - x) * gap->length_s;
}

/* Energy above or below the mean before a fraction `x` of the gap is balanced after it, within the
 * lowest and the highest power: no course hides more than `widest_j`. */
static double uncertainty_in_gap(const struct erg_energy_log *log, const struct gap *gap, double x)
{
    double low_w, high_w;
    power_range(log, gap, &low_w, &high_w);
    double up_w = high_w - gap->power_w, down_w = gap->power_w - low_w;
    double widest_j =
        gap->length_s * fmax(fmin(x * up_w, (1 - x) * down_w), fmin(x * down_w, (1 - x) * up_w));
    double unrest_j = gap->unrest_w * gap->length_s * 2 * sqrt(fmax(x * (1 - x), 0));
    double hidden_j = fmin(widest_j, hidden_share * widest_j + unrest_gain * unrest_j);
    double time_j = fmax(gap->before_w, fmax(gap->power_w, gap->after_w)) *
                    hypot((1 - x) * gap->a.half_s, x * gap->b.half_s);
    return hypot(time_j, hidden_j);
}

/* Beyond the last edge, or before the first: continues at the power there. */
static void extrapolate(const struct erg_energy_log *log, const struct erg_edge *edge,
                        double power_w, double at_s, struct erg_energy_value *value)
{
    double away_s = at_s - edge->time_s;
    double reach_s = log->period_s > 0 ? 10 * log->period_s : 1;
    *value = (struct erg_energy_value){
        .valid = fabs(away_s) <= reach_s,
        .run = log->run,
        .energy_j = edge->energy_j + power_w * away_s,
        .begin_j = edge->energy_j + power_w * away_s,
        .end_j = edge->energy_j + power_w * away_s,
        .uncertainty_j = power_w * (0.5 * fabs(away_s) + edge->half_s),
    };
}

void erg_energy_log_counter_at(const struct erg_energy_log *log, double at_s,
                               struct erg_energy_value *value, bool *settled)
{
    size_t from = first_of(log->step_count, STEPS), count = log->step_count;
    *value = (struct erg_energy_value){0};
    *settled = false;
    if (count - from < 2)
        return;
    /* The last edge at or before the moment. */
    size_t low = from, high = count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (middle_of(step_at(log, middle)) <= at_s)
            low = middle;
        else
            high = middle;
    }
    /* Refined times may lie on the other side. */
    struct erg_edge edge = refine(log, low);
    if (edge.time_s > at_s && low > from)
        edge = refine(log, --low);
    else if (low + 1 < count) {
        struct erg_edge next = refine(log, low + 1);
        if (next.time_s <= at_s) {
            edge = next;
            low++;
        }
    }
    if (edge.time_s > at_s) {
        struct erg_edge next = refine(log, low + 1);
        extrapolate(log, &edge, power_between(&edge, &next), at_s, value);
        *settled = true;
        return;
    }
    if (low + 1 >= count) {
        assert(low > from); /* with two steps or more it is the last */
        struct erg_edge before = refine(log, low - 1);
        double power_w = power_between(&before, &edge);
        if (log->power_count)
            power_w = reading_at(log, reading_before(log, at_s))->power_w;
        extrapolate(log, &edge, power_w, at_s, value);
        return;
    }
    struct gap gap = {.a = edge, .b = refine(log, low + 1)};
    gap.length_s = fmax(gap.b.time_s - gap.a.time_s, 1e-6);
    gap.power_w = gap.before_w = gap.after_w = power_between(&gap.a, &gap.b);
    if (low > from) {
        struct erg_edge before = refine(log, low - 1);
        gap.before_w = power_between(&before, &gap.a);
    }
    if (low + 2 < count) {
        struct erg_edge after = refine(log, low + 2);
        gap.after_w = power_between(&gap.b, &after);
        *settled = true;
    }
    gap.unrest_w = unrest(log, low);
    double x = fmin((at_s - gap.a.time_s) / gap.length_s, 1);
    *value = (struct erg_energy_value){
        .valid = true,
        .run = log->run,
        .energy_j = energy_in_gap(&gap, x),
        .begin_j = fmin(gap.a.energy_j + gap.before_w * x * gap.length_s, gap.b.energy_j),
        .end_j = fmax(gap.b.energy_j - gap.after_w * (1 - x) * gap.length_s, gap.a.energy_j),
        .uncertainty_j = uncertainty_in_gap(log, &gap, x),
    };
    if (gap.unrest_w >
        restless_share * gap.power_w) /* the load changes by itself, not with the window */
        value->begin_j = value->end_j = value->energy_j;
}

void erg_energy_log_power_at(const struct erg_energy_log *log, double at_s,
                             struct erg_energy_value *value)
{
    *value = (struct erg_energy_value){0};
    if (log->power_count == 0)
        return;
    /* A reading describes the period before it, or the last part of it, and is shown during the
     * next one. */
    double period_s = log->period_s > 0 ? log->period_s : 0.1, shown_s = at_s + 0.75 * period_s;
    size_t before = reading_before(log, shown_s);
    const struct power *power = reading_at(log, before);
    double away_s = shown_s - power->time_s, held_j = power->power_w * away_s;
    if (away_s > 0 && before + 1 < log->power_count)
        held_j = erg_energy_held(power, reading_at(log, before + 1), away_s);
    double next_w = reading_at(log, reading_before(log, shown_s + period_s))->power_w;
    double energy_j = power->integral_j + held_j;
    *value = (struct erg_energy_value){
        .valid = away_s > -period_s && away_s < 10 * period_s,
        .energy_j = energy_j,
        .missed_j2 = power->missed_j2,
        .begin_j = energy_j,
        .end_j = energy_j,
        .uncertainty_j =
            period_s * (fabs(next_w - power->power_w) + reading_share * power->power_w),
    };
}

void erg_energy_between(const struct erg_energy_value *begin, const struct erg_energy_value *end,
                        bool brief, double *energy_j, double *uncertainty_j)
{
    double plain_j = end->energy_j - begin->energy_j, window_j = end->end_j - begin->begin_j;
    *energy_j = fmax(brief ? window_j : plain_j, 0);
    double missed_j = 2 * sqrt(fmax(end->missed_j2 - begin->missed_j2, 0));
    *uncertainty_j = hypot(missed_j, hypot(begin->uncertainty_j, end->uncertainty_j));
    if (brief)
        *uncertainty_j = hypot(*uncertainty_j, window_j - plain_j);
}
