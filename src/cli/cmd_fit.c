/* ergon fit ROWS.csv or --from RUN: the constants of a training engine that explain measured
 * iterations. */
#include "cli/cli.h"
#include "cli/print.h"

#include "base/table.h"
#include "io/json.h"
#include "job/job.h"
#include "layout/energy/layout_energy.h"
#include "layout/time/fit.h"
#include "train/log/run_row.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fit_values {
    struct erg_option_list runs;
    const char *job, *cluster, *engine, *keys, *output;
    long folds;
};

#define AT(member) offsetof(struct fit_values, member)
static const struct erg_option options[] = {
    {"from", 'r', ERG_OPTION_FILES, "RUN", AT(runs),
     .help = "a row from the folder of a run of ergon train; once for each run"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(engine),
     .help = "name or file of the engine whose constants are the start, and stay where not fitted "
             "(default: ergon where all rows are of runs)"},
    {"cluster", 'c', ERG_OPTION_FILE, "FILE", AT(cluster),
     .help = "the cluster that the rows were measured on (default: that of the runs)"},
    {"job", 'j', ERG_OPTION_FILE, "JOB.yaml", AT(job), .help = "the same, from a job"},
    {"constants", 'k', ERG_OPTION_TEXT, "KEY,…", AT(keys),
     .default_text = "gemm_efficiency,layer_overhead_us,link_efficiency,network_efficiency",
     .help = "what is fitted, at most eight"},
    {"folds", 'f', ERG_OPTION_LONG, "N", AT(folds), 2, ERG_FIT_MOST_FOLDS, .default_text = "5",
     .help = "parts of the rows, each of which is predicted from the others"},
    {"output", 'o', ERG_OPTION_FILE, "FILE.yaml", AT(output),
     .help = "write the engine with its fitted constants"},
    {0},
};

/* Everything of one call. */
struct fit_call {
    const struct fit_values *values;
    const char *rows_path;     /* of the table; NULL: there is none */
    const char *engine;        /* by the name that it is loaded by */
    struct erg_fit_rows rows;  /* of the table, then of the runs */
    struct erg_cluster of_run; /* of the first run */
    struct erg_gpu gpu;        /* that all rows were measured on: its numbers alone */
    struct erg_engine *start;
    struct erg_time_machine machine;
    char *list;                                   /* the keys, cut at their commas */
    const char *keys[ERG_FIT_MOST_CONSTANTS + 2]; /* one too many is refused where they are used */
    struct erg_fit fit;
};

/* `path`: of the file that the cluster stands in. */
static int set_machine(struct fit_call *at, const char *path, const struct erg_gpu *gpu,
                       const struct erg_cluster *cluster, struct erg_error *err)
{
    if (cluster->more_count > 0)
        return erg_fail(err, ERG_USAGE,
                        "%s has nodes with %s and others with %s, and an engine's constants are "
                        "those of one GPU, so no rows whose stages lay on several can be fitted; "
                        "expected --cluster FILE with only the nodes that all rows were measured "
                        "on",
                        path, cluster->gpu, cluster->more[0].gpu);
    at->gpu = *gpu;
    erg_time_machine_init(&at->machine, gpu, cluster);
    return erg_fit_rows_check_devices(&at->rows, gpu, err) ||
                   erg_engine_check_gpu(at->start, gpu, err)
               ? -1
               : 0;
}

/* The machine that the first run was on. */
static int set_machine_of_run(struct fit_call *at, struct erg_error *err)
{
    struct erg_gpu *gpu;
    if (erg_gpu_load(&gpu, at->of_run.gpu, err) != 0)
        return erg_fail_context(err, "%s: the GPU of its job's cluster", at->values->runs.items[0]);
    int status = set_machine(at, at->values->runs.items[0], gpu, &at->of_run, err);
    erg_gpu_free(gpu);
    return status;
}

static int find_machine(struct fit_call *at, struct erg_error *err)
{
    const struct fit_values *values = at->values;
    if (!values->job && !values->cluster && !at->rows_path)
        return set_machine_of_run(at, err);
    if (!values->job == !values->cluster)
        return erg_fail(err, ERG_USAGE,
                        "expected --cluster FILE or --job JOB.yaml, one of them: it says what the "
                        "rows were measured on");
    if (values->job) {
        struct erg_job *job;
        /* Of the job only the machine counts: rows have layouts of their own. */
        const struct erg_job_overrides overrides = {.any_layout = true};
        if (erg_job_load(&job, values->job, &overrides, err) != 0)
            return -1;
        int status = set_machine(at, values->job, job->gpu, &job->cluster, err);
        erg_job_free(job);
        return status;
    }
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    if (erg_cluster_load(&cluster, values->cluster, err) != 0)
        return -1;
    int status = erg_gpu_load(&gpu, cluster->gpu, err);
    if (status == 0) {
        status = set_machine(at, values->cluster, gpu, cluster, err);
        erg_gpu_free(gpu);
    }
    erg_cluster_free(cluster);
    return status;
}

/* The table, then the runs. */
static int load_rows(struct fit_call *at, struct erg_error *err)
{
    const struct erg_option_list *runs = &at->values->runs;
    if (at->rows_path && erg_fit_rows_load(&at->rows, at->rows_path, err) != 0)
        return -1;
    for (size_t i = 0; i < runs->count; i++)
        if (erg_run_row_add(&at->rows, runs->items[i], i ? NULL : &at->of_run, err) != 0)
            return -1;
    return 0;
}

/* What is neither said nor follows. */
static int check_call(struct fit_call *at, struct erg_error *err)
{
    const struct erg_option_list *runs = &at->values->runs;
    if (!at->rows_path && !runs->count)
        return erg_fail(err, ERG_USAGE,
                        "\"ergon fit\" needs ROWS.csv or --from RUN; see \"ergon fit --help\".");
    for (size_t i = 0; i < runs->count; i++)
        for (size_t before = 0; before < i; before++)
            if (!strcmp(runs->items[before], runs->items[i]))
                return erg_fail(err, ERG_USAGE,
                                "--from: the run '%s' is named twice; expected it once, since a "
                                "row counts as often as it is there",
                                runs->items[i]);
    at->engine = at->values->engine ? at->values->engine : at->rows_path ? NULL : "ergon";
    return at->engine
               ? 0
               : erg_fail(err, ERG_USAGE, "\"ergon fit\" needs the option --engine NAME (%s).",
                          "name or file of the engine whose constants are the start, and "
                          "stay where not fitted");
}

static void cut_keys(struct fit_call *at)
{
    size_t count = 0;
    at->list = erg_xstrdup(at->values->keys);
    for (char *rest = at->list; rest && count <= ERG_FIT_MOST_CONSTANTS;) {
        at->keys[count++] = rest;
        rest = strchr(rest, ',');
        if (rest)
            *rest++ = '\0';
    }
}

/* The constant's value in the unit of an engine's file. */
static double in_file_unit(const struct erg_engine *engine, const char *key)
{
    const struct erg_quantity *number = erg_engine_numbers;
    while (strcmp(number->key, key) != 0)
        number++;
    return erg_engine_get(engine, number) / number->factor;
}

/* ---- what comes out ---- */

static void add_errors(struct erg_table *table, const char *name,
                       const struct erg_fit_errors *errors)
{
    erg_table_add(table, "%s", name);
    erg_table_add(table, "%.2f %%", 100 * errors->mean);
    erg_table_add(table, "%.2f %%", 100 * errors->most);
    erg_table_add(table, "%.3f", errors->spearman);
}

static double predicted_s(const struct fit_call *at, size_t row)
{
    double time_s;
    erg_fit_predict(&time_s, &at->rows.items[row], 1, &at->fit.engine, &at->machine);
    return time_s;
}

/* Of all GPUs of the row, by the power model of their file at the highest clock. */
static double predicted_j(const struct fit_call *at, const struct erg_fit_row *row)
{
    const struct erg_engine engine = erg_fit_row_engine(row, &at->fit.engine);
    const struct erg_layout_energy_request request = {.time = {row->model, &engine, &at->machine},
                                                      .gpu = &at->gpu};
    struct erg_layout_energy energy;
    erg_layout_energy_whole(&energy, &request, &row->layout);
    return energy.total_j;
}

/* "t1 c1 p2 d1, 4 x 2 x 4096" */
static void add_layout(struct erg_table *table, const struct erg_fit_row *row)
{
    const struct erg_layout *layout = &row->layout;
    struct erg_text text = {0};
    erg_text_printf(&text, "t%ld c%ld p%ld d%ld", layout->tensor, layout->context, layout->pipeline,
                    layout->data);
    if (layout->virtual_stages > 1)
        erg_text_printf(&text, " v%ld", layout->virtual_stages);
    erg_text_printf(&text, ", %ld x %ld x %ld", layout->microbatches, layout->microbatch,
                    layout->sequence);
    if (strcmp(erg_layout_recompute_name(layout), "none") != 0)
        erg_text_printf(&text, ", %s", erg_layout_recompute_name(layout));
    if (row->sequence_parallel == ERG_FIT_PARALLEL)
        erg_text_add(&text, ", sp");
    erg_table_add(table, "%s", text.data);
    erg_text_release(&text);
}

/* A number of a run in its unit, or that it is not known. */
static void add_known(struct erg_table *table, const char *sign, double value, const char *unit)
{
    if (isnan(value))
        erg_table_add(table, "not known");
    else
        erg_table_add(table, "%s%.3g %s", sign, value, unit);
}

static double tokens_per_s(const struct erg_fit_row *row)
{
    return (double)row->batch * (double)row->layout.sequence / row->time_s;
}

/* What the runs have measured. */
static void add_runs(struct erg_text *text, const struct fit_call *at)
{
    static const char *const heads[] = {"run",    "device", "layout",    "steps",
                                        "step",   "spread", "tok/s",     "predicted",
                                        "memory", "energy", "predicted", ""};
    struct erg_table table = {.columns = sizeof heads / sizeof *heads};
    for (size_t i = 0; i < table.columns; i++)
        erg_table_add(&table, "%s", heads[i]);
    for (size_t i = 0; i < at->rows.count; i++) {
        const struct erg_fit_row *row = &at->rows.items[i];
        if (!row->run)
            continue;
        erg_table_add(&table, "%s", row->path);
        erg_table_add(&table, "%s", row->device);
        add_layout(&table, row);
        erg_table_add(&table, "%ld", row->run->steps);
        erg_table_add(&table, "%.4g ms", 1e3 * row->time_s);
        add_known(&table, "± ", 100 * row->run->spread, "%");
        erg_table_add(&table, "%.5g", tokens_per_s(row));
        erg_table_add(&table, "%.4g ms", 1e3 * predicted_s(at, i));
        add_known(&table, "", row->run->memory_bytes / 0x1p30, "GiB");
        add_known(&table, "", row->run->energy_j, "J");
        erg_table_add(&table, "%.3g J", predicted_j(at, row));
        erg_table_add(&table, "%s", "");
    }
    if (at->values->runs.count) {
        erg_table_text(text, &table, "");
        erg_text_add(text, "\n");
    }
    erg_table_release(&table);
}

static void print_text(const struct fit_call *at)
{
    struct erg_table constants = {.columns = 4}, errors = {.columns = 4};
    struct erg_text text = {0}, untold = {0};
    erg_table_add(&constants, "constant");
    erg_table_add(&constants, "start");
    erg_table_add(&constants, "fitted");
    erg_table_add(&constants, "uncertainty");
    for (size_t k = 0; k < at->fit.constants; k++) {
        erg_table_add(&constants, "%s", at->keys[k]);
        erg_table_add(&constants, "%.4g", in_file_unit(at->start, at->keys[k]));
        erg_table_add(&constants, "%.4g", in_file_unit(&at->fit.engine, at->keys[k]));
        if (isinf(at->fit.uncertainty[k])) {
            erg_table_add(&constants, "not told");
            erg_text_printf(&untold, "%s%s", untold.count ? ", " : "", at->keys[k]);
        } else {
            erg_table_add(&constants, "± %.1f %%", 100 * at->fit.uncertainty[k]);
        }
    }
    erg_table_add(&errors, "error");
    erg_table_add(&errors, "mean");
    erg_table_add(&errors, "worst");
    erg_table_add(&errors, "rank agreement");
    add_errors(&errors, "of the rows fitted to", &at->fit.fitted);
    add_errors(&errors, "of rows held out", &at->fit.held_out);
    add_runs(&text, at);
    erg_table_text(&text, &constants, "");
    erg_text_add(&text, "\n");
    erg_table_text(&text, &errors, "");
    erg_text_printf(&text, "\n%zu rows; held out in %ld folds:", at->rows.count, at->values->folds);
    for (long fold = 0; fold < at->values->folds; fold++)
        erg_text_printf(&text, " %.2f %%", 100 * at->fit.fold_mean[fold]);
    const size_t worst = at->fit.fitted.worst;
    const struct erg_fit_row *row = &at->rows.items[worst];
    struct erg_arena arena = {0};
    erg_text_printf(&text, "\nFurthest off: %s: %.4g s measured, %.4g s predicted\n",
                    erg_fit_row_place(row, &arena), row->time_s, predicted_s(at, worst));
    erg_arena_release(&arena);
    if (untold.count)
        erg_text_printf(&text,
                        "These rows do not tell: %s.\n"
                        "Either they do not depend on it, or another constant does the same to all "
                        "of them.\n",
                        untold.data);
    fputs(text.data, stdout);
    erg_text_release(&text);
    erg_text_release(&untold);
    erg_table_release(&constants);
    erg_table_release(&errors);
}

static json_t *errors_json(const struct erg_fit_errors *errors)
{
    return erg_json_pack("{s:f, s:f, s:f}", "mean", errors->mean, "most", errors->most, "spearman",
                         errors->spearman);
}

/* What a run says of its row. */
static json_t *run_json(const struct erg_fit_row *row)
{
    const struct erg_layout *layout = &row->layout;
    const struct erg_fit_run *run = row->run;
    return erg_json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:b, s:I, s:f, s:f, "
        "s:f, "
        "s:f, s:I, s:I, s:I}",
        "run", row->path, "model", run->model, "type", run->type, "tensor",
        (json_int_t)layout->tensor, "context", (json_int_t)layout->context, "pipeline",
        (json_int_t)layout->pipeline, "virtual_stages", (json_int_t)layout->virtual_stages, "data",
        (json_int_t)layout->data, "microbatch_size", (json_int_t)layout->microbatch, "microbatches",
        (json_int_t)layout->microbatches, "sequence", (json_int_t)layout->sequence, "recompute",
        erg_layout_recompute_name(layout), "offload", layout->offload, "sequence_parallel",
        row->sequence_parallel == ERG_FIT_PARALLEL, "steps", (json_int_t)run->steps, "spread",
        run->spread, "tokens_per_s", tokens_per_s(row), "memory_bytes", run->memory_bytes,
        "energy_j", run->energy_j, "lines", (json_int_t)run->lines, "lines_damaged",
        (json_int_t)run->lines_damaged, "lines_other", (json_int_t)run->lines_other);
}

static void print_json(const struct fit_call *at)
{
    json_t *constants = json_object(), *folds = json_array(), *rows = json_array();
    for (size_t k = 0; k < at->fit.constants; k++)
        json_object_set_new(
            constants, at->keys[k],
            erg_json_pack("{s:f, s:f, s:o}", "start", in_file_unit(at->start, at->keys[k]), "value",
                          in_file_unit(&at->fit.engine, at->keys[k]), "relative_uncertainty",
                          isinf(at->fit.uncertainty[k]) ? json_null()
                                                        : erg_json_number(at->fit.uncertainty[k])));
    for (long fold = 0; fold < at->values->folds; fold++)
        json_array_append_new(folds, erg_json_number(at->fit.fold_mean[fold]));
    for (size_t i = 0; i < at->rows.count; i++) {
        const struct erg_fit_row *row = &at->rows.items[i];
        json_t *object =
            row->run ? run_json(row) : erg_json_pack("{s:I}", "line", (json_int_t)row->line);
        if (row->device)
            json_object_set_new(object, "device", erg_json_new_string(row->device));
        json_object_set_new(object, "measured_s", erg_json_number(row->time_s));
        json_object_set_new(object, "predicted_s", erg_json_number(predicted_s(at, i)));
        if (row->run)
            json_object_set_new(object, "predicted_j", erg_json_number(predicted_j(at, row)));
        json_array_append_new(rows, object);
    }
    json_t *root = erg_json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o}", "schema", "ergon.fit",
                                 "schema_version", 1, "constants", constants, "fitted",
                                 errors_json(&at->fit.fitted), "held_out",
                                 errors_json(&at->fit.held_out), "folds", folds, "rows", rows);
    erg_print_json(root);
}

static int write_engine(const struct fit_call *at, struct erg_error *err)
{
    struct erg_arena arena = {0};
    const char *comments[ERG_FIT_MOST_CONSTANTS];
    for (size_t k = 0; k < at->fit.constants; k++)
        comments[k] =
            isinf(at->fit.uncertainty[k])
                ? "the fitted rows do not tell it"
                : erg_arena_printf(&arena, "fitted; +- %.1f %%", 100 * at->fit.uncertainty[k]);
    const struct fit_values *values = at->values;
    struct erg_text heading = {0};
    erg_text_printf(
        &heading,
        "Fitted to %zu measured iterations: mean error %.2f %%, of rows held out %.2f %%. By\n"
        "  ergon fit%s%s",
        at->rows.count, 100 * at->fit.fitted.mean, 100 * at->fit.held_out.mean,
        at->rows_path ? " " : "", at->rows_path ? at->rows_path : "");
    for (size_t i = 0; i < values->runs.count; i++)
        erg_text_printf(&heading, " \\\n    --from %s", values->runs.items[i]);
    if (values->job || values->cluster)
        erg_text_printf(&heading, " \\\n    --%s %s", values->job ? "job" : "cluster",
                        values->job ? values->job : values->cluster);
    erg_text_printf(&heading, " \\\n    --engine %s \\\n    --constants %s --folds %ld", at->engine,
                    values->keys, values->folds);
    int status = erg_engine_write(&at->fit.engine, at->engine, values->output, heading.data,
                                  at->keys, comments, err);
    erg_text_release(&heading);
    erg_arena_release(&arena);
    return status;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct fit_call at = {.values = call->values,
                          .rows_path = call->argument_count ? call->arguments[0] : NULL};
    cut_keys(&at);
    int status = check_call(&at, err) || erg_engine_load(&at.start, at.engine, err) ||
                 load_rows(&at, err) || find_machine(&at, err);
    if (!status) {
        const struct erg_fit_request request = {
            .rows = at.rows.items,
            .count = at.rows.count,
            .machine = &at.machine,
            .start = at.start,
            .keys = at.keys,
            .folds = (size_t)at.values->folds,
            .path = at.rows_path ? at.rows_path : "--from",
        };
        status = erg_fit_rows_check(&at.rows, &at.machine, err) ||
                 erg_fit_rows_check_times(&at.rows, at.start, err) ||
                 erg_fit_engine(&at.fit, &request, err) ||
                 (at.values->output && write_engine(&at, err));
    }
    if (!status)
        call->common.json ? print_json(&at) : print_text(&at);
    erg_fit_rows_release(&at.rows);
    if (at.start)
        erg_engine_free(at.start);
    free(at.list);
    return status ? -1 : 0;
}

const struct erg_command erg_cmd_fit = {
    .name = "fit",
    .summary = "fit a training engine's constants to measured iterations",
    .arguments = "[ROWS.csv]",
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct fit_values),
    .options = options,
    .details =
        "ROWS.csv has a row for every measured iteration, with the columns model (a name of the\n"
        "catalogue or a path), sequence (tokens), gpus, batch (sequences), t, c, p (tensor,\n"
        "context and pipeline degree) and time_s or tokens_per_s (all GPUs together);\n"
        "and, where they matter,\n"
        "microbatch, l (layers of a chunk) or v (chunks of a stage), recompute (none, norms,\n"
        "activation, balanced, full), offload (0 to 1) and device (the name of the GPU).\n"
        "\n"
        "--from RUN adds a row of what ergon train has measured: the median of its steps, without\n"
        "the first of a start, and without those beside a trace, a validation or a checkpoint.\n"
        "\n"
        "Constants are fitted by least squares of the logarithm of the time. Every part of the\n"
        "rows is also predicted by constants that were fitted to the other parts: that is the\n"
        "error of rows held out, and the spread of those constants is their uncertainty.",
    .examples =
        "  ergon fit rows.csv --cluster cluster.yaml --engine megatron-kwai-h800\n"
        "  ergon fit rows.csv -j job.yaml -e megatron-a100 -k gemm_efficiency -o mine.yaml\n"
        "  ergon fit --from run1 --from run2 -k gemm_efficiency -f 2 -o mine.yaml\n",
    .run = run,
};
