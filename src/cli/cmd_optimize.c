/* ergon optimize JOB.yaml: the frontier of a training iteration, the plan and the report. */
#include "cli/cli.h"
#include "cli/print.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/real.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/json.h"
#include "io/store.h"
#include "job/job.h"
#include "layout/memory/stage_memory.h"
#include "optimize/optimize.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct optimize_values {
    const char *folder, *methods;
    int search, device;
    long microbatches, microbatch_size, sequence;
    double deadline_s, budget_j;
    bool lock_clocks;
};

static const char *const searches[] = {"gp", "trees", "random", "exhaustive", NULL};
static const char *const devices[] = {"emulated", "cuda", NULL};
enum { DEVICE_CUDA = 1 };

#define AT(member) offsetof(struct optimize_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(folder), .default_text = "ergon-out",
     .help = "folder for plan.json, report.html, trace.json, profile.csv, measurements.csv and "
             "profile.db"},
    {"method", 'm', ERG_OPTION_TEXT, "NAME,...", AT(methods),
     .help = "report only these: sequential, sequential+clocks, nanobatching, "
             "nanobatching+clocks, ergon"},
    {"search", 's', ERG_OPTION_CHOICE, "HOW", AT(search), .choices = searches,
     .help = "how configurations to measure are chosen"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "emulated", .help = "what measures"},
    {"lock-clocks", 0, ERG_OPTION_FLAG, NULL, AT(lock_clocks),
     .help =
         "with --device cuda: lock the GPUs' clocks to search them, too, and unlock them at the "
         "end"},
    {"microbatches", 'M', ERG_OPTION_LONG, "N", AT(microbatches), 1, ERG_JOB_MOST_MICROBATCHES,
     .help = "microbatches per iteration, instead of the job's"},
    {"microbatch-size", 'b', ERG_OPTION_LONG, "N", AT(microbatch_size), 1, 10000,
     .help = "sequences per microbatch, instead of the job's"},
    {"sequence", 'S', ERG_OPTION_LONG, "TOKENS", AT(sequence), 1, 100000000,
     .help = "tokens per sequence, instead of the job's"},
    {"deadline", 'D', ERG_OPTION_DOUBLE, "SECONDS", AT(deadline_s), 1e-6, 1e6,
     .help = "select the plan of least energy within this time"},
    {"energy-budget", 'E', ERG_OPTION_DOUBLE, "JOULES", AT(budget_j), 1e-6, 1e15,
     .help = "select the fastest plan within this energy of all GPUs of a pipeline"},
    {0},
};

static int parse_methods(const char *list, bool *methods, struct erg_error *err)
{
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

static int load_job(const struct erg_invocation *call, struct erg_job **job, struct erg_error *err)
{
    const struct optimize_values *values = call->values;
    struct erg_job_overrides overrides = {0};
    uint64_t seed = (uint64_t)call->common.seed;
    if (values->microbatches != ERG_NOT_GIVEN)
        overrides.microbatches = values->microbatches;
    if (values->microbatch_size != ERG_NOT_GIVEN)
        overrides.microbatch_size = values->microbatch_size;
    if (values->sequence != ERG_NOT_GIVEN)
        overrides.sequence = values->sequence;
    if (values->search >= 0)
        overrides.search = searches[values->search];
    if (call->common.seed != ERG_NOT_GIVEN)
        overrides.seed = &seed;
    if (!isnan(values->deadline_s) && !isnan(values->budget_j))
        return erg_fail(err, ERG_USAGE,
                        "--deadline and --energy-budget were both given; expected one of them");
    if (erg_job_load(job, call->arguments[0], &overrides, err))
        return -1;
    if (!isnan(values->deadline_s))
        (*job)->goal = (struct erg_goal){ERG_LEAST_ENERGY, .deadline_s = values->deadline_s};
    if (!isnan(values->budget_j))
        (*job)->goal = (struct erg_goal){ERG_FASTEST, .energy_j = values->budget_j};
    return 0;
}

/* The plan's stage profile as the table that `ergon frontier` and other planners read. */
static int write_profile(const char *folder, const struct erg_plan *plan, struct erg_error *err)
{
    struct erg_text path = {0}, table = {0};
    erg_text_add(&table, "stage,instruction,frequency,time,energy\n");
    for (size_t i = 0; i < plan->profile_count; i++) {
        const struct erg_plan_row *row = &plan->profile[i];
        erg_csv_add_long(&table, (long)row->stage);
        erg_csv_add(&table, row->direction == ERG_FORWARD ? "forward" : "backward");
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

static int print_result(const struct erg_invocation *call, const char *folder, json_t *plan,
                        struct erg_error *err)
{
    if (call->common.json) {
        erg_print_json(json_incref(plan));
        return 0;
    }
    struct erg_text table = {0};
    int status = erg_report_table(&table, plan, err);
    if (!status)
        printf("%s\nplan %s/plan.json, report %s/report.html, trace %s/trace.json\n", table.data,
               folder, folder, folder);
    erg_text_release(&table);
    return status;
}

static int open_gpus(const struct erg_job *job, bool lock_clocks, struct erg_real **real,
                     struct erg_error *err)
{
    struct erg_real_request request = {
        .model = job->model,
        .tensor = job->layout.tensor,
        .context = job->layout.context,
        .layers = 1,
        .sequences = job->layout.microbatch,
        .sequence = job->layout.sequence,
        .seed = job->search.seed,
        .lock_clocks = lock_clocks,
    };
    return erg_real_open(real, &request, err);
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
            "it; \"ergon memory %s\" says what would help",
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
        erg_log(ERG_LOG_INFO, "whether this fits into memory is not known: %s", err.message);
    erg_memory_result_release(&result);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct optimize_values *values = call->values;
    struct erg_optimize_request request = {0};
    struct erg_job *job = NULL;
    struct erg_text store = {0};
    struct erg_real *real = NULL;
    struct erg_plan *plan = NULL;
    json_t *document = NULL;
    int status = parse_methods(values->methods, request.methods, err) || load_job(call, &job, err);
    if (!status && values->device == DEVICE_CUDA)
        status = open_gpus(job, values->lock_clocks, &real, err);
    else if (!status && values->lock_clocks)
        status = erg_fail(err, ERG_USAGE,
                          "--lock-clocks: an emulated GPU has no clocks to lock; expected --device "
                          "cuda beside it");
    bool leads = !status && erg_terminal_leads(real);
    if (leads) {
        erg_text_printf(&store, "%s/profile.db", values->folder);
        request.job = job;
        request.store_path = store.data;
        request.device = real ? erg_real_device(real) : NULL;
        warn_of_memory(job, call->arguments[0]);
        status = erg_dir_make(values->folder, err) || erg_optimize(&request, &plan, err);
        document = status ? NULL : erg_plan_json(plan);
        status = status || write_files(values->folder, document, plan, err) ||
                 write_measurements(values->folder, store.data, err);
    }
    erg_terminal_finish();
    if (!status && leads)
        status = print_result(call, values->folder, document, err);
    erg_real_close(real);
    json_decref(document);
    erg_plan_free(plan);
    erg_text_release(&store);
    erg_job_free(job);
    if (status)
        erg_interrupt_explain(err);
    return status ? -1 : 0;
}

const struct erg_command erg_cmd_optimize = {
    .name = "optimize",
    .summary = "find the time-energy frontier of a training iteration, and its plan",
    .arguments = "JOB.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .values_bytes = sizeof(struct optimize_values),
    .options = options,
    .details = "Measures the job's partitions and layers on the device, composes them into the "
               "frontier of\nits training iteration, compares it with the baselines and writes "
               "the plan. Measurements are\nkept in DIR/profile.db: a run that was stopped goes "
               "on where it was.",
    .examples = "  ergon optimize examples/quickstart.yaml\n"
                "  ergon optimize job.yaml -o out --microbatches 32 --deadline 5.2\n"
                "  ergon optimize job.yaml --method sequential+clocks,ergon --json\n",
    .run = run,
};
