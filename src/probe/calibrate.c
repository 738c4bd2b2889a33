/* From the rows of a probe to a GPU's file. */
#include "probe/probe.h"
#include "probe/probe_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "device/emulated/emulated.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct observations {
    struct erg_probe_observation *items;
    size_t count, capacity;
};

/* An idle GPU that has given up its clocks draws another power than the model's static one. */
static bool lowered_clock(const struct erg_probe_row *row, const struct erg_gpu *gpu)
{
    return row->clock_mhz < 0.5 * gpu->clock_max_mhz;
}

static void observe(struct observations *list, const struct erg_probe_program *program,
                    const struct erg_probe_rows *rows, const struct erg_gpu *gpu)
{
    for (size_t i = 0; i < program->count; i++) {
        const struct erg_probe_item *item = &program->items[i];
        const struct erg_probe_row *row =
            erg_probe_rows_find(rows, program->name, program->gpus, item->name);
        if (!row || lowered_clock(row, gpu))
            continue;
        ERG_PUSH(
            list, items,
            (struct erg_probe_observation){
                .shape = program->name,
                .name = item->name,
                .steps = item->steps,
                .step_count = item->step_count,
                .mixed = item->family == ERG_PROBE_PARTITION || item->family == ERG_PROBE_LAYER,
                .time_s = row->time_s,
                .energy_j = row->energy_j,
                .time_error = row->time_error,
                .energy_error = row->energy_error,
                .clock_mhz = row->clock_mhz,
                .temperature_c = row->temperature_c,
            });
    }
}

/*
 * Powers that no schedule of ours shows: a GPU that waits for a peer keeps one block spinning; one
 * that has been idle for long has lowered its clock, if it does so at all.
 */
static void fit_waiting(struct erg_gpu *gpu, const struct erg_probe_program *program,
                        const struct erg_probe_rows *rows)
{
    double above_ghz = (gpu->clock_max_mhz - gpu->voltage_knee_mhz) * 1e-3;
    double volt = 1 + gpu->voltage_slope_per_ghz * above_ghz;
    gpu->blocking_power_w =
        gpu->static_power_w + volt * volt * (gpu->active_power_w + gpu->spin_power_w);
    const struct erg_probe_row *idle =
        erg_probe_rows_find(rows, program->name, program->gpus, PROBE_IDLE);
    if (idle && lowered_clock(idle, gpu))
        gpu->idle_power_w = idle->energy_j / idle->time_s;
}

/* Launch slots follow from a GPU's constants, so rows of another start may have others. */
static void warn_of_strangers(const struct erg_probe_program *programs, size_t program_count,
                              const struct erg_probe_rows *rows)
{
    size_t known = 0;
    for (size_t p = 0; p < program_count; p++)
        for (size_t i = 0; i < programs[p].count; i++)
            known += erg_probe_rows_find(rows, programs[p].name, programs[p].gpus,
                                         programs[p].items[i].name) != NULL;
    if (known < rows->count)
        erg_log(ERG_LOG_WARNING,
                "%zu of %zu measurements are of other GPUs or of nothing that the probe measures; "
                "they are left out",
                rows->count - known, rows->count);
}

/* Fewer measurements, or a model that stays this far from them, make no GPU file worth writing. */
enum { FEWEST_OBSERVATIONS = 12 };
static const double worst_mean_error = 0.25;

static int check_fit(const struct erg_probe_fit *fit, struct erg_error *err)
{
    if (fit->time_error <= worst_mean_error && fit->energy_error <= worst_mean_error)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "fitting the constants of %s: the measurements are not those of such a GPU: "
                    "fitted, they still differ by %.3g %% in time and %.3g %% in energy on "
                    "average, expected at most %.0f %%",
                    fit->gpu.name, 100 * fit->time_error, 100 * fit->energy_error,
                    100 * worst_mean_error);
}

int erg_probe_calibrate(struct erg_probe_fit *fit, const struct erg_gpu *gpu,
                        const struct erg_stack *stack, const struct erg_probe_program *programs,
                        size_t program_count, const struct erg_probe_rows *rows,
                        struct erg_error *err)
{
    struct observations list = {0};
    warn_of_strangers(programs, program_count, rows);
    for (size_t i = 0; i < program_count; i++)
        observe(&list, &programs[i], rows, gpu);
    int status;
    if (list.count < FEWEST_OBSERVATIONS)
        status = erg_fail(err, ERG_FAILED,
                          "fitting the constants of %s: there are %zu measurements on %d GPUs to "
                          "fit them to, expected at least %d",
                          gpu->name, list.count, program_count ? programs[0].gpus : 0,
                          FEWEST_OBSERVATIONS);
    else
        status = erg_probe_fit(fit, gpu, stack, list.items, list.count, err) || check_fit(fit, err)
                     ? -1
                     : 0;
    free(list.items);
    for (size_t i = 0; i < program_count && !status; i++)
        fit_waiting(&fit->gpu, &programs[i], rows);
    return status;
}

/* ---- the file ---- */

struct origins {
    const struct erg_probe_fit *fit;
    const char *kept;
};

/* What a number of the file rests on. */
static const char *origin(const void *context, size_t member)
{
    const struct origins *origins = context;
    const struct erg_probe_fit *fit = origins->fit;
    for (size_t i = 0; i < fit->count; i++)
        if (fit->constants[i].member == member && fit->constants[i].seen)
            return fit->constants[i].note;
    if (member == offsetof(struct erg_gpu, blocking_power_w))
        return "static power, active power and one spinning block";
    return origins->kept;
}

int erg_probe_write(const struct erg_probe_fit *fit, const struct erg_probe_rows *rows,
                    const char *path, struct erg_error *err)
{
    struct erg_gpu gpu = fit->gpu;
    struct erg_text name = {0}, heading = {0}, confidence = {0}, kept = {0};
    const struct erg_probe_row *last = &rows->items[rows->count - 1];
    erg_text_printf(&name, "%s-measured", gpu.name);
    erg_text_printf(&kept, "as in %s", gpu.name);
    erg_text_printf(&heading,
                    "Written by ergon probe --calibrate, starting from %s.\n"
                    "%s, %s.\n"
                    "Fitted to %zu measurements of layers that belong to no model: mean error\n"
                    "%.1f %% in time, %.1f %% in energy. Clocks were not varied.",
                    gpu.name, last->conditions, last->created_utc, fit->observations,
                    100 * fit->time_error, 100 * fit->energy_error);
    erg_text_printf(&confidence,
                    "fitted by ergon probe to %zu measurements on %d GPUs at default clocks; what "
                    "only other clocks show is as in %s",
                    fit->observations, last->gpus, gpu.name);
    gpu.name = name.data;
    gpu.confidence = confidence.data;
    struct origins origins = {fit, kept.data};
    int status = erg_gpu_write(&gpu, path, heading.data, origin, &origins, err);
    struct erg_gpu *again;
    if (!status) { /* what else a file must be */
        status = erg_gpu_load(&again, path, err);
        if (!status)
            erg_gpu_free(again);
    }
    erg_text_release(&name);
    erg_text_release(&kept);
    erg_text_release(&heading);
    erg_text_release(&confidence);
    return status;
}
