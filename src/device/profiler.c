/*
 * The profiler: determines the length of a window, and the time and energy of one execution in it.
 */
#include "device/profiler.h"

#include "base/interrupt.h"
#include "device/edges.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum {
    SUB_WINDOWS = 5,
    CALIBRATION_RUNS = 100, /* upper limit */
    WARMUP_RUNS = 10,       /* lower limit, if they take no longer than warmup_most_s */
};

static const double steps_least = 4;      /* least steps of the counter in a window */
static const double calibration_s = 0.2;  /* enough work to time a run */
static const double warmup_most_s = 0.5;  /* more would heat the GPU if runs are long */
static const double tail_s = 0.3;         /* work after the window, for the counter's next step */
static const double fine_polls_s = 0.3;   /* around the window's ends, polling without pause */
static const double coarse_poll_s = 0.02; /* otherwise */

struct erg_profile_options erg_profile_options_default(void)
{
    return (struct erg_profile_options){
        .window_s = 5,
        .cooldown_s = 5,
        .warmup_s = 0.5,
        .settle_s = 2,
        .burst_s = 0.25,
        .time_scatter_max = 0.02,
        .energy_scatter_max = 0.05,
        .attempts = 3,
        .growth = 4,
    };
}

/* A running measurement. */
struct profile_run {
    struct erg_device *device;
    const struct erg_step *steps;
    size_t count;
    int clock_mhz;
    const struct erg_profile_options *options;
    struct erg_sensor_log log;
    double run_s; /* of one run, from calibration */
    double grown; /* current factor on the requested window and cooldown */
};

static double now_s(const struct profile_run *at)
{
    return (double)erg_device_now_ns(at->device) * 1e-9;
}

static void pause_for(const struct profile_run *at, double duration_s)
{
    erg_device_sleep_ns(at->device, (int64_t)(duration_s * 1e9));
}

static size_t runs_for(const struct profile_run *at, double duration_s)
{
    assert(at->run_s > 0);
    return (size_t)fmax(1, ceil(duration_s / at->run_s));
}

static int enqueue(const struct profile_run *at, size_t runs, struct erg_error *err)
{
    return erg_device_enqueue(at->device, at->steps, at->count, runs, err);
}

/*
 * Time from the start of the enqueue `first_back` calls ago to the end of the one `last_back` calls
 * ago; the longest of the GPUs.
 */
static int elapsed(const struct profile_run *at, size_t first_back, size_t last_back,
                   double *elapsed_s, struct erg_error *err)
{
    *elapsed_s = 0;
    for (size_t g = 0; g < at->device->gpus; g++) {
        struct erg_device_span first, last;
        if (erg_device_span(at->device, first_back, g, &first, err) != 0 ||
            erg_device_span(at->device, last_back, g, &last, err) != 0)
            return -1;
        *elapsed_s = fmax(*elapsed_s, (double)(last.end_ns - first.start_ns) * 1e-9);
    }
    return 0;
}

static int time_runs(const struct profile_run *at, size_t runs, double *run_s,
                     struct erg_error *err)
{
    if (enqueue(at, runs, err) != 0 || erg_device_sync(at->device, err) != 0 ||
        elapsed(at, 0, 0, run_s, err) != 0)
        return -1;
    *run_s /= (double)runs;
    if (!(*run_s > 0))
        return erg_fail(err, ERG_FAILED,
                        "profiling at %d MHz: a run takes no time, expected steps with work",
                        at->clock_mhz);
    return 0;
}

/* Locks the clock and times a few runs. */
static int prepare(struct profile_run *at, struct erg_measurement *result, struct erg_error *err)
{
    struct erg_error refusal;
    if (erg_device_set_clock(at->device, at->clock_mhz, &refusal) != 0) {
        if (refusal.status != ERG_NO_DEVICE)
            return erg_fail(err, refusal.status, "%s", refusal.message);
        result->refused_clock = true; /* no need to settle */
    } else {
        pause_for(at, at->options->settle_s);
    }
    if (erg_interrupt_check(err) != 0 || time_runs(at, 1, &at->run_s, err) != 0)
        return -1;
    /* The first run may be slow; a few runs of many milliseconds are enough. */
    double least = at->run_s < calibration_s ? 3 : 1;
    double runs = fmin(fmax(ceil(calibration_s / at->run_s), least), CALIBRATION_RUNS);
    return time_runs(at, (size_t)runs, &at->run_s, err);
}

struct series {
    double mean, scatter; /* relative standard deviation of one value */
};

static struct series series_of(const double *values, size_t count)
{
    assert(count > 1);
    double mean = 0, square = 0;
    for (size_t i = 0; i < count; i++)
        mean += values[i] / (double)count;
    for (size_t i = 0; i < count; i++)
        square += (values[i] / mean - 1) * (values[i] / mean - 1) / (double)(count - 1);
    return (struct series){mean, sqrt(square)};
}

/*
 * Polls until `end_s`, densely near the predicted ends of the window, where the counter's steps
 * matter most.
 */
static int poll_until(struct profile_run *at, double window_start_s, double window_end_s,
                      double end_s, struct erg_error *err)
{
    while (now_s(at) < end_s) {
        if (erg_interrupt_check(err) != 0 || erg_sensor_log_poll(&at->log, at->device, err) != 0)
            return -1;
        if (fabs(now_s(at) - window_start_s) > fine_polls_s &&
            fabs(now_s(at) - window_end_s) > fine_polls_s)
            pause_for(at, coarse_poll_s);
    }
    return 0;
}

/* Mean energy per GPU between two moments, from the source in use. */
static bool energy_between(const struct profile_run *at, double start_s, double end_s,
                           enum erg_energy_source source, double *energy_j)
{
    if (source == ERG_ENERGY_POWER) {
        *energy_j = erg_sensor_log_mean(&at->log, start_s, end_s).power_w * (end_s - start_s);
        return true;
    }
    return erg_sensor_log_energy(&at->log, start_s, end_s, energy_j);
}

static int choose_source(const struct profile_run *at, enum erg_energy_source *source,
                         struct erg_error *err)
{
    if (at->log.valid & ERG_SENSE_ENERGY)
        *source = ERG_ENERGY_COUNTER;
    else if (at->log.valid & ERG_SENSE_POWER)
        *source = ERG_ENERGY_POWER;
    else
        return erg_fail(err, ERG_NO_DEVICE,
                        "measuring energy on %s: neither its energy counter nor its power can be "
                        "read",
                        at->device->identity);
    return 0;
}

/*
 * Computes the result from the sub-windows; the latest enqueue was the tail, preceded by the
 * sub-windows.
 */
static int evaluate(const struct profile_run *at, size_t runs, struct erg_measurement *result,
                    struct series *time, struct series *energy, struct erg_error *err)
{
    double run_s[SUB_WINDOWS], run_j[SUB_WINDOWS], start_s = 0, end_s = 0;
    if (choose_source(at, &result->energy_source, err) != 0)
        return -1;
    for (size_t i = 0; i < SUB_WINDOWS; i++) {
        size_t back = SUB_WINDOWS - i;
        struct erg_device_span span;
        if (elapsed(at, back, back, &run_s[i], err) != 0 ||
            erg_device_span(at->device, back, 0, &span, err) != 0)
            return -1;
        run_s[i] /= (double)runs;
        double from_s = (double)span.start_ns * 1e-9;
        end_s = (double)span.end_ns * 1e-9;
        if (i == 0)
            start_s = from_s;
        if (!energy_between(at, from_s, end_s, result->energy_source, &run_j[i]))
            return erg_fail(err, ERG_FAILED,
                            "measuring energy on %s: its counter did not move during %.3g s of "
                            "work, expected an update every 0.1 s or so",
                            at->device->identity, end_s - start_s);
        run_j[i] /= (double)runs;
    }
    *time = series_of(run_s, SUB_WINDOWS);
    *energy = series_of(run_j, SUB_WINDOWS);
    /* The mean of the sub-windows equals that of the window: their inner edges cancel. */
    result->time_s = time->mean;
    result->energy_j = energy->mean;
    result->time_sd = time->scatter / sqrt(SUB_WINDOWS);
    result->energy_sd = energy->scatter / sqrt(SUB_WINDOWS);
    result->window_s = end_s - start_s;
    result->repeats = SUB_WINDOWS * runs;

    struct erg_poll mean = erg_sensor_log_mean(&at->log, start_s, end_s);
    result->clock_mhz = round(mean.clock_mhz);
    result->reasons = mean.reasons;
    result->temperature_start_c = erg_sensor_log_mean(&at->log, start_s, start_s).temperature_c;
    result->temperature_end_c = erg_sensor_log_mean(&at->log, end_s, end_s).temperature_c;
    return 0;
}

static int measure_window(struct profile_run *at, struct erg_measurement *result,
                          struct series *time, struct series *energy, struct erg_error *err)
{
    const struct erg_profile_options *options = at->options;
    erg_sensor_log_clear(&at->log);
    pause_for(at, at->grown * options->cooldown_s);
    if (erg_interrupt_check(err) != 0)
        return -1;
    size_t few = runs_for(at, warmup_most_s), warmup = runs_for(at, options->warmup_s);
    if (few > WARMUP_RUNS)
        few = WARMUP_RUNS;
    if (warmup < few)
        warmup = few;
    size_t runs = runs_for(at, at->grown * options->window_s / SUB_WINDOWS);
    size_t tail = runs_for(at, tail_s);
    double start_s = now_s(at) + (double)warmup * at->run_s;
    double end_s = start_s + SUB_WINDOWS * (double)runs * at->run_s;
    assert(runs > 0 && end_s > start_s);
    if (enqueue(at, warmup, err) != 0)
        return -1;
    for (int i = 0; i < SUB_WINDOWS; i++)
        if (enqueue(at, runs, err) != 0)
            return -1;
    if (enqueue(at, tail, err) != 0 ||
        poll_until(at, start_s, end_s, end_s + (double)tail * at->run_s, err) != 0 ||
        erg_device_sync(at->device, err) != 0)
        return -1;
    return evaluate(at, runs, result, time, energy, err);
}

static bool clock_missed(const struct profile_run *at, const struct erg_measurement *result)
{
    const uint32_t throttled = ERG_REASON_SW_POWER_CAP | ERG_REASON_HW_SLOWDOWN |
                               ERG_REASON_SW_THERMAL | ERG_REASON_HW_THERMAL |
                               ERG_REASON_HW_POWER_BRAKE;
    /* 1 %: more than any GPU's clock step, and more than a cap costs before it is reported. */
    return at->clock_mhz && !result->refused_clock && !(result->reasons & throttled) &&
           fabs(result->clock_mhz - at->clock_mhz) * 100 > at->clock_mhz;
}

/* The factor by which the window is too short for the counter's steps; below 1: long enough. */
static double shortness(const struct profile_run *at, const struct erg_measurement *result)
{
    if (result->energy_source != ERG_ENERGY_COUNTER)
        return 0;
    return steps_least * erg_sensor_log_period(&at->log) / result->window_s;
}

static int profile(struct profile_run *at, struct erg_measurement *out, struct erg_error *err)
{
    const struct erg_profile_options *options = at->options;
    struct erg_measurement result = {0};
    double calmest = INFINITY;
    if (prepare(at, &result, err) != 0)
        return -1;
    for (int attempt = 1; attempt <= options->attempts; attempt++) {
        struct series time = {0}, energy = {0};
        if (measure_window(at, &result, &time, &energy, err) != 0)
            return -1;
        double short_by = shortness(at, &result);
        double excess = fmax(short_by, fmax(time.scatter / options->time_scatter_max,
                                            energy.scatter / options->energy_scatter_max));
        if (excess < calmest) {
            calmest = excess;
            *out = result;
        }
        out->attempts = attempt;
        if (calmest <= 1)
            break;
        at->grown = fmin(at->grown * fmax(2, short_by), options->growth);
    }
    out->unstable = calmest > 1;
    out->missed_clock = clock_missed(at, out);
    return 0;
}

/* Runs sub-bursts back to back and reads the sensors once: only the time is needed. */
static int profile_burst(struct profile_run *at, struct erg_measurement *result,
                         struct erg_error *err)
{
    *result = (struct erg_measurement){.attempts = 1};
    if (prepare(at, result, err) != 0)
        return -1;
    size_t runs = runs_for(at, at->options->burst_s / SUB_WINDOWS);
    if (enqueue(at, WARMUP_RUNS, err) != 0)
        return -1;
    for (int i = 0; i < SUB_WINDOWS; i++)
        if (enqueue(at, runs, err) != 0)
            return -1;
    pause_for(at, ((double)WARMUP_RUNS + 0.5 * SUB_WINDOWS * (double)runs) * at->run_s);
    if (erg_sensor_log_poll(&at->log, at->device, err) != 0 ||
        erg_device_sync(at->device, err) != 0 || erg_interrupt_check(err) != 0)
        return -1;
    double run_s[SUB_WINDOWS];
    for (size_t i = 0; i < SUB_WINDOWS; i++) {
        if (elapsed(at, SUB_WINDOWS - 1 - i, SUB_WINDOWS - 1 - i, &run_s[i], err) != 0)
            return -1;
        run_s[i] /= (double)runs;
    }
    struct series time = series_of(run_s, SUB_WINDOWS);
    const struct erg_poll *seen = &at->log.polls.items[0];
    result->time_s = time.mean;
    result->time_sd = time.scatter / sqrt(SUB_WINDOWS);
    result->repeats = SUB_WINDOWS * runs;
    result->window_s = time.mean * (double)result->repeats;
    result->clock_mhz = round(seen->clock_mhz);
    result->reasons = seen->reasons;
    result->temperature_start_c = result->temperature_end_c = seen->temperature_c;
    result->unstable = time.scatter > at->options->time_scatter_max;
    result->missed_clock = clock_missed(at, result);
    return 0;
}

/* Makes one measurement, from its start on the device to its last read of the sensors. */
static int measure(int (*way)(struct profile_run *, struct erg_measurement *, struct erg_error *),
                   struct profile_run *at, uint64_t key, struct erg_measurement *result,
                   struct erg_error *err)
{
    erg_sensor_log_init(&at->log, at->device->gpus);
    erg_device_begin(at->device, key);
    double start_s = now_s(at);
    int status = way(at, result, err);
    if (status == 0)
        result->device_s = now_s(at) - start_s;
    erg_sensor_log_release(&at->log);
    return status;
}

int erg_profile(struct erg_device *device, const struct erg_step *steps, size_t count,
                int clock_mhz, const struct erg_profile_options *options, uint64_t key,
                struct erg_measurement *result, struct erg_error *err)
{
    struct profile_run at = {device, steps, count, clock_mhz, options, {0}, 0, 1};
    return measure(profile, &at, key, result, err);
}

int erg_profile_time(struct erg_device *device, const struct erg_step *steps, size_t count,
                     int clock_mhz, const struct erg_profile_options *options, uint64_t key,
                     struct erg_measurement *result, struct erg_error *err)
{
    struct profile_run at = {device, steps, count, clock_mhz, options, {0}, 0, 1};
    return measure(profile_burst, &at, key, result, err);
}
