/* Logs of other clusters as traces: values that they lack are drawn. */
#include "cluster/traces/import.h"

#include "base/random.h"
#include "cluster/traces/log_internal.h"
#include "io/file.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct importing {
    struct erg_trace_import *import;
    struct erg_trace_maker *maker;
    struct erg_log *log;
    int *fitting; /* workloads; as many as there are have room */
};

static double uniform(const struct importing *at, const struct erg_log_job *job,
                      enum erg_log_draw what)
{
    return erg_hash_uniform(
        erg_hash_u64(erg_hash_u64(at->log->seed, erg_hash_text(job->id)), what));
}

/* Returns true if a workload matches the model, size and batch of the log's job. */
static bool is_of(const struct erg_trace_workload *workload, const struct erg_log_job *job)
{
    return strcasecmp(workload->family, job->model) == 0 &&
           (!*job->size || strcasecmp(workload->size, job->size) == 0) &&
           (!job->batch || !*job->size || workload->batch == job->batch);
}

/* How many workloads can run so, of the log's model where profiles know it; they fill `fitting`. */
static int list_fitting(struct importing *at, const struct erg_log_job *job, int type, int gpus,
                        bool named)
{
    const struct erg_job_trace *trace = at->maker->trace;
    int count = 0;
    for (int w = 0; w < (int)trace->workloads_count; w++)
        if ((!named || is_of(&trace->workloads[w], job)) &&
            isfinite(erg_trace_maker_iteration(at->maker, w, type, gpus)))
            at->fitting[count++] = w;
    return count;
}

/* The number of GPUs nearest to the log's, from below if there is one, on which something runs. */
static int fit_gpus(struct importing *at, const struct erg_log_job *job, int type, bool named)
{
    int most = at->maker->speeds->gpus_most, asked = (int)fmin(most, ceil(job->gpus));
    for (int gpus = asked; gpus >= 1; gpus--)
        if (list_fitting(at, job, type, gpus, named) > 0)
            return gpus;
    for (int gpus = asked + 1; gpus <= most; gpus++)
        if (list_fitting(at, job, type, gpus, named) > 0)
            return gpus;
    return 0;
}

static bool knows_model(const struct importing *at, const struct erg_log_job *job)
{
    const struct erg_job_trace *trace = at->maker->trace;
    for (size_t w = 0; w < trace->workloads_count && *job->model; w++)
        if (is_of(&trace->workloads[w], job) && erg_speeds_runnable(at->maker->speeds, (int)w, -1))
            return true;
    return false;
}

/* The log's type, or one by the numbers of GPUs of those on which something runs. */
static int choose_type(struct importing *at, const struct erg_log_job *job, bool named)
{
    const struct erg_fleet *fleet = at->maker->fleet;
    double sum = 0, *weights = erg_xcalloc(fleet->types_count, sizeof *weights);
    int chosen = -1;
    for (unsigned t = 0; t < fleet->types_count; t++) {
        const struct erg_gpu_type *type = &fleet->types[t];
        if (fit_gpus(at, job, (int)t, named) == 0)
            continue;
        if (strcasecmp(type->name, job->type) == 0) {
            free(weights);
            return (int)t;
        }
        weights[t] = (double)type->nodes * type->gpus_per_node;
        sum += weights[t];
    }
    double left = sum * uniform(at, job, ERG_LOG_DRAW_TYPE);
    for (unsigned t = 0; t < fleet->types_count; t++)
        if (weights[t] > 0) {
            chosen = (int)t;
            if ((left -= weights[t]) < 0)
                break;
        }
    free(weights);
    at->import->given_type++;
    return chosen;
}

/* Leaves out jobs with iterations but no run time whose model the profiles lack. */
static void leave_out_unknown(struct importing *at)
{
    struct erg_log *log = at->log;
    size_t kept = 0;
    for (size_t i = 0; i < log->count; i++) {
        const struct erg_log_job *job = &log->items[i];
        if (isnan(job->iterations) || knows_model(at, job)) {
            log->items[kept++] = *job;
            continue;
        }
        struct erg_error why;
        erg_fail(&why, ERG_FAILED,
                 "%s:%zu: the profiles in %s have no %s of size %s with batches of %ld, so the "
                 "time of its iterations is unknown",
                 log->path, job->line, at->maker->trace->path, job->model, job->size, job->batch);
        erg_log_note_wrong(log, &why);
        log->fates[ERG_LOG_WRONG]++;
    }
    log->count = kept;
}

/* Since the first submission, without the rounding error of the difference of two dates. */
static double since(double first_s, double time_s)
{
    return round((time_s - first_s) * 1e6) / 1e6;
}

static int add_job(struct importing *at, const struct erg_log_job *job, double first_s,
                   struct erg_error *err)
{
    bool named = knows_model(at, job);
    int type = choose_type(at, job, named);
    if (type < 0)
        return erg_fail(err, ERG_FAILED, "no profile in %s describes a model that can run",
                        at->maker->trace->path);
    int gpus = fit_gpus(at, job, type, named), count = list_fitting(at, job, type, gpus, named);
    int workload = at->fitting[(int)(count * uniform(at, job, ERG_LOG_DRAW_MODEL))];
    at->import->given_model += !named;
    at->import->resized += gpus != (int)ceil(job->gpus);
    double iteration_s = erg_trace_maker_iteration(at->maker, workload, type, gpus);
    erg_trace_maker_add(at->maker, &(struct erg_made_job){
                                       .id = job->id,
                                       .tenant = job->tenant,
                                       .submit_s = since(first_s, job->submit_s),
                                       .duration_s = isnan(job->iterations)
                                                         ? job->duration_s
                                                         : (job->iterations + 0.5) * iteration_s,
                                       .deadline_s = since(first_s, job->deadline_s),
                                       .workload = workload,
                                       .type = type,
                                       .gpus = gpus,
                                       .line = job->line,
                                   });
    return 0;
}

static int add_jobs(struct erg_trace_import *import, struct erg_trace_maker *maker,
                    struct erg_log *log, struct erg_error *err)
{
    struct importing at = {.import = import, .maker = maker, .log = log};
    double first_s = INFINITY;
    int result = 0;
    leave_out_unknown(&at);
    if (log->count == 0) {
        const char *why = log->first_wrong.message;
        return erg_fail(err, ERG_FAILED, "%s: no job in it asked for GPUs and ran on them%s%s",
                        log->path, *why ? "; " : "", why);
    }
    at.fitting = erg_xcalloc(maker->trace->workloads_count, sizeof *at.fitting);
    for (size_t i = 0; i < log->count; i++)
        first_s = fmin(first_s, log->items[i].submit_s);
    for (size_t i = 0; i < log->count && result == 0; i++)
        result = add_job(&at, &log->items[i], first_s, err);
    free(at.fitting);
    if (result == 0)
        erg_trace_maker_finish(maker);
    return result;
}

/* Fills the log, and returns its layout. */
static int read_table(struct erg_log *log, const char **layout, const char *text, size_t length,
                      struct erg_error *err)
{
    struct erg_csv *csv;
    struct erg_csv_broken broken;
    if (erg_csv_parse_sound(&csv, &broken, log->path, text, length, err) != 0)
        return -1;
    const struct erg_log_layout *known = erg_log_layout_of(csv);
    int result =
        known ? 0
              : erg_fail(err, ERG_FAILED,
                         "%s: the columns match no supported log; expected a header as of Helios "
                         "and Acme (job_id, gpu_num, submit_time, duration), PAI's task table "
                         "(job_name, inst_num, start_time, end_time, plan_gpu, gpu_type), Pollux "
                         "(name, time, application, num_replicas, batch_size) or Arena (job_id, "
                         "submission_time, num_iteration, model_name, ...)",
                         log->path);
    if (known) {
        *layout = known->name;
        if (broken.rows > 0)
            erg_log_note_wrong(log, &broken.first);
        erg_log_read_table(log, known, csv);
        log->fates[ERG_LOG_WRONG] += broken.rows;
    }
    erg_csv_free(csv);
    return result;
}

int erg_trace_import_text(struct erg_trace_import *import, struct erg_trace_maker *maker,
                          const char *name, const char *text, size_t length, uint64_t seed,
                          struct erg_error *err)
{
    struct erg_log log = {.path = name, .seed = seed};
    size_t begin = length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0; /* byte-order mark */
    *import = (struct erg_trace_import){.layout = "Philly"};
    while (begin < length && isspace((unsigned char)text[begin]))
        begin++;
    bool json = begin < length && (text[begin] == '[' || text[begin] == '{');
    int result = json ? erg_log_read_philly(&log, text, length, err)
                      : read_table(&log, &import->layout, text, length, err);
    if (result == 0)
        result = add_jobs(import, maker, &log, err);
    import->jobs = maker->trace->count;
    import->without_gpus = log.fates[ERG_LOG_WITHOUT_GPUS];
    import->never_ran = log.fates[ERG_LOG_NEVER_RAN];
    import->still_ran = log.fates[ERG_LOG_STILL_RAN];
    import->wrong = log.fates[ERG_LOG_WRONG];
    import->with_wrong_part = log.with_wrong_part;
    import->first_wrong = log.first_wrong;
    free(log.items);
    erg_arena_release(&log.texts);
    return result;
}

int erg_trace_import(struct erg_trace_import *import, struct erg_trace_maker *maker,
                     const char *path, uint64_t seed, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, 0, &text, &length, err) != 0)
        return -1;
    int result = erg_trace_import_text(import, maker, path, text, length, seed, err);
    free(text);
    return result;
}
