/* From the rows of a probe to a GPU's file. */
#include "probe/probe.h"
#include "probe/probe_internal.h"

#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct observations {
    struct erg_probe_observation *items;
    size_t count, capacity;
};

/*
 * An idle GPU that has given up its clocks draws another power than the model's static one; one at
 * work whose clock is as low was slowed down by something else than work.
 */
static double lowest_mhz(const struct erg_gpu *gpu)
{
    return 0.5 * gpu->clock_max_mhz;
}

static bool lowered_clock(const struct erg_probe_row *row, const struct erg_gpu *gpu)
{
    return row->clock_mhz < lowest_mhz(gpu);
}

/* Adds the omitted rows to `lowered`. */
static void observe(struct observations *list, size_t *lowered,
                    const struct erg_probe_program *program, const struct erg_probe_rows *rows,
                    const struct erg_gpu *gpu)
{
    for (size_t i = 0; i < program->count; i++) {
        const struct erg_probe_item *item = &program->items[i];
        const struct erg_probe_row *row =
            erg_probe_rows_find(rows, program->name, program->gpus, item->name);
        if (!row || item->family == ERG_PROBE_BLOCKED)
            continue;
        if (lowered_clock(row, gpu)) {
            *lowered += item->family != ERG_PROBE_REST;
            continue;
        }
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

static const struct erg_probe_row *find_item(const struct erg_probe_program *programs, size_t count,
                                             const struct erg_probe_rows *rows, const char *item)
{
    const struct erg_probe_row *row = NULL;
    for (size_t p = 0; p < count && !row; p++)
        row = erg_probe_rows_find(rows, programs[p].name, programs[p].gpus, item);
    return row;
}

/* Sets a constant that is not the least squares' to find. */
static void set_constant(struct erg_probe_fit *fit, const char *name, size_t member, double after,
                         bool seen, const char *origin, const char *note)
{
    double *value = (double *)(void *)((char *)&fit->gpu + member);
    assert(fit->count < ERG_PROBE_MOST_CONSTANTS);
    struct erg_probe_constant *constant = &fit->constants[fit->count++];
    *constant = (struct erg_probe_constant){.name = name,
                                            .member = member,
                                            .before = *value,
                                            .after = after,
                                            .seen = seen,
                                            .origin = origin};
    *value = after;
    snprintf(constant->note, sizeof constant->note, "%s", note);
}

/*
 * The power of a GPU that waits for a peer. A single GPU has none, and older probes lack the row:
 * then it exceeds the static power by as much as at the start of the fit. (One H200 alone gives 142
 * W so; with others 147 W were measured.)
 */
static void fit_blocked(struct erg_probe_fit *fit, const struct erg_gpu *base,
                        const struct erg_probe_row *row)
{
    const struct erg_gpu *gpu = &fit->gpu;
    double power_w = gpu->static_power_w + base->blocking_power_w - base->static_power_w;
    char note[96] = "measured";
    if (row) { /* it waits as warm as training makes it, where leak is that of the reference */
        double leak = gpu->leak_per_k * (row->temperature_c - gpu->reference_c);
        power_w =
            fmax(row->energy_j / row->time_s - leak * gpu->static_power_w, gpu->static_power_w);
    } else {
        snprintf(note, sizeof note, "static power plus the excess in %s", gpu->name);
    }
    set_constant(fit, "blocking_power_w", offsetof(struct erg_gpu, blocking_power_w), power_w,
                 row != NULL, row ? "measured" : "derived: no row has it", note);
}

/* The power of a GPU that has been idle for long and has lowered its clock, if it does so. */
static void fit_idle(struct erg_probe_fit *fit, const struct erg_probe_row *row)
{
    bool seen = row && lowered_clock(row, &fit->gpu);
    set_constant(fit, "idle_power_w", offsetof(struct erg_gpu, idle_power_w),
                 seen ? row->energy_j / row->time_s : fit->gpu.idle_power_w, seen,
                 seen ? "measured" : "not seen", seen ? "measured" : "");
}

/*
 * Values from other measurements of the same kernels, which the rows of two GPUs cannot show: on
 * two and four H200, 100 MB on 1 to 4 SMs (bench_collectives), an AllReduce's blocks sent 1.30 to
 * 1.38 times as much on four; gathers and scatters of two sent 0.53 to 0.57 of an AllReduce. How
 * attention works on chunks: device/emulated/sim.c. A GPU's file that has other values keeps them.
 */
static const struct {
    const char *name;
    size_t member;
    double neutral, value; /* as in a file without it; of our kernels */
    const char *note;
} kernels[] = {
    {"comm_rank_power", offsetof(struct erg_gpu, comm_rank_power), 0, 0.7,
     "of our kernels on 2 and 4 H200"},
    {"comm_gather", offsetof(struct erg_gpu, comm_gather), 1, 0.53, "of our kernels on 2 H200"},
    {"comm_scatter", offsetof(struct erg_gpu, comm_scatter), 1, 0.53, "of our kernels on 2 H200"},
    {"attention_diagonal", offsetof(struct erg_gpu, attention_diagonal), 0, 1,
     "of our kernels under context ranks"},
    {"attention_waves", offsetof(struct erg_gpu, attention_waves), 0, 1,
     "by how tiles are shared out"},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static void assume_kernels(struct erg_gpu *gpu)
{
    for (size_t i = 0; i < KERNELS; i++) {
        double *value = (double *)(void *)((char *)gpu + kernels[i].member);
        if (*value == kernels[i].neutral)
            *value = kernels[i].value;
    }
}

/* The source of an assumed constant that no measurement showed. */
static void explain_kernels(struct erg_probe_fit *fit, const struct erg_gpu *base)
{
    static const char origin[] = "not seen; of the kernels";
    for (size_t i = 0; i < KERNELS; i++) {
        double before = *(const double *)(const void *)((const char *)base + kernels[i].member);
        struct erg_probe_constant *known = NULL;
        for (size_t k = 0; k < fit->count; k++)
            if (fit->constants[k].member == kernels[i].member)
                known = &fit->constants[k];
        if (before != kernels[i].neutral || (known && known->seen))
            continue;
        if (!known) {
            set_constant(fit, kernels[i].name, kernels[i].member, kernels[i].value, false, "", "");
            known = &fit->constants[fit->count - 1];
        }
        known->before = before;
        known->origin = origin;
        snprintf(known->note, sizeof known->note, "%s", kernels[i].note);
    }
}

/* A GPU that was measured already is called so once. */
static void name_fitted(struct erg_probe_fit *fit)
{
    static const char suffix[] = "-measured";
    size_t length = strlen(fit->board), most = sizeof fit->name - sizeof suffix;
    bool measured =
        length >= sizeof suffix && !strcmp(fit->board + length + 1 - sizeof suffix, suffix);
    snprintf(fit->name, sizeof fit->name, "%.*s%s", (int)most, fit->board, measured ? "" : suffix);
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
                "%zu of %zu measurement%s left out: of other GPUs, or of nothing that the probe "
                "measures",
                rows->count - known, rows->count, erg_plural(rows->count));
}

/* With fewer measurements, or a model that stays this far from them, a GPU file is not worth
 * writing. */
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

/* Rows at clocks that the GPU has not are of another one, or of a GPU whose clock was misread. */
static int check_clocks(const struct erg_probe_rows *rows, const struct erg_gpu *gpu,
                        struct erg_error *err)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct erg_probe_row *row = &rows->items[i];
        if (row->clock_mhz > gpu->clock_max_mhz + 0.5 * gpu->clock_step_mhz)
            return erg_fail(err, ERG_FAILED,
                            "fitting the constants of %s: \"%s\" of the shape %s was measured at "
                            "%.0f MHz, above its highest clock of %d MHz",
                            gpu->name, row->item, row->shape, row->clock_mhz, gpu->clock_max_mhz);
    }
    return 0;
}

int erg_probe_calibrate(struct erg_probe_fit *fit, const struct erg_gpu *gpu,
                        const struct erg_stack *stack, const struct erg_probe_program *programs,
                        size_t program_count, const struct erg_probe_rows *rows, const char *board,
                        struct erg_error *err)
{
    struct observations list = {0};
    struct erg_gpu start = *gpu;
    size_t lowered = 0;
    if (check_clocks(rows, gpu, err) != 0)
        return -1;
    assume_kernels(&start);
    warn_of_strangers(programs, program_count, rows);
    for (size_t i = 0; i < program_count; i++)
        observe(&list, &lowered, &programs[i], rows, gpu);
    int status, gpus = program_count ? programs[0].gpus : 0;
    if (list.count < FEWEST_OBSERVATIONS)
        status =
            erg_fail(err, ERG_FAILED,
                     "fitting the constants of %s: there %s %zu measurement%s on %d GPU%s to "
                     "fit them to and %zu at clocks below %g MHz, expected at least %d",
                     gpu->name, list.count == 1 ? "is" : "are", list.count, erg_plural(list.count),
                     gpus, erg_plural((size_t)gpus), lowered, lowest_mhz(gpu), FEWEST_OBSERVATIONS);
    else
        status =
            erg_probe_fit(fit, &start, stack, list.items, list.count, err) || check_fit(fit, err)
                ? -1
                : 0;
    free(list.items);
    if (status)
        return -1;
    fit->board = board;
    fit->gpus = gpus;
    fit->lowered = lowered;
    fit->lowered_mhz = lowest_mhz(gpu);
    name_fitted(fit);
    explain_kernels(fit, gpu);
    fit_blocked(fit, gpu, find_item(programs, program_count, rows, PROBE_BLOCKED));
    fit_idle(fit, find_item(programs, program_count, rows, PROBE_IDLE));
    return 0;
}

/* ---- the file ---- */

struct number_origins {
    const struct erg_probe_fit *fit;
    const char *datasheet, *kept;
};

/* The source of a number in the file. */
static const char *origin(const void *context, size_t member)
{
    const struct number_origins *origins = context;
    const struct erg_probe_fit *fit = origins->fit;
    for (size_t i = 0; i < fit->count; i++)
        if (fit->constants[i].member == member && *fit->constants[i].note)
            return fit->constants[i].note;
    return member < offsetof(struct erg_gpu, gemm_efficiency) ? origins->datasheet : origins->kept;
}

int erg_probe_write(const struct erg_probe_fit *fit, const struct erg_probe_rows *rows,
                    const char *path, struct erg_error *err)
{
    struct erg_gpu gpu = fit->gpu;
    struct erg_text heading = {0}, confidence = {0}, datasheet = {0}, kept = {0};
    size_t newest = rows->count - 1;
    while (rows->items[newest].gpus != fit->gpus) /* not what was fitted */
        newest--;
    const struct erg_probe_row *last = &rows->items[newest];
    erg_text_printf(&datasheet, "as in %s", fit->board);
    erg_text_printf(&kept, "as in %s", gpu.name);
    erg_text_printf(&heading,
                    "Written by ergon probe --calibrate, starting from %s.\n"
                    "%s, %s.\n"
                    "Fitted to %zu measurements of layers that belong to no model: mean error\n"
                    "%.1f %% in time, %.1f %% in energy. Clocks were not varied.",
                    gpu.name, last->conditions, last->created_utc, fit->observations,
                    100 * fit->time_error, 100 * fit->energy_error);
    erg_text_printf(&confidence,
                    "fitted by ergon probe to %zu measurements on %d GPU%s at default clocks; "
                    "what only other clocks%s show is as in %s",
                    fit->observations, fit->gpus, erg_plural((size_t)fit->gpus),
                    fit->gpus == 1 ? " or more GPUs" : "", gpu.name);
    gpu.name = erg_xstrdup(fit->name);
    gpu.confidence = confidence.data;
    struct number_origins origins = {fit, datasheet.data, kept.data};
    int status = erg_gpu_write(&gpu, path, heading.data, origin, &origins, err);
    struct erg_gpu *again;
    if (!status) { /* further conditions on a file */
        status = erg_gpu_load(&again, path, err);
        if (!status)
            erg_gpu_free(again);
    }
    free(gpu.name);
    erg_text_release(&datasheet);
    erg_text_release(&kept);
    erg_text_release(&heading);
    erg_text_release(&confidence);
    return status;
}
