/*
 * Meters and windows (ergon/telemetry.h): the sampler's samples go into one energy log per GPU; a
 * window notes its two moments and reads the logs when what surrounds the moments has come.
 */
#include "ergon/telemetry.h"

#include "base/clock.h"
#include "base/memory.h"
#include "telemetry/energy.h"
#include "telemetry/rapl.h"
#include "telemetry/sampler.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VIOLATIONS = 16 };

static const double learning_s = 1.3;       /* close looks after opening: a dozen steps */
static const double usual_period_s = 0.1;   /* of a counter that is not known yet */
static const double patience_s = 1;         /* for GPUs that do not answer */
static const int64_t rapl_ns = 10000000000; /* between reads, so that no wrap is missed */

/* A reading of the time that clocks were held down, so far. */
struct violation {
    double time_s, power_s, thermal_s;
};

/* What the meter knows of one GPU. */
struct watched {
    struct erg_energy_log *log;
    bool has_counter, lost;
    double temperature_c, memory_temperature_c; /* the latest, NaN before */
    double seen_s;                              /* when the latest sample came */

    struct violation violations[VIOLATIONS]; /* ring, from the driver's counters */
    size_t violation_count;
    /* The same from the reasons seen, each held until the next: for drivers without counters. */
    struct violation by_reasons;
    uint32_t reasons;

    double clock_s_mhz, clock_mhz, clock_time_s; /* integral up to a time, and the clock since */
};

/* One end of a window on one GPU. */
struct mark {
    struct erg_energy_value counter, power;
    struct violation by_reasons, by_counters;
    double clock_s_mhz, temperature_c;
    bool settled;
};

struct window_gpu {
    struct mark begin, end;
    double peak_w, temperature_max_c, memory_temperature_max_c;
};

struct erg_window {
    struct erg_meter *meter;
    struct erg_window *next;
    double begin_s, end_s; /* end_s is infinite while the window is open */
    struct erg_rapl_reading cpu;
    struct window_gpu gpus[];
};

struct erg_meter {
    struct erg_gpus *gpus;
    struct erg_sampler *sampler;
    struct erg_rapl *rapl; /* NULL where it cannot be read */
    size_t count;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t news;
    struct watched *watched;
    struct erg_window *windows; /* the open ones */
    int64_t rapl_read_ns;
};

static double now_s(void)
{
    return 1e-9 * (double)erg_now_ns();
}

/* ---- a GPU's state so far ---- */

static struct violation by_reasons_at(const struct watched *watched, double at_s)
{
    const uint32_t power = ERG_REASON_SW_POWER_CAP | ERG_REASON_HW_POWER_BRAKE;
    const uint32_t thermal = ERG_REASON_SW_THERMAL | ERG_REASON_HW_THERMAL;
    struct violation so_far = watched->by_reasons;
    double held_s = so_far.time_s > 0 ? at_s - so_far.time_s : 0;
    so_far.power_s += watched->reasons & power ? held_s : 0;
    so_far.thermal_s += watched->reasons & thermal ? held_s : 0;
    so_far.time_s = at_s;
    return so_far;
}

static double clock_at(const struct watched *watched, double at_s)
{
    return watched->clock_s_mhz + watched->clock_mhz * (at_s - watched->clock_time_s);
}

/* Linear between the readings around the moment; NaN while there are none. */
static bool by_counters_at(const struct watched *watched, double at_s, struct violation *value)
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

/* ---- marks ---- */

static double period_of(const struct watched *watched)
{
    struct erg_sensor_traits counter, power;
    erg_energy_log_traits(watched->log, &counter, &power);
    return counter.period_s > 0 ? counter.period_s : usual_period_s;
}

/* What is known at once. */
static void set_mark(struct mark *mark, const struct watched *watched, double at_s)
{
    *mark = (struct mark){
        .by_reasons = by_reasons_at(watched, at_s),
        .clock_s_mhz = clock_at(watched, at_s),
        .temperature_c = watched->temperature_c,
    };
}

/* What later samples tell; again until they cannot change it any more. */
static void settle_mark(struct mark *mark, const struct watched *watched, double at_s)
{
    if (mark->settled)
        return;
    bool counter_settled = false;
    erg_energy_log_power_at(watched->log, at_s, &mark->power);
    erg_energy_log_counter_at(watched->log, at_s, &mark->counter, &counter_settled);
    bool violation_settled = by_counters_at(watched, at_s, &mark->by_counters);
    bool power_settled = watched->seen_s > at_s + 2 * usual_period_s;
    mark->settled = watched->lost ||
                    (violation_settled && (watched->has_counter ? counter_settled : power_settled));
}

static void update_window(struct erg_window *window, size_t gpu, const struct watched *watched,
                          const struct erg_gpu_sample *sample)
{
    struct window_gpu *at = &window->gpus[gpu];
    const struct erg_reading *readings = sample->readings;
    double time_s = 1e-9 * (double)sample->start_ns;
    settle_mark(&at->begin, watched, window->begin_s);
    if (isfinite(window->end_s))
        settle_mark(&at->end, watched, window->end_s);
    if (time_s < window->begin_s || time_s > window->end_s)
        return;
    if (erg_gpu_has(sample, ERG_METRIC_POWER_INSTANT))
        at->peak_w = fmax(at->peak_w, 1e-3 * (double)readings[ERG_METRIC_POWER_INSTANT].value);
    if (erg_gpu_has(sample, ERG_METRIC_TEMPERATURE))
        at->temperature_max_c =
            fmax(at->temperature_max_c, (double)readings[ERG_METRIC_TEMPERATURE].value);
    if (erg_gpu_has(sample, ERG_METRIC_MEMORY_TEMPERATURE))
        at->memory_temperature_max_c = fmax(at->memory_temperature_max_c,
                                            (double)readings[ERG_METRIC_MEMORY_TEMPERATURE].value);
}

/* ---- samples come ---- */

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

static void watch(struct watched *watched, const struct erg_gpu_sample *sample)
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
    if (erg_gpu_has(sample, ERG_METRIC_MEMORY_TEMPERATURE))
        watched->memory_temperature_c = (double)readings[ERG_METRIC_MEMORY_TEMPERATURE].value;
    if (erg_gpu_has(sample, ERG_METRIC_VIOLATION_POWER) &&
        erg_gpu_has(sample, ERG_METRIC_VIOLATION_THERMAL))
        add_violation(watched, sample);
    if (erg_gpu_has(sample, ERG_METRIC_REASONS)) {
        watched->by_reasons = by_reasons_at(watched, time_s);
        watched->reasons = (uint32_t)readings[ERG_METRIC_REASONS].value;
    }
    if (erg_gpu_has(sample, ERG_METRIC_SM_CLOCK)) {
        watched->clock_s_mhz = clock_at(watched, time_s);
        watched->clock_time_s = time_s;
        watched->clock_mhz = (double)readings[ERG_METRIC_SM_CLOCK].value;
    }
}

static void put(void *context, const struct erg_sampler_item *item)
{
    struct erg_meter *meter = context;
    struct watched *watched = &meter->watched[item->gpu];
    pthread_mutex_lock(&meter->lock);
    watch(watched, &item->sample);
    for (struct erg_window *window = meter->windows; window; window = window->next)
        update_window(window, item->gpu, watched, &item->sample);
    pthread_mutex_unlock(&meter->lock);
}

static void idle(void *context)
{
    struct erg_meter *meter = context;
    struct erg_rapl_reading unused;
    if (meter->rapl && erg_now_ns() - meter->rapl_read_ns > rapl_ns) {
        erg_rapl_read(meter->rapl, &unused);
        meter->rapl_read_ns = erg_now_ns();
    }
    pthread_cond_broadcast(&meter->news);
}

/* ---- meters ---- */

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
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&meter->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&meter->lock, NULL);
    meter->gpus = opened;
    meter->count = count;
    meter->watched = erg_xcalloc(count, sizeof *meter->watched);
    for (size_t i = 0; i < count; i++)
        meter->watched[i] = (struct watched){.log = erg_energy_log_new(),
                                             .temperature_c = NAN,
                                             .memory_temperature_c = NAN,
                                             .clock_time_s = now_s()};
    if (erg_rapl_open(&meter->rapl, NULL, NULL) != 0)
        meter->rapl = NULL; /* CPU energy is then missing, not an error */
    if (erg_sampler_start(&meter->sampler, opened, &options,
                          &(struct erg_sampler_sink){put, idle, meter}, err) != 0) {
        erg_meter_close(meter);
        return -1;
    }
    erg_sampler_look_closely(meter->sampler, erg_now_ns() + (int64_t)(learning_s * 1e9));
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

void erg_meter_gpu(struct erg_meter *meter, size_t gpu, struct erg_meter_gpu *info)
{
    const struct erg_gpu_info *known = erg_gpus_info(meter->gpus, gpu);
    struct erg_sensor_traits counter, power;
    pthread_mutex_lock(&meter->lock);
    erg_energy_log_traits(meter->watched[gpu].log, &counter, &power);
    pthread_mutex_unlock(&meter->lock);
    *info = (struct erg_meter_gpu){
        .counter_period_s = or_nan(counter.period_s),
        .power_period_s = or_nan(power.period_s),
        .read_latency_s = or_nan(counter.latency_s),
    };
    memcpy(info->name, known->name, sizeof info->name);
    memcpy(info->uuid, known->uuid, sizeof info->uuid);
}

/* ---- windows ---- */

/* Looks closely until the counters have moved twice after now. */
static void look(struct erg_meter *meter)
{
    double longest_s = 0;
    for (size_t i = 0; i < meter->count; i++)
        longest_s = fmax(longest_s, period_of(&meter->watched[i]));
    double until_s = fmin(3 * longest_s, patience_s);
    erg_sampler_look_closely(meter->sampler, erg_now_ns() + (int64_t)(until_s * 1e9));
}

struct erg_window *erg_window_begin(struct erg_meter *meter)
{
    struct erg_window *window =
        erg_xcalloc(1, sizeof *window + meter->count * sizeof *window->gpus);
    window->meter = meter;
    window->end_s = INFINITY;
    for (size_t i = 0; i < meter->count; i++)
        window->gpus[i] = (struct window_gpu){
            .peak_w = NAN, .temperature_max_c = NAN, .memory_temperature_max_c = NAN};
    if (meter->rapl)
        erg_rapl_read(meter->rapl, &window->cpu);
    pthread_mutex_lock(&meter->lock);
    look(meter);
    window->next = meter->windows;
    meter->windows = window;
    window->begin_s = now_s(); /* last: what this call cost is not the window's */
    for (size_t i = 0; i < meter->count; i++)
        set_mark(&window->gpus[i].begin, &meter->watched[i], window->begin_s);
    pthread_mutex_unlock(&meter->lock);
    return window;
}

static void forget(struct erg_window *window)
{
    struct erg_window **link = &window->meter->windows;
    while (*link != window)
        link = &(*link)->next;
    *link = window->next;
}

void erg_window_cancel(struct erg_window *window)
{
    if (!window)
        return;
    struct erg_meter *meter = window->meter;
    pthread_mutex_lock(&meter->lock);
    forget(window);
    pthread_mutex_unlock(&meter->lock);
    free(window);
}

/* Under the lock: waits until all GPUs that answer have told what surrounds the window's ends. */
static void wait_for_marks(struct erg_meter *meter, const struct erg_window *window)
{
    double until_s = window->end_s + patience_s;
    struct timespec until = {(time_t)until_s, (long)(fmod(until_s, 1) * 1e9)};
    for (;;) {
        bool settled = true;
        for (size_t i = 0; i < meter->count; i++)
            settled &= window->gpus[i].begin.settled && window->gpus[i].end.settled;
        if (settled || pthread_cond_timedwait(&meter->news, &meter->lock, &until) == ETIMEDOUT)
            return;
    }
}

static void set_energy(struct erg_window_gpu *out, const struct window_gpu *at,
                       const struct watched *watched, double time_s)
{
    double power_j = NAN, power_uncertainty_j = NAN, counter_j = NAN, counter_uncertainty_j = NAN;
    bool brief = time_s < 3 * period_of(watched);
    bool counter = at->begin.counter.valid && at->end.counter.valid;
    bool power = at->begin.power.valid && at->end.power.valid;
    if (power)
        erg_energy_between(&at->begin.power, &at->end.power, false, &power_j, &power_uncertainty_j);
    if (counter)
        erg_energy_between(&at->begin.counter, &at->end.counter, brief, &counter_j,
                           &counter_uncertainty_j);
    out->quality = counter ? brief ? ERG_ENERGY_ESTIMATED : ERG_ENERGY_MEASURED
                   : power ? ERG_ENERGY_POWER_ONLY
                           : ERG_ENERGY_MISSING;
    out->energy_j = counter ? counter_j : power_j;
    out->uncertainty_j = counter ? counter_uncertainty_j : power_uncertainty_j;
    out->power_energy_j = power_j;
    out->ratio = power_j / counter_j;
    out->power_mean_w = out->energy_j / time_s;
}

static void set_gpu(struct erg_window_gpu *out, const struct window_gpu *at,
                    const struct watched *watched, double time_s)
{
    const struct mark *begin = &at->begin, *end = &at->end;
    bool counters = !isnan(begin->by_counters.power_s) && !isnan(end->by_counters.power_s);
    const struct violation *from = counters ? &begin->by_counters : &begin->by_reasons;
    const struct violation *to = counters ? &end->by_counters : &end->by_reasons;
    set_energy(out, at, watched, time_s);
    out->power_peak_w = at->peak_w;
    out->temperature_begin_c = begin->temperature_c;
    out->temperature_end_c = watched->temperature_c;
    out->temperature_max_c = fmax(at->temperature_max_c, out->temperature_begin_c);
    out->memory_temperature_max_c = at->memory_temperature_max_c;
    out->throttled_power_s = to->power_s - from->power_s;
    out->throttled_thermal_s = to->thermal_s - from->thermal_s;
    out->sm_clock_mean_mhz = (end->clock_s_mhz - begin->clock_s_mhz) / time_s;
    out->lost = watched->lost || !begin->settled || !end->settled;
}

void erg_window_end(struct erg_window *window, struct erg_window_result *result)
{
    struct erg_meter *meter = window->meter;
    double end_s = now_s(); /* first, for the same reason */
    struct erg_rapl_reading cpu = {0};
    if (meter->rapl)
        erg_rapl_read(meter->rapl, &cpu);
    pthread_mutex_lock(&meter->lock);
    window->end_s = end_s;
    for (size_t i = 0; i < meter->count; i++)
        set_mark(&window->gpus[i].end, &meter->watched[i], end_s);
    look(meter);
    wait_for_marks(meter, window);
    forget(window);
    *result = (struct erg_window_result){
        .begin_ns = llround(window->begin_s * 1e9),
        .end_ns = llround(end_s * 1e9),
        .time_s = end_s - window->begin_s,
        .cpu_j = cpu.cpu_valid && window->cpu.cpu_valid ? cpu.cpu_j - window->cpu.cpu_j : NAN,
        .dram_j = cpu.dram_valid && window->cpu.dram_valid ? cpu.dram_j - window->cpu.dram_j : NAN,
        .gpus = meter->count,
    };
    double square = 0;
    for (size_t i = 0; i < meter->count; i++) {
        struct erg_window_gpu *out = &result->gpu[i];
        set_gpu(out, &window->gpus[i], &meter->watched[i], result->time_s);
        if (out->quality == ERG_ENERGY_MISSING)
            continue;
        result->energy_j += out->energy_j;
        square += out->uncertainty_j * out->uncertainty_j;
    }
    result->uncertainty_j = sqrt(square);
    pthread_mutex_unlock(&meter->lock);
    free(window);
}
