/*
 * Windows (ergon/telemetry.h): a window stores its two moments and reads the energy logs once the
 * samples around the moments have come.
 */
#include "telemetry/energy_meter_internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/sized.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static const double patience_s = 1; /* for GPUs that do not answer and counters that stand still */
static const size_t patience = 20;  /* the samples in that time */

static double now_s(void)
{
    return 1e-9 * (double)erg_now_ns();
}

/* ---- marks ---- */

/* The values that are known immediately. */
static void set_mark(struct mark *mark, const struct watched *watched, double at_s)
{
    *mark = (struct mark){
        .by_reasons = erg_watched_by_reasons(watched, at_s),
        .clock_s_mhz = erg_watched_clock(watched, at_s),
        .temperature_c = watched->temperature_c,
        .run = erg_energy_log_run(watched->log),
    };
}

/* The values from later samples; repeated until these cannot change any more. */
static void settle_mark(struct mark *mark, const struct watched *watched, double at_s)
{
    if (mark->settled)
        return;
    erg_energy_log_power_at(watched->log, at_s, &mark->power);
    erg_energy_log_counter_at(watched->log, at_s, &mark->counter, &mark->counter_settled);
    bool violation_settled = erg_watched_by_counters(watched, at_s, &mark->by_counters);
    bool power_settled = watched->seen_s > at_s + 2 * ERG_METER_USUAL_PERIOD_S;
    mark->settled =
        watched->lost ||
        (violation_settled && (watched->has_counter ? mark->counter_settled : power_settled));
}

void erg_window_update(struct erg_window *window, size_t gpu, const struct watched *watched,
                       const struct erg_gpu_sample *sample)
{
    struct window_gpu *at = &window->gpus[gpu];
    assert(gpu < window->meter->count);
    const struct erg_reading *readings = sample->readings;
    double time_s = 1e-9 * (double)sample->start_ns;
    settle_mark(&at->begin, watched, window->begin_s);
    if (isfinite(window->end_s))
        settle_mark(&at->end, watched, window->end_s);
    at->after += time_s > window->end_s;
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

/* ---- begin and end ---- */

/* Looks closely until the counters have moved twice after now. */
static void look(struct erg_meter *meter)
{
    double longest_s = 0;
    for (size_t i = 0; i < meter->count; i++)
        longest_s = fmax(longest_s, erg_watched_period(&meter->watched[i]));
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
    window->begin_s = now_s(); /* last, so that the window does not include this call */
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
    assert(*link == window);
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

/*
 * Whether a GPU has answered long enough after the window that a counter which has not moved since
 * then stands still. Counts samples, not only time: on a busy host they come late.
 */
static bool has_answered(const struct erg_window *window, size_t gpu)
{
    return window->gpus[gpu].after >= patience &&
           window->meter->watched[gpu].seen_s > window->end_s + patience_s;
}

/*
 * Whether no more data will come for a window's ends: the GPU is lost, hangs in one read, or its
 * counter stands still.
 */
static bool is_hopeless(const struct erg_window *window, size_t gpu)
{
    struct erg_sampler_stats stats;
    erg_sampler_stats(window->meter->sampler, gpu, &stats);
    bool silent = 1e-9 * (double)stats.busy_ns > patience_s && now_s() > window->end_s + patience_s;
    return stats.lost || silent || has_answered(window, gpu);
}

/* Under the lock: waits until all GPUs that answer have delivered the samples around the window's
 * ends. */
static void wait_for_marks(struct erg_meter *meter, const struct erg_window *window)
{
    for (size_t i = 0; i < meter->count;) {
        const struct window_gpu *at = &window->gpus[i];
        if ((at->begin.settled && at->end.settled) || is_hopeless(window, i))
            i++;
        else
            pthread_cond_wait(&meter->news, &meter->lock); /* signalled every few milliseconds */
    }
}

/* `open`: the window still runs, and no step of the counter has followed its end yet. */
static enum erg_counter_state counter_state(const struct window_gpu *at,
                                            const struct watched *watched, bool open)
{
    const struct mark *begin = &at->begin, *end = &at->end;
    bool moves = watched->lost ||
                 (begin->counter_settled && (open ? end->counter.valid : end->counter_settled));
    if (!watched->has_counter)
        return ERG_COUNTER_MISSING;
    if (begin->counter.valid && end->counter.valid && moves &&
        begin->counter.run == end->counter.run)
        return ERG_COUNTER_USED;
    return begin->run != erg_energy_log_run(watched->log) ? ERG_COUNTER_RESET : ERG_COUNTER_STILL;
}

/* NaN if a short window's energy is too uncertain for a mean power. */
static double mean_power(const struct erg_window_gpu *gpu, const struct watched *watched,
                         double time_s, bool brief)
{
    static const double reading_error = 1.1; /* of power readings and time */
    double mean_w = gpu->energy_j / time_s, highest_w = erg_energy_log_highest(watched->log);
    bool known = gpu->uncertainty_j < gpu->energy_j &&
                 (highest_w <= 0 || mean_w <= reading_error * highest_w);
    return known || !brief ? mean_w : NAN;
}

static void set_energy(struct erg_window_gpu *out, const struct window_gpu *at,
                       const struct watched *watched, double time_s, bool open)
{
    double power_j = NAN, power_uncertainty_j = NAN, counter_j = NAN, counter_uncertainty_j = NAN;
    bool brief = time_s < 3 * erg_watched_period(watched);
    out->counter = (int)counter_state(at, watched, open);
    bool counter = out->counter == ERG_COUNTER_USED;
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
    out->ratio = counter_j > counter_uncertainty_j && power_j > power_uncertainty_j
                     ? power_j / counter_j
                     : NAN;
    out->power_mean_w = mean_power(out, watched, time_s, brief);
}

/* `at`: both ends. `lost`: the samples around them will never come. */
static void set_gpu(struct erg_window_gpu *out, const struct window_gpu *at,
                    const struct watched *watched, double time_s, bool lost, bool open)
{
    const struct mark *begin = &at->begin, *end = &at->end;
    /* The driver's counters are read rarely: while a window runs they lag behind. */
    bool counters = !isnan(begin->by_counters.power_s) && !isnan(end->by_counters.power_s) &&
                    (!open || isnan(begin->by_reasons.power_s));
    const struct violation *from = counters ? &begin->by_counters : &begin->by_reasons;
    const struct violation *to = counters ? &end->by_counters : &end->by_reasons;
    set_energy(out, at, watched, time_s, open);
    out->power_peak_w = at->peak_w;
    out->temperature_begin_c = begin->temperature_c;
    out->temperature_end_c = watched->temperature_c;
    out->temperature_max_c = fmax(at->temperature_max_c, out->temperature_begin_c);
    out->memory_temperature_max_c = at->memory_temperature_max_c;
    out->throttled_power_s = to->power_s - from->power_s;
    out->throttled_thermal_s = to->thermal_s - from->thermal_s;
    out->sm_clock_mean_mhz = (end->clock_s_mhz - begin->clock_s_mhz) / time_s;
    out->lost = lost;
    for (size_t i = 0; i < sizeof out->reserved / sizeof *out->reserved; i++)
        out->reserved[i] = NAN;
    if (out->lost) /* earlier values do not describe the whole window */
        out->throttled_power_s = out->throttled_thermal_s = out->sm_clock_mean_mhz = NAN;
}

static void begin_result(struct erg_window_result *result, const struct erg_window *window,
                         double end_s, const struct erg_rapl_reading *cpu)
{
    *result = (struct erg_window_result){
        .size = sizeof *result,
        .begin_ns = llround(window->begin_s * 1e9),
        .end_ns = llround(end_s * 1e9),
        .time_s = end_s - window->begin_s,
        .energy_j = NAN,
        .uncertainty_j = NAN,
        .gpus = window->meter->count,
    };
    erg_rapl_between(&window->cpu, cpu, result);
}

static void add_energies(struct erg_window_result *result)
{
    for (size_t i = 0; i < result->gpus; i++) {
        const struct erg_window_gpu *gpu = &result->gpu[i];
        if (gpu->quality == ERG_ENERGY_MISSING)
            continue;
        assert(gpu->energy_j >= 0 && gpu->uncertainty_j >= 0);
        bool first = result->energy_gpus++ == 0;
        result->energy_j = gpu->energy_j + (first ? 0 : result->energy_j);
        result->uncertainty_j = gpu->uncertainty_j + (first ? 0 : result->uncertainty_j);
    }
}

static int give(struct erg_window_result *result, const struct erg_window_result *own,
                struct erg_error *err)
{
    return erg_sized_give(result, own, sizeof *own, "erg_window_result", err);
}

int erg_window_look(const struct erg_window *window, struct erg_window_result *result,
                    struct erg_error *err)
{
    struct erg_meter *meter = window->meter;
    struct erg_window_result own;
    double end_s = now_s();
    struct erg_rapl_reading cpu = {0};
    if (meter->rapl)
        erg_rapl_read(meter->rapl, &cpu);
    pthread_mutex_lock(&meter->lock);
    begin_result(&own, window, end_s, &cpu);
    for (size_t i = 0; i < meter->count; i++) {
        const struct watched *watched = &meter->watched[i];
        struct window_gpu at = window->gpus[i];
        bool silent = watched->seen_s < end_s - patience_s;
        set_mark(&at.end, watched, end_s);
        settle_mark(&at.end, watched, end_s);
        set_gpu(&own.gpu[i], &at, watched, own.time_s, watched->lost || silent, true);
    }
    add_energies(&own);
    pthread_mutex_unlock(&meter->lock);
    return give(result, &own, err);
}

int erg_window_end(struct erg_window *window, struct erg_window_result *result,
                   struct erg_error *err)
{
    struct erg_meter *meter = window->meter;
    struct erg_window_result own;
    double end_s = now_s(); /* first, so that the window does not include this call */
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
    begin_result(&own, window, end_s, &cpu);
    for (size_t i = 0; i < meter->count; i++) {
        const struct window_gpu *at = &window->gpus[i];
        const struct watched *watched = &meter->watched[i];
        bool settled = at->begin.settled && at->end.settled;
        bool lost = watched->lost || (!settled && !has_answered(window, i));
        set_gpu(&own.gpu[i], at, watched, own.time_s, lost, false);
    }
    add_energies(&own);
    pthread_mutex_unlock(&meter->lock);
    free(window);
    return give(result, &own, err);
}
