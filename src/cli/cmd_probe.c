/* ergon probe: what the GPUs of this machine can do, and the emulated GPU that does the same. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/emulated/emulated.h"
#include "device/real.h"
#include "hardware/hardware.h"
#include "io/file.h"
#include "io/json.h"
#include "launch/launch.h"
#include "observe/table.h"
#include "probe/probe.h"
#include "telemetry/gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    const char *calibrate, *rows, *from, *base;
    int device;
    long gpus;
};

static const char *const devices[] = {"cuda", "emulated", NULL};
enum { DEVICE_CUDA };

#define AT(member) offsetof(struct values, member)
static const struct erg_option options[] = {
    {"calibrate", 'c', ERG_OPTION_FILE, "FILE.yaml", AT(calibrate),
     .help = "write the constants that explain the measurements, as a GPU that jobs can name"},
    {"rows", 'o', ERG_OPTION_FILE, "ROWS.csv", AT(rows),
     .help = "keep the measurements here (with --calibrate: beside FILE); those that are there are "
             "not made again"},
    {"from", 'f', ERG_OPTION_FILE, "ROWS.csv", AT(from),
     .help = "measure nothing; take these measurements"},
    {"base", 'b', ERG_OPTION_TEXT, "GPU", AT(base),
     .help = "name or file of the GPU whose constants are the start; that of the machine's GPU "
             "unless given"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "cuda", .help = "what is measured"},
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 8,
     .help = "GPUs of the emulated group, or of the rows that are taken (2 unless given)"},
    {0},
};

/* Everything of one call. */
struct probing {
    const struct values *values;
    bool leads; /* rank 0 */
    int gpus;
    struct erg_gpu *gpu;
    struct erg_stack *stack;
    struct erg_probe_program programs[4];
    size_t program_count;
    char *rows_path; /* NULL: they are kept nowhere */
    struct erg_probe_rows rows;
};

/* ---- measuring ---- */

static int measure_emulated(struct probing *at, const struct erg_probe_program *program,
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

static int measure_cuda(struct probing *at, const struct erg_probe_program *program, uint64_t seed,
                        struct erg_error *err)
{
    struct erg_real_request request = {
        .model = program->model,
        .tensor = program->gpus,
        .context = 1,
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

static int measure(struct probing *at, uint64_t seed, struct erg_error *err)
{
    int64_t start_ns = erg_now_ns();
    size_t known = at->rows.count;
    for (size_t i = 0; i < at->program_count; i++)
        if (at->values->device == DEVICE_CUDA ? measure_cuda(at, &at->programs[i], seed, err)
                                              : measure_emulated(at, &at->programs[i], seed, err))
            return -1;
    if (at->leads)
        erg_log(ERG_LOG_INFO, "%zu measurements in %.0f s, opening the GPUs included",
                at->rows.count - known, (double)(erg_now_ns() - start_ns) * 1e-9);
    return 0;
}

/* ---- before it ---- */

/* The catalogue's entry for a GPU by the name that its driver gives it, such as "NVIDIA H200". */
static int find_base(const char **base, struct erg_arena *arena, struct erg_error *err)
{
    struct erg_gpus *gpus;
    if (erg_gpus_open(&gpus, NULL, err))
        return erg_fail_context(err, "probing the GPUs of this machine (--device emulated needs "
                                     "none)");
    const char *name = erg_gpus_info(gpus, 0)->name;
    *base = erg_gpu_catalogue_name(name, arena);
    int status = *base
                     ? 0
                     : erg_fail(err, ERG_FAILED,
                                "the catalogue has no GPU like \"%s\" to start from; name one with "
                                "--base",
                                name);
    erg_gpus_close(gpus);
    return status;
}

static void name_rows(struct probing *at)
{
    const struct values *values = at->values;
    if (values->rows)
        at->rows_path = erg_xstrdup(values->rows);
    if (values->rows || !values->calibrate)
        return;
    struct erg_text path = {0};
    erg_text_add_bytes(&path, values->calibrate, strlen(values->calibrate) - strlen(".yaml"));
    erg_text_add(&path, ".csv");
    at->rows_path = path.data;
}

static int check_values(const struct values *values, struct erg_error *err)
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

static int prepare(struct probing *at, struct erg_error *err)
{
    const struct values *values = at->values;
    struct erg_launch_environment env;
    struct erg_arena arena = {0};
    const char *base = values->base;
    bool real = values->device == DEVICE_CUDA && !values->from;
    int status = check_values(values, err) || erg_launch_environment_read(&env, err);
    if (!status && !base)
        status = real ? find_base(&base, &arena, err) : 0;
    status = status || erg_gpu_load(&at->gpu, base ? base : "H200-SXM", err) ||
             erg_stack_load(&at->stack, "ergon", err);
    erg_arena_release(&arena);
    if (status)
        return -1;
    at->leads = env.rank == 0;
    at->gpus = real ? env.world : values->gpus == ERG_NOT_GIVEN ? 2 : (int)values->gpus;
    name_rows(at);
    if (values->from)
        status = erg_probe_rows_load(&at->rows, values->from, err);
    else if (at->rows_path && access(at->rows_path, F_OK) == 0)
        status = erg_probe_rows_load(&at->rows, at->rows_path, err);
    for (size_t i = 0; i < erg_probe_shapes() && !status; i++) {
        status = erg_probe_program_init(&at->programs[i], i, at->gpus, at->gpu, at->stack, err);
        at->program_count += !status;
    }
    return status;
}

/* ---- after it ---- */

/* How a family's amounts, rates and energies are written. */
static const struct {
    const char *title, *name;
    double amount_factor, rate_factor;
    const char *amount_unit, *rate_unit, *energy_unit;
} families[] = {
    [ERG_PROBE_PRODUCT] = {"products", "product", 1e-9, 1e-12, "GFLOP", "TFLOP/s", "pJ/FLOP"},
    [ERG_PROBE_MEMORY] = {"memory", "memory", 1e-6, 1e-9, "MB", "GB/s", "pJ/B"},
    [ERG_PROBE_ATTENTION] = {"attention", "attention", 1e-9, 1e-12, "GFLOP", "TFLOP/s", "pJ/FLOP"},
    [ERG_PROBE_COLLECTIVE] = {"collectives, one direction", "collective", 1e-6, 1e-9, "MB", "GB/s",
                              "pJ/B"},
    [ERG_PROBE_REST] = {"nothing", "rest", 0, 0, "", "", ""},
};

static void print_ceilings(const struct erg_probe_ceilings *ceilings)
{
    struct erg_text text = {0};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        struct erg_table table = {.columns = 8};
        for (size_t i = 0; i < ceilings->count; i++) {
            const struct erg_probe_ceiling *c = &ceilings->items[i];
            if ((size_t)c->family != f)
                continue;
            erg_table_add(&table, "%s %s", c->shape, c->name);
            if (c->rate > 0) {
                erg_table_add(&table, "%.0f %s", c->amount * families[f].amount_factor,
                              families[f].amount_unit);
                erg_table_add(&table, "%.0f %s", c->rate * families[f].rate_factor,
                              families[f].rate_unit);
                erg_table_add(&table, "%.0f %%", 100 * c->share);
            } else {
                for (int k = 0; k < 3; k++)
                    erg_table_add(&table, "%s", "");
            }
            erg_table_add(&table, "%.0f MHz", c->clock_mhz);
            erg_table_add(&table, "%.0f W", c->power_w);
            if (isnan(c->unit_j) || c->family == ERG_PROBE_REST)
                erg_table_add(&table, "%s", "");
            else
                erg_table_add(&table, "%.2f %s", c->unit_j * 1e12, families[f].energy_unit);
            erg_table_add(&table, "%s", "");
        }
        if (table.count) {
            erg_text_printf(&text, "%s\n", families[f].title);
            erg_table_text(&text, &table, "  ");
        }
        erg_table_release(&table);
    }
    fputs(text.data ? text.data : "", stdout);
    erg_text_release(&text);
}

static void print_fit(const struct erg_probe_fit *fit, const char *path)
{
    struct erg_table table = {.columns = 4};
    struct erg_text text = {0};
    for (size_t i = 0; i < fit->count; i++) {
        erg_table_add(&table, "%s", fit->constants[i].name);
        erg_table_add(&table, "%.4g", fit->constants[i].before);
        erg_table_add(&table, "%.4g", fit->constants[i].after);
        erg_table_add(&table, "%s", fit->constants[i].seen ? "" : "not seen");
    }
    erg_table_text(&text, &table, "  ");
    printf(
        "constants, before and after\n%s"
        "%zu measurements fitted with a mean error of %.1f %% in time and %.1f %% in energy: %s\n",
        text.data, fit->observations, 100 * fit->time_error, 100 * fit->energy_error, path);
    erg_text_release(&text);
    erg_table_release(&table);
}

static void print_json(const struct probing *at, const struct erg_probe_ceilings *ceilings,
                       const struct erg_probe_fit *fit)
{
    json_t *root = json_object(), *list = json_array(), *constants = json_object();
    json_object_set_new(root, "gpu", json_string(at->gpu->name));
    json_object_set_new(root, "gpus", json_integer(at->gpus));
    for (size_t i = 0; i < ceilings->count; i++) {
        const struct erg_probe_ceiling *c = &ceilings->items[i];
        json_t *entry = json_object();
        json_object_set_new(entry, "shape", json_string(c->shape));
        json_object_set_new(entry, "name", json_string(c->name));
        json_object_set_new(entry, "kind", json_string(families[c->family].name));
        json_object_set_new(entry, "amount", erg_json_number(c->rate > 0 ? c->amount : NAN));
        json_object_set_new(entry, "rate_per_s", erg_json_number(c->rate > 0 ? c->rate : NAN));
        json_object_set_new(entry, "share", erg_json_number(c->rate > 0 ? c->share : NAN));
        json_object_set_new(entry, "power_w", erg_json_number(c->power_w));
        json_object_set_new(entry, "unit_j", erg_json_number(c->unit_j));
        json_object_set_new(entry, "clock_mhz", erg_json_number(c->clock_mhz));
        json_array_append_new(list, entry);
    }
    json_object_set_new(root, "ceilings", list);
    for (size_t i = 0; i < fit->count; i++)
        json_object_set_new(constants, fit->constants[i].name,
                            json_pack("{s:o, s:o, s:b}", "before",
                                      erg_json_number(fit->constants[i].before), "after",
                                      erg_json_number(fit->constants[i].after), "seen",
                                      fit->constants[i].seen));
    if (fit->count) {
        json_object_set_new(root, "constants", constants);
        json_object_set_new(root, "time_error", erg_json_number(fit->time_error));
        json_object_set_new(root, "energy_error", erg_json_number(fit->energy_error));
    } else {
        json_decref(constants);
    }
    char *text = erg_json_text(root);
    puts(text);
    free(text);
    json_decref(root);
}

static int conclude(const struct probing *at, bool json, struct erg_error *err)
{
    struct erg_probe_ceilings ceilings = {0};
    struct erg_probe_fit fit = {0};
    for (size_t i = 0; i < at->program_count; i++)
        erg_probe_ceilings_add(&ceilings, &at->programs[i], &at->rows, at->gpu);
    const char *path = at->values->calibrate;
    if (at->values->from && !ceilings.count && !path)
        return erg_fail(err, ERG_FAILED,
                        "probing: '%s' has no measurements on %d GPUs of what can be shown; "
                        "expected rows that ergon probe wrote, and their number of GPUs as --gpus",
                        at->values->from, at->gpus);
    int status = path ? erg_probe_calibrate(&fit, at->gpu, at->stack, at->programs,
                                            at->program_count, &at->rows, err) ||
                            erg_probe_write(&fit, &at->rows, path, err)
                      : 0;
    if (!status && json) {
        print_json(at, &ceilings, &fit);
    } else if (!status) {
        print_ceilings(&ceilings);
        if (path)
            print_fit(&fit, path);
    }
    erg_probe_ceilings_release(&ceilings);
    return status ? -1 : 0;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct probing at = {.values = call->values};
    uint64_t seed = call->common.seed == ERG_NOT_GIVEN ? 1 : (uint64_t)call->common.seed;
    int status = prepare(&at, err);
    if (!status && !at.values->from)
        status = measure(&at, seed, err);
    if (status && at.rows_path)
        erg_interrupt_explain(err);
    erg_terminal_finish();
    if (!status && at.leads)
        status = conclude(&at, call->common.json, err);
    for (size_t i = 0; i < at.program_count; i++)
        erg_probe_program_release(&at.programs[i]);
    erg_probe_rows_release(&at.rows);
    erg_stack_free(at.stack);
    erg_gpu_free(at.gpu);
    free(at.rows_path);
    return status ? -1 : 0;
}

const struct erg_command erg_cmd_probe = {
    .name = "probe",
    .summary = "measure what the GPUs of this machine can do",
    .arguments = "",
    .values_bytes = sizeof(struct values),
    .options = options,
    .details =
        "Runs single operations, collectives, partitions and layers of two shapes that "
        "belong to no\nmodel, in about three minutes, and prints rates, powers and energies. "
        "With --calibrate, fits the\nconstants of the emulated GPU to them: a job that names "
        "FILE as its gpu is then planned without\nGPUs. Clocks are left alone. Start it once "
        "for each GPU: ergon run -n 2 -- ergon probe.",
    .examples = "  ergon run -n 2 -- ergon probe --calibrate my-h200.yaml\n"
                "  ergon probe --from my-h200.csv --calibrate again.yaml\n"
                "  ergon probe --device emulated --base A100-SXM4-40GB --json\n",
    .run = run,
};
