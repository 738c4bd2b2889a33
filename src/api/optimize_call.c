/* The main job with all that it writes: devices, memory warned of, plan, page and tables. */
#define _DEFAULT_SOURCE /* strsep */
#include "api/optimize_call.h"

#include "base/log.h"
#include "base/memory.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/json.h"
#include "io/store.h"
#include "layout/memory/stage_memory.h"
#include "optimize/optimize.h"
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

int erg_optimize_call_methods(struct erg_optimize_call *at, const char *list, struct erg_error *err)
{
    bool *methods = at->methods;
    for (int i = 0; i < ERG_METHOD_COUNT; i++)
        methods[i] = !list;
    if (!list)
        return 0;
    char *copy = erg_xstrdup(list), *rest = copy, *name;
    int status = 0;
    while (!status && (name = strsep(&rest, ","))) {
        enum erg_method method;
        status = erg_method_parse(name, &method, err);
        if (!status)
            methods[method] = true;
    }
    free(copy);
    return status;
}

int erg_optimize_call_open(struct erg_optimize_call *at, struct erg_error *err)
{
    const struct erg_job *job = at->job;
    struct erg_real_request request = {
        .model = job->model,
        .tensor = (int)job->layout.tensor,
        .context = (int)job->layout.context,
        .layers = 1,
        .sequences = (int)job->layout.microbatch,
        .sequence = (int)job->layout.sequence,
        .seed = job->search.seed,
        .lock_clocks = at->lock_clocks,
    };
    return at->cuda ? erg_real_open(&at->real, &request, err) : 0;
}

/* ---- whether the stages fit into memory ---- */

static const struct erg_gpu *gpu_of_stage(const struct erg_job *job, long stage)
{
    return job->kind_count == 1 ? job->gpu : job->kinds[job->stage_kind[stage]].gpu;
}

static double usable_bytes(const struct erg_gpu *gpu)
{
    return ERG_MEMORY_USABLE_SHARE * gpu->memory_bytes;
}

static void warn_of_excess(const struct erg_job *job, const char *path,
                           const struct erg_memory_result *result)
{
    double most = 0;
    long worst = -1;
    for (long s = 0; s < result->count; s++) {
        double excess = result->stages[s].peak_bytes - usable_bytes(gpu_of_stage(job, s));
        if (excess > most) {
            most = excess;
            worst = s;
        }
    }
    if (worst < 0)
        return;
    const struct erg_gpu *gpu = gpu_of_stage(job, worst);
    erg_log(ERG_LOG_WARNING,
            "this will not fit into memory: stage %ld needs %.2f GiB, and a %s has %.2f GiB for "
            "it; \"ergon memory %s\" prints changes that make it fit",
            worst, result->stages[worst].peak_bytes / 0x1p30, gpu->name, usable_bytes(gpu) / 0x1p30,
            path);
}

static void warn_of_memory(const struct erg_job *job, const char *path)
{
    struct erg_memory_result result = {0};
    struct erg_error err = {0};
    const struct erg_memory_request request =
        erg_memory_request_of(job->model, &job->layout, job->engine);
    /* A layout that the memory model does not know is planned all the same. */
    if (erg_layout_check(&job->layout, job->model, &err) == 0 &&
        erg_memory_check(&request, &err) == 0 && erg_memory_simulate(&result, &request, &err) == 0)
        warn_of_excess(job, path, &result);
    else
        erg_log(ERG_LOG_INFO, "memory was not checked: %s", err.message);
    erg_memory_result_release(&result);
}

/* ---- files ---- */

/* The plan's stage profile as the table that `ergon frontier` and other planners read. */
static int write_profile(const char *folder, const struct erg_plan *plan, struct erg_error *err)
{
    struct erg_text path = {0}, table = {0};
    erg_text_add(&table, "stage,instruction,frequency,time,energy\n");
    for (size_t i = 0; i < plan->profile_count; i++) {
        const struct erg_plan_row *row = &plan->profile[i];
        erg_csv_add_long(&table, (long)row->stage);
        erg_csv_add(&table, erg_direction_names[row->direction]);
        erg_csv_add_long(&table, row->clock_mhz);
        erg_csv_add_double(&table, row->time_s);
        erg_csv_add_double(&table, row->energy_j);
        erg_csv_end_row(&table);
    }
    erg_text_printf(&path, "%s/profile.csv", folder);
    int status = erg_file_write(path.data, table.data, table.count, err);
    erg_text_release(&path);
    erg_text_release(&table);
    return status;
}

/* Everything in the store as a table. */
static int write_measurements(const char *folder, const char *store_path, struct erg_error *err)
{
    struct erg_text path = {0};
    struct erg_store *store;
    erg_text_printf(&path, "%s/measurements.csv", folder);
    int status = erg_store_open(&store, store_path, err);
    if (!status) {
        status = erg_store_export_csv(store, path.data, err);
        erg_store_close(store);
    }
    erg_text_release(&path);
    return status;
}

static int write_files(const char *folder, const json_t *document, const struct erg_plan *plan,
                       struct erg_error *err)
{
    struct erg_text path = {0};
    int status = 0;
    erg_text_printf(&path, "%s/plan.json", folder);
    status = erg_json_write(path.data, document, err);
    path.count = 0;
    erg_text_printf(&path, "%s/report.html", folder);
    status = status || erg_report_write(path.data, document, err);
    path.count = 0;
    erg_text_printf(&path, "%s/trace.json", folder);
    status = status || erg_report_trace(path.data, document, err);
    status = status || write_profile(folder, plan, err);
    erg_text_release(&path);
    return status ? -1 : 0;
}

/* ---- the run ---- */

int erg_optimize_call_run(struct erg_optimize_call *at, struct erg_error *err)
{
    struct erg_text store = {0};
    struct erg_optimize_request request = {.job = at->job};
    memcpy(request.methods, at->methods, sizeof request.methods);
    if (at->folder)
        erg_text_printf(&store, "%s/profile.db", at->folder);
    request.store_path = at->folder ? store.data : ":memory:";
    request.device = at->real ? erg_real_device(at->real) : NULL;
    warn_of_memory(at->job, at->hint);
    int status = at->folder ? erg_dir_make(at->folder, err) : 0;
    status = status || erg_optimize(&request, &at->plan, err);
    if (!status && at->folder) {
        at->document = erg_plan_json(at->plan);
        status = write_files(at->folder, at->document, at->plan, err) ||
                 write_measurements(at->folder, store.data, err);
    }
    erg_text_release(&store);
    return status ? -1 : 0;
}

void erg_optimize_call_release(struct erg_optimize_call *at)
{
    erg_real_close(at->real);
    json_decref(at->document);
    erg_plan_free(at->plan);
}
