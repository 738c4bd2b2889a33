/* Live accounting: what jobs report, and what their restarts took. */
#include "cluster/schedule/scheduler_internal.h"

#include <math.h>

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

static double remaining(const struct erg_work *work, double now_s)
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

static double cost(const struct erg_scheduler *scheduler, int job, int type, int gpus)
{
    const struct erg_restart_times *times = scheduler->restarts;
    bool first = job >= 0 && isnan(scheduler->jobs[job].started_s);
    if (!first && job >= 0 && times->of_jobs[job].count > 0)
        return mean(&times->of_jobs[job]);
    const struct erg_time_sum *of_types = first ? times->starts : times->again;
    if (type >= 0 && of_types[type].count > 0)
        return mean(&of_types[type]);
    return erg_fleet_restart_cost(scheduler->fleet, first, gpus);
}

/* A job that gives its GPUs up saves its work before. */
static void change(struct erg_work *work, double now_s, double iteration_s, double cost_s)
{
    work->remaining = work->saved = remaining(work, now_s);
    work->reported = false;
    work->since_s = now_s;
    work->iteration_s = iteration_s;
    work->resume_s = isinf(iteration_s) ? INFINITY : now_s + cost_s;
    work->saved_s = now_s;
}

static void pace(struct erg_work *work, const struct erg_fleet *fleet, double now_s,
                 double iteration_s)
{
    (void)fleet;
    work->remaining = remaining(work, now_s);
    if (work->reported)
        work->reported_s = fmin(now_s, work->due_s);
    work->since_s = now_s;
    work->iteration_s = iteration_s;
}

static void lose(struct erg_work *work, const struct erg_fleet *fleet, double now_s)
{
    (void)fleet;
    (void)now_s;
    work->remaining = work->saved;
    work->reported = false;
    work->resume_s = INFINITY;
}

/* As far as is known. */
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

const struct erg_accounting erg_accounting_live = {
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
