/* Measures the power of GPUs that are idle or wait for others. */
#include "device/edges.h"
#include "device/profiler.h"

#include "base/interrupt.h"

#include <math.h>

static const double poll_s = 0.001;
static const double work_s = 0.5;  /* enough to reach the heat and clock of work */
static const double edges_s = 0.2; /* around the window, for the counter's steps */
static const double spin_s = 0.1;  /* until the power of a waiting GPU is constant */

static double now_s(struct erg_device *device)
{
    return (double)erg_device_now_ns(device) * 1e-9;
}

static int work(struct erg_device *device, const struct erg_step *steps, size_t count,
                struct erg_error *err)
{
    struct erg_device_span span;
    if (erg_device_enqueue(device, steps, count, 1, err) || erg_device_sync(device, err) ||
        erg_device_span(device, 0, 0, &span, err))
        return -1;
    double run_s = (double)(span.end_ns - span.start_ns) * 1e-9;
    size_t runs = run_s > 0 ? (size_t)ceil(work_s / run_s) : 1;
    return erg_device_enqueue(device, steps, count, runs, err) || erg_device_sync(device, err) ? -1
                                                                                               : 0;
}

static int poll_until(struct erg_device *device, struct erg_sensor_log *log, double end_s,
                      struct erg_error *err)
{
    while (now_s(device) < end_s) {
        if (erg_interrupt_check(err) || erg_sensor_log_poll(log, device, err))
            return -1;
        erg_device_sleep_ns(device, (int64_t)(poll_s * 1e9));
    }
    return 0;
}

static int measure(struct erg_device *device, struct erg_sensor_log *log, double start_s,
                   double end_s, struct erg_measurement *result, struct erg_error *err)
{
    struct erg_poll mean = erg_sensor_log_mean(log, start_s, end_s);
    double energy_j = 0;
    bool counted =
        log->valid & ERG_SENSE_ENERGY && erg_sensor_log_energy(log, start_s, end_s, &energy_j);
    if (!counted && !(log->valid & ERG_SENSE_POWER))
        return erg_fail(
            err, ERG_NO_DEVICE,
            "measuring the power of %s without work: neither its energy counter nor its "
            "power can be read",
            device->identity);
    *result = (struct erg_measurement){
        .time_s = 1,
        .energy_j = counted ? energy_j / (end_s - start_s) : mean.power_w,
        .energy_source = counted ? ERG_ENERGY_COUNTER : ERG_ENERGY_POWER,
        .clock_mhz = round(mean.clock_mhz),
        .reasons = mean.reasons,
        .temperature_start_c = erg_sensor_log_mean(log, start_s, start_s).temperature_c,
        .temperature_end_c = erg_sensor_log_mean(log, end_s, end_s).temperature_c,
        .window_s = end_s - start_s,
        .repeats = 1,
        .attempts = 1,
    };
    return 0;
}

/*
 * Measures GPUs that have rested since `since_s` or, if `waiting`, the first one, which waits for
 * the rest.
 */
static int profile_without_work(struct erg_device *device, const struct erg_step *steps,
                                size_t count, bool waiting, double since_s,
                                const struct erg_profile_options *options, uint64_t key,
                                struct erg_measurement *result, struct erg_error *err)
{
    struct erg_sensor_log log;
    struct erg_error ignored;
    erg_sensor_log_init(&log, device->gpus);
    if (waiting)
        log.watched = 1;
    erg_device_begin(device, key);
    double begin_s = now_s(device), wait_s = spin_s + options->window_s + 2 * edges_s;
    int status = work(device, steps, count, err);
    if (!status && waiting)
        status = erg_device_stagger(device, steps, count, (int64_t)(wait_s * 1e9), err);
    if (!status) {
        double start_s = now_s(device) + (waiting ? spin_s + edges_s : since_s);
        double end_s = start_s + options->window_s;
        if (!waiting)
            erg_device_sleep_ns(device, (int64_t)(fmax(since_s - edges_s, 0) * 1e9));
        status = poll_until(device, &log, end_s + edges_s, err) ||
                         measure(device, &log, start_s, end_s, result, err)
                     ? -1
                     : 0;
        if (waiting && erg_device_sync(device, status ? &ignored : err))
            status = -1;
    }
    if (!status)
        result->device_s = now_s(device) - begin_s;
    erg_sensor_log_release(&log);
    return status;
}

int erg_profile_rest(struct erg_device *device, const struct erg_step *steps, size_t count,
                     double since_s, const struct erg_profile_options *options, uint64_t key,
                     struct erg_measurement *result, struct erg_error *err)
{
    return profile_without_work(device, steps, count, false, since_s, options, key, result, err);
}

int erg_profile_waiting(struct erg_device *device, const struct erg_step *steps, size_t count,
                        const struct erg_profile_options *options, uint64_t key,
                        struct erg_measurement *result, struct erg_error *err)
{
    return profile_without_work(device, steps, count, true, 0, options, key, result, err);
}
