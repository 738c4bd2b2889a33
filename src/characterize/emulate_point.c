/* An emulated point: solves for clocks, times, powers and temperatures that agree with each
 * other. */
#include "characterize/emulate_internal.h"

#include "base/interrupt.h"
#include "characterize/emulate_recording.h"
#include "characterize/emulate_trace.h"

#include <math.h>

static double run_round(struct emulation *emulation)
{
    const double before_s = emulation->time_s;
    erg_emulation_run_passes(emulation);
    erg_emulation_run_schedule(emulation);
    erg_emulation_run_power(emulation);
    emulation->rounds++;
    return fabs(emulation->time_s - before_s) / emulation->time_s;
}

static int settle(struct emulation *emulation, struct erg_error *err)
{
    while (!emulation->settled && emulation->rounds < ERG_EMULATE_ROUNDS) {
        if (erg_interrupt_check(err) != 0)
            return -1;
        const double moved = run_round(emulation);
        const double moved_k = erg_emulation_run_heat(emulation, 0.5);
        emulation->settled = moved < ERG_EMULATE_TIME && moved_k < ERG_EMULATE_KELVIN;
    }
    return 0;
}

static double busy_clock(const struct emulation *emulation, const struct emulated_rank *gpu)
{
    double clock_mhz_s = 0, busy_s = 0;
    for (long i = 0; i < emulation->passes; i++) {
        clock_mhz_s += gpu->passes[i].own_s * gpu->passes[i].clock_mhz;
        busy_s += gpu->passes[i].own_s;
    }
    return clock_mhz_s / busy_s;
}

/* Computes the point without its fault; then the faulty GPUs keep a share of their clocks. */
static int begin_fault(struct emulation *emulation, struct erg_error *err)
{
    const struct erg_study_point *point = emulation->point;
    if (point->fault_node == ERG_STUDY_NO_NODE)
        return 0;
    if (settle(emulation, err) != 0)
        return -1;
    for (long rank = 0; rank < emulation->gpus; rank++) {
        struct emulated_rank *gpu = &emulation->gpu_at[rank];
        if (gpu->node == point->fault_node)
            gpu->fault_mhz = point->fault_clock_share * busy_clock(emulation, gpu);
    }
    emulation->settled = false;
    emulation->rounds = 0;
    return 0;
}

int erg_emulate_point(void *context, const struct erg_study_point *point,
                      struct erg_study_result *result, struct erg_arena *arena,
                      struct erg_error *err)
{
    struct emulation emulation;
    bool fits;
    const char *folder = context;
    int status = erg_emulation_init(&emulation, point, result, &fits, arena, err);
    if (status == 0 && fits) {
        const double until_s = point->measuring->transient_s;
        status = begin_fault(&emulation, err);
        if (status == 0)
            status = until_s > 0 ? erg_emulation_warm_up(&emulation, until_s, err)
                                 : settle(&emulation, err);
        if (status == 0)
            erg_emulation_fill_result(&emulation, result);
        if (status == 0 && folder)
            status = erg_emulation_write_recording(&emulation, folder, err);
        if (status == 0 && folder && point->measuring->trace_stages)
            status = erg_emulation_write_traces(&emulation, folder, err);
    }
    erg_emulation_release(&emulation);
    return status;
}
