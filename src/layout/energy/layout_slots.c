/* Time and power of a layout's groups at any clock, for their placement in slots. */
#include "layout/energy/layout_slots.h"

#include "base/memory.h"
#include "base/text.h"
#include "device/emulated/power.h"

#include <math.h>
#include <stdlib.h>

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
    struct erg_slots_request *request = &slots->request.node;
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

int erg_layout_slots_init(struct erg_layout_slots *slots,
                          const struct erg_layout_energy_request *energy,
                          const struct erg_layout *layout, const struct erg_chassis *chassis,
                          struct erg_error *err)
{
    double head_s, dense_s;
    if (check_layout(layout, chassis, err) != 0)
        return -1;
    const struct erg_model *model = energy->time.model;
    const long groups = (long)chassis->gpus / (layout->tensor * layout->context);
    const size_t all = (size_t)(layout->pipeline * layout->data);
    const size_t stages = (size_t)layout->pipeline;
    *slots = (struct erg_layout_slots){
        .stage = erg_xcalloc(all, sizeof *slots->stage),
        .layers = erg_xcalloc(stages, sizeof *slots->layers),
        .least = erg_xcalloc(stages, sizeof *slots->least),
        .more_s = erg_xcalloc(stages, sizeof *slots->more_s),
    };
    take_costs(slots, energy, layout, &head_s, &dense_s);
    struct erg_slots_request *node = &slots->request.node;
    for (size_t g = 0; g < all; g++)
        slots->stage[g] = (int)((long)g / layout->data);
    for (long stage = 0; stage < layout->pipeline; stage++) {
        const long layers = erg_layout_stage_layers(layout, model->layers, stage);
        const long dense = erg_layout_dense_layers(layout, model, stage, layers);
        slots->layers[stage] = (int)layers;
        slots->least[stage] = dense > 1 ? (int)dense : 1;
        slots->more_s[stage] = (stage == layout->pipeline - 1 ? head_s : 0) +
                               (double)dense * (dense_s - node->compute_s - node->fixed_s);
    }
    node->chassis = chassis;
    node->groups = (int)groups;
    node->microbatches = (int)layout->microbatches;
    node->stages = (int)layout->pipeline;
    slots->request.nodes = (int)((long)all / groups);
    slots->request.stage = slots->stage;
    slots->request.layers = slots->layers;
    slots->request.least = slots->least;
    slots->request.more_s = slots->more_s;
    return 0;
}

void erg_layout_slots_release(struct erg_layout_slots *slots)
{
    free(slots->stage);
    free(slots->layers);
    free(slots->least);
    free(slots->more_s);
    *slots = (struct erg_layout_slots){0};
}
