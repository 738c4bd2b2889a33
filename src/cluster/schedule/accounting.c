/* Accounting of work: fair, with exact progress between events; and live, from jobs' reports. */
#include "cluster/schedule/scheduler_internal.h"

#include <math.h>

/* ---- common functions; only live work is reported ---- */

static double submission(double asked_s, double previous_s)
{
    (void)previous_s;
    return asked_s;
}

static void submit(struct erg_cluster_job *job, struct erg_work *work)
{
    *work = (struct erg_work){.iterations = job->iterations,
                              .since_s = job->submitted_s,
                              .remaining = job->iterations,
                              .resume_s = INFINITY,
                              .iteration_s = INFINITY,
                              .saved = job->iterations};
}

double erg_fleet_restart_cost(const struct erg_fleet *fleet, bool first, int gpus)
{
    const struct erg_reconfiguration *costs = &fleet->reconfiguration;
    double fixed_s = first && costs->has_start ? costs->start_s : costs->fixed_s;
    return fmin(fixed_s + gpus * costs->per_gpu_s, costs->most_s);
}

static bool is_first(const struct erg_scheduler *scheduler, int job)
{
    return job >= 0 && isnan(scheduler->jobs[job].started_s);
}

static double cost(const struct erg_scheduler *scheduler, int job, int type, int gpus)
{
    (void)type;
    return erg_fleet_restart_cost(scheduler->fleet, is_first(scheduler, job), gpus);
}

static double end(const struct erg_work *work)
{
    if (isinf(work->resume_s))
        return INFINITY;
    return (work->reported ? work->reported_s : work->resume_s) +
           work->remaining * work->iteration_s;
}

static double share(const struct erg_work *work, double now_s, double *until_s)
{
    bool runs = work->reported || now_s >= work->resume_s;
    *until_s = runs ? INFINITY : work->resume_s;
    return runs;
}

/* ---- fair ---- */

static double remaining(const struct erg_work *work, double now_s)
{
    if (now_s <= work->resume_s)
        return work->remaining;
    return fmax(0, work->remaining - (now_s - work->resume_s) / work->iteration_s);
}

static void change(struct erg_work *work, double now_s, double iteration_s, double cost_s)
{
    work->remaining = remaining(work, now_s);
    work->since_s = now_s;
    work->iteration_s = iteration_s;
    if (isinf(iteration_s))
        work->resume_s = INFINITY;
    else if (cost_s > 0 || isinf(work->resume_s))
        work->resume_s = now_s + cost_s;
    else
        work->resume_s = fmax(now_s, work->resume_s);
    work->saved = work->remaining;
    work->saved_s = work->resume_s;
}

/* Checkpoints are taken at equal intervals, starting when the job resumes. */
static void find_checkpoint(struct erg_work *work, const struct erg_fleet *fleet, double now_s)
{
    double interval_s = fleet->checkpoint_interval_s;
    if (isinf(interval_s) || now_s < work->saved_s + interval_s)
        return;
    work->saved_s += floor((now_s - work->saved_s) / interval_s) * interval_s;
    work->saved = remaining(work, work->saved_s);
}

static void pace(struct erg_work *work, const struct erg_fleet *fleet, double now_s,
                 double iteration_s)
{
    find_checkpoint(work, fleet, now_s);
    work->remaining = remaining(work, now_s);
    work->since_s = now_s;
    work->iteration_s = iteration_s;
    work->resume_s = fmax(now_s, work->resume_s);
}

static void lose(struct erg_work *work, const struct erg_fleet *fleet, double now_s)
{
    find_checkpoint(work, fleet, now_s);
    work->remaining = work->saved;
    work->resume_s = INFINITY;
}

const struct erg_accounting erg_accounting_fair = {
    .submission = submission,
    .submit = submit,
    .remaining = remaining,
    .cost = cost,
    .change = change,
    .pace = pace,
    .lose = lose,
    .end = end,
    .share = share,
};

/* ---- live ---- */

static double reported_remaining(const struct erg_work *work, double now_s)
{
    double done = 0;
    if (work->reported)
        done = fmax(0, fmin(now_s, work->due_s) - work->reported_s) / work->iteration_s;
    return fmax(1, work->remaining - done);
}

static double mean(const struct erg_time_sum *times)
{
    return times->sum_s / (double)times->count;
}

static double measured_cost(const struct erg_scheduler *scheduler, int job, int type, int gpus)
{
    const struct erg_restart_times *times = scheduler->restarts;
    const bool first = is_first(scheduler, job);
    if (!first && job >= 0 && times->of_jobs[job].count > 0)
        return mean(&times->of_jobs[job]);
    const struct erg_time_sum *of_types = first ? times->starts : times->again;
    if (type >= 0 && of_types[type].count > 0)
        return mean(&of_types[type]);
    return cost(scheduler, job, type, gpus);
}

/* A job saves its work before it releases its GPUs. */
static void reported_change(struct erg_work *work, double now_s, double iteration_s, double cost_s)
{
    work->remaining = work->saved = reported_remaining(work, now_s);
    work->reported = false;
    work->since_s = now_s;
    work->iteration_s = iteration_s;
    work->resume_s = isinf(iteration_s) ? INFINITY : now_s + cost_s;
    work->saved_s = now_s;
}

static void reported_pace(struct erg_work *work, const struct erg_fleet *fleet, double now_s,
                          double iteration_s)
{
    (void)fleet;
    work->remaining = reported_remaining(work, now_s);
    if (work->reported)
        work->reported_s = fmin(now_s, work->due_s);
    work->since_s = now_s;
    work->iteration_s = iteration_s;
}

static void lose_unsaved(struct erg_work *work, const struct erg_fleet *fleet, double now_s)
{
    (void)fleet;
    (void)now_s;
    work->remaining = work->saved;
    work->reported = false;
    work->resume_s = INFINITY;
}

const struct erg_accounting erg_accounting_live = {
    .submission = submission,
    .submit = submit,
    .remaining = reported_remaining,
    .cost = measured_cost,
    .change = reported_change,
    .pace = reported_pace,
    .lose = lose_unsaved,
    .end = end,
    .share = share,
};
