/* Updates managed jobs from a snapshot and reports: their phases and failures. */
#include "cluster/live/reconcile_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILURES_MOST = 3 };

const char *erg_live_phase_name(enum erg_live_phase phase)
{
    static const char *const names[] = {
        [ERG_PHASE_NEW] = "new",           [ERG_PHASE_WAITING] = "waiting",
        [ERG_PHASE_STARTING] = "starting", [ERG_PHASE_RETURNED] = "returned",
        [ERG_PHASE_RUNNING] = "running",   [ERG_PHASE_STOPPING] = "stopping",
        [ERG_PHASE_ENDING] = "ending",     [ERG_PHASE_ENDED] = "ended",
        [ERG_PHASE_FAILED] = "failed",     [ERG_PHASE_CANCELLED] = "cancelled",
        [ERG_PHASE_GONE] = "gone",         [ERG_PHASE_UNKNOWN] = "unknown",
    };
    return names[phase];
}

bool erg_live_phase_holds_gpus(enum erg_live_phase phase)
{
    return phase == ERG_PHASE_STARTING || phase == ERG_PHASE_RUNNING ||
           phase == ERG_PHASE_STOPPING || phase == ERG_PHASE_ENDING || phase == ERG_PHASE_UNKNOWN;
}

void erg_managed_job_init(struct erg_managed_job *job, uint32_t id, const char *token)
{
    *job = (struct erg_managed_job){
        .id = id,
        .told_point = -1,
        .phase = ERG_PHASE_NEW,
        .since_s = NAN,
        .exit_status = -1,
        .report_s = NAN,
        .released_s = NAN,
        .stopped_s = NAN,
        .killed_s = NAN,
        .retry_s = -INFINITY,
        .failed_checkpoint = -1,
        .not_before_s = -INFINITY,
    };
    snprintf(job->token, sizeof job->token, "%s", token);
    for (int i = 0; i < ERG_AVOIDED_MOST; i++)
        job->avoided[i].node = -1;
}

void erg_managed_job_release(struct erg_managed_job *job)
{
    erg_placement_release(&job->intended);
    erg_placement_release(&job->actual);
    erg_placement_release(&job->asked);
}

bool erg_reconcile_avoids(const struct erg_managed_job *job, int node, double now_s)
{
    for (int i = 0; i < ERG_AVOIDED_MOST; i++)
        if (job->avoided[i].node == node && now_s < job->avoided[i].until_s)
            return true;
    return false;
}

void erg_reconcile_limits_init(struct erg_reconcile_limits *limits)
{
    *limits = (struct erg_reconcile_limits){
        .start_deadline_s = 60,
        .save_least_s = 60,
        .kill_again_s = 300,
        .silence_s = 600,
        .retry_s = 30,
        .avoid_s = 120,
        .attention_s = 600,
        .cap_w = INFINITY,
    };
}

/* Only the failure of a job on a single node identifies the node. */
static void avoid_node(struct erg_managed_job *job, const struct erg_placement *placement,
                       const struct erg_reconcile_limits *limits, double now_s)
{
    if (placement->count != 1)
        return;
    int oldest = 0;
    for (int i = 0; i < ERG_AVOIDED_MOST; i++) {
        if (job->avoided[i].node == -1 || job->avoided[i].node == placement->slices[0].node) {
            oldest = i;
            break;
        }
        if (job->avoided[i].until_s < job->avoided[oldest].until_s)
            oldest = i;
    }
    job->avoided[oldest].node = placement->slices[0].node;
    job->avoided[oldest].until_s = now_s + limits->avoid_s;
}

void erg_managed_job_failed_start(struct erg_managed_job *job, const char *why, double wait_s,
                                  const struct erg_reconcile_limits *limits, double now_s)
{
    job->failed_starts++;
    if (job->failed_starts < FAILURES_MOST) {
        job->not_before_s = fmax(job->not_before_s, now_s + wait_s);
        return;
    }
    job->not_before_s = now_s + limits->attention_s;
    job->needs_attention = true;
    snprintf(job->reason, sizeof job->reason, "it was placed %d times and did not start: %s",
             job->failed_starts, why);
}

static void count_failure(struct erg_managed_job *job, const struct erg_reconcile_limits *limits,
                          double now_s)
{
    if (job->checkpoint > job->failed_checkpoint)
        job->failures = 0;
    job->failures++;
    job->failed_checkpoint = job->checkpoint;
    job->not_before_s = now_s + limits->retry_s * (double)(1 << (job->failures - 1));
    avoid_node(job, job->actual.count > 0 ? &job->actual : &job->asked, limits, now_s);
    if (job->failures < FAILURES_MOST)
        return;
    job->given_up = job->needs_attention = true;
    int used = snprintf(job->reason, sizeof job->reason,
                        "it failed %d times without a new checkpoint", job->failures);
    if (job->exit_status >= 0)
        snprintf(job->reason + used, sizeof job->reason - (size_t)used,
                 "; its last exit status was %d", job->exit_status);
}

void erg_reconcile_found_plan(struct erg_managed_job *job, long number, int point, double allows_w,
                              double most_w)
{
    if (number > 0 && number == job->plan && job->told_point >= 0)
        return;
    job->before_w = fmax(fmax(job->told_w, job->before_w), most_w);
    job->told_w = number > 0 ? allows_w : 0;
    job->told_point = number > 0 && number >= job->plan ? point : -1;
    if (number > job->plan)
        job->plan = number;
}

void erg_reconcile_report(struct erg_managed_job *job, const struct erg_report *report,
                          double now_s)
{
    /* Plan numbers are unique: if one incarnation followed a plan, so do later ones. */
    if (job->told_point >= 0 && job->plan > 0 && report->plan == job->plan)
        job->before_w = 0;
    if (report->incarnation < job->incarnation)
        return;
    job->incarnation = report->incarnation;
    job->report = report->state;
    job->report_s = now_s;
    if (report->checkpoint > job->checkpoint)
        job->checkpoint = report->checkpoint;
    if (report->save_s > job->longest_save_s)
        job->longest_save_s = report->save_s;
    if (report->incarnation <= job->incarnation_before && !(job->in_doubt && job->running))
        return;
    job->reported = true;
    job->in_doubt = false;
    job->failed_starts = 0;
    if (!job->given_up)
        job->needs_attention = false;
}

bool erg_placement_alike(const struct erg_placement *a, const struct erg_placement *b)
{
    if (a->count != b->count)
        return false;
    for (int i = 0; i < a->count; i++) {
        int at = 0;
        while (at < b->count && b->slices[at].node != a->slices[i].node)
            at++;
        if (at == b->count ||
            __builtin_popcountll(a->slices[i].gpus) != __builtin_popcountll(b->slices[at].gpus))
            return false;
    }
    return true;
}

static bool asked_to_leave(const struct erg_managed_job *job)
{
    return !isnan(job->stopped_s) || !isnan(job->killed_s);
}

/* Clears the requests to an ended incarnation. */
static void forget_incarnation(struct erg_managed_job *job, bool in_doubt)
{
    job->stopped_s = job->killed_s = NAN;
    job->kill_unsure = false;
    job->reported = false;
    job->in_doubt = in_doubt;
    job->incarnation_before = job->incarnation;
}

/* Returns true if a job that ran before and runs now was restarted in between. */
static bool began_anew(const struct erg_managed_job *job, const struct erg_live_job *seen)
{
    return seen->restarts != job->restarts ||
           (job->started_unix_s > 0 && seen->started_unix_s > 0 &&
            job->started_unix_s != seen->started_unix_s) ||
           (job->actual.count > 0 && seen->placement.count > 0 &&
            !erg_placement_alike(&job->actual, &seen->placement));
}

static void see_running(struct erg_managed_job *job, const struct erg_live_job *seen, double now_s)
{
    bool held_before = job->phase == ERG_PHASE_WAITING || job->phase == ERG_PHASE_RETURNED ||
                       job->phase == ERG_PHASE_STARTING || job->phase == ERG_PHASE_UNKNOWN;
    if (job->running ? began_anew(job, seen) : !held_before)
        forget_incarnation(job, true);
    job->started_unix_s = seen->started_unix_s;
    if (job->kill_unsure && seen->state == ERG_LIVE_RUNNING && now_s >= job->retry_s) {
        job->killed_s = NAN; /* it was not killed */
        job->kill_unsure = false;
    }
    job->running = true;
    job->released_s = NAN;
    job->unsure = false;
}

static enum erg_live_phase phase_of_running(const struct erg_managed_job *job)
{
    if (job->reported && job->report == ERG_JOB_DONE)
        return ERG_PHASE_ENDING;
    if (asked_to_leave(job))
        return ERG_PHASE_STOPPING;
    return job->reported ? ERG_PHASE_RUNNING : ERG_PHASE_STARTING;
}

static enum erg_live_phase see_pending(struct erg_managed_job *job, const struct erg_live_job *seen)
{
    if (!isnan(job->released_s) && !job->running && seen->restarts == job->restarts) {
        job->unsure = false;
        if (job->reported) /* it has run and is to start again; or it is just starting */
            forget_incarnation(job, true);
        return ERG_PHASE_STARTING;
    }
    if (job->phase != ERG_PHASE_RETURNED || seen->restarts != job->restarts)
        forget_incarnation(job, true);
    job->running = false;
    job->released_s = NAN;
    job->unsure = false;
    return ERG_PHASE_RETURNED;
}

static enum erg_live_phase see_held(struct erg_managed_job *job, const struct erg_live_job *seen,
                                    const struct erg_reconcile_limits *limits, double now_s)
{
    bool came_back = !job->running && !isnan(job->released_s) && !job->unsure;
    bool left = job->running && !asked_to_leave(job) && !job->in_doubt;
    double wait_s = limits->retry_s * (double)(1 << (job->failed_starts % FAILURES_MOST));
    if (came_back || (left && !job->reported)) {
        avoid_node(job, job->actual.count > 0 ? &job->actual : &job->asked, limits, now_s);
        erg_managed_job_failed_start(job, seen->reason ? seen->reason : "it was held again", wait_s,
                                     limits, now_s);
    } else if (left && !(job->checkpoint > job->began_checkpoint)) {
        count_failure(job, limits, now_s);
    }
    forget_incarnation(job, false);
    job->running = false;
    job->began_checkpoint = job->checkpoint;
    job->held_by_administrator = seen->held_by_administrator || job->holds;
    job->holds = job->holds && !seen->held_by_administrator; /* the manager's reason is up to date
                                                              * from here */
    if (!job->unsure)
        job->released_s = NAN;
    return ERG_PHASE_WAITING;
}

static bool is_down(const struct erg_live_snapshot *snapshot, const struct erg_placement *placement)
{
    for (int i = 0; i < placement->count; i++)
        if (snapshot->nodes[placement->slices[i].node].state == ERG_NODE_DOWN)
            return true;
    return false;
}

static void see_failed(struct erg_managed_job *job, const struct erg_live_job *seen,
                       const struct erg_live_snapshot *snapshot,
                       const struct erg_reconcile_limits *limits, double now_s)
{
    bool known = job->phase == ERG_PHASE_FAILED && seen->restarts == job->restarts;
    const struct erg_placement *had = job->actual.count > 0 ? &job->actual : &job->asked;
    if (!known && !is_down(snapshot, had))
        count_failure(job, limits, now_s);
    if (!known)
        forget_incarnation(job, false);
    job->running = false;
    job->released_s = NAN;
    job->unsure = false;
}

/* An end that no longer depends on the resource manager's memory. */
static void see_end(struct erg_managed_job *job)
{
    job->running = false;
    job->released_s = job->stopped_s = job->killed_s = NAN;
    job->unsure = false;
}

static enum erg_live_phase see_nothing(struct erg_managed_job *job)
{
    enum erg_live_phase phase = job->phase;
    see_end(job);
    if (phase == ERG_PHASE_ENDED || phase == ERG_PHASE_CANCELLED ||
        (phase == ERG_PHASE_FAILED && job->given_up))
        return phase;
    if (job->incarnation > 0 && job->report == ERG_JOB_DONE)
        return ERG_PHASE_ENDED;
    if (phase != ERG_PHASE_GONE) {
        job->needs_attention = true;
        snprintf(job->reason, sizeof job->reason, "the resource manager no longer lists job %lu",
                 (unsigned long)job->id);
    }
    return ERG_PHASE_GONE;
}

static enum erg_live_phase see_completed(struct erg_managed_job *job)
{
    if (job->phase != ERG_PHASE_ENDED && !(job->incarnation > 0 && job->report == ERG_JOB_DONE)) {
        job->needs_attention = true;
        snprintf(job->reason, sizeof job->reason,
                 "it exited with status 0 without reporting that it was done");
    }
    see_end(job);
    return ERG_PHASE_ENDED;
}

static void see_job(struct erg_managed_job *job, const struct erg_live_job *seen,
                    const struct erg_live_snapshot *snapshot,
                    const struct erg_reconcile_limits *limits, double now_s)
{
    enum erg_live_phase phase = ERG_PHASE_UNKNOWN;
    if (seen)
        job->exit_status = seen->exit_status;
    if (!seen) {
        phase = see_nothing(job);
    } else if (seen->state == ERG_LIVE_HELD) {
        phase = see_held(job, seen, limits, now_s);
    } else if (seen->state == ERG_LIVE_PENDING) {
        phase = see_pending(job, seen);
    } else if (seen->state == ERG_LIVE_RUNNING) {
        see_running(job, seen, now_s);
        phase = phase_of_running(job);
    } else if (seen->state == ERG_LIVE_COMPLETING) {
        see_running(job, seen, now_s);
        phase = asked_to_leave(job) ? ERG_PHASE_STOPPING : ERG_PHASE_ENDING;
    } else if (seen->state == ERG_LIVE_COMPLETED) {
        phase = see_completed(job);
    } else if (seen->state == ERG_LIVE_FAILED) {
        see_failed(job, seen, snapshot, limits, now_s);
        phase = ERG_PHASE_FAILED;
    } else if (seen->state == ERG_LIVE_CANCELLED) {
        see_end(job);
        phase = ERG_PHASE_CANCELLED;
    }
    bool has = seen && (seen->state == ERG_LIVE_RUNNING || seen->state == ERG_LIVE_COMPLETING ||
                        seen->state == ERG_LIVE_UNKNOWN);
    if (has)
        erg_placement_assign(&job->actual, &seen->placement);
    else
        job->actual.count = 0;
    if (seen)
        job->restarts = seen->restarts;
    job->holds = job->holds && phase == ERG_PHASE_WAITING;
    if (phase != job->phase)
        job->since_s = now_s;
    job->phase = phase;
    job->completing = seen && seen->state == ERG_LIVE_COMPLETING;
}

static int compare_ids(const void *a, const void *b)
{
    const struct erg_live_job *x = *(const struct erg_live_job *const *)a,
                              *y = *(const struct erg_live_job *const *)b;
    return (x->id > y->id) - (x->id < y->id);
}

static int compare_id(const void *key, const void *item)
{
    uint32_t id = *(const uint32_t *)key, other = (*(const struct erg_live_job *const *)item)->id;
    return (id > other) - (id < other);
}

void erg_reconcile_see(struct erg_managed_job *jobs, size_t count,
                       const struct erg_live_snapshot *snapshot,
                       const struct erg_reconcile_limits *limits, double now_s)
{
    size_t known = snapshot->jobs_count;
    const struct erg_live_job **by_id = erg_xcalloc(known + 1, sizeof *by_id);
    for (size_t i = 0; i < known; i++)
        by_id[i] = &snapshot->jobs[i];
    qsort(by_id, known, sizeof *by_id, compare_ids);
    for (size_t i = 0; i < count; i++) {
        const struct erg_live_job **found =
            bsearch(&jobs[i].id, by_id, known, sizeof *by_id, compare_id);
        /* If a record is ambiguous, only its id is known. */
        bool same = found && (strcmp((*found)->token, jobs[i].token) == 0 ||
                              (!(*found)->token[0] && (*found)->state == ERG_LIVE_UNKNOWN));
        see_job(&jobs[i], same ? *found : NULL, snapshot, limits, now_s);
    }
    free(by_id);
}
