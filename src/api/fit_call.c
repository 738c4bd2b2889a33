/* Engines fitted to tables and runs: the input, the machine on which it was measured, and the
 * output. */
#include "api/fit_call.h"

#include "base/memory.h"
#include "io/json.h"
#include "job/job.h"
#include "layout/energy/layout_energy.h"
#include "train/log/run_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* `path`: of the file that the cluster stands in. */
static int set_machine(struct erg_fit_call *at, const char *path, const struct erg_gpu *gpu,
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
static int set_machine_of_run(struct erg_fit_call *at, struct erg_error *err)
{
    struct erg_gpu *gpu;
    if (erg_gpu_load(&gpu, at->of_run.gpu, err) != 0)
        return erg_fail_context(err, "%s: the GPU of its job's cluster", at->input->runs[0]);
    int status = set_machine(at, at->input->runs[0], gpu, &at->of_run, err);
    erg_gpu_free(gpu);
    return status;
}

static int find_machine(struct erg_fit_call *at, struct erg_error *err)
{
    const struct erg_fit_input *input = at->input;
    if (!input->job && !input->cluster && !at->input->rows)
        return set_machine_of_run(at, err);
    if (!input->job == !input->cluster)
        return erg_fail(err, ERG_USAGE,
                        "expected one of --cluster FILE and --job JOB.yaml, with the machine on "
                        "which the rows were measured");
    if (input->job) {
        struct erg_job *job;
        /* Only the job's machine is used: rows have layouts of their own. */
        const struct erg_job_overrides overrides = {.any_layout = true};
        if (erg_job_load(&job, input->job, &overrides, err) != 0)
            return -1;
        int status = set_machine(at, input->job, job->gpu, &job->cluster, err);
        erg_job_free(job);
        return status;
    }
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    if (erg_cluster_load(&cluster, input->cluster, err) != 0)
        return -1;
    int status = erg_gpu_load(&gpu, cluster->gpu, err);
    if (status == 0) {
        status = set_machine(at, input->cluster, gpu, cluster, err);
        erg_gpu_free(gpu);
    }
    erg_cluster_free(cluster);
    return status;
}

/* The table, then the runs. */
static int load_rows(struct erg_fit_call *at, struct erg_error *err)
{
    const struct erg_fit_input *input = at->input;
    if (at->input->rows && erg_fit_rows_load(&at->rows, at->input->rows, err) != 0)
        return -1;
    for (size_t i = 0; i < input->run_count; i++)
        if (erg_run_row_add(&at->rows, input->runs[i], i ? NULL : &at->of_run, err) != 0)
            return -1;
    return 0;
}

static void cut_keys(struct erg_fit_call *at)
{
    size_t count = 0;
    at->list = erg_xstrdup(at->input->keys);
    for (char *rest = at->list; rest && count <= ERG_FIT_MOST_CONSTANTS;) {
        at->keys[count++] = rest;
        rest = strchr(rest, ',');
        if (rest)
            *rest++ = '\0';
    }
}

/* The constant's value in the unit of an engine's file. */
double erg_fitting_unit(const struct erg_engine *engine, const char *key)
{
    const struct erg_quantity *number = erg_engine_numbers;
    while (strcmp(number->key, key) != 0)
        number++;
    return erg_engine_get(engine, number) / number->factor;
}

double erg_fitting_s(const struct erg_fit_call *at, size_t row)
{
    double time_s;
    erg_fit_predict(&time_s, &at->rows.items[row], 1, &at->fit.engine, &at->machine);
    return time_s;
}

/* The energy of all GPUs of the row, by the power model of their file at the highest clock. */
double erg_fitting_j(const struct erg_fit_call *at, const struct erg_fit_row *row)
{
    const struct erg_engine engine = erg_fit_row_engine(row, &at->fit.engine);
    const struct erg_layout_energy_request request = {.time = {row->model, &engine, &at->machine},
                                                      .gpu = &at->gpu};
    struct erg_layout_energy energy;
    erg_layout_energy_whole(&energy, &request, &row->layout);
    return energy.total_j;
}

double erg_fitting_rate(const struct erg_fit_row *row)
{
    return (double)row->batch * (double)row->layout.sequence / row->time_s;
}

static json_t *errors_json(const struct erg_fit_errors *errors)
{
    return erg_json_pack("{s:f, s:f, s:f}", "mean", errors->mean, "most", errors->most, "spearman",
                         errors->spearman);
}

/* The values of a run in its row. */
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
        run->spread, "tokens_per_s", erg_fitting_rate(row), "memory_bytes", run->memory_bytes,
        "energy_j", run->energy_j, "lines", (json_int_t)run->lines, "lines_damaged",
        (json_int_t)run->lines_damaged, "lines_other", (json_int_t)run->lines_other);
}

json_t *erg_fit_call_document(const struct erg_fit_call *at)
{
    json_t *constants = json_object(), *folds = json_array(), *rows = json_array();
    for (size_t k = 0; k < at->fit.constants; k++)
        json_object_set_new(
            constants, at->keys[k],
            erg_json_pack("{s:f, s:f, s:o}", "start", erg_fitting_unit(at->start, at->keys[k]),
                          "value", erg_fitting_unit(&at->fit.engine, at->keys[k]),
                          "relative_uncertainty",
                          isinf(at->fit.uncertainty[k]) ? json_null()
                                                        : erg_json_number(at->fit.uncertainty[k])));
    for (long fold = 0; fold < at->input->folds; fold++)
        json_array_append_new(folds, erg_json_number(at->fit.fold_mean[fold]));
    for (size_t i = 0; i < at->rows.count; i++) {
        const struct erg_fit_row *row = &at->rows.items[i];
        json_t *object =
            row->run ? run_json(row) : erg_json_pack("{s:I}", "line", (json_int_t)row->line);
        if (row->device)
            json_object_set_new(object, "device", erg_json_new_string(row->device));
        json_object_set_new(object, "measured_s", erg_json_number(row->time_s));
        json_object_set_new(object, "predicted_s", erg_json_number(erg_fitting_s(at, i)));
        if (row->run)
            json_object_set_new(object, "predicted_j", erg_json_number(erg_fitting_j(at, row)));
        json_array_append_new(rows, object);
    }
    return erg_json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o}", "schema", "ergon.fit",
                         "schema_version", 1, "constants", constants, "fitted",
                         errors_json(&at->fit.fitted), "held_out", errors_json(&at->fit.held_out),
                         "folds", folds, "rows", rows);
}

static int write_engine(const struct erg_fit_call *at, struct erg_error *err)
{
    struct erg_arena arena = {0};
    const char *comments[ERG_FIT_MOST_CONSTANTS];
    for (size_t k = 0; k < at->fit.constants; k++)
        comments[k] =
            isinf(at->fit.uncertainty[k])
                ? "the fitted rows do not tell it"
                : erg_arena_printf(&arena, "fitted; +- %.1f %%", 100 * at->fit.uncertainty[k]);
    const struct erg_fit_input *input = at->input;
    struct erg_text heading = {0};
    erg_text_printf(
        &heading,
        "Fitted to %zu measured iterations: mean error %.2f %%, of rows held out %.2f %%. By\n"
        "  ergon fit%s%s",
        at->rows.count, 100 * at->fit.fitted.mean, 100 * at->fit.held_out.mean,
        at->input->rows ? " " : "", at->input->rows ? at->input->rows : "");
    for (size_t i = 0; i < input->run_count; i++)
        erg_text_printf(&heading, " \\\n    --from %s", input->runs[i]);
    if (input->job || input->cluster)
        erg_text_printf(&heading, " \\\n    --%s %s", input->job ? "job" : "cluster",
                        input->job ? input->job : input->cluster);
    erg_text_printf(&heading, " \\\n    --engine %s \\\n    --constants %s --folds %ld",
                    at->input->engine, input->keys, input->folds);
    int status = erg_engine_write(&at->fit.engine, at->input->engine, input->output, heading.data,
                                  at->keys, comments, err);
    erg_text_release(&heading);
    erg_arena_release(&arena);
    return status;
}

int erg_fit_call_run(struct erg_fit_call *at, const struct erg_fit_input *input,
                     struct erg_error *err)
{
    *at = (struct erg_fit_call){.input = input};
    cut_keys(at);
    if (erg_engine_load(&at->start, input->engine, err) != 0 || load_rows(at, err) != 0 ||
        find_machine(at, err) != 0)
        return -1;
    const struct erg_fit_request request = {
        .rows = at->rows.items,
        .count = at->rows.count,
        .machine = &at->machine,
        .start = at->start,
        .keys = at->keys,
        .folds = (size_t)input->folds,
        .path = input->rows ? input->rows : "--from",
    };
    return erg_fit_rows_check(&at->rows, &at->machine, err) != 0 ||
                   erg_fit_rows_check_times(&at->rows, at->start, err) != 0 ||
                   erg_fit_engine(&at->fit, &request, err) != 0 ||
                   (input->output && write_engine(at, err) != 0)
               ? -1
               : 0;
}

void erg_fit_call_release(struct erg_fit_call *at)
{
    erg_fit_rows_release(&at->rows);
    if (at->start)
        erg_engine_free(at->start);
    free(at->list);
}
