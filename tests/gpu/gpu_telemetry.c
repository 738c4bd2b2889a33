/*
 * The sensors of this machine's GPUs: which metrics are there, from which call, how long each class
 * takes to read, how the sensors step; then windows at rest, whose two sources must agree, and
 * which must agree with each other. Reads only. Also prints what a person should look at.
 */
#include "ergon/telemetry.h"
#include "telemetry/gpu.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

enum { SKIPPED = 77 };

static int failures;

static void check(int good, const char *what, double value)
{
    printf("%s %s: %.4g\n", good ? "ok    " : "FAILED", what, value);
    failures += !good;
}

static void pause_s(double duration_s)
{
    nanosleep(&(struct timespec){(time_t)duration_s, (long)(fmod(duration_s, 1) * 1e9)}, NULL);
}

static void show_metrics(struct erg_gpus *gpus)
{
    static const char *const costs[] = {"fast", "medium", "slow"};
    struct erg_gpu_sample sample;
    for (int cost = 0; cost < ERG_COSTS; cost++) {
        uint64_t metrics = erg_gpu_metrics(gpus, 0, (enum erg_metric_cost)cost);
        double took_ms = 0;
        for (int i = 0; i < 20; i++) {
            erg_gpu_read(gpus, 0, metrics, &sample);
            took_ms += 1e-6 * (double)(sample.end_ns - sample.start_ns) / 20;
        }
        printf("%s metrics, %.2f ms a read:\n", costs[cost], took_ms);
        for (int m = 0; m < ERG_METRICS; m++) {
            enum erg_metric metric = (enum erg_metric)m;
            if (!(metrics >> m & 1))
                continue;
            double one_ms;
            struct erg_gpu_sample one;
            erg_gpu_read(gpus, 0, UINT64_C(1) << m, &one);
            one_ms = 1e-6 * (double)(one.end_ns - one.start_ns);
            if (erg_gpu_has(&sample, metric))
                printf("  %-20s %14lld  %7.3f ms  %s\n", erg_metric_info(metric)->name,
                       (long long)sample.readings[m].value, one_ms,
                       erg_gpu_source(gpus, 0, metric));
            else
                printf("  %-20s %14s  %7.3f ms  %s\n", erg_metric_info(metric)->name, "-", one_ms,
                       erg_gpu_refusal(gpus, 0, metric));
        }
    }
    check(erg_gpu_source(gpus, 0, ERG_METRIC_ENERGY) != NULL, "energy counter", 1);
    check(erg_gpu_source(gpus, 0, ERG_METRIC_POWER_INSTANT) != NULL, "instant power", 1);
    check(erg_gpu_source(gpus, 0, ERG_METRIC_TEMPERATURE) != NULL, "temperature", 1);
}

static void show_window(const char *name, const struct erg_window_result *result)
{
    printf("%s: %.3f s, %.2f +- %.2f J, CPU %.1f J\n", name, result->time_s, result->energy_j,
           result->uncertainty_j, result->cpu_j);
    for (size_t i = 0; i < result->gpus; i++) {
        const struct erg_window_gpu *gpu = &result->gpu[i];
        printf("  GPU %d: %.2f +- %.2f J (quality %d), by power %.2f J, ratio %.3f, mean %.1f W, "
               "peak %.1f W, %.0f C, %.0f MHz, held down %.3f s by power, %.3f s by heat\n",
               (int)i, gpu->energy_j, gpu->uncertainty_j, gpu->quality, gpu->power_energy_j,
               gpu->ratio, gpu->power_mean_w, gpu->power_peak_w, gpu->temperature_end_c,
               gpu->sm_clock_mean_mhz, gpu->throttled_power_s, gpu->throttled_thermal_s);
    }
}

static void check_windows(struct erg_meter *meter)
{
    struct erg_window_result whole = {.size = sizeof whole}, first = {.size = sizeof first},
                             second = {.size = sizeof second};
    pause_s(1.5);
    for (size_t i = 0; i < erg_meter_gpus(meter); i++) {
        struct erg_meter_gpu info = {.size = sizeof info};
        erg_meter_gpu(meter, i, &info, NULL);
        printf("%s: counter steps every %.1f ms, power every %.1f ms, a read takes %.2f ms\n",
               info.name, 1e3 * info.counter_period_s, 1e3 * info.power_period_s,
               1e3 * info.read_latency_s);
        check(info.counter_period_s > 0.005 && info.counter_period_s < 0.3, "counter period, s",
              info.counter_period_s);
    }
    struct erg_window *window = erg_window_begin(meter), *part = erg_window_begin(meter);
    pause_s(2);
    erg_window_end(part, &first, NULL);
    part = erg_window_begin(meter);
    pause_s(2);
    erg_window_end(part, &second, NULL);
    erg_window_end(window, &whole, NULL);
    show_window("whole", &whole);
    show_window("first part", &first);
    show_window("second part", &second);
    for (size_t i = 0; i < whole.gpus; i++) {
        const struct erg_window_gpu *gpu = &whole.gpu[i];
        check(gpu->quality == ERG_ENERGY_MEASURED && !gpu->lost, "measured", gpu->quality);
        check(gpu->ratio > 0.9 && gpu->ratio < 1.1, "power against counter", gpu->ratio);
        /* A pause lies between the parts while the first one's end waits; at rest it is as mean. */
        double parts_j = first.gpu[i].energy_j + second.gpu[i].energy_j;
        double expected_j = gpu->power_mean_w * (first.time_s + second.time_s);
        check(fabs(parts_j / expected_j - 1) < 0.02, "parts against the whole",
              parts_j / expected_j);
    }
}

int main(void)
{
    struct erg_error err;
    struct erg_gpus *gpus;
    struct erg_meter *meter;
    if (erg_gpus_open(&gpus, NULL, &err) != 0) {
        printf("skipped: %s\n", err.message);
        return SKIPPED;
    }
    for (size_t i = 0; i < erg_gpus_count(gpus); i++) {
        const struct erg_gpu_info *info = erg_gpus_info(gpus, i);
        printf("%d %s %s %s driver %s\n", info->index, info->name, info->uuid, info->pci,
               info->driver);
    }
    show_metrics(gpus);
    erg_gpus_close(gpus);
    if (erg_meter_open(&meter, NULL, &err) != 0) {
        printf("FAILED %s\n", err.message);
        return 1;
    }
    check_windows(meter);
    erg_meter_close(meter);
    return failures != 0;
}
