/* Writes the recording that a recorder would have made of an emulated iteration. */
#include "characterize/emulate_recording.h"

#include "base/memory.h"
#include "base/text.h"
#include "telemetry/recording.h"
#include "thermal/virtual_sensor.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Slow metrics are read every fifth time. */
enum { MEDIUM_READS = 5 };

/* Writes one GPU. The iteration before has the same power, which sensors with a window see. */
struct recorded_rank {
    struct erg_virtual_sensor sensor;
    struct erg_series power_w, temperature_c, clock_mhz, reasons, nvlink_b_s, network_b_s;
    int64_t *shown_c;
};

static void release(struct recorded_rank *gpu)
{
    erg_series_release(&gpu->power_w);
    erg_series_release(&gpu->temperature_c);
    erg_series_release(&gpu->clock_mhz);
    erg_series_release(&gpu->reasons);
    erg_series_release(&gpu->nvlink_b_s);
    erg_series_release(&gpu->network_b_s);
    free(gpu->shown_c);
}

/* The reason for a lower clock in a phase. */
static uint64_t reasons_of(const struct emulated_rank *gpu, const struct emulated_phase *phase)
{
    const struct emulated_pass *pass = phase->pass < 0 ? NULL : &gpu->passes[phase->pass];
    if (gpu->fault_mhz > 0)
        return ERG_REASON_HW_POWER_BRAKE;
    return pass && pass->heat_s > pass->cap_s ? ERG_REASON_SW_THERMAL
           : pass && pass->cap_s > 0          ? ERG_REASON_SW_POWER_CAP
                                              : 0;
}

struct flows {
    struct erg_link_bytes passes, gradients; /* per iteration */
    double pass_s, gradient_s;
};

static struct flows flows_of(const struct emulation *emulation, const struct emulated_rank *gpu,
                             const struct erg_gpu_links *links)
{
    const struct emulated_lane *lane = erg_emulation_lane(emulation, gpu);
    struct flows flows = {.passes = erg_links_sum(links->sent)};
    double before_s = 0;
    for (size_t i = 0; i < lane->count; i++) {
        const struct emulated_phase *phase = &lane->items[i];
        const double time_s = phase->end_s - before_s;
        before_s = phase->end_s;
        if (phase->pass >= 0)
            flows.pass_s += time_s;
        else if (phase->kind == EMULATED_GRADIENTS)
            flows.gradient_s += time_s;
    }
    for (int kind = ERG_LINK_GRADIENTS; flows.gradient_s > 0 && kind <= ERG_LINK_EXPERT_GRADIENTS;
         kind++) {
        flows.gradients.nvlink += links->sent[kind].nvlink;
        flows.gradients.network += links->sent[kind].network;
    }
    flows.passes.nvlink -= flows.gradients.nvlink;
    flows.passes.network -= flows.gradients.network;
    return flows;
}

static void watch(struct recorded_rank *into, const struct emulation *emulation, long rank,
                  const struct erg_gpu_links *links, const double *at_s, size_t reads)
{
    const struct emulated_rank *gpu = &emulation->gpu_at[rank];
    const struct emulated_lane *lane = erg_emulation_lane(emulation, gpu);
    const struct flows flows = flows_of(emulation, gpu, links);
    const double lag_s = emulation->heated ? emulation->chassis.sensor_lag_s : 0;
    double *ripple_k = erg_xcalloc(lane->count, sizeof *ripple_k);
    erg_emulation_ripple(emulation, gpu, ripple_k);
    for (int iteration = -1; iteration <= 0; iteration++) {
        double before_s = 0, before_k = ripple_k[lane->count - 1];
        for (size_t i = 0; i < lane->count; i++) {
            const struct emulated_phase *phase = &lane->items[i];
            const double from_s = iteration * emulation->time_s + before_s;
            const bool works = phase->pass >= 0;
            const bool sums = !works && phase->kind == EMULATED_GRADIENTS;
            erg_series_add(&into->power_w, from_s, erg_emulation_phase_w(emulation, gpu, phase));
            erg_series_add(&into->temperature_c, from_s, gpu->mean_c + before_k);
            before_s = phase->end_s;
            before_k = ripple_k[i];
            if (iteration < 0)
                continue;
            erg_series_add(&into->clock_mhz, from_s,
                           works ? gpu->passes[phase->pass].clock_mhz
                                 : erg_emulation_waiting_mhz(gpu));
            erg_series_add(&into->reasons, from_s, (double)reasons_of(gpu, phase));
            erg_series_add(&into->nvlink_b_s, from_s,
                           works  ? flows.passes.nvlink / flows.pass_s
                           : sums ? flows.gradients.nvlink / flows.gradient_s
                                  : 0);
            erg_series_add(&into->network_b_s, from_s,
                           works  ? flows.passes.network / flows.pass_s
                           : sums ? flows.gradients.network / flows.gradient_s
                                  : 0);
        }
    }
    free(ripple_k);
    into->sensor = erg_virtual_sensor_hopper(erg_emulation_sensor_key(emulation, 0, rank), lag_s);
    into->shown_c = erg_xcalloc(reads, sizeof *into->shown_c);
    erg_virtual_temperatures(&into->sensor, &into->temperature_c, at_s, reads, into->shown_c);
}

/* The value of the piece at a moment. */
static double at(const struct erg_series *series, double at_s)
{
    size_t low = 0, high = series->count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(series->start_s[middle] <= at_s ? &low : &high) = middle;
    }
    return series->value[low];
}

static void set(struct erg_gpu_sample *sample, enum erg_metric metric, double value)
{
    sample->valid |= UINT64_C(1) << metric;
    sample->readings[metric] = (struct erg_reading){llround(value), sample->start_ns};
}

static int record_read(struct erg_recorder *recorder, const struct emulation *emulation,
                       const struct recorded_rank *gpu, size_t rank, size_t read, double at_s,
                       struct erg_error *err)
{
    struct erg_sampler_item item = {.gpu = rank, .scheduled_ns = llround(1e9 * at_s)};
    struct erg_gpu_sample *sample = &item.sample;
    sample->start_ns = sample->end_ns = item.scheduled_ns;
    set(sample, ERG_METRIC_ENERGY,
        (double)(erg_virtual_energy(&gpu->sensor, &gpu->power_w, at_s) -
                 erg_virtual_energy(&gpu->sensor, &gpu->power_w, 0)));
    set(sample, ERG_METRIC_POWER_INSTANT,
        1e3 * erg_virtual_power(&gpu->sensor, &gpu->power_w, at_s));
    set(sample, ERG_METRIC_SM_CLOCK, at(&gpu->clock_mhz, at_s));
    set(sample, ERG_METRIC_REASONS, at(&gpu->reasons, at_s));
    if (read % MEDIUM_READS == 0) {
        const double nvlink = erg_series_integral(&gpu->nvlink_b_s, at_s);
        const double network = erg_series_integral(&gpu->network_b_s, at_s);
        set(sample, ERG_METRIC_TEMPERATURE, (double)gpu->shown_c[read]);
        set(sample, ERG_METRIC_NVLINK_TX, nvlink);
        set(sample, ERG_METRIC_PCIE_TX, network);
        if (emulation->heated)
            set(sample, ERG_METRIC_MARGIN,
                floor(emulation->chassis.limit.hold_c) - (double)gpu->shown_c[read]);
    }
    if (read == 0)
        set(sample, ERG_METRIC_POWER_LIMIT, 1e3 * emulation->gpu.power_cap_w);
    return erg_recorder_add(recorder, &item, err);
}

static int record(const struct emulation *emulation, const struct recorded_rank *gpus,
                  const double *at_s, size_t reads, const char *path, struct erg_error *err)
{
    const size_t count = (size_t)emulation->gpus;
    struct erg_gpu_info *infos = erg_xcalloc(count, sizeof *infos);
    struct erg_recorder *recorder;
    for (size_t i = 0; i < count; i++) {
        const struct emulated_rank *gpu = &emulation->gpu_at[i];
        snprintf(infos[i].vendor, sizeof infos[i].vendor, "emulated");
        snprintf(infos[i].name, sizeof infos[i].name, "%s", emulation->gpu.name);
        snprintf(infos[i].uuid, sizeof infos[i].uuid, "EMULATED-%ld-%ld", gpu->node, gpu->local);
        infos[i].index = (int)i;
    }
    int status =
        erg_recorder_open_virtual(&recorder, path, emulation->point->id, infos, count, err);
    free(infos);
    if (status != 0)
        return -1;
    for (size_t read = 0; read < reads && status == 0; read++)
        for (size_t i = 0; i < count && status == 0; i++)
            status = record_read(recorder, emulation, &gpus[i], i, read, at_s[read], err);
    if (erg_recorder_close(recorder, status ? NULL : err) != 0)
        status = -1;
    return status;
}

/* Writes to a temporary name first: an incomplete file of a killed run must not look complete. */
static int record_aside(const struct emulation *emulation, const struct recorded_rank *gpus,
                        const double *at_s, size_t reads, const char *folder, struct erg_error *err)
{
    struct erg_text path = {0}, aside = {0};
    erg_text_printf(&path, "%s/points/%s.rec", folder, emulation->point->id);
    erg_text_printf(&aside, "%s.part", path.data);
    unlink(aside.data);
    int status = record(emulation, gpus, at_s, reads, aside.data, err);
    if (status == 0 && rename(aside.data, path.data) != 0)
        status = erg_fail(err, ERG_FAILED, "writing '%s': %s", path.data, strerror(errno));
    if (status != 0)
        unlink(aside.data);
    erg_text_release(&path);
    erg_text_release(&aside);
    return status;
}

int erg_emulation_write_recording(const struct emulation *emulation, const char *folder,
                                  struct erg_error *err)
{
    const double asked_s = 1e-3 * emulation->point->measuring->record_period_ms;
    const double period_s = fmax(asked_s, emulation->time_s / ERG_EMULATE_READS);
    const size_t reads = (size_t)ceil(emulation->time_s / period_s);
    const struct erg_links_request request = erg_emulation_links(emulation);
    double *at_s = erg_xcalloc(reads, sizeof *at_s);
    struct recorded_rank *gpus = erg_xcalloc((size_t)emulation->gpus, sizeof *gpus);
    struct erg_links links;
    erg_links_init(&links, &request);
    for (size_t i = 0; i < reads; i++)
        at_s[i] = (double)i * period_s;
    for (long rank = 0; rank < emulation->gpus; rank++)
        watch(&gpus[rank], emulation, rank, &links.gpu[rank], at_s, reads);
    int status = record_aside(emulation, gpus, at_s, reads, folder, err);
    for (long rank = 0; rank < emulation->gpus; rank++)
        release(&gpus[rank]);
    erg_links_release(&links);
    free(gpus);
    free(at_s);
    return status;
}
