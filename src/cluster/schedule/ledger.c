/* Records a policy's decisions in the accounts of the changed jobs. */
#include "cluster/schedule/scheduler_internal.h"

#include <assert.h>
#include <math.h>

/* Closes the present accounts: adds the job's use until now. */
static void add_used(struct erg_scheduler *scheduler, int id, const struct erg_placement *had)
{
    scheduler->changes->used_s[id] +=
        erg_placement_gpus(had) * (scheduler->now_s - scheduler->works[id].since_s);
}

/* The time of an iteration at the job's operating point, or as slow as the power cap requires. */
static double iteration_s(const struct erg_scheduler *scheduler, const struct erg_cluster_job *job)
{
    const struct erg_speed *speed =
        erg_speed_at(scheduler->speeds, job->request->workload, job->shape);
    if (scheduler->live) /* only the simulator has clocks between points */
        return speed->iteration_s * speed->points[erg_scheduler_point(scheduler, job->id)].slowdown;
    return speed->iteration_s * erg_speed_slowdown(speed, job->point, scheduler->throttle);
}

void erg_scheduler_pace(struct erg_scheduler *scheduler, int id)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    add_used(scheduler, id, &job->placement);
    scheduler->accounting->pace(&scheduler->works[id], scheduler->fleet, scheduler->now_s,
                                iteration_s(scheduler, job));
}

/* Returns true if a job can run where the policy placed it. */
static int check_placed(const struct erg_scheduler *scheduler, const struct erg_cluster_job *job,
                        struct erg_error *err)
{
    const struct erg_speeds *speeds = scheduler->speeds;
    const struct erg_speed *speed = erg_speed_at(speeds, job->request->workload, job->shape);
    if (erg_speed_feasible(speed) && job->point >= 0 && job->point < speed->points_count)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "policy %s: at %g s job '%s' got %d x %d GPUs of type %s at operating "
                    "point %d, where it cannot run",
                    scheduler->policy->name, scheduler->now_s, job->request->id,
                    speeds->shapes[job->shape].nodes, speeds->shapes[job->shape].gpus_per_node,
                    scheduler->fleet->types[speeds->shapes[job->shape].type].name, job->point);
}

/* A job has other GPUs than before, or none. */
static void book_move(struct erg_scheduler *scheduler, const struct change *before)
{
    struct erg_cluster_job *job = &scheduler->jobs[before->job];
    const struct erg_accounting *accounting = scheduler->accounting;
    bool runs = job->placement.count > 0;
    bool restarts = runs && !(accounting->shrinks_in_place &&
                              erg_placement_within(&job->placement, &before->placement));
    double cost_s = 0;
    if (restarts)
        cost_s = erg_scheduler_cost(scheduler, job->id, scheduler->speeds->shapes[job->shape].type,
                                    erg_placement_gpus(&job->placement)) +
                 erg_scheduler_wait(scheduler, &job->placement);
    add_used(scheduler, job->id, &before->placement);
    accounting->change(&scheduler->works[job->id], scheduler->now_s,
                       runs ? iteration_s(scheduler, job) : INFINITY, cost_s);
    if (restarts) {
        job->reconfigurations++;
        if (isnan(job->started_s))
            job->started_s = scheduler->now_s;
    }
}

bool erg_change_is_real(const struct erg_cluster_job *job, const struct change *before)
{
    return before->point != job->point || !erg_placement_equal(&before->placement, &job->placement);
}

int erg_scheduler_book(struct erg_scheduler *scheduler, const struct change *before,
                       enum erg_booking *booking, struct erg_error *err)
{
    const struct erg_cluster_job *job = &scheduler->jobs[before->job];
    assert((job->state == ERG_JOB_RUNNING) == (job->placement.count > 0));
    *booking = ERG_BOOKED_NOTHING;
    if (job->state == ERG_JOB_REJECTED) {
        *booking = ERG_BOOKED_REJECTION;
        return 0;
    }
    if (!erg_change_is_real(job, before))
        return 0;
    if (job->placement.count > 0 && check_placed(scheduler, job, err) != 0)
        return -1;
    bool stays = erg_placement_equal(&before->placement, &job->placement);
    *booking = stays ? ERG_BOOKED_PACE : ERG_BOOKED_MOVE;
    if (stays)
        erg_scheduler_pace(scheduler, job->id);
    else
        book_move(scheduler, before);
    return 0;
}
