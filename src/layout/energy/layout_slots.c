/* Time and power of a layout's groups at any clock, for their placement in slots. */
#include "layout/energy/layout_slots.h"

#include "base/text.h"
#include "device/emulated/power.h"

#include <math.h>

/* Clocks, as shares of the highest, between which passes are interpolated. */
static const double low_share = 0.65, high_share = 0.85;

static int check_layout(const struct erg_layout *layout, const struct erg_chassis *chassis,
                        struct erg_error *err)
{
    const long group = layout->tensor * layout->context, node = (long)chassis->gpus;
    const long gpus = group * layout->pipeline * layout->data;
    if (layout->virtual_stages > 1)
        return erg_fail(err, ERG_FAILED,
                        "placing the layout in slots: it has virtual stages; expected one without");
    if (group >= node || node % group != 0 || gpus % node != 0)
        return erg_fail(err, ERG_FAILED,
                        "placing the layout in slots: its groups of %ld GPU%s must be smaller than "
                        "the %ld of a node, and its %ld must fill nodes",
                        group, erg_plural((size_t)group), node, gpus);
    return 0;
}

/* Time and power of a layer's passes, or of the head, at a clock without a cap. */
static void look_at(const struct erg_layout_energy_request *energy,
                    const struct erg_time_parts *parts, const struct erg_layout_work *work,
                    const struct erg_layout *layout, double clock_mhz, bool dense, double *time_s,
                    double *power_w, double *head_s)
{
    struct erg_layout_costs costs;
    double energy_j = 0;
    *time_s = 0;
    erg_layout_costs_at(&costs, energy, work, clock_mhz);
    for (int backward = 0; backward < 2; backward++) {
        const struct erg_pass_cost pass =
            erg_layout_chunk_cost(energy, parts, &costs, 1, dense, backward, false,
                                  layout->recompute, erg_layout_offload(layout, 0));
        *time_s += pass.time_s;
        energy_j += pass.total_j;
    }
    *power_w = energy_j / *time_s;
    *head_s = costs.passes[ERG_PASS_HEAD].time_s;
}

static void take_gpu(struct erg_slots_gpu *to, const struct erg_gpu *gpu, double reference_mhz)
{
    *to = (struct erg_slots_gpu){
        .lowest_mhz = gpu->clock_min_mhz,
        .highest_mhz = gpu->clock_max_mhz,
        .reference_mhz = reference_mhz,
        .static_w = gpu->static_power_w,
        .leak_per_k = gpu->leak_per_k,
        .reference_c = gpu->reference_c,
        .waiting_w = gpu->blocking_power_w,
        .voltage_knee_mhz = gpu->voltage_knee_mhz,
        .voltage_slope_per_ghz = gpu->voltage_slope_per_ghz,
        .cap_w = gpu->power_cap_w,
    };
}

static void take_costs(struct erg_layout_slots *slots,
                       const struct erg_layout_energy_request *energy,
                       const struct erg_layout *layout, double *head_s, double *dense_s)
{
    const struct erg_gpu *gpu = energy->gpu;
    const double low = low_share * gpu->clock_max_mhz, high = high_share * gpu->clock_max_mhz;
    const long gpus = layout->tensor * layout->context * layout->pipeline * layout->data;
    struct erg_slots_request *request = &slots->request;
    struct erg_time_parts parts;
    struct erg_layout_work work;
    double time_s[2], power_w[2], ignored_s, ignored_w;
    erg_time_parts_of(&parts, &energy->time, layout, gpus);
    erg_layout_work_of(&work, energy, &parts, layout, gpus);
    for (int i = 0; i < work.pass_count; i++)
        work.passes[i].cap_mhz = INFINITY; /* each slot has its own cap */
    look_at(energy, &parts, &work, layout, low, false, &time_s[0], &power_w[0], &ignored_s);
    look_at(energy, &parts, &work, layout, high, false, &time_s[1], &power_w[1], head_s);
    *dense_s = 0;
    if (energy->time.model->experts.dense_layers > 0)
        look_at(energy, &parts, &work, layout, high, true, dense_s, &ignored_w, &ignored_s);
    take_gpu(&request->gpu, gpu, high);
    request->compute_s = (time_s[0] - time_s[1]) / (high / low - 1);
    request->fixed_s = fmax(time_s[1] - request->compute_s, 0);
    /* static + other + dynamic f v^2 at both */
    const double v_low = erg_gpu_voltage(gpu, low), v_high = erg_gpu_voltage(gpu, high);
    const double strength = low * v_low * v_low / (high * v_high * v_high);
    request->gpu.dynamic_w = (power_w[1] - power_w[0]) / (1 - strength);
    request->gpu.other_w = fmax(power_w[1] - gpu->static_power_w - request->gpu.dynamic_w, 0);
}

static long stage_layers(const struct erg_layout_energy_request *energy,
                         const struct erg_layout *layout, long stage)
{
    return erg_layout_chunk_layers(layout, energy->time.model->layers, stage, 0);
}

/* Seconds of a stage beyond those of its layers, if all of them had experts. */
static double more_of(const struct erg_layout_energy_request *energy,
                      const struct erg_layout *layout, long stage, double head_s,
                      double more_by_dense_s)
{
    const long dense = erg_layout_dense_layers(layout, energy->time.model, stage,
                                               stage_layers(energy, layout, stage));
    return (stage == layout->pipeline - 1 ? head_s : 0) + (double)dense * more_by_dense_s;
}

int erg_layout_slots_init(struct erg_layout_slots *slots,
                          const struct erg_layout_energy_request *energy,
                          const struct erg_layout *layout, const struct erg_chassis *chassis,
                          struct erg_error *err)
{
    double head_s, dense_s, most_s = -1;
    if (check_layout(layout, chassis, err) != 0)
        return -1;
    const long groups = (long)chassis->gpus / (layout->tensor * layout->context);
    *slots = (struct erg_layout_slots){.nodes = layout->pipeline * layout->data / groups};
    take_costs(slots, energy, layout, &head_s, &dense_s);
    const double layer_s = slots->request.compute_s + slots->request.fixed_s;
    for (long node = 0; node < slots->nodes; node++) {
        double work_s = 0;
        for (long g = 0; g < groups; g++) {
            const long stage = (node * groups + g) / layout->data;
            work_s += layer_s * (double)stage_layers(energy, layout, stage) +
                      more_of(energy, layout, stage, head_s, dense_s - layer_s);
        }
        if (work_s > most_s * (1 + 1e-9)) {
            most_s = work_s;
            slots->node = node;
        }
    }
    for (long g = 0; g < groups; g++) {
        const long stage = (slots->node * groups + g) / layout->data;
        slots->stage[g] = stage;
        slots->layers[g] = (int)stage_layers(energy, layout, stage);
        slots->more_s[g] = more_of(energy, layout, stage, head_s, dense_s - layer_s);
    }
    slots->request.chassis = chassis;
    slots->request.groups = (int)groups;
    slots->request.layers = slots->layers;
    slots->request.more_s = slots->more_s;
    slots->request.microbatches = (int)layout->microbatches;
    slots->request.stages = (int)layout->pipeline;
    return 0;
}
