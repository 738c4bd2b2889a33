/*
 * What a meter knows of one GPU (energy_meter_internal.h).
 */
#include "telemetry/energy_meter_internal.h"

#include <math.h>

void erg_watched_init(struct watched *watched)
{
    *watched = (struct watched){
        .log = erg_energy_log_new(),
        .temperature_c = NAN,
        .clock_mhz = NAN,
    };
}

struct violation erg_watched_by_reasons(const struct watched *watched, double at_s)
{
    const uint32_t power = ERG_REASON_SW_POWER_CAP | ERG_REASON_HW_POWER_BRAKE;
    const uint32_t thermal = ERG_REASON_SW_THERMAL | ERG_REASON_HW_THERMAL;
    struct violation so_far = watched->by_reasons;
    if (!watched->has_reasons)
        return (struct violation){at_s, NAN, NAN};
    double held_s = at_s - so_far.time_s;
    so_far.power_s += watched->reasons & power ? held_s : 0;
    so_far.thermal_s += watched->reasons & thermal ? held_s : 0;
    so_far.time_s = at_s;
    return so_far;
}

double erg_watched_clock(const struct watched *watched, double at_s)
{
    return watched->clock_s_mhz + watched->clock_mhz * (at_s - watched->clock_time_s);
}

bool erg_watched_by_counters(const struct watched *watched, double at_s, struct violation *value)
{
    *value = (struct violation){at_s, NAN, NAN};
    size_t count = watched->violation_count, from = count > VIOLATIONS ? count - VIOLATIONS : 0;
    for (size_t i = from; i + 1 < count; i++) {
        const struct violation *a = &watched->violations[i % VIOLATIONS];
        const struct violation *b = &watched->violations[(i + 1) % VIOLATIONS];
        if (a->time_s > at_s || (b->time_s < at_s && i + 2 < count))
            continue;
        double x = fmin((at_s - a->time_s) / (b->time_s - a->time_s), 1);
        value->power_s = a->power_s + x * (b->power_s - a->power_s);
        value->thermal_s = a->thermal_s + x * (b->thermal_s - a->thermal_s);
        return b->time_s >= at_s;
    }
    return count == 0; /* nothing to wait for */
}

double erg_watched_period(const struct watched *watched)
{
    struct erg_sensor_traits counter, power;
    erg_energy_log_traits(watched->log, &counter, &power);
    return counter.period_s > 0 ? counter.period_s : ERG_METER_USUAL_PERIOD_S;
}

static void add_violation(struct watched *watched, const struct erg_gpu_sample *sample)
{
    const struct erg_reading *power = &sample->readings[ERG_METRIC_VIOLATION_POWER];
    const struct erg_reading *thermal = &sample->readings[ERG_METRIC_VIOLATION_THERMAL];
    struct violation *last =
        &watched->violations[(watched->violation_count + VIOLATIONS - 1) % VIOLATIONS];
    double time_s = 1e-9 * (double)power->time_ns;
    if (watched->violation_count && time_s <= last->time_s)
        return;
    watched->violations[watched->violation_count++ % VIOLATIONS] =
        (struct violation){time_s, 1e-9 * (double)power->value, 1e-9 * (double)thermal->value};
}

void erg_watched_add(struct watched *watched, const struct erg_gpu_sample *sample)
{
    const struct erg_reading *readings = sample->readings;
    double time_s = 1e-9 * (double)sample->start_ns;
    erg_energy_log_add(watched->log, sample);
    watched->seen_s = time_s;
    watched->lost |= sample->lost;
    watched->has_counter |= erg_gpu_has(sample, ERG_METRIC_ENERGY);
    if (erg_gpu_has(sample, ERG_METRIC_POWER_LIMIT))
        erg_energy_log_set_limit(watched->log,
                                 1e-3 * (double)readings[ERG_METRIC_POWER_LIMIT].value);
    if (erg_gpu_has(sample, ERG_METRIC_TEMPERATURE))
        watched->temperature_c = (double)readings[ERG_METRIC_TEMPERATURE].value;
    if (erg_gpu_has(sample, ERG_METRIC_VIOLATION_POWER) &&
        erg_gpu_has(sample, ERG_METRIC_VIOLATION_THERMAL))
        add_violation(watched, sample);
    if (erg_gpu_has(sample, ERG_METRIC_REASONS)) {
        watched->by_reasons = watched->has_reasons ? erg_watched_by_reasons(watched, time_s)
                                                   : (struct violation){.time_s = time_s};
        watched->has_reasons = true;
        watched->reasons = (uint32_t)readings[ERG_METRIC_REASONS].value;
    }
    if (erg_gpu_has(sample, ERG_METRIC_SM_CLOCK)) {
        watched->clock_s_mhz = isnan(watched->clock_mhz) ? 0 : erg_watched_clock(watched, time_s);
        watched->clock_time_s = time_s;
        watched->clock_mhz = (double)readings[ERG_METRIC_SM_CLOCK].value;
    }
}
