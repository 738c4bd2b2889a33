/* Time, decisions and their results for a live controller. */
#include "cluster/schedule/scheduler_internal.h"
#include "cluster/schedule/throttle.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

void erg_scheduler_advance(struct erg_scheduler *scheduler, double now_s)
{
    assert(now_s >= scheduler->now_s);
    if (erg_course_next_tariff(scheduler) <= now_s)
        scheduler->course->events |= ERG_EVENT_TARIFF;
    scheduler->now_s = now_s;
}

bool erg_scheduler_urgent(const struct erg_scheduler *scheduler)
{
    return scheduler->course->events & scheduler->policy->events;
}

double erg_scheduler_due(const struct erg_scheduler *scheduler)
{
    double next_s = fmin(erg_course_next_wake(scheduler), erg_course_next_round(scheduler));
    return fmax(scheduler->now_s, fmin(next_s, erg_course_next_tariff(scheduler)));
}

/* ---- the cap ---- */

/* The power of running jobs at their points, in a list that the caller frees. */
static struct erg_power_draw *list_draws(const struct erg_scheduler *scheduler, bool capped)
{
    size_t count = 0;
    struct erg_power_draw *draws = erg_xcalloc((size_t)scheduler->running.count + 1, sizeof *draws);
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        int type = scheduler->speeds->shapes[job->shape].type;
        draws[count++] = (struct erg_power_draw){
            .speed = erg_scheduler_speed(scheduler, id, job->shape),
            .point = capped ? erg_scheduler_point(scheduler, id) : job->point,
            .gpus = erg_placement_gpus(&job->placement),
            .share = 1,
            .idle_w = scheduler->fleet->types[type].idle_power_w,
        };
    }
    return draws;
}

/* Power of all GPUs if no managed job had any. */
static double idle_power(const struct erg_scheduler *scheduler)
{
    const struct erg_occupancy *occupancy = scheduler->occupancy;
    double power_w = 0;
    for (int node = 0; node < scheduler->fleet->nodes; node++) {
        const struct erg_gpu_type *type = &scheduler->fleet->types[occupancy->type_of[node]];
        for (int gpu = 0; gpu < type->gpus_per_node && !occupancy->down[node]; gpu++)
            power_w += erg_occupancy_owner(occupancy, node, gpu) == ERG_OWNER_FOREIGN
                           ? type->points[0].power_w
                       : occupancy->off[node] ? type->off_power_w
                                              : type->idle_power_w;
    }
    return power_w;
}

double erg_scheduler_power(const struct erg_scheduler *scheduler)
{
    struct erg_power_draw *draws = list_draws(scheduler, true);
    double power_w =
        erg_throttled_power(draws, (size_t)scheduler->running.count, idle_power(scheduler), 1);
    free(draws);
    return power_w;
}

/* Computes the slowdown that the cap requires, and records the new pace of the jobs that it
 * affects. */
static void throttle(struct erg_scheduler *scheduler)
{
    enum { SLOWEST = 1000000 };
    double before = scheduler->throttle, cap_w = scheduler->live->power_cap_w;
    double idle_w = idle_power(scheduler);
    if (isinf(cap_w))
        return;
    struct erg_power_draw *draws = list_draws(scheduler, false);
    /* Foreign GPUs may draw their maximum: the jobs get the rest, and run at their slowest
     * points. */
    scheduler->throttle =
        cap_w > idle_w ? erg_throttle_for(draws, (size_t)scheduler->running.count, idle_w, cap_w)
                       : SLOWEST;
    free(draws);
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        const struct erg_speed *speed = erg_scheduler_speed(scheduler, id, job->shape);
        if (erg_speed_slowdown(speed, job->point, before) !=
            erg_speed_slowdown(speed, job->point, scheduler->throttle))
            erg_scheduler_pace(scheduler, id);
    }
}

int erg_scheduler_point(const struct erg_scheduler *scheduler, int id)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    const struct erg_speed *speed = erg_scheduler_speed(scheduler, id, job->shape);
    double least = erg_speed_slowdown(speed, job->point, scheduler->throttle);
    int point = job->point;
    while (point < speed->points_count - 1 && speed->points[point].slowdown < least)
        point++;
    return point;
}

/* ---- decisions ---- */

int erg_scheduler_decide(struct erg_scheduler *scheduler, const int **changed, size_t *count,
                         struct erg_error *err)
{
    const struct erg_change_log *changes = scheduler->changes;
    struct erg_course *course = scheduler->course;
    int result = erg_course_call(scheduler, err);
    course->changed.count = 0;
    for (size_t i = 0; i < changes->count && result == 0; i++) {
        enum erg_booking booking;
        result = erg_scheduler_book(scheduler, &changes->items[i], &booking, err);
        if (booking != ERG_BOOKED_NOTHING)
            ERG_PUSH(&course->changed, items, changes->items[i].job);
    }
    erg_scheduler_settle(scheduler);
    if (result != 0)
        return -1;
    throttle(scheduler);
    if (changed) {
        *changed = course->changed.items;
        *count = course->changed.count;
    }
    return 0;
}

/* Returns true if a shape matches a job's request. If no shape does, all on which the job can run
 * match. */
static bool is_asked(const struct erg_scheduler *scheduler, const struct erg_trace_job *request,
                     int shape)
{
    const struct erg_gpu_shape *gpus = &scheduler->speeds->shapes[shape];
    return erg_speed_feasible(erg_speed_at(scheduler->speeds, request->workload, shape)) &&
           erg_shape_gpus(gpus) == request->gpus &&
           (request->type < 0 || gpus->type == request->type);
}

static enum erg_wait_reason why_no_room(const struct erg_scheduler *scheduler,
                                        const struct erg_trace_job *request, bool as_asked)
{
    enum erg_wait_reason reason = ERG_WAIT_NOWHERE;
    struct erg_placement found = {0};
    for (int shape = 0; shape < scheduler->speeds->shapes_count; shape++) {
        const struct erg_gpu_shape *what = &scheduler->speeds->shapes[shape];
        int gpus = erg_shape_gpus(what);
        enum erg_wait_reason here = ERG_WAIT_GPUS;
        if (as_asked
                ? !is_asked(scheduler, request, shape)
                : !erg_speed_feasible(erg_speed_at(scheduler->speeds, request->workload, shape)))
            continue;
        if (erg_occupancy_find(scheduler->occupancy, what, ERG_LEAST_FREE, &found))
            here = ERG_WAIT_POLICY;
        else if (scheduler->occupancy->free_gpus[what->type] >= gpus)
            here = ERG_WAIT_SCATTERED;
        else if (erg_occupancy_up(scheduler->occupancy, what->type) < gpus)
            here = ERG_WAIT_NODES;
        /* The reason of the shape that is closest to fitting. */
        static const int nearness[] = {[ERG_WAIT_NODES] = 1,
                                       [ERG_WAIT_GPUS] = 2,
                                       [ERG_WAIT_SCATTERED] = 3,
                                       [ERG_WAIT_POLICY] = 4};
        if (reason == ERG_WAIT_NOWHERE || nearness[here] > nearness[reason])
            reason = here;
    }
    erg_placement_release(&found);
    return reason;
}

enum erg_wait_reason erg_scheduler_reason(const struct erg_scheduler *scheduler, int id)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    switch (job->state) {
    case ERG_JOB_FUTURE:
        return ERG_WAIT_ABSENT;
    case ERG_JOB_REJECTED:
        return ERG_WAIT_NOWHERE;
    case ERG_JOB_RUNNING:
    case ERG_JOB_ENDED:
        return ERG_WAIT_NONE;
    case ERG_JOB_WAITING:
        break;
    }
    if (!job->told)
        return ERG_WAIT_DECISION;
    enum erg_wait_reason reason = why_no_room(scheduler, job->request, true);
    return reason == ERG_WAIT_NOWHERE ? why_no_room(scheduler, job->request, false) : reason;
}

const char *erg_wait_reason_text(enum erg_wait_reason reason)
{
    static const char *const texts[] = {
        [ERG_WAIT_NONE] = "",
        [ERG_WAIT_ABSENT] = "is held back",
        [ERG_WAIT_DECISION] = "waits for the next decision",
        [ERG_WAIT_NOWHERE] = "can run on no GPUs of this cluster",
        [ERG_WAIT_NODES] = "waits for nodes that are down, drain or are used by others",
        [ERG_WAIT_GPUS] = "waits for GPUs: too few are free",
        [ERG_WAIT_SCATTERED] = "waits for GPUs: those that are free do not lie together",
        [ERG_WAIT_POLICY] = "waits although GPUs are free: the policy keeps them",
    };
    return texts[reason];
}
