/* The policy's decisions, made what the reconciler's records intend. */
#include "cluster/live/controller_internal.h"

#include "io/json.h"

#include <math.h>
#include <stdio.h>

double erg_controller_watts(const struct erg_scheduler *scheduler, int id, int point)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    if (job->shape < 0)
        return 0;
    const struct erg_gpu_shape *shape = &scheduler->speeds->shapes[job->shape];
    const struct erg_speed *speed = erg_scheduler_speed(scheduler, id, job->shape);
    const double idle_w = scheduler->fleet->types[shape->type].idle_power_w;
    const double slowdown = erg_speed_slowdown(speed, point, scheduler->throttle);
    return erg_shape_gpus(shape) * fmax(0, erg_speed_power(speed, idle_w, slowdown) - idle_w);
}

double erg_controller_left_s(const struct erg_scheduler *scheduler, int id, int shape, int point)
{
    if (shape < 0)
        return NAN;
    const struct erg_speed *speed = erg_scheduler_speed(scheduler, id, shape);
    return erg_scheduler_remaining(scheduler, id) * speed->iteration_s *
           erg_speed_slowdown(speed, point, scheduler->throttle);
}

static int shape_of(const struct erg_scheduler *scheduler, const struct erg_placement *placement)
{
    if (placement->count == 0)
        return -1;
    return erg_speeds_shape(scheduler->speeds,
                            scheduler->occupancy->type_of[placement->slices[0].node],
                            placement->count, __builtin_popcountll(placement->slices[0].gpus));
}

static json_t *change_json(const struct erg_managed_job *record, int before, int after)
{
    return erg_json_pack("{s:s, s:i, s:i, s:i}", "token", record->token, "gpus_before", before,
                         "gpus", after, "point", record->point);
}

/* A job that has other GPUs, or none, from now on. */
static void intend(struct erg_controller *controller, size_t i, json_t *changes)
{
    struct erg_managed_job *record = &controller->records[i];
    struct erg_live_track *track = &controller->tracks[i];
    const struct erg_cluster_job *job = &controller->scheduler->jobs[track->job];
    const struct erg_scheduler *scheduler = controller->scheduler;
    const int before = erg_placement_gpus(&record->intended);
    const double before_s = erg_controller_left_s(
        scheduler, track->job, shape_of(scheduler, &record->intended), record->point);
    const bool runs = job->state == ERG_JOB_RUNNING;
    const bool moves = !runs || !erg_placement_equal(&record->intended, &job->placement);
    track->dirty = true;
    if (job->state == ERG_JOB_REJECTED) {
        erg_controller_note(controller, "job %u is turned away by the policy", record->id);
        return;
    }
    if (runs && moves) {
        erg_placement_assign(&record->intended, &job->placement);
        track->decided_s = controller->scheduler->now_s;
        record->order = controller->decisions;
    } else if (!runs) {
        record->intended.count = 0;
    }
    record->point = runs ? job->point : record->point;
    const int after = erg_placement_gpus(&record->intended);
    json_array_append_new(changes, change_json(record, before, after));
    struct erg_live_note *note;
    if (!moves)
        note = erg_controller_note(controller, "job %u: to operating point %d", record->id,
                                   job->point);
    else if (after == 0)
        note =
            erg_controller_note(controller, "job %u: from %d GPUs to waiting", record->id, before);
    else
        note = erg_controller_note(
            controller, "job %u: from %d to %d GPUs of %s on %d node%s from %s on, point %d",
            record->id, before, after,
            scheduler->fleet->types[scheduler->speeds->shapes[job->shape].type].name,
            record->intended.count, record->intended.count == 1 ? "" : "s",
            controller->node_names[record->intended.slices[0].node], record->point);
    const double sooner_s =
        before_s - erg_controller_left_s(scheduler, track->job, job->shape, record->point);
    if (runs && !isnan(sooner_s) && fabs(sooner_s) >= 1)
        snprintf(note->gain, sizeof note->gain, "ends %.0f s %s", fabs(sooner_s),
                 sooner_s > 0 ? "sooner" : "later");
    if (runs && moves)
        snprintf(note->cost, sizeof note->cost, "%.0f s to %s",
                 erg_scheduler_cost(scheduler, track->job,
                                    scheduler->speeds->shapes[job->shape].type, after),
                 before > 0 || track->starts > 0 ? "restart" : "start");
    snprintf(note->why, sizeof note->why, "policy %s", controller->setup.policy->name);
}

/* Points that keep the power cap, and what jobs draw at them. */
static void pace(struct erg_controller *controller)
{
    for (size_t i = 0; i < controller->count; i++) {
        struct erg_managed_job *record = &controller->records[i];
        const int id = controller->tracks[i].job;
        if (id < 0 || controller->scheduler->jobs[id].state != ERG_JOB_RUNNING)
            continue;
        record->point = erg_scheduler_point(controller->scheduler, id);
        record->intended_w = erg_controller_watts(controller->scheduler, id, record->point);
    }
}

int erg_controller_decide(struct erg_controller *controller, struct erg_error *err)
{
    struct erg_scheduler *scheduler = controller->scheduler;
    const bool due = erg_scheduler_due(scheduler) <= scheduler->now_s;
    const bool settled =
        controller->now_s - controller->decided_s >= controller->setup.file->slurm.settle_s;
    const int *changed;
    size_t count;
    if (!due && !(erg_scheduler_urgent(scheduler) && settled))
        return 0;
    if (erg_scheduler_decide(scheduler, &changed, &count, err) != 0)
        return -1;
    controller->decided_s = controller->now_s;
    controller->decisions++;
    json_t *changes = json_array();
    for (size_t k = 0; k < count; k++) {
        const size_t i =
            erg_controller_find(controller, controller->scheduler->trace->jobs[changed[k]].id);
        if (i < controller->count)
            intend(controller, i, changes);
    }
    pace(controller);
    int result = 0;
    if (controller->journal && json_array_size(changes) > 0)
        result =
            erg_journal_decision(controller->journal, controller->setup.policy->name, changes, err);
    json_decref(changes);
    return result;
}
