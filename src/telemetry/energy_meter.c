/*
 * Meters (ergon/telemetry.h): the sampler's samples go into one energy log per GPU and to the open
 * windows.
 */
#include "telemetry/energy_meter_internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/thread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double learning_s = 1.3;      /* close looks after opening: a dozen steps */
static const int64_t first_ns = 500000000; /* longest wait for the first steps */

/* ---- the state of a GPU ---- */

static void init_watched(struct watched *watched)
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

static void add_sample(struct watched *watched, const struct erg_gpu_sample *sample)
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

/* ---- the meter ---- */

static void put(void *context, const struct erg_sampler_item *item)
{
    struct erg_meter *meter = context;
    struct watched *watched = &meter->watched[item->gpu];
    pthread_mutex_lock(&meter->lock);
    add_sample(watched, &item->sample);
    for (struct erg_window *window = meter->windows; window; window = window->next)
        erg_window_update(window, item->gpu, watched, &item->sample);
    pthread_mutex_unlock(&meter->lock);
}

static void idle(void *context)
{
    struct erg_meter *meter = context;
    pthread_cond_broadcast(&meter->news);
}

/* Whether the gap before a window that begins now has been seen. */
static bool has_begun(const struct watched *watched)
{
    struct erg_sensor_traits counter, power;
    erg_energy_log_traits(watched->log, &counter, &power);
    bool without = watched->seen_s > 0 && !watched->has_counter;
    return watched->lost || without || counter.changes >= 2;
}

static void wait_for_first_steps(struct erg_meter *meter)
{
    int64_t until_ns = erg_now_ns() + first_ns;
    pthread_mutex_lock(&meter->lock);
    for (size_t i = 0; i < meter->count;)
        if (has_begun(&meter->watched[i]))
            i++;
        else if (!erg_condition_wait(&meter->news, &meter->lock, until_ns))
            break;
    pthread_mutex_unlock(&meter->lock);
}

int erg_meter_open(struct erg_meter **out, const char *gpus, struct erg_error *err)
{
    struct erg_gpus *opened;
    if (erg_gpus_open(&opened, gpus, err) != 0)
        return -1;
    size_t count = erg_gpus_count(opened);
    if (count > ERG_METER_GPUS_MAX) {
        erg_gpus_close(opened);
        return erg_fail(err, ERG_FAILED, "opening a meter: %zu GPUs, expected at most %d", count,
                        ERG_METER_GPUS_MAX);
    }
    struct erg_meter *meter = erg_xcalloc(1, sizeof *meter);
    struct erg_sampler_options options = erg_sampler_options_default();
    erg_condition_init(&meter->news);
    pthread_mutex_init(&meter->lock, NULL);
    meter->gpus = opened;
    meter->count = count;
    meter->watched = erg_xcalloc(count, sizeof *meter->watched);
    for (size_t i = 0; i < count; i++)
        init_watched(&meter->watched[i]);
    if (erg_rapl_open(&meter->rapl, NULL, NULL) != 0)
        meter->rapl = NULL; /* CPU energy is then missing, not an error */
    if (erg_sampler_start(&meter->sampler, opened, &options,
                          &(struct erg_sampler_sink){put, idle, meter}, err) != 0) {
        erg_meter_close(meter);
        return -1;
    }
    erg_sampler_look_closely(meter->sampler, erg_now_ns() + (int64_t)(learning_s * 1e9));
    wait_for_first_steps(meter);
    *out = meter;
    return 0;
}

void erg_meter_close(struct erg_meter *meter)
{
    if (!meter)
        return;
    erg_sampler_stop(meter->sampler);
    while (meter->windows)
        erg_window_cancel(meter->windows);
    for (size_t i = 0; i < meter->count; i++)
        erg_energy_log_free(meter->watched[i].log);
    free(meter->watched);
    erg_rapl_close(meter->rapl);
    erg_gpus_close(meter->gpus);
    pthread_cond_destroy(&meter->news);
    pthread_mutex_destroy(&meter->lock);
    free(meter);
}

size_t erg_meter_gpus(const struct erg_meter *meter)
{
    return meter->count;
}

static double or_nan(double value)
{
    return value > 0 ? value : NAN;
}

int erg_meter_gpu(struct erg_meter *meter, size_t gpu, struct erg_meter_gpu *info,
                  struct erg_error *err)
{
    const struct erg_gpu_info *known = erg_gpus_info(meter->gpus, gpu);
    struct erg_sensor_traits counter, power;
    pthread_mutex_lock(&meter->lock);
    erg_energy_log_traits(meter->watched[gpu].log, &counter, &power);
    pthread_mutex_unlock(&meter->lock);
    struct erg_meter_gpu own = {
        .index = known->index,
        .counter_period_s = or_nan(counter.period_s),
        .power_period_s = or_nan(power.period_s),
        .read_latency_s = or_nan(counter.latency_s),
    };
    memcpy(own.name, known->name, sizeof own.name);
    memcpy(own.uuid, known->uuid, sizeof own.uuid);
    memcpy(own.trouble, known->trouble, sizeof own.trouble);
    return erg_sized_give(info, &own, sizeof own, "erg_meter_gpu", err);
}
