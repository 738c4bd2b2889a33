/* Reads logs that are tables. The columns of each: import.h. */
#include "cluster/traces/log_internal.h"

#include "base/random.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* 30,000 years, the most that a trace takes; and 30 years. */
#define MOST_TIME_S 1e12
#define MOST_RUN_S 1e9

/* ---- fields ---- */

/* The text of a column that may be missing. */
static const char *field(const struct erg_csv *csv, size_t row, const char *column)
{
    ptrdiff_t index = erg_csv_find(csv, column);
    return index < 0 ? "" : erg_csv_text(csv, row, (size_t)index);
}

/* A number of 0 to `most`; an empty value is `missing`. */
static int read_number(const struct erg_csv *csv, size_t row, const char *column, double most,
                       double missing, double *value, struct erg_error *err)
{
    *value = missing;
    if (!*field(csv, row, column))
        return 0;
    if (erg_csv_double(csv, row, (size_t)erg_csv_find(csv, column), value, err) != 0)
        return -1;
    if (*value < 0 || *value > most)
        return erg_csv_fail(csv, row, err, "column '%s': expected a number from 0 to %g, got %g",
                            column, most, *value);
    return 0;
}

/* Missing values are NAN. */
static int read_time(const struct erg_csv *csv, size_t row, const char *column, double *seconds,
                     struct erg_error *err)
{
    const char *text = field(csv, row, column);
    *seconds = NAN;
    if (!*text)
        return 0;
    if ((erg_log_time(text, seconds) || erg_parse_double(text, seconds)) &&
        fabs(*seconds) <= MOST_TIME_S)
        return 0;
    return erg_csv_fail(csv, row, err,
                        "column '%s': expected a time such as 2020-04-01 00:08:15, with or without "
                        "a zone, or seconds up to %g, got '%s'",
                        column, MOST_TIME_S, text);
}

static int read_submission(const struct erg_csv *csv, size_t row, const char *column,
                           struct erg_log_job *job, struct erg_error *err)
{
    if (read_time(csv, row, column, &job->submit_s, err) != 0)
        return -1;
    return isnan(job->submit_s)
               ? erg_csv_fail(csv, row, err, "column '%s': expected a time, got nothing", column)
               : 0;
}

/* From start_time to end_time. */
static int read_span(const struct erg_csv *csv, size_t row, struct erg_log_job *job,
                     double *start_s, struct erg_error *err)
{
    double end_s;
    if (read_time(csv, row, "start_time", start_s, err) != 0 ||
        read_time(csv, row, "end_time", &end_s, err) != 0)
        return -1;
    if (end_s < *start_s)
        return erg_csv_fail(csv, row, err,
                            "column 'end_time': expected no time before the start, got one %g s "
                            "before it",
                            *start_s - end_s);
    if (end_s - *start_s > MOST_RUN_S)
        return erg_csv_fail(csv, row, err,
                            "column 'end_time': expected at most %g s after the start", MOST_RUN_S);
    job->duration_s = isnan(*start_s) ? 0 : end_s - *start_s;
    if (isnan(job->duration_s))
        job->fate = ERG_LOG_STILL_RAN;
    return 0;
}

static bool is_reversed(const struct erg_csv *csv, size_t row)
{
    double start_s, end_s;
    return read_time(csv, row, "start_time", &start_s, NULL) == 0 &&
           read_time(csv, row, "end_time", &end_s, NULL) == 0 && end_s < start_s;
}

/* ---- Helios and Acme ---- */

/* A given duration is used unless the times contradict it. */
static int read_helios(struct erg_log *log, const struct erg_csv *csv, size_t row,
                       struct erg_log_job *job, struct erg_error *err)
{
    double start_s;
    (void)log;
    if (read_number(csv, row, "gpu_num", 1e9, 0, &job->gpus, err) != 0 ||
        read_number(csv, row, "duration", MOST_RUN_S, NAN, &job->duration_s, err) != 0)
        return -1;
    if (job->gpus == 0)
        return 0;
    if (strcasecmp(field(csv, row, "state"), "running") == 0)
        job->fate = ERG_LOG_STILL_RAN;
    else if ((isnan(job->duration_s) || (job->duration_s > 0 && is_reversed(csv, row))) &&
             read_span(csv, row, job, &start_s, err) != 0)
        return -1;
    if (job->fate != ERG_LOG_RAN || job->duration_s == 0)
        return 0;
    return read_submission(csv, row, "submit_time", job, err);
}

/* ---- PAI ---- */

static int read_pai(struct erg_log *log, const struct erg_csv *csv, size_t row,
                    struct erg_log_job *task, struct erg_error *err)
{
    double instances, percent;
    (void)log;
    task->type = field(csv, row, "gpu_type");
    if (read_number(csv, row, "inst_num", 1e9, 0, &instances, err) != 0 ||
        read_number(csv, row, "plan_gpu", 1e6, 0, &percent, err) != 0)
        return -1;
    task->gpus = instances * percent / 100;
    if (task->gpus == 0)
        return 0;
    if (read_span(csv, row, task, &task->submit_s, err) != 0)
        return -1;
    if (strcasecmp(field(csv, row, "status"), "running") == 0 && !isnan(task->submit_s))
        task->fate = ERG_LOG_STILL_RAN;
    return 0;
}

/* ---- Pollux ---- */

/* The least GPU-hours of an application's class in Pollux's table 1; the class ends at ten times as
 * many; 0: not in the table. */
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

/* A drawn run time of a job on its GPUs; 0: its application is unknown. */
static double draw_run(const struct erg_log *log, const struct erg_log_job *job)
{
    double share = erg_hash_uniform(
        erg_hash_u64(erg_hash_u64(log->seed, erg_hash_text(job->id)), ERG_LOG_DRAW_DURATION));
    return 3600 * least_hours(job->model) * pow(10, share) / fmax(1, job->gpus);
}

static int read_pollux(struct erg_log *log, const struct erg_csv *csv, size_t row,
                       struct erg_log_job *job, struct erg_error *err)
{
    double batch;
    job->model = field(csv, row, "application");
    if (read_number(csv, row, "num_replicas", 1e9, 0, &job->gpus, err) != 0 ||
        read_number(csv, row, "batch_size", 1e9, 0, &batch, err) != 0 ||
        read_number(csv, row, "duration", MOST_RUN_S, NAN, &job->duration_s, err) != 0)
        return -1;
    job->batch = (long)batch;
    if (job->gpus == 0 || job->duration_s == 0)
        return 0;
    if (isnan(job->duration_s))
        job->duration_s = draw_run(log, job);
    if (job->duration_s == 0)
        return erg_csv_fail(csv, row, err,
                            "the duration of '%s' is unknown; expected a column 'duration' or "
                            "cifar10, ncf, bert, deepspeech2, yolov3 or imagenet",
                            job->model);
    return read_submission(csv, row, "time", job, err);
}

/* ---- Arena ---- */

/* "bert__1.3B". */
static int read_model(struct erg_log *log, const struct erg_csv *csv, size_t row,
                      struct erg_log_job *job, struct erg_error *err)
{
    char *model = erg_arena_strdup(&log->texts, field(csv, row, "model_name"));
    char *size = strstr(model, "__");
    if (!size)
        return erg_csv_fail(csv, row, err,
                            "column 'model_name': expected FAMILY__SIZE such as bert__1.3B, got "
                            "'%s'",
                            model);
    *size = '\0';
    job->model = model;
    job->size = size + 2;
    return 0;
}

static int read_arena(struct erg_log *log, const struct erg_csv *csv, size_t row,
                      struct erg_log_job *job, struct erg_error *err)
{
    double batch;
    job->type = field(csv, row, "gpu_type");
    if (read_number(csv, row, "num_gpu", 1e9, 0, &job->gpus, err) != 0 ||
        read_number(csv, row, "batch_size", 1e9, 0, &batch, err) != 0 ||
        read_number(csv, row, "num_iteration", 1e12, 0, &job->iterations, err) != 0)
        return -1;
    job->batch = (long)batch;
    if (job->gpus == 0 || job->iterations == 0)
        return 0;
    if (read_model(log, csv, row, job, err) != 0 ||
        read_submission(csv, row, "submission_time", job, err) != 0 ||
        read_number(csv, row, "deadline", MOST_TIME_S, INFINITY, &job->deadline_s, err) != 0)
        return -1;
    if (job->deadline_s < job->submit_s)
        return erg_csv_fail(csv, row, err,
                            "column 'deadline': expected no time before the submission, got %g",
                            job->deadline_s);
    return 0;
}

const struct erg_log_layout *erg_log_layout_of(const struct erg_csv *csv)
{
    static const struct erg_log_layout layouts[] = {
        {.name = "Helios",
         .columns = {"job_id", "gpu_num", "submit_time", "duration", "vc"},
         .id = "job_id",
         .tenant = "vc",
         .read = read_helios},
        {.name = "Acme",
         .columns = {"job_id", "gpu_num", "submit_time", "duration"},
         .id = "job_id",
         .tenant = "user",
         .read = read_helios},
        {.name = "PAI",
         .columns = {"job_name", "inst_num", "start_time", "end_time", "plan_gpu", "gpu_type"},
         .id = "job_name",
         .tenant = "user",
         .rows_are_tasks = true,
         .read = read_pai},
        {.name = "Pollux",
         .columns = {"name", "time", "application", "num_replicas", "batch_size"},
         .id = "name",
         .tenant = "",
         .read = read_pollux},
        {.name = "Arena",
         .columns = {"job_id", "submission_time", "num_iteration", "model_name", "batch_size",
                     "num_gpu", "gpu_type"},
         .id = "job_id",
         .tenant = "",
         .read = read_arena},
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

void erg_log_read_table(struct erg_log *log, const struct erg_log_layout *layout,
                        const struct erg_csv *csv)
{
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        struct erg_log_job job = erg_log_job(erg_csv_line(csv, row));
        struct erg_error why;
        job.id = erg_arena_strdup(&log->texts, field(csv, row, layout->id));
        int result = *job.id ? layout->read(log, csv, row, &job, &why)
                             : erg_csv_fail(csv, row, &why,
                                            "column '%s': expected a name, got "
                                            "nothing",
                                            layout->id);
        if (result == 0) {
            erg_log_judge(&job);
        } else {
            job.fate = ERG_LOG_WRONG;
            erg_log_note_wrong(log, &why);
        }
        job.tenant = erg_arena_strdup(&log->texts, field(csv, row, layout->tenant));
        job.type = erg_arena_strdup(&log->texts, job.type);
        job.model = erg_arena_strdup(&log->texts, job.model);
        ERG_PUSH(log, items, job);
    }
    erg_log_settle(log, layout->rows_are_tasks);
}
