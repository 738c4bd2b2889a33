/* The entry points of the exact model: checks, runs, host floor, timelines. */
#include "device/emulated/emulated_internal.h"

#include <math.h>
#include <stdlib.h>

static bool finite_size(double value)
{
    return isfinite(value) && value >= 0;
}

static int check_op(const struct erg_op *op, size_t step, size_t index, struct erg_error *err)
{
    if (op->kernels < 0 || !finite_size(op->flops) || !finite_size(op->bytes) ||
        !finite_size(op->tiles))
        return erg_fail(err, ERG_FAILED,
                        "running step %zu: op %zu has kernels %d, flops %g, bytes %g and tiles %g, "
                        "expected finite numbers of at least 0",
                        step, index, op->kernels, op->flops, op->bytes, op->tiles);
    if (op->kind == ERG_OP_GEMM && !(op->k > 0))
        return erg_fail(err, ERG_FAILED,
                        "running step %zu: the matrix product at op %zu has inner dimension %g, "
                        "expected more than 0",
                        step, index, op->k);
    return 0;
}

static int check_step(const struct erg_step *step, size_t index, struct erg_error *err)
{
    for (size_t i = 0; i < step->task.op_count; i++)
        if (check_op(&step->task.ops[i], index, i, err) != 0)
            return -1;
    const struct erg_comm *comm = &step->task.comm;
    if (!finite_size(comm->wire_bytes))
        return erg_fail(err, ERG_FAILED,
                        "running step %zu: its communication moves %g bytes, expected a finite "
                        "number of at least 0",
                        index, comm->wire_bytes);
    for (int i = 0; i < comm->work_count; i++)
        if (check_op(&comm->works[i], index, (size_t)i, err) != 0)
            return -1;
    if (comm->wire_bytes <= 0)
        return 0;
    if (step->launch.slot > step->task.op_count)
        return erg_fail(err, ERG_FAILED,
                        "running step %zu: launch slot %zu is past the end of its %zu ops", index,
                        step->launch.slot, step->task.op_count);
    if (!comm->library && step->launch.sms < 1)
        return erg_fail(err, ERG_FAILED,
                        "running step %zu: its communication got %d SMs, expected at least 1",
                        index, step->launch.sms);
    return 0;
}

int erg_steps_check(const struct erg_step *steps, size_t count, struct erg_error *err)
{
    for (size_t s = 0; s < count; s++)
        if (check_step(&steps[s], s, err) != 0)
            return -1;
    return 0;
}

int erg_emulated_run_at(const struct erg_gpu *gpu, const struct erg_stack *stack,
                        const struct erg_step *steps, size_t count, double clock_mhz,
                        double temperature_c, struct erg_emulated_result *out,
                        struct erg_error *err)
{
    if (!(clock_mhz > 0) || clock_mhz > gpu->clock_max_mhz)
        return erg_fail(err, ERG_FAILED,
                        "running on %s at %g MHz: the clock must be above 0 and at most %d MHz",
                        gpu->name, clock_mhz, gpu->clock_max_mhz);
    if (erg_steps_check(steps, count, err) != 0)
        return -1;
    erg_emulated_evaluate(gpu, stack, steps, count, clock_mhz, temperature_c, out);
    return 0;
}

int erg_emulated_run(const struct erg_gpu *gpu, const struct erg_stack *stack,
                     const struct erg_step *steps, size_t count, int clock_mhz,
                     struct erg_emulated_result *out, struct erg_error *err)
{
    return erg_emulated_run_at(gpu, stack, steps, count, clock_mhz, gpu->reference_c, out, err);
}

int erg_emulated_timeline(const struct erg_gpu *gpu, const struct erg_stack *stack,
                          const struct erg_step *steps, size_t count, int clock_mhz,
                          struct erg_emulated_timeline *timeline, struct erg_error *err)
{
    struct erg_emulated_result result = {0};
    if (erg_emulated_run(gpu, stack, steps, count, clock_mhz, &result, err) != 0)
        return -1;
    struct erg_sim sim;
    timeline->count = 0;
    erg_sim_run(gpu, stack, steps, count, result.clock_effective_mhz, &sim, timeline);
    double stretch = sim.time_s > 0 ? result.time_s / sim.time_s : 1; /* the cap's dither */
    for (size_t i = 0; i < timeline->count; i++) {
        timeline->spans[i].start_s *= stretch;
        timeline->spans[i].end_s *= stretch;
    }
    return 0;
}

void erg_emulated_timeline_release(struct erg_emulated_timeline *timeline)
{
    free(timeline->spans);
    *timeline = (struct erg_emulated_timeline){0};
}
