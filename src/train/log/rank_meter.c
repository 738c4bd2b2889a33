/* The measurements of one rank for the log of its run. */
#include "train/log/rank_meter.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "hardware/hardware.h"
#include "telemetry/gpu.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t least_ns = 1000000000; /* shortest time of an energy measurement */
static const int64_t apart_ns = 100000000;  /* shortest time between marks */

int erg_rank_find_gpu(struct erg_gpus *gpus, const char *name, int local_rank, size_t *gpu,
                      struct erg_error *err)
{
    const size_t count = erg_gpus_count(gpus);
    *gpu = (size_t)local_rank;
    if (*gpu >= count)
        return erg_fail(err, ERG_NO_DEVICE, "%zu GPU%s can be read, expected at least %d", count,
                        erg_plural(count), local_rank + 1);
    const struct erg_gpu_info *info = erg_gpus_info(gpus, *gpu);
    if (info->trouble[0])
        return erg_fail(err, ERG_NO_DEVICE, "GPU %d: %s", info->index, info->trouble);
    if (!name || strcmp(info->name, name) == 0)
        return 0;
    /* The order differs from CUDA's. */
    return erg_fail(err, ERG_NO_DEVICE,
                    "GPU %d is a \"%s\", expected the \"%s\" that trains; name the GPUs in "
                    "CUDA_VISIBLE_DEVICES",
                    info->index, info->name, name);
}

static int find_uuid(char uuid[96], const char *name, int local_rank, struct erg_error *err)
{
    struct erg_gpus *gpus;
    size_t gpu;
    if (erg_gpus_open(&gpus, NULL, err) != 0)
        return -1;
    int result = erg_rank_find_gpu(gpus, name, local_rank, &gpu, err);
    if (result == 0)
        snprintf(uuid, 96, "%s", erg_gpus_info(gpus, gpu)->uuid);
    erg_gpus_close(gpus);
    return result;
}

static double peak_of(const char *name)
{
    struct erg_gpu *gpu;
    struct erg_error err;
    if (erg_gpu_load(&gpu, name, &err) != 0) {
        erg_log(ERG_LOG_INFO, "MFU is unknown: %s", err.message);
        return NAN;
    }
    double peak_flops = gpu->stated_flops;
    erg_gpu_free(gpu);
    return peak_flops;
}

void erg_rank_meter_begin(struct erg_rank_meter *meter, struct erg_rank_mark *mark)
{
    *mark = (struct erg_rank_mark){.time_ns = erg_now_ns()};
    if (meter->meter) {
        mark->window = erg_window_begin(meter->meter);
    } else if (meter->rapl) {
        erg_rapl_read(meter->rapl, &mark->cpu);
        mark->time_ns = mark->cpu.end_ns;
    }
}

static void add_mark(struct erg_rank_meter *meter)
{
    assert(meter->count < ERG_RANK_MARKS);
    erg_rank_meter_begin(meter, &meter->marks[meter->count++]);
}

static void drop_marks(struct erg_rank_meter *meter, size_t count)
{
    for (size_t i = 0; i < count; i++)
        erg_window_cancel(meter->marks[i].window);
    meter->count -= count;
    memmove(meter->marks, meter->marks + count, meter->count * sizeof *meter->marks);
}

void erg_rank_meter_open(struct erg_rank_meter *meter, const char *gpu, int local_rank)
{
    struct erg_error err;
    char uuid[96];
    *meter = (struct erg_rank_meter){
        .is_gpu = gpu, .elsewhere = !gpu && local_rank > 0, .peak_flops = gpu ? peak_of(gpu) : NAN};
    bool failed = gpu ? find_uuid(uuid, gpu, local_rank, &err) != 0 ||
                            erg_meter_open(&meter->meter, uuid, &err) != 0
                      : !meter->elsewhere && erg_rapl_open(&meter->rapl, NULL, &err) != 0;
    if (failed)
        erg_log(ERG_LOG_INFO, "energy is unknown: %s", err.message);
    add_mark(meter);
    meter->last_ns = meter->marks[0].time_ns;
}

void erg_rank_meter_close(struct erg_rank_meter *meter)
{
    drop_marks(meter, meter->count);
    erg_meter_close(meter->meter);
    if (meter->rapl)
        erg_rapl_close(meter->rapl);
    *meter = (struct erg_rank_meter){0};
}

static void take_gpu(struct erg_rank_numbers *numbers, const struct erg_rank_mark *from)
{
    struct erg_window_result result = {.size = sizeof result};
    erg_window_look(from->window, &result, NULL);
    const struct erg_window_gpu *gpu = &result.gpu[0];
    numbers->measured_s = result.time_s;
    if (gpu->lost)
        return;
    numbers->energy_j = gpu->energy_j;
    numbers->uncertainty_j = gpu->uncertainty_j;
    numbers->power_w = gpu->power_mean_w;
    numbers->clock_mhz = gpu->sm_clock_mean_mhz;
    numbers->temperature_c = gpu->temperature_end_c;
    numbers->throttled_power_s = gpu->throttled_power_s;
    numbers->throttled_thermal_s = gpu->throttled_thermal_s;
}

static void take_host(struct erg_rank_numbers *numbers, const struct erg_rank_mark *from,
                      struct erg_rapl *rapl)
{
    struct erg_rapl_reading now;
    erg_rapl_read(rapl, &now);
    struct erg_window_result window = {.begin_ns = from->time_ns, .end_ns = now.begin_ns};
    erg_rapl_between(&from->cpu, &now, &window);
    numbers->measured_s = 1e-9 * (double)(window.end_ns - window.begin_ns);
    numbers->energy_j = window.cpu_j;
    numbers->uncertainty_j = window.cpu_uncertainty_j;
    numbers->power_w = window.cpu_j / numbers->measured_s;
}

/* The latest mark that is old enough to measure from, otherwise the oldest. */
static size_t mark_to_measure_from(const struct erg_rank_meter *meter, int64_t now_ns)
{
    size_t found = 0;
    while (found + 1 < meter->count && now_ns - meter->marks[found + 1].time_ns >= least_ns)
        found++;
    return found;
}

/* Measurements since a mark. */
static void look(struct erg_rank_meter *meter, const struct erg_rank_mark *from,
                 struct erg_rank_numbers *numbers)
{
    *numbers = (struct erg_rank_numbers){
        .window_s = NAN,
        .energy_j = NAN,
        .uncertainty_j = NAN,
        .measured_s = NAN,
        .power_w = NAN,
        .clock_mhz = NAN,
        .temperature_c = NAN,
        .throttled_power_s = NAN,
        .throttled_thermal_s = NAN,
        .peak_flops = meter->peak_flops,
        .memory_bytes = NAN,
        .memory_outside_bytes = NAN,
        .bubble_s = NAN,
        .is_gpu = meter->is_gpu,
    };
    for (size_t i = 0; i < ERG_EXPOSED_KINDS; i++)
        numbers->exposed_s[i] = NAN;
    if (meter->meter)
        take_gpu(numbers, from);
    else if (meter->rapl)
        take_host(numbers, from, meter->rapl);
    numbers->energy = meter->elsewhere              ? ERG_RANK_ENERGY_ELSEWHERE
                      : isfinite(numbers->energy_j) ? ERG_RANK_ENERGY_OWN
                                                    : ERG_RANK_ENERGY_UNKNOWN;
}

void erg_rank_meter_end(struct erg_rank_meter *meter, struct erg_rank_mark *mark,
                        struct erg_rank_numbers *numbers)
{
    look(meter, mark, numbers);
    erg_window_cancel(mark->window);
    *mark = (struct erg_rank_mark){0};
}

void erg_rank_meter_take(struct erg_rank_meter *meter, struct erg_rank_numbers *numbers)
{
    int64_t now_ns = erg_now_ns();
    size_t from = mark_to_measure_from(meter, now_ns);
    look(meter, &meter->marks[from], numbers);
    numbers->window_s = 1e-9 * (double)(now_ns - meter->last_ns);
    double share = numbers->window_s / numbers->measured_s; /* NaN: nothing was measured */
    numbers->energy_j *= share;
    numbers->uncertainty_j *= share;
    meter->last_ns = now_ns;
    drop_marks(meter, from);
    if (now_ns - meter->marks[meter->count - 1].time_ns >= apart_ns)
        add_mark(meter);
}
