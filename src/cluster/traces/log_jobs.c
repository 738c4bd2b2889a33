/* The jobs of a log: their fates, and the ones to keep. */
#include "cluster/traces/log_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct erg_log_job erg_log_job(size_t line)
{
    return (struct erg_log_job){.id = "",
                                .tenant = "",
                                .type = "",
                                .model = "",
                                .size = "",
                                .duration_s = NAN,
                                .iterations = NAN,
                                .deadline_s = INFINITY,
                                .fate = ERG_LOG_RAN,
                                .line = line};
}

void erg_log_note_wrong(struct erg_log *log, const struct erg_error *why)
{
    if (!*log->first_wrong.message)
        log->first_wrong = *why;
}

void erg_log_judge(struct erg_log_job *job)
{
    if (job->gpus <= 0)
        job->fate = ERG_LOG_WITHOUT_GPUS;
    else if (job->fate == ERG_LOG_RAN && (job->duration_s <= 0 || job->iterations <= 0))
        job->fate = ERG_LOG_NEVER_RAN;
}

static int compare_lines(const void *a, const void *b)
{
    const struct erg_log_job *x = a, *y = b;
    return (x->line > y->line) - (x->line < y->line);
}

static int compare_names(const void *a, const void *b)
{
    const struct erg_log_job *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    return order ? order : compare_lines(a, b);
}

/* Another task of a job: all their GPUs, from the first start to the last end. */
static void add_task(struct erg_log_job *job, const struct erg_log_job *task)
{
    bool has_wrong_part = job->has_wrong_part || task->has_wrong_part ||
                          job->fate == ERG_LOG_WRONG || task->fate == ERG_LOG_WRONG;
    if (job->fate == ERG_LOG_RAN && task->fate == ERG_LOG_RAN) {
        double end_s = fmax(job->submit_s + job->duration_s, task->submit_s + task->duration_s);
        job->submit_s = fmin(job->submit_s, task->submit_s);
        job->duration_s = end_s - job->submit_s;
        job->gpus += task->gpus;
    } else if (task->fate < job->fate) {
        *job = *task;
    }
    job->has_wrong_part = has_wrong_part;
}

/* A second job of a name. */
static void refuse_double(struct erg_log *log, const struct erg_log_job *first,
                          struct erg_log_job *second)
{
    struct erg_error why;
    if (first->fate != ERG_LOG_RAN || second->fate != ERG_LOG_RAN)
        return;
    erg_fail(&why, ERG_FAILED, "%s:%zu: the job '%s' is in line %zu already", log->path,
             second->line, second->id, first->line);
    erg_log_note_wrong(log, &why);
    second->fate = ERG_LOG_WRONG;
}

/* Joins adjacent rows with one name; rows without a name stay separate. */
static void join_rows(struct erg_log *log, bool rows_are_tasks)
{
    size_t kept = 0;
    for (size_t i = 0; i < log->count; i++) {
        struct erg_log_job *row = &log->items[i], *job = kept ? &log->items[kept - 1] : NULL;
        bool same = job && *row->id && !strcmp(job->id, row->id);
        if (same && rows_are_tasks) {
            add_task(job, row);
            continue;
        }
        if (same)
            refuse_double(log, job, row);
        if (same && row->fate == ERG_LOG_WRONG) { /* the next is compared with the first, too */
            log->fates[row->fate]++;
            continue;
        }
        log->items[kept++] = *row;
    }
    log->count = kept;
}

void erg_log_settle(struct erg_log *log, bool rows_are_tasks)
{
    size_t kept = 0;
    if (log->count == 0)
        return;
    qsort(log->items, log->count, sizeof *log->items, compare_names);
    join_rows(log, rows_are_tasks);
    qsort(log->items, log->count, sizeof *log->items, compare_lines);
    for (size_t i = 0; i < log->count; i++) {
        const struct erg_log_job *job = &log->items[i];
        log->fates[job->fate]++;
        if (job->fate != ERG_LOG_RAN)
            continue;
        log->with_wrong_part += job->has_wrong_part;
        log->items[kept++] = *job;
    }
    log->count = kept;
}
