/* Arrivals and ends of jobs, changes of nodes and foreign GPUs, reported by a scheduler's
 * driver. */
#include "cluster/schedule/scheduler_internal.h"

#include "base/memory.h"
#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct erg_scheduler *erg_scheduler_new_live(const struct erg_live_setup *setup)
{
    struct erg_live_tables *live = erg_xcalloc(1, sizeof *live);
    assert(setup->speeds->workloads == 0);
    assert(setup->power_cap_w > erg_fleet_idle_power(setup->fleet));
    live->speeds = setup->speeds;
    live->source = setup->source;
    live->power_cap_w = setup->power_cap_w;
    struct erg_scheduler *scheduler = erg_scheduler_new(setup->fleet, &live->trace, setup->speeds,
                                                        setup->policy, &erg_accounting_live);
    scheduler->live = live;
    scheduler->tariff = setup->tariff;
    scheduler->power_cap_w = setup->power_cap_w;
    return scheduler;
}

/* ---- jobs ---- */

static int check_number(const struct erg_new_job *what, const char *name, double value,
                        double least, double most, struct erg_error *err)
{
    if (value >= least && value <= most)
        return 0;
    return erg_fail(err, ERG_FAILED, "job '%s': %s: expected a number from %g to %g, got %g",
                    what->name, name, least, most, value);
}

static int check_job(const struct erg_scheduler *scheduler, const struct erg_new_job *what,
                     struct erg_error *err)
{
    if (erg_scheduler_find_job(scheduler, what->name) >= 0)
        return erg_fail(err, ERG_FAILED, "job '%s': this name is taken", what->name);
    if (check_number(what, "iterations", what->iterations, 1, 1e12, err) != 0 ||
        check_number(what, "batch", (double)what->batch, 1, 1e9, err) != 0 ||
        check_number(what, "gpus", what->gpus, 1, 1e6, err) != 0 ||
        check_number(what, "type", what->type, -1, scheduler->fleet->types_count - 1.0, err) != 0 ||
        check_number(what, "submitted_s", what->submitted_s, -1e12, scheduler->now_s, err) != 0 ||
        check_number(what, "deadline_s", what->deadline_s, what->submitted_s, INFINITY, err) != 0)
        return -1;
    return 0;
}

/* The number of the job's workload. A new one gets a row of speeds. */
static int add_workload(struct erg_scheduler *scheduler, const struct erg_new_job *what,
                        int *workload, struct erg_error *err)
{
    struct erg_live_tables *live = scheduler->live;
    struct erg_job_trace *trace = &live->trace;
    struct erg_text key = {0};
    erg_text_printf(&key, "%s\n%s\n%ld", what->family, what->size, what->batch);
    size_t index = erg_name_find(&live->workloads, key.data);
    if (index == live->workloads.count) {
        if (index == scheduler->workloads_room) {
            scheduler->workloads_room = erg_grow_capacity(index, index + 1);
            trace->workloads =
                erg_xrealloc(trace->workloads, scheduler->workloads_room, sizeof *trace->workloads);
            scheduler->course->stale = true;
        }
        struct erg_trace_workload *row = &trace->workloads[index];
        *row = (struct erg_trace_workload){erg_xstrdup(what->family), erg_xstrdup(what->size),
                                           what->batch};
        /* The next workload fills a row that was left by a failed source. */
        int filled =
            live->speeds->workloads > (int)index ? (int)index : erg_speeds_add(live->speeds);
        if (live->source.fill(live->source.context, live->speeds, filled, row, err) != 0) {
            free(row->family);
            free(row->size);
            erg_text_release(&key);
            return -1;
        }
        trace->workloads_count++;
        erg_name_add(&live->workloads, key.data);
    }
    erg_text_release(&key);
    *workload = (int)index;
    return 0;
}

static int add_tenant(struct erg_scheduler *scheduler, const char *name)
{
    struct erg_live_tables *live = scheduler->live;
    size_t index = erg_name_add(&live->tenants, name);
    live->trace.tenants = live->tenants.items;
    live->trace.tenants_count = live->tenants.count;
    if (live->tenants.count > scheduler->tenants_room) {
        scheduler->tenants_room = erg_grow_capacity(scheduler->tenants_room, live->tenants.count);
        scheduler->course->stale = true;
    }
    return (int)index;
}

int erg_scheduler_add_job(struct erg_scheduler *scheduler, const struct erg_new_job *what, int *job,
                          struct erg_error *err)
{
    struct erg_live_tables *live = scheduler->live;
    struct erg_job_trace *trace = &live->trace;
    size_t room = scheduler->jobs_room;
    int workload;
    if (check_job(scheduler, what, err) != 0 || add_workload(scheduler, what, &workload, err) != 0)
        return -1;
    erg_scheduler_reserve(scheduler, trace->count + 1);
    if (scheduler->jobs_room > room) {
        trace->jobs = erg_xrealloc(trace->jobs, scheduler->jobs_room, sizeof *trace->jobs);
        for (size_t i = 0; i < trace->count; i++)
            scheduler->jobs[i].request = &trace->jobs[i];
    }
    assert(trace->count < scheduler->jobs_room && workload < (int)trace->workloads_count);
    *job = (int)erg_name_add(&live->names, what->name);
    trace->jobs[trace->count++] = (struct erg_trace_job){
        .id = live->names.items[*job],
        .submit_s = what->submitted_s,
        .deadline_s = what->deadline_s,
        .iterations = what->iterations,
        .workload = workload,
        .tenant = add_tenant(scheduler, what->tenant),
        .type = what->type,
        .gpus = what->gpus,
    };
    assert((size_t)*job + 1 == trace->count); /* names are unique */
    scheduler->jobs_count = trace->count;
    erg_scheduler_init_job(scheduler, *job);
    scheduler->jobs[*job].submitted_s = what->submitted_s;
    scheduler->jobs[*job].deadline_s = what->deadline_s;
    scheduler->accounting->submit(&scheduler->jobs[*job], &scheduler->works[*job]);
    scheduler->works[*job].since_s = scheduler->now_s;
    return 0;
}

int erg_scheduler_find_job(const struct erg_scheduler *scheduler, const char *name)
{
    size_t index = erg_name_find(&scheduler->live->names, name);
    return index < scheduler->live->names.count ? (int)index : -1;
}

void erg_scheduler_recall(struct erg_scheduler *scheduler, int id, double attained_gpu_s,
                          int starts)
{
    struct erg_cluster_job *job = &scheduler->jobs[id];
    double since_s = scheduler->now_s - scheduler->works[id].since_s;
    scheduler->changes->used_s[id] = attained_gpu_s - erg_placement_gpus(&job->placement) * since_s;
    job->reconfigurations = starts;
    if (starts > 0 && isnan(job->started_s))
        job->started_s = job->submitted_s;
}

bool erg_scheduler_arrive(struct erg_scheduler *scheduler, int id)
{
    struct erg_cluster_job *job = &scheduler->jobs[id];
    assert(job->state == ERG_JOB_FUTURE);
    if (!scheduler->live)
        scheduler->accounting->submit(job, &scheduler->works[id]);
    erg_scheduler_set_state(scheduler, id, ERG_JOB_WAITING);
    if (!erg_speeds_runnable(scheduler->speeds, job->request->workload, -1)) {
        erg_scheduler_reject(scheduler, id);
        if (scheduler->live)
            erg_scheduler_settle(scheduler);
        return false;
    }
    scheduler->course->events |= ERG_EVENT_ARRIVAL;
    ERG_PUSH(&scheduler->course->arrived, items, id);
    return true;
}

/* Takes GPUs for a job, including foreign ones. */
static void take_any(struct erg_scheduler *scheduler, int id, const struct erg_placement *placement)
{
    struct erg_occupancy *occupancy = scheduler->occupancy;
    struct erg_placement foreign = {0};
    for (int i = 0; i < placement->count; i++) {
        const struct erg_slice *slice = &placement->slices[i];
        uint64_t gpus = 0;
        for (uint64_t rest = slice->gpus; rest; rest &= rest - 1)
            if (erg_occupancy_owner(occupancy, slice->node, __builtin_ctzll(rest)) ==
                ERG_OWNER_FOREIGN)
                gpus |= rest & -rest;
        if (gpus)
            erg_placement_add(&foreign, slice->node, gpus);
    }
    erg_occupancy_give(occupancy, ERG_OWNER_FOREIGN, &foreign);
    erg_placement_release(&foreign);
    erg_occupancy_take(occupancy, id, placement);
}

/* Returns true if all nodes of a placement have the same number of its GPUs, of one type. */
static bool is_even(const struct erg_scheduler *scheduler, const struct erg_placement *placement)
{
    const int *type_of = scheduler->occupancy->type_of;
    const struct erg_slice *slices = placement->slices;
    for (int i = 1; i < placement->count; i++)
        if (__builtin_popcountll(slices[i].gpus) != __builtin_popcountll(slices[0].gpus) ||
            type_of[slices[i].node] != type_of[slices[0].node])
            return false;
    return placement->count > 0;
}

bool erg_scheduler_adopt(struct erg_scheduler *scheduler, int id,
                         const struct erg_placement *placement, int point)
{
    struct erg_cluster_job *job = &scheduler->jobs[id];
    struct erg_course *course = scheduler->course;
    assert(job->state == ERG_JOB_FUTURE);
    int shape = is_even(scheduler, placement) ? erg_scheduler_shape(scheduler, placement) : -1;
    const struct erg_speed *speed = shape < 0 ? NULL : erg_scheduler_speed(scheduler, id, shape);
    if (!speed || !erg_speed_feasible(speed) || point < 0 || point >= speed->points_count)
        return false;
    take_any(scheduler, id, placement);
    erg_placement_assign(&job->placement, placement);
    job->shape = shape;
    job->point = point;
    erg_scheduler_set_state(scheduler, id, ERG_JOB_RUNNING);
    if (isnan(job->started_s))
        job->started_s = job->submitted_s;
    if (job->reconfigurations == 0)
        job->reconfigurations = 1;
    scheduler->accounting->change(
        &scheduler->works[id], scheduler->now_s,
        speed->iteration_s * erg_speed_slowdown(speed, point, scheduler->throttle), 0);
    course->events |= ERG_EVENT_ARRIVAL;
    course->stale = true;
    ERG_PUSH(&course->adopted, items, id);
    return true;
}

static struct erg_slice *slice_on(struct erg_placement *placement, int node)
{
    for (int i = 0; i < placement->count; i++)
        if (placement->slices[i].node == node)
            return &placement->slices[i];
    return NULL;
}

/* Replaces another job's GPU of a node by a GPU of that node that became free. */
static void exchange(struct erg_scheduler *scheduler, int other, int node, uint64_t gpu,
                     uint64_t for_gpu)
{
    struct erg_slice *slice = slice_on(&scheduler->jobs[other].placement, node);
    struct erg_placement one = {0};
    erg_placement_add(&one, node, gpu);
    erg_occupancy_give(scheduler->occupancy, other, &one);
    one.slices[0].gpus = for_gpu;
    erg_occupancy_take(scheduler->occupancy, other, &one);
    assert(slice && (slice->gpus & gpu) && !(slice->gpus & for_gpu));
    slice->gpus = (slice->gpus & ~gpu) | for_gpu;
    erg_placement_release(&one);
}

void erg_scheduler_correct(struct erg_scheduler *scheduler, int id,
                           const struct erg_placement *placement)
{
    struct erg_cluster_job *job = &scheduler->jobs[id];
    assert(job->state == ERG_JOB_RUNNING);
    assert(erg_scheduler_shape(scheduler, placement) == job->shape);
    erg_occupancy_give(scheduler->occupancy, id, &job->placement);
    for (int i = 0; i < placement->count; i++) {
        const struct erg_slice *to = &placement->slices[i];
        const struct erg_slice *from = slice_on(&job->placement, to->node);
        uint64_t left = from ? from->gpus & ~to->gpus : 0;
        for (uint64_t rest = to->gpus; rest; rest &= rest - 1) {
            int owner = erg_occupancy_owner(scheduler->occupancy, to->node, __builtin_ctzll(rest));
            if (owner < 0)
                continue;
            assert(left);
            exchange(scheduler, owner, to->node, rest & -rest, left & -left);
            left &= left - 1;
        }
    }
    take_any(scheduler, id, placement);
    erg_placement_assign(&job->placement, placement);
}

/* The policy got the arrival of a job that has gone, and still waits for it. */
static void make_forget(struct erg_scheduler *scheduler, int id)
{
    struct erg_course *course = scheduler->course;
    if (scheduler->jobs[id].told) {
        course->stale = true;
        course->events |= ERG_EVENT_END;
    }
    erg_course_forget(scheduler, id);
}

void erg_scheduler_end(struct erg_scheduler *scheduler, int id)
{
    struct erg_cluster_job *job = &scheduler->jobs[id];
    struct erg_course *course = scheduler->course;
    bool ran = job->state == ERG_JOB_RUNNING;
    scheduler->changes->used_s[id] = erg_scheduler_attained(scheduler, id);
    scheduler->works[id].since_s = scheduler->now_s;
    if (ran)
        erg_scheduler_strip(scheduler, job);
    erg_scheduler_set_state(scheduler, id, ERG_JOB_ENDED);
    if (!ran || !job->told) {
        make_forget(scheduler, id);
        course->events |= ran ? ERG_EVENT_END : 0;
        return;
    }
    course->events |= ERG_EVENT_END;
    ERG_PUSH(&course->ended, items, id);
}

/* A running job has lost its GPUs. Returns the number of lost iterations. */
static double lose_gpus(struct erg_scheduler *scheduler, int id)
{
    struct erg_work *work = &scheduler->works[id];
    scheduler->changes->used_s[id] = erg_scheduler_attained(scheduler, id);
    double before = erg_scheduler_remaining(scheduler, id);
    scheduler->accounting->lose(work, scheduler->fleet, scheduler->now_s);
    double lost = work->remaining - before;
    erg_scheduler_suspend(scheduler, id);
    erg_scheduler_settle(scheduler);
    scheduler->accounting->change(work, scheduler->now_s, INFINITY, 0);
    return lost;
}

double erg_scheduler_evict(struct erg_scheduler *scheduler, int id)
{
    struct erg_course *course = scheduler->course;
    double lost = lose_gpus(scheduler, id);
    course->events |= ERG_EVENT_FAILURE;
    if (scheduler->jobs[id].told) {
        ERG_PUSH(&course->evicted, items, id);
    } else { /* adopted just now */
        erg_course_forget(scheduler, id);
        ERG_PUSH(&course->arrived, items, id);
    }
    return lost;
}

void erg_scheduler_withdraw(struct erg_scheduler *scheduler, int id)
{
    struct erg_cluster_job *job = &scheduler->jobs[id];
    if (job->state == ERG_JOB_RUNNING)
        lose_gpus(scheduler, id);
    assert(job->state == ERG_JOB_WAITING);
    erg_scheduler_set_state(scheduler, id, ERG_JOB_FUTURE);
    make_forget(scheduler, id);
    job->told = false;
}

/* ---- nodes ---- */

void erg_scheduler_fail_node(struct erg_scheduler *scheduler, int node)
{
    struct erg_occupancy *occupancy = scheduler->occupancy;
    int gpus = scheduler->fleet->types[occupancy->type_of[node]].gpus_per_node;
    if (occupancy->down[node])
        return;
    for (int gpu = 0; gpu < gpus; gpu++) {
        int owner = erg_occupancy_owner(occupancy, node, gpu);
        if (owner >= 0)
            erg_scheduler_evict(scheduler, owner);
    }
    if (occupancy->off[node])
        erg_occupancy_switch(occupancy, node, false);
    scheduler->ready_s[node] = 0;
    erg_occupancy_fail(occupancy, node);
    scheduler->course->events |= ERG_EVENT_FAILURE;
}

void erg_scheduler_repair_node(struct erg_scheduler *scheduler, int node)
{
    if (!scheduler->occupancy->down[node])
        return;
    erg_occupancy_repair(scheduler->occupancy, node);
    scheduler->course->events |= ERG_EVENT_REPAIR;
}

void erg_scheduler_drain_node(struct erg_scheduler *scheduler, int node, bool drains)
{
    if (scheduler->occupancy->drains[node] == drains)
        return;
    erg_occupancy_drain(scheduler->occupancy, node, drains);
    scheduler->course->events |= drains ? ERG_EVENT_FAILURE : ERG_EVENT_REPAIR;
}

void erg_scheduler_switch_node(struct erg_scheduler *scheduler, int node, bool off, double up_in_s)
{
    if (scheduler->occupancy->off[node] != off)
        erg_occupancy_switch(scheduler->occupancy, node, off);
    scheduler->ready_s[node] = off ? 0 : scheduler->now_s + up_in_s;
}

/* The cap covers all GPUs, and foreign ones may draw their maximum. A policy needs a cap above the
 * idle power of its GPUs. */
static void keep_cap_for_foreign(struct erg_scheduler *scheduler)
{
    const struct erg_occupancy *occupancy = scheduler->occupancy;
    double cap_w = scheduler->live->power_cap_w, idle_w = erg_fleet_idle_power(scheduler->fleet);
    double foreign_w = 0;
    if (isinf(cap_w))
        return;
    for (int node = 0; node < scheduler->fleet->nodes; node++) {
        const struct erg_gpu_type *type = &scheduler->fleet->types[occupancy->type_of[node]];
        for (int gpu = 0; gpu < type->gpus_per_node; gpu++)
            if (erg_occupancy_owner(occupancy, node, gpu) == ERG_OWNER_FOREIGN)
                foreign_w += type->points[0].power_w - type->idle_power_w;
    }
    scheduler->power_cap_w = fmax(cap_w - foreign_w, idle_w + 0.01 * (cap_w - idle_w));
}

bool erg_scheduler_set_foreign(struct erg_scheduler *scheduler, int node, uint64_t gpus)
{
    struct erg_occupancy *occupancy = scheduler->occupancy;
    int count = scheduler->fleet->types[occupancy->type_of[node]].gpus_per_node;
    struct erg_placement takes = {0}, gives = {0};
    uint64_t taken = 0, given = 0;
    for (int gpu = 0; gpu < count; gpu++) {
        int owner = erg_occupancy_owner(occupancy, node, gpu);
        uint64_t bit = (uint64_t)1 << gpu;
        taken |= owner == -1 && (gpus & bit) ? bit : 0;
        given |= owner == ERG_OWNER_FOREIGN && !(gpus & bit) ? bit : 0;
    }
    if (taken) {
        erg_placement_add(&takes, node, taken);
        erg_occupancy_take(occupancy, ERG_OWNER_FOREIGN, &takes);
        scheduler->course->events |= ERG_EVENT_FAILURE;
    }
    if (given) {
        erg_placement_add(&gives, node, given);
        erg_occupancy_give(occupancy, ERG_OWNER_FOREIGN, &gives);
        scheduler->course->events |= ERG_EVENT_REPAIR;
    }
    erg_placement_release(&takes);
    erg_placement_release(&gives);
    if (taken || given)
        keep_cap_for_foreign(scheduler);
    return taken || given;
}
