/* Logs of clusters that are tables. What is read of each: import.h. */
#include "cluster/traces/log_internal.h"

#include "base/random.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Days of 1970-01-01 to a date of the Gregorian calendar. */
static long days_of(int year, int month, int day)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    long past = year - 1 + (month > 2); /* whose leap day is over */
    return 365L * year + past / 4 - past / 100 + past / 400 + before[month - 1] + day - 719528;
}

bool erg_log_time(const char *text, double *seconds)
{
    int year, month, day, hour, minute, second, end = 0;
    if (sscanf(text, "%4d-%2d-%2d %2d:%2d:%2d%n", &year, &month, &day, &hour, &minute, &second,
               &end) != 6 ||
        text[end] || year < 1 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 ||
        hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
        return false;
    *seconds = 86400.0 * (double)days_of(year, month, day) + 3600 * hour + 60 * minute + second;
    return true;
}

/* ---- fields ---- */

/* The text of a column that must be there: layouts are told by them. */
static const char *field(const struct erg_csv *csv, size_t row, const char *column)
{
    return erg_csv_text(csv, row, (size_t)erg_csv_find(csv, column));
}

static int read_number(const struct erg_csv *csv, size_t row, const char *column, double least,
                       double *value, struct erg_error *err)
{
    if (erg_csv_double(csv, row, (size_t)erg_csv_find(csv, column), value, err) != 0)
        return -1;
    if (*value < least || *value > 1e15)
        return erg_csv_fail(csv, row, err, "column '%s': expected a number from %g to 1e15, got %g",
                            column, least, *value);
    return 0;
}

/* What is not there is NAN. */
static int read_optional(const struct erg_csv *csv, size_t row, const char *column, double *value,
                         struct erg_error *err)
{
    *value = NAN;
    if (erg_csv_find(csv, column) < 0 || !*field(csv, row, column))
        return 0;
    return read_number(csv, row, column, 0, value, err);
}

static int read_time(const struct erg_csv *csv, size_t row, const char *column, double *seconds,
                     struct erg_error *err)
{
    const char *text = field(csv, row, column);
    if (erg_log_time(text, seconds) || erg_parse_double(text, seconds))
        return 0;
    return erg_csv_fail(csv, row, err,
                        "column '%s': expected a time such as 2020-04-01 00:08:15 or seconds, got "
                        "'%s'",
                        column, text);
}

static struct erg_log_job job_of(struct erg_log *log, const struct erg_csv *csv, size_t row,
                                 const char *id, const char *tenant)
{
    return (struct erg_log_job){.id = erg_arena_strdup(&log->texts, field(csv, row, id)),
                                .tenant =
                                    tenant && erg_csv_find(csv, tenant) >= 0
                                        ? erg_arena_strdup(&log->texts, field(csv, row, tenant))
                                        : "",
                                .type = "",
                                .model = "",
                                .size = "",
                                .duration_s = NAN,
                                .iterations = NAN,
                                .deadline_s = INFINITY,
                                .line = erg_csv_line(csv, row)};
}

static int add(struct erg_log *log, const struct erg_csv *csv, size_t row,
               const struct erg_log_job *job, struct erg_error *err)
{
    if (!*job->id)
        return erg_csv_fail(csv, row, err, "the job has no name");
    if (job->gpus <= 0)
        log->without_gpus++;
    else if (job->duration_s <= 0)
        log->without_time++;
    else
        ERG_PUSH(log, items, *job);
    return 0;
}

/* ---- Helios ---- */

static int read_helios(struct erg_log *log, const struct erg_csv *csv, struct erg_error *err)
{
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        struct erg_log_job job = job_of(log, csv, row, "job_id", "vc");
        if (read_number(csv, row, "gpu_num", 0, &job.gpus, err) != 0 ||
            read_time(csv, row, "submit_time", &job.submit_s, err) != 0 ||
            read_number(csv, row, "duration", 0, &job.duration_s, err) != 0 ||
            add(log, csv, row, &job, err) != 0)
            return -1;
    }
    return 0;
}

/* ---- PAI ---- */

static int compare_names(const void *a, const void *b)
{
    const struct erg_log_job *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Tasks of one job become one: all their GPUs, from the first start to the last end. */
static void add_up_tasks(struct erg_log *log)
{
    size_t kept = 0;
    if (log->count > 0)
        qsort(log->items, log->count, sizeof *log->items, compare_names);
    for (size_t i = 0; i < log->count; i++) {
        const struct erg_log_job *task = &log->items[i];
        if (kept == 0 || strcmp(log->items[kept - 1].id, task->id) != 0) {
            log->items[kept++] = *task;
            continue;
        }
        struct erg_log_job *job = &log->items[kept - 1];
        double end_s = fmax(job->submit_s + job->duration_s, task->submit_s + task->duration_s);
        job->submit_s = fmin(job->submit_s, task->submit_s);
        job->duration_s = end_s - job->submit_s;
        job->gpus += task->gpus;
    }
    log->count = kept;
}

static int read_pai(struct erg_log *log, const struct erg_csv *csv, struct erg_error *err)
{
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        struct erg_log_job task = job_of(log, csv, row, "job_name", "user");
        double instances, percent, start_s, end_s;
        task.type = erg_arena_strdup(&log->texts, field(csv, row, "gpu_type"));
        if (read_number(csv, row, "inst_num", 0, &instances, err) != 0 ||
            read_optional(csv, row, "plan_gpu", &percent, err) != 0 ||
            read_optional(csv, row, "start_time", &start_s, err) != 0 ||
            read_optional(csv, row, "end_time", &end_s, err) != 0)
            return -1;
        task.gpus = isnan(percent) ? 0 : instances * percent / 100;
        task.submit_s = start_s;
        task.duration_s = isnan(start_s) || isnan(end_s) ? 0 : end_s - start_s;
        if (add(log, csv, row, &task, err) != 0)
            return -1;
    }
    add_up_tasks(log);
    return 0;
}

/* ---- Pollux ---- */

/* The least GPU-hours of an application's class in Pollux's table 1, each of which ends at ten
 * times as many; 0: it is not there. */
static double least_hours(const char *application)
{
    static const struct {
        const char *application;
        double least;
    } classes[] = {{"cifar10", 0.1},   {"ncf", 0.1},   {"bert", 1},
                   {"deepspeech2", 1}, {"yolov3", 10}, {"imagenet", 100}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (!strcmp(classes[i].application, application))
            return classes[i].least;
    return 0;
}

/* Seconds that a job runs on its GPUs, drawn; 0: its application is not known. */
static double draw_run(const struct erg_log *log, const struct erg_log_job *job)
{
    double share = erg_hash_uniform(
        erg_hash_u64(erg_hash_u64(log->seed, erg_hash_text(job->id)), ERG_LOG_DRAW_DURATION));
    return 3600 * least_hours(job->model) * pow(10, share) / fmax(1, job->gpus);
}

static int read_pollux(struct erg_log *log, const struct erg_csv *csv, struct erg_error *err)
{
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        struct erg_log_job job = job_of(log, csv, row, "name", NULL);
        double batch;
        job.model = erg_arena_strdup(&log->texts, field(csv, row, "application"));
        if (read_number(csv, row, "num_replicas", 0, &job.gpus, err) != 0 ||
            read_number(csv, row, "batch_size", 1, &batch, err) != 0 ||
            read_time(csv, row, "time", &job.submit_s, err) != 0 ||
            read_optional(csv, row, "duration", &job.duration_s, err) != 0)
            return -1;
        job.batch = (long)batch;
        if (isnan(job.duration_s))
            job.duration_s = draw_run(log, &job);
        if (job.gpus > 0 && job.duration_s == 0 && least_hours(job.model) == 0)
            return erg_csv_fail(csv, row, err,
                                "how long '%s' runs is not known; expected a column 'duration' or "
                                "cifar10, ncf, bert, deepspeech2, yolov3 or imagenet",
                                job.model);
        if (add(log, csv, row, &job, err) != 0)
            return -1;
    }
    return 0;
}

/* ---- Arena ---- */

static int read_arena(struct erg_log *log, const struct erg_csv *csv, struct erg_error *err)
{
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        struct erg_log_job job = job_of(log, csv, row, "job_id", NULL);
        char *model = erg_arena_strdup(&log->texts, field(csv, row, "model_name"));
        char *size = strstr(model, "__");
        double batch, deadline_s;
        if (!size)
            return erg_csv_fail(csv, row, err,
                                "column 'model_name': expected FAMILY__SIZE such as bert__1.3B, "
                                "got '%s'",
                                model);
        *size = '\0';
        job.model = model;
        job.size = size + 2;
        job.type = erg_arena_strdup(&log->texts, field(csv, row, "gpu_type"));
        if (read_number(csv, row, "num_gpu", 0, &job.gpus, err) != 0 ||
            read_number(csv, row, "batch_size", 1, &batch, err) != 0 ||
            read_time(csv, row, "submission_time", &job.submit_s, err) != 0 ||
            read_number(csv, row, "num_iteration", 1, &job.iterations, err) != 0 ||
            read_optional(csv, row, "deadline", &deadline_s, err) != 0)
            return -1;
        job.batch = (long)batch;
        if (!isnan(deadline_s))
            job.deadline_s = deadline_s;
        if (add(log, csv, row, &job, err) != 0)
            return -1;
    }
    return 0;
}

const struct erg_log_layout *erg_log_layout_of(const struct erg_csv *csv)
{
    static const struct erg_log_layout layouts[] = {
        {"Helios", {"job_id", "gpu_num", "submit_time", "duration", "vc"}, read_helios},
        {"PAI",
         {"job_name", "inst_num", "start_time", "end_time", "plan_gpu", "gpu_type"},
         read_pai},
        {"Pollux", {"name", "time", "application", "num_replicas", "batch_size"}, read_pollux},
        {"Arena",
         {"job_id", "submission_time", "num_iteration", "model_name", "batch_size", "num_gpu",
          "gpu_type"},
         read_arena},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        size_t found = 0;
        while (layouts[i].columns[found] && erg_csv_find(csv, layouts[i].columns[found]) >= 0)
            found++;
        if (!layouts[i].columns[found])
            return &layouts[i];
    }
    return NULL;
}
