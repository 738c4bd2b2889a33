/* Appends reports to the folder of a job. */
#include "train/log/job_report.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "io/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t every_ns = 10000000000;

static void warn(struct erg_job_report *report, const char *path)
{
    if (!report->warned)
        erg_log(ERG_LOG_WARNING, "writing '%s': %s; the job's scheduler gets no reports", path,
                strerror(errno));
    report->warned = true;
}

long erg_job_incarnation_highest(const char *folder)
{
    long highest = 0;
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;) {
        const char *number = entry->d_name + strlen("incarnation.");
        if (strncmp(entry->d_name, "incarnation.", strlen("incarnation.")) == 0 &&
            strspn(number, "0123456789") == strlen(number) && strtol(number, NULL, 10) > highest)
            highest = strtol(number, NULL, 10);
    }
    if (listing)
        closedir(listing);
    return highest;
}

/* The run that creates the file gets the number. */
long erg_job_incarnation_take(const char *folder)
{
    for (;;) {
        struct erg_text path = {0};
        long incarnation = erg_job_incarnation_highest(folder) + 1;
        erg_text_printf(&path, "%s/incarnation.%ld", folder, incarnation);
        int file = open(path.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        int failure = errno;
        erg_text_release(&path);
        if (file >= 0) {
            close(file);
            return incarnation;
        }
        if (failure != EEXIST) {
            errno = failure;
            return 0;
        }
    }
}

/*
 * Uses the incarnation that was taken for this run, unless a later one has begun: then takes a new
 * one.
 */
static void take_incarnation(struct erg_job_report *report, const char *folder)
{
    const char *given = getenv("ERGON_INCARNATION");
    long number;
    if (given && erg_parse_long(given, &number) && number > 0) {
        report->incarnation = number;
        return;
    }
    report->incarnation = erg_job_incarnation_take(folder);
    if (report->incarnation == 0) {
        int failure = errno;
        report->incarnation = erg_job_incarnation_highest(folder) + 1;
        errno = failure;
        warn(report, folder);
    }
}

const char *const erg_job_state_names[] = {"loading", "training", "saving", "saved", "done", NULL};

static void append(struct erg_job_report *report)
{
    if (!report->path)
        return;
    report->reported_ns = erg_now_ns();
    json_t *line = erg_json_pack(
        "{s:i, s:I, s:s, s:o, s:f, s:f, s:o, s:f, s:f, s:f}", "v", 1, "incarnation",
        (json_int_t)report->incarnation, "state", erg_job_state_names[report->state], "iteration",
        /* A run that is still loading its checkpoint has no values yet. */
        report->state == ERG_JOB_LOADING && !report->iteration
            ? json_null()
            : json_integer((json_int_t)report->iteration),
        "iteration_s", report->iteration_s, "joules", report->joules, "checkpoint",
        report->checkpoint ? json_integer((json_int_t)report->checkpoint) : json_null(), "load_s",
        report->load_s, "save_s", report->save_s, "mono_s", 1e-9 * (double)report->reported_ns);
    if (report->plan)
        json_object_set_new(line, "plan", json_integer((json_int_t)report->plan));
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    struct erg_text whole = {0};
    erg_text_printf(&whole, "%s\n", text);
    int file = open(report->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    /* A single write, so that a reader never sees half a line. */
    if (file < 0 || write(file, whole.data, whole.count) != (ssize_t)whole.count)
        warn(report, report->path);
    if (file >= 0)
        close(file);
    erg_text_release(&whole);
    free(text);
    json_decref(line);
}

/* ---- reports between changes ---- */

static void *report_on(void *argument)
{
    struct erg_job_report *report = argument;
    pthread_mutex_lock(&report->lock);
    while (!report->closing) {
        int64_t due_ns = report->reported_ns + every_ns;
        if (erg_condition_wait(&report->changed, &report->lock, due_ns))
            continue;
        if (!report->closing && erg_now_ns() - report->reported_ns >= every_ns)
            append(report);
    }
    pthread_mutex_unlock(&report->lock);
    return NULL;
}

/* ---- reports ---- */

void erg_job_report_open(struct erg_job_report *report, const char *folder)
{
    *report = (struct erg_job_report){.iteration_s = NAN,
                                      .joules = NAN,
                                      .load_s = NAN,
                                      .save_s = NAN,
                                      .changed_ns = erg_now_ns()};
    if (!folder)
        return;
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/reports.jsonl", folder);
    report->path = path.data;
    report->folder = erg_xstrdup(folder);
    take_incarnation(report, folder);
    append(report);
    pthread_mutex_init(&report->lock, NULL);
    erg_condition_init(&report->changed);
    report->threaded = erg_thread_start(&report->thread, report_on, report) == 0;
}

static void lock(struct erg_job_report *report)
{
    if (report->folder)
        pthread_mutex_lock(&report->lock);
}

static void unlock(struct erg_job_report *report)
{
    if (report->folder)
        pthread_mutex_unlock(&report->lock);
}

void erg_job_report_resumed(struct erg_job_report *report, uint64_t step)
{
    lock(report);
    report->iteration = report->checkpoint = step;
    unlock(report);
}

int erg_job_report_check(const struct erg_job_report *report, struct erg_error *err)
{
    long highest = report->folder ? erg_job_incarnation_highest(report->folder) : 0;
    if (highest <= report->incarnation)
        return 0;
    return erg_fail(err, ERG_SUPERSEDED,
                    "incarnation %ld of the job in '%s' has begun, and this is incarnation %ld: it "
                    "writes no further checkpoints",
                    highest, report->folder, report->incarnation);
}

void erg_job_report_state(struct erg_job_report *report, enum erg_job_state state)
{
    int64_t now_ns = erg_now_ns();
    lock(report);
    double in_state_s = 1e-9 * (double)(now_ns - report->changed_ns);
    if (report->state == ERG_JOB_LOADING)
        report->load_s = in_state_s;
    if (report->state == ERG_JOB_SAVING && state == ERG_JOB_SAVED)
        report->save_s = in_state_s;
    report->state = state;
    report->changed_ns = now_ns;
    append(report);
    unlock(report);
}

void erg_job_report_step(struct erg_job_report *report, uint64_t step, double step_s, double joules)
{
    const double recent = 0.1; /* weight of the newest step in the mean */
    lock(report);
    report->iteration = step;
    report->joules = joules;
    report->iteration_s =
        isnan(report->iteration_s) ? step_s : (1 - recent) * report->iteration_s + recent * step_s;
    if (erg_now_ns() - report->reported_ns >= every_ns)
        append(report);
    unlock(report);
}

void erg_job_report_plan(struct erg_job_report *report, long number)
{
    lock(report);
    if (number != report->plan) {
        report->plan = number;
        append(report);
    }
    unlock(report);
}

void erg_job_report_checkpoint(struct erg_job_report *report, uint64_t step)
{
    lock(report);
    report->checkpoint = step;
    unlock(report);
}

void erg_job_report_close(struct erg_job_report *report)
{
    if (report->folder) {
        pthread_mutex_lock(&report->lock);
        report->closing = true;
        pthread_cond_signal(&report->changed);
        pthread_mutex_unlock(&report->lock);
        if (report->threaded)
            pthread_join(report->thread, NULL);
        pthread_cond_destroy(&report->changed);
        pthread_mutex_destroy(&report->lock);
    }
    free(report->folder);
    free(report->path);
    *report = (struct erg_job_report){0};
}
