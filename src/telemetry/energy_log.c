/* Adds the samples of one GPU to its energy log (telemetry/energy_log.h). */
#include "telemetry/energy_log.h"

#include "base/memory.h"
#include "base/statistics.h"
#include "telemetry/energy_log_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double erg_edges_energy_at(const struct erg_edge_list *edges, double at_s)
{
    assert(edges->count >= 2);
    size_t low = 0, high = edges->count - 1;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (edges->items[middle].time_s <= at_s)
            low = middle;
        else
            high = middle;
    }
    const struct erg_edge *a = &edges->items[low], *b = &edges->items[high];
    assert(b->time_s > a->time_s);
    return a->energy_j + (b->energy_j - a->energy_j) * (at_s - a->time_s) / (b->time_s - a->time_s);
}

struct erg_energy_log *erg_energy_log_new(void)
{
    return erg_xcalloc(1, sizeof(struct erg_energy_log));
}

void erg_energy_log_free(struct erg_energy_log *log)
{
    free(log);
}

void erg_energy_log_set_limit(struct erg_energy_log *log, double limit_w)
{
    log->limit_w = limit_w;
}

/* ---- properties of the sensor ---- */

/* Polls at half the period do not show when two steps happened. */
static const double tells_share = 0.45;

/* The bias from the selection of gaps, as a multiple of their variance divided by their length. */
static const double bias_share = 3;

/*
 * How loosely neighbouring steps were seen at best: the lower quartile, because the minimum may be
 * luck.
 */
static double usual_looseness(const struct erg_energy_log *log)
{
    double halves_s[STEPS];
    size_t count = 0;
    for (size_t i = first_of(log->step_count, STEPS) + 1; i < log->step_count; i++) {
        const struct counter_step *a = step_at(log, i - 1), *b = step_at(log, i);
        double half_s = half_of(a) + half_of(b);
        if (half_s < tells_share * (middle_of(b) - middle_of(a)))
            halves_s[count++] = half_s;
    }
    erg_median(halves_s, count); /* sorts them */
    return count ? halves_s[count / 4] : 0;
}

/*
 * The counter's period: from neighbouring steps that were both seen closely, then from ever longer
 * spans while the number of steps in them is certain.
 */
static void learn(struct erg_energy_log *log)
{
    enum { GAPS = 128 };
    double gaps_s[GAPS], blur = 0, scatter = 0;
    size_t count = 0, from = first_of(log->step_count, STEPS);
    double loosest_s = 2 * usual_looseness(log);
    for (size_t i = log->step_count; i-- > from + 1 && count < GAPS;) {
        const struct counter_step *a = step_at(log, i - 1), *b = step_at(log, i);
        double gap_s = middle_of(b) - middle_of(a), half_s = half_of(a) + half_of(b);
        if (half_s < tells_share * gap_s && half_s <= loosest_s) {
            gaps_s[count++] = gap_s;
            blur += (half_of(a) * half_of(a) + half_of(b) * half_of(b)) / 3;
        }
    }
    log->learned_from = count;
    if (count < 4)
        return;
    double usual_s = erg_median(gaps_s, count), sum_s = 0, used = 0;
    for (size_t i = 0; i < count; i++)
        if (fabs(gaps_s[i] - usual_s) < 0.3 * usual_s) { /* otherwise a step was missed */
            sum_s += gaps_s[i];
            used++;
        }
    double period_s = sum_s / used;
    for (size_t i = 0; i < count; i++)
        if (fabs(gaps_s[i] - usual_s) < 0.3 * usual_s)
            scatter += (gaps_s[i] - period_s) * (gaps_s[i] - period_s) / used;
    blur /= (double)count;
    double jitter_s = sqrt(fmax(scatter - blur, 0));
    /*
     * Averaging does not remove the bias of loosely seen gaps: the test above accepts gaps that
     * seem long more often than gaps that seem short.
     */
    double error_s = (sqrt(blur) + jitter_s) / sqrt(used) + bias_share * blur / period_s;
    const struct counter_step *last = step_at(log, log->step_count - 1);
    for (size_t back = 2; back < log->step_count - from; back *= 2) {
        const struct counter_step *first = step_at(log, log->step_count - 1 - back);
        double span_s = middle_of(last) - middle_of(first), ticks = round(span_s / period_s);
        if (ticks * error_s > 0.25 * period_s)
            break;
        double span_error_s = (half_of(last) + half_of(first) + jitter_s) / ticks;
        if (span_error_s < error_s) {
            period_s = span_s / ticks;
            error_s = span_error_s;
        }
    }
    log->period_s = period_s;
    log->period_error_s = error_s;
    log->jitter_s = jitter_s;
}

/* ---- readings come ---- */

/*
 * No GPU uses more, and no counter moves less often. A counter that does has restarted, e.g.
 * because the driver was reloaded.
 */
static const double most_w = 20e3, most_period_s = 1;

static void add_energy(struct erg_energy_log *log, const struct erg_gpu_sample *sample)
{
    const struct erg_reading *reading = &sample->readings[ERG_METRIC_ENERGY];
    double energy_j = 1e-3 * (double)reading->value;
    double begin_s = 1e-9 * (double)sample->start_ns;
    double end_s = fmax(1e-9 * (double)(2 * reading->time_ns - sample->start_ns), begin_s);
    double most_j = most_w * (end_s - log->read_begin_s + most_period_s);
    if (log->has_energy && (energy_j < log->energy_j || energy_j > log->energy_j + most_j)) {
        log->step_count = 0;
        log->run++;
    } else if (log->has_energy && energy_j > log->energy_j) {
        assert(end_s >= begin_s);
        log->steps[log->step_count++ % STEPS] =
            (struct counter_step){log->read_begin_s, begin_s, end_s, energy_j};
        learn(log);
    }
    log->has_energy = true;
    log->energy_j = energy_j;
    log->read_begin_s = begin_s;
}

double erg_energy_held(const struct power *power, const struct power *next, double away_s)
{
    static const double longest_s = 0.25; /* that a change may take */
    double gap_s = next->time_s - power->time_s, change_s = fmin(gap_s, longest_s);
    double changing_s = fmax(0, away_s - (gap_s - change_s));
    assert(change_s > 0);
    double slope_w_s = (next->power_w - power->power_w) / change_s;
    return power->power_w * away_s + 0.5 * slope_w_s * changing_s * changing_s;
}

static void add_power(struct erg_energy_log *log, const struct erg_gpu_sample *sample)
{
    const struct erg_reading *reading = &sample->readings[ERG_METRIC_POWER_INSTANT];
    struct power power = {1e-9 * (double)reading->time_ns, 1e-3 * (double)reading->value, 0, 0};
    if (log->power_count) {
        const struct power *last = reading_at(log, log->power_count - 1);
        if (power.time_s <= last->time_s)
            return; /* the sensor's own timestamp: this reading is already stored */
        double held_s = power.time_s - last->time_s;
        double missed_j = 0.5 * held_s * (power.power_w - last->power_w);
        power.integral_j = last->integral_j + erg_energy_held(last, &power, held_s);
        power.missed_j2 = last->missed_j2 + missed_j * missed_j;
    }
    log->powers[log->power_count++ % POWERS] = power;
}

void erg_energy_log_add(struct erg_energy_log *log, const struct erg_gpu_sample *sample)
{
    if (erg_gpu_has(sample, ERG_METRIC_ENERGY))
        add_energy(log, sample);
    if (erg_gpu_has(sample, ERG_METRIC_POWER_INSTANT))
        add_power(log, sample);
    if (sample->valid)
        log->latencies_s[log->latency_count++ % LATENCIES] =
            1e-9 * (double)(sample->end_ns - sample->start_ns);
}

size_t erg_energy_log_run(const struct erg_energy_log *log)
{
    return log->run;
}

double erg_energy_log_highest(const struct erg_energy_log *log)
{
    double highest_w = 0;
    for (size_t i = first_of(log->power_count, POWERS); i < log->power_count; i++)
        highest_w = fmax(highest_w, reading_at(log, i)->power_w);
    return highest_w;
}

/* ---- for people ---- */

static double median_latency(const struct erg_energy_log *log)
{
    double values_s[LATENCIES];
    size_t count = log->latency_count < LATENCIES ? log->latency_count : LATENCIES;
    memcpy(values_s, log->latencies_s, count * sizeof *values_s);
    return erg_median(values_s, count);
}

void erg_energy_log_traits(const struct erg_energy_log *log, struct erg_sensor_traits *counter,
                           struct erg_sensor_traits *power)
{
    double *gaps_s = erg_xcalloc(POWERS, sizeof *gaps_s);
    size_t changes = 0;
    double changed_s = NAN, latency_s = median_latency(log);
    *counter =
        (struct erg_sensor_traits){log->period_s, log->jitter_s, latency_s, log->learned_from};
    for (size_t i = first_of(log->power_count, POWERS) + 1; i < log->power_count; i++) {
        const struct power *last = reading_at(log, i - 1), *now = reading_at(log, i);
        if (now->power_w == last->power_w)
            continue;
        /* Only during close looks. */
        bool close = now->time_s - last->time_s < 0.02;
        if (close && !isnan(changed_s))
            gaps_s[changes++] = now->time_s - changed_s;
        changed_s = close ? now->time_s : NAN;
    }
    *power = (struct erg_sensor_traits){.latency_s = latency_s, .changes = changes};
    power->period_s = erg_median(gaps_s, changes);
    for (size_t i = 0; i < changes; i++)
        gaps_s[i] = fabs(gaps_s[i] - power->period_s);
    power->jitter_s = erg_median(gaps_s, changes);
    free(gaps_s);
}
