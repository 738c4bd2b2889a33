/* The cost of a training step after its iteration. */
#include "layout/energy/step_end.h"

#include "device/emulated/power.h"
#include "layout/energy/layout_energy.h"

static long ranks_on(const struct erg_layout *layout, const size_t *stage_kind, size_t kind)
{
    long stages = 0;
    for (long s = 0; s < layout->pipeline; s++)
        stages += !stage_kind || stage_kind[s] == kind;
    return stages * layout->tensor * layout->context * layout->data;
}

static void fill_stage(struct erg_step_end *end, const struct erg_model *model,
                       const struct erg_layout *layout, const struct erg_step_end_kind *kind,
                       long ranks, long stage)
{
    const struct erg_time_request request = {model, kind->engine, &kind->machine};
    const struct erg_gpu *gpu = kind->gpu;
    const struct erg_engine *engine = kind->engine;
    const double voltage = erg_gpu_voltage(gpu, gpu->clock_max_mhz);
    const double byte_j = erg_hbm_byte_energy(gpu, voltage);
    const double wire_j = gpu->energy_per_wire_byte_j + gpu->comm_hbm_per_wire * byte_j;
    struct erg_time_parts parts;
    struct erg_time_place place;
    erg_time_parts_of(&parts, &request, layout, ranks);
    erg_time_place_init(&place, &request, &parts, layout,
                        erg_time_group_bandwidth(&request, erg_time_gradient_stride(layout),
                                                 erg_time_gradient_ranks(layout), ranks));
    const double own = erg_layout_stage_parameters(&request, &parts, layout, stage);
    const double wire_bytes = erg_time_gradient_bytes(engine, layout);
    const double bytes = erg_time_optimizer_bytes(engine, layout);
    end->gradients_s = own * place.gradient_s;
    end->gradients_j = own * wire_bytes * wire_j + gpu->blocking_power_w * end->gradients_s;
    end->optimizer_s = own * place.optimizer_s;
    end->optimizer_j =
        own * bytes * byte_j +
        (gpu->static_power_w + voltage * voltage * gpu->active_power_w) * end->optimizer_s;
}

void erg_step_ends_init(struct erg_step_end *ends, const struct erg_model *model,
                        const struct erg_layout *layout, const struct erg_step_end_kind *kinds,
                        const size_t *stage_kind)
{
    for (long s = 0; s < layout->pipeline; s++) {
        const size_t kind = stage_kind ? stage_kind[s] : 0;
        fill_stage(&ends[s], model, layout, &kinds[kind], ranks_on(layout, stage_kind, kind), s);
    }
}
