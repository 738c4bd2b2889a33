/* ergon probe: what the GPUs of this machine can do, and the emulated GPU that does the same. */
#include "cli/cli.h"
#include "probe/probe_print.h"
#include "probe/probe_thermal.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/emulated/emulated.h"
#include "device/real.h"
#include "hardware/hardware.h"
#include "launch/launch.h"
#include "probe/probe.h"
#include "telemetry/gpu.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct probe_values {
    const char *calibrate, *rows, *from, *base;
    int device;
    long gpus;
    bool thermal;
    double turn_s, until_s;
};

static const char *const devices[] = {"cuda", "emulated", NULL};
enum { DEVICE_CUDA };

#define AT(member) offsetof(struct probe_values, member)
static const struct erg_option options[] = {
    {"calibrate", 'c', ERG_OPTION_FILE, "FILE.yaml", AT(calibrate),
     .help = "write the constants that explain the measurements, as a GPU that jobs can name"},
    {"rows", 'o', ERG_OPTION_FILE, "ROWS.csv", AT(rows),
     .help = "keep the measurements here (with --calibrate: beside FILE); those that are there are "
             "not made again"},
    {"from", 'f', ERG_OPTION_FILE, "ROWS.csv", AT(from),
     .help = "measure nothing; take these measurements"},
    {"base", 'b', ERG_OPTION_TEXT, "GPU", AT(base),
     .help = "name or file of the GPU whose constants are the start, like the one that is measured "
             "or of "
             "its architecture (default: the catalogue's entry for what is measured)"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "cuda", .help = "what is measured"},
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 8,
     .help = "GPUs of the emulated group, or of the rows that are taken (default: 2)"},
    {"thermal", 't', ERG_OPTION_FLAG, NULL, AT(thermal),
     .help = "measure how the GPUs warm themselves and each other; files are recordings and "
             "chassis then"},
    {"turn", 0, ERG_OPTION_DOUBLE, "SECONDS", AT(turn_s), 1, 3600,
     .help = "with --thermal: how long each GPU works, and then rests (default: 120)"},
    {"until", 0, ERG_OPTION_DOUBLE, "SECONDS", AT(until_s), 60, 1e6,
     .help = "with --thermal: fit to so much of the recording and hold out the rest (default: hold "
             "out each fifth half minute)"},
    {0},
};

/* Everything of one call. */
struct probe_call {
    const struct probe_values *values;
    bool real;           /* GPUs of this machine are measured */
    bool leads;          /* rank 0 */
    int gpus;            /* of a real machine as many as ranks */
    struct erg_gpu *gpu; /* its constants are the start */
    char *board;         /* name of the GPU that is measured, as the catalogue has it */
    struct erg_stack *stack;
    struct erg_probe_program *programs; /* one for each shape */
    size_t program_count;
    char *rows_path; /* NULL: they are kept nowhere */
    struct erg_probe_rows rows;
};

/* ---- measuring ---- */

static int measure_emulated(struct probe_call *at, const struct erg_probe_program *program,
                            uint64_t seed, struct erg_error *err)
{
    struct erg_emulated_options emulated = erg_emulated_options_default();
    struct erg_device *device;
    emulated.gpus = (size_t)at->gpus;
    emulated.seed = seed;
    if (erg_emulated_open(&device, at->gpu, at->stack, &emulated, err))
        return -1;
    int status =
        erg_probe_measure(device, program, device->identity, at->rows_path, &at->rows, err);
    erg_device_close(device);
    return status;
}

static int measure_cuda(struct probe_call *at, const struct erg_probe_program *program,
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

static int measure(struct probe_call *at, uint64_t seed, struct erg_error *err)
{
    int64_t start_ns = erg_now_ns();
    size_t known = at->rows.count;
    for (size_t i = 0; i < at->program_count; i++)
        if (at->real ? measure_cuda(at, &at->programs[i], seed, err)
                     : measure_emulated(at, &at->programs[i], seed, err))
            return -1;
    if (at->leads)
        erg_log(ERG_LOG_INFO, "%zu measurement%s in %.0f s, opening the GPUs included",
                at->rows.count - known, erg_plural(at->rows.count - known),
                (double)(erg_now_ns() - start_ns) * 1e-9);
    return 0;
}

/* ---- before it ---- */

/* What the GPUs are called that are measured, or that the rows are of. */
static int name_gpu(const struct probe_call *at, char *name, size_t capacity, struct erg_error *err)
{
    if (at->values->from) {
        if (!at->rows.count)
            return erg_fail(err, ERG_FAILED, "probing: '%s' has no measurements", at->values->from);
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
static int take_relative(struct probe_call *at, const char *entry, const char *name,
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
static int load_base(struct probe_call *at, struct erg_error *err)
{
    const char *base = at->values->base, *entry, *asked;
    char name[256];
    struct erg_arena arena = {0};
    if (!at->real && !at->values->from) /* what is emulated is for the user to say */
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

static void name_rows(struct probe_call *at)
{
    const struct probe_values *values = at->values;
    if (values->rows)
        at->rows_path = erg_xstrdup(values->rows);
    if (values->rows || !values->calibrate)
        return;
    struct erg_text path = {0};
    erg_text_add_bytes(&path, values->calibrate, strlen(values->calibrate) - strlen(".yaml"));
    erg_text_add(&path, ".csv");
    at->rows_path = path.data;
}

static int check_values(const struct probe_values *values, struct erg_error *err)
{
    if (values->from && values->rows)
        return erg_fail(err, ERG_USAGE,
                        "--from and --rows were both given; expected one of them: rows that are "
                        "taken are not written again");
    size_t length = values->calibrate ? strlen(values->calibrate) : 0;
    if (values->calibrate && (length < 6 || strcmp(values->calibrate + length - 5, ".yaml") != 0))
        return erg_fail(err, ERG_USAGE,
                        "--calibrate: expected a file name that ends in .yaml, by which a job can "
                        "name it, got '%s'",
                        values->calibrate);
    if (values->gpus != ERG_NOT_GIVEN && values->device == DEVICE_CUDA && !values->from)
        return erg_fail(err, ERG_USAGE,
                        "--gpus is for emulated groups; expected as many processes as GPUs: ergon "
                        "run -n %ld -- ergon probe",
                        values->gpus);
    return 0;
}

static int load_rows(struct probe_call *at, struct erg_error *err)
{
    name_rows(at);
    if (at->values->from)
        return erg_probe_rows_load(&at->rows, at->values->from, err);
    if (at->rows_path && access(at->rows_path, F_OK) == 0)
        return erg_probe_rows_load(&at->rows, at->rows_path, err);
    return 0;
}

static int prepare(struct probe_call *at, struct erg_error *err)
{
    if (load_rows(at, err) || load_base(at, err) || erg_stack_load(&at->stack, "ergon", err))
        return -1;
    at->programs = erg_xcalloc(erg_probe_shapes(at->gpus), sizeof *at->programs);
    for (size_t i = 0; i < erg_probe_shapes(at->gpus); i++, at->program_count++)
        if (erg_probe_program_init(&at->programs[i], i, at->gpus, at->gpu, at->stack, err))
            return -1;
    return 0;
}

/* ---- after it ---- */

static int conclude(const struct probe_call *at, bool json, struct erg_error *err)
{
    struct erg_probe_ceilings ceilings = {0};
    struct erg_probe_fit fit = {0};
    for (size_t i = 0; i < at->program_count; i++)
        erg_probe_ceilings_add(&ceilings, &at->programs[i], &at->rows, at->gpu);
    const char *path = at->values->calibrate, *board = at->board ? at->board : at->gpu->name;
    if (at->values->from && !ceilings.count && !path)
        return erg_fail(err, ERG_FAILED,
                        "probing: '%s' has no measurements on %d GPU%s of what can be shown; "
                        "expected rows that ergon probe wrote, and their number of GPUs as --gpus",
                        at->values->from, at->gpus, erg_plural((size_t)at->gpus));
    int status = path ? erg_probe_calibrate(&fit, at->gpu, at->stack, at->programs,
                                            at->program_count, &at->rows, board, err) ||
                            erg_probe_write(&fit, &at->rows, path, err)
                      : 0;
    struct erg_probe_findings findings = {.gpu = at->gpu,
                                          .board = board,
                                          .gpus = at->gpus,
                                          .programs = at->programs,
                                          .program_count = at->program_count,
                                          .ceilings = &ceilings,
                                          .fit = path ? &fit : NULL,
                                          .path = path};
    if (!status && json)
        erg_probe_print_json(stdout, &findings);
    else if (!status)
        erg_probe_print(stdout, &findings);
    erg_probe_ceilings_release(&ceilings);
    return status ? -1 : 0;
}

static int probe(struct probe_call *at, const struct erg_invocation *call, struct erg_error *err)
{
    uint64_t seed = call->common.seed == ERG_NOT_GIVEN ? 1 : (uint64_t)call->common.seed;
    int status = prepare(at, err) || (!at->values->from && measure(at, seed, err));
    if (status && at->rows_path)
        erg_interrupt_explain(err);
    erg_terminal_finish();
    if (!status && at->leads)
        status = conclude(at, call->common.json, err);
    for (size_t i = 0; i < at->program_count; i++)
        erg_probe_program_release(&at->programs[i]);
    free(at->programs);
    erg_probe_rows_release(&at->rows);
    erg_stack_free(at->stack);
    erg_gpu_free(at->gpu);
    free(at->rows_path);
    free(at->board);
    return status ? -1 : 0;
}

static int run_thermal(const struct erg_invocation *call, struct erg_error *err)
{
    const struct probe_values *values = call->values;
    const struct erg_probe_thermal request = {
        .from = values->from,
        .keep = values->rows,
        .calibrate = values->calibrate,
        .base = values->base,
        .emulated = values->device != DEVICE_CUDA,
        .turn_s = values->turn_s,
        .until_s = values->until_s,
        .seed = call->common.seed == ERG_NOT_GIVEN ? 1 : (uint64_t)call->common.seed,
        .command = call->arguments,
        .json = call->common.json,
    };
    if (request.from && request.base && request.calibrate)
        return erg_fail(
            err, ERG_USAGE,
            "--calibrate and --base were both given with --thermal --from; expected "
            "one of them: a chassis that explains the recording, or one that is fitted");
    if (request.from && (call->argument_count || !isnan(request.turn_s) || request.emulated))
        return erg_fail(err, ERG_USAGE,
                        "--from was given with what makes a recording; expected a command, --turn "
                        "and --device only without it");
    if (request.emulated && call->argument_count)
        return erg_fail(err, ERG_USAGE,
                        "a command was given with --device emulated; expected one only for the "
                        "GPUs of this machine");
    return erg_probe_thermal(stdout, &request, err);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct probe_values *values = call->values;
    if (values->thermal)
        return check_values(values, err) || run_thermal(call, err) ? -1 : 0;
    if (call->argument_count || !isnan(values->turn_s) || !isnan(values->until_s))
        return erg_fail(err, ERG_USAGE,
                        "a command, --turn or --until was given; expected them only with "
                        "--thermal");
    bool real = values->device == DEVICE_CUDA && !values->from;
    struct erg_launch_environment env = {.rank = erg_launch_own_rank()};
    if (check_values(values, err) || (real && erg_launch_environment_read(&env, err)))
        return -1;
    struct probe_call at = {
        .values = values, .real = real, .leads = env.rank == 0, .gpus = env.world};
    if (!at.real)
        at.gpus = values->gpus == ERG_NOT_GIVEN ? 2 : (int)values->gpus;
    if (!at.leads)
        erg_terminal_leave(env.rank);
    return at.real || at.leads ? probe(&at, call, err) : 0; /* no part in what one rank does */
}

const struct erg_command erg_cmd_probe = {
    .name = "probe",
    .summary = "measure what the GPUs of this machine can do",
    .arguments = "[-- CMD [ARGUMENT]...]",
    .most_arguments = SIZE_MAX,
    .values_bytes = sizeof(struct probe_values),
    .options = options,
    .details =
        "Runs single operations, collectives, partitions and layers of two shapes that "
        "belong to no\nmodel, in about three minutes, and prints rates, powers and energies. "
        "With --calibrate, fits the\nconstants of the emulated GPU to them: a job that names "
        "FILE as its gpu is then planned without\nGPUs. Clocks are left alone. Start it once "
        "for each GPU: ergon run -n 2 -- ergon probe.\n"
        "With --thermal, records all GPUs while each works in turn, by CMD or by ergon probe, or "
        "takes a\nrecording of ergon record, and fits resistances, time constants and who warms "
        "whom; FILE is a\nchassis then, which a cluster can name. With --from and --base, says how "
        "a chassis explains it.",
    .examples = "  ergon run -n 2 -- ergon probe --calibrate my-h200.yaml\n"
                "  ergon probe --from my-h200.csv --calibrate again.yaml\n"
                "  ergon probe --device emulated --base A100-SXM4-40GB --json\n"
                "  ergon probe --thermal --calibrate my-node.yaml\n"
                "  ergon probe --thermal --from day.rec --base ./my-node.yaml\n",
    .run = run,
};
