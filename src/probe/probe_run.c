/* A run of the probe: what it measures or takes, the GPU it starts from, and what it concludes. */
#include "probe/probe_run.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/emulated/emulated.h"
#include "device/real.h"
#include "hardware/hardware.h"
#include "probe/probe.h"
#include "probe/probe_print.h"
#include "telemetry/gpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The state of one call. */
struct erg_probe_run {
    const struct erg_probe_input *input;
    struct erg_gpu *gpu; /* its constants are the start */
    char *board;         /* name of the GPU that is measured, as the catalogue has it */
    struct erg_stack *stack;
    struct erg_probe_program *programs; /* one for each shape */
    size_t program_count;
    char *rows_path; /* NULL: they are kept nowhere */
    struct erg_probe_rows rows;
};

/* ---- measuring ---- */

static int measure_emulated(struct erg_probe_run *at, const struct erg_probe_program *program,
                            uint64_t seed, struct erg_error *err)
{
    struct erg_emulated_options emulated = erg_emulated_options_default();
    struct erg_device *device;
    emulated.gpus = (size_t)at->input->gpus;
    emulated.seed = seed;
    if (erg_emulated_open(&device, at->gpu, at->stack, &emulated, err))
        return -1;
    int status =
        erg_probe_measure(device, program, device->identity, at->rows_path, &at->rows, err);
    erg_device_close(device);
    return status;
}

static int measure_cuda(struct erg_probe_run *at, const struct erg_probe_program *program,
                        uint64_t seed, struct erg_error *err)
{
    struct erg_real_request request = {
        .model = program->model,
        .tensor = program->tensor,
        .context = program->context,
        .layers = 1,
        .sequences = program->sequences,
        .sequence = program->sequence,
        .seed = seed,
    };
    struct erg_real *real;
    if (erg_real_open(&real, &request, err))
        return -1;
    struct erg_device *device = erg_real_device(real);
    struct erg_gpus *sensors;
    int status = 0;
    if (device)
        status = erg_gpus_open(&sensors, NULL, err);
    if (device && !status) {
        struct erg_text conditions = {0};
        erg_text_printf(&conditions, "%s, driver %s", device->identity,
                        erg_gpus_info(sensors, 0)->driver);
        erg_gpus_close(sensors);
        status = erg_probe_measure(device, program, conditions.data, at->rows_path, &at->rows, err);
        erg_text_release(&conditions);
    }
    erg_real_close(real);
    return status;
}

static int measure(struct erg_probe_run *at, uint64_t seed, struct erg_error *err)
{
    int64_t start_ns = erg_now_ns();
    size_t known = at->rows.count;
    for (size_t i = 0; i < at->program_count; i++)
        if (at->input->real ? measure_cuda(at, &at->programs[i], seed, err)
                            : measure_emulated(at, &at->programs[i], seed, err))
            return -1;
    if (at->input->leads)
        erg_log(ERG_LOG_INFO, "%zu measurement%s in %.0f s, opening the GPUs included",
                at->rows.count - known, erg_plural(at->rows.count - known),
                (double)(erg_now_ns() - start_ns) * 1e-9);
    return 0;
}

/* ---- before the measurements ---- */

/* The name of the GPUs that are measured, or of those in the rows. */
static int name_gpu(const struct erg_probe_run *at, char *name, size_t capacity,
                    struct erg_error *err)
{
    if (at->input->from) {
        if (!at->rows.count)
            return erg_fail(err, ERG_FAILED, "probing: '%s' has no measurements", at->input->from);
        erg_probe_row_gpu(&at->rows.items[0], name, capacity);
        return 0;
    }
    struct erg_gpus *gpus;
    struct erg_error missing;
    if (erg_gpus_open(&gpus, NULL, &missing))
        return erg_fail(err, missing.status,
                        "probing the GPUs of this machine: %s; install NVIDIA's driver, or take "
                        "emulated GPUs with --device emulated",
                        missing.message);
    snprintf(name, capacity, "%s", erg_gpus_info(gpus, 0)->name);
    erg_gpus_close(gpus);
    return 0;
}

/* Whether two entries of the catalogue are the same kind of GPU: "h200-sxm", "h200-sxm-measured".
 */
static bool same_kind(const char *entry, const char *other)
{
    size_t length = strcspn(entry, "-");
    return length == strcspn(other, "-") && !strncmp(entry, other, length);
}

/*
 * --base names a GPU of another kind than what is measured, the catalogue's `entry`: its constants
 * are a start only where their SMs are the same.
 */
static int take_relative(struct erg_probe_run *at, const char *entry, const char *name,
                         struct erg_error *err)
{
    struct erg_gpu *board;
    struct erg_error other;
    if (erg_gpu_load(&board, entry, err))
        return -1;
    int status = erg_gpu_take_datasheet(at->gpu, board, &other);
    if (status)
        erg_fail(err, ERG_FAILED,
                 "probing: the measurements are of \"%s\", but --base names %s; expected a GPU "
                 "like %s, or of its architecture",
                 name, at->gpu->name, entry);
    else
        at->board = erg_xstrdup(board->name);
    erg_gpu_free(board);
    return status;
}

/*
 * Loads the GPU whose constants the fit starts from: the one asked for, else the catalogue's entry
 * for what is measured.
 */
static int load_base(struct erg_probe_run *at, struct erg_error *err)
{
    const char *base = at->input->base, *entry, *asked;
    char name[256];
    struct erg_arena arena = {0};
    if (!at->input->real && !at->input->from) /* the user chooses which GPU to emulate */
        return erg_gpu_load(&at->gpu, base ? base : "H200-SXM", err);
    if (name_gpu(at, name, sizeof name, err))
        return -1;
    entry = erg_gpu_catalogue_name(name, &arena);
    int status = 0;
    if (base) {
        status = erg_gpu_load(&at->gpu, base, err);
        asked = status ? NULL : erg_gpu_catalogue_name(at->gpu->name, &arena);
        if (entry && asked && !same_kind(entry, asked))
            status = take_relative(at, entry, name, err);
    } else if (entry) {
        status = erg_gpu_load(&at->gpu, entry, err);
    } else {
        status = erg_fail(err, ERG_FAILED,
                          "probing: the catalogue has no GPU like \"%s\" to start from; expected "
                          "one named with --base",
                          name);
    }
    erg_arena_release(&arena);
    return status;
}

static void name_rows(struct erg_probe_run *at)
{
    const struct erg_probe_input *values = at->input;
    if (values->rows)
        at->rows_path = erg_xstrdup(values->rows);
    if (values->rows || !values->calibrate)
        return;
    struct erg_text path = {0};
    erg_text_add_bytes(&path, values->calibrate, strlen(values->calibrate) - strlen(".yaml"));
    erg_text_add(&path, ".csv");
    at->rows_path = path.data;
}

static int load_rows(struct erg_probe_run *at, struct erg_error *err)
{
    name_rows(at);
    if (at->input->from)
        return erg_probe_rows_load(&at->rows, at->input->from, err);
    if (at->rows_path && access(at->rows_path, F_OK) == 0)
        return erg_probe_rows_load(&at->rows, at->rows_path, err);
    return 0;
}

static int prepare(struct erg_probe_run *at, struct erg_error *err)
{
    if (load_rows(at, err) || load_base(at, err) || erg_stack_load(&at->stack, "ergon", err))
        return -1;
    at->programs = erg_xcalloc(erg_probe_shapes(at->input->gpus), sizeof *at->programs);
    for (size_t i = 0; i < erg_probe_shapes(at->input->gpus); i++, at->program_count++)
        if (erg_probe_program_init(&at->programs[i], i, at->input->gpus, at->gpu, at->stack, err))
            return -1;
    return 0;
}

/* ---- after the measurements ---- */

int erg_probe_conclude(FILE *text, FILE *json, const struct erg_probe_run *at,
                       struct erg_error *err)
{
    struct erg_probe_ceilings ceilings = {0};
    struct erg_probe_fit fit = {0};
    for (size_t i = 0; i < at->program_count; i++)
        erg_probe_ceilings_add(&ceilings, &at->programs[i], &at->rows, at->gpu);
    const char *path = at->input->calibrate, *board = at->board ? at->board : at->gpu->name;
    if (at->input->from && !ceilings.count && !path)
        return erg_fail(err, ERG_FAILED,
                        "probing: '%s' has no measurements on %d GPU%s that can be shown; expected "
                        "rows that ergon probe wrote, and their number of GPUs as --gpus",
                        at->input->from, at->input->gpus, erg_plural((size_t)at->input->gpus));
    int status = path ? erg_probe_calibrate(&fit, at->gpu, at->stack, at->programs,
                                            at->program_count, &at->rows, board, err) ||
                            erg_probe_write(&fit, &at->rows, path, err)
                      : 0;
    struct erg_probe_findings findings = {.gpu = at->gpu,
                                          .board = board,
                                          .gpus = at->input->gpus,
                                          .programs = at->programs,
                                          .program_count = at->program_count,
                                          .ceilings = &ceilings,
                                          .fit = path ? &fit : NULL,
                                          .path = path};
    if (!status) {
        erg_probe_print_json(json, &findings);
        erg_probe_print(text, &findings);
    }
    erg_probe_ceilings_release(&ceilings);
    return status ? -1 : 0;
}

int erg_probe_run(struct erg_probe_run **run, const struct erg_probe_input *input,
                  struct erg_error *err)
{
    struct erg_probe_run *at = *run = erg_xcalloc(1, sizeof *at);
    at->input = input;
    if (prepare(at, err) == 0 && (input->from || measure(at, input->seed, err) == 0))
        return 0;
    if (at->rows_path)
        erg_interrupt_explain(err);
    return -1;
}

void erg_probe_run_free(struct erg_probe_run *at)
{
    for (size_t i = 0; i < at->program_count; i++)
        erg_probe_program_release(&at->programs[i]);
    free(at->programs);
    erg_probe_rows_release(&at->rows);
    erg_stack_free(at->stack);
    erg_gpu_free(at->gpu);
    free(at->rows_path);
    free(at->board);
    free(at);
}
