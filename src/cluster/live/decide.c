/* Turns the policy's decisions into intents in the reconciler's records. */
#include "cluster/live/controller_internal.h"

#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static json_t *change_json(const struct erg_managed_job *record, int before, int after, bool moves)
{
    return erg_json_pack("{s:s, s:i, s:i, s:b, s:i}", "token", record->token, "gpus_before", before,
                         "gpus", after, "moves", moves, "point", record->point);
}

/* ---- nodes on which a job failed ---- */

static bool has_node(const struct erg_placement *placement, int node)
{
    for (int s = 0; s < placement->count; s++)
        if (placement->slices[s].node == node)
            return true;
    return false;
}

/* A running job stays where it is. */
static bool is_avoided(const struct erg_controller *controller, size_t i, int node)
{
    const struct erg_managed_job *record = &controller->records[i];
    return erg_reconcile_avoids(record, node, controller->now_s) &&
           !has_node(&record->actual, node);
}

/* A node of the same kind as `like` with the fewest sufficient free GPUs for a part of a job; -1:
 * there is none. */
static int find_node(const struct erg_controller *controller, size_t i, int like, int gpus,
                     const struct erg_placement *chosen)
{
    const struct erg_occupancy *occupancy = controller->scheduler->occupancy;
    const struct erg_cluster_job *job = &controller->scheduler->jobs[controller->tracks[i].job];
    int best = -1;
    for (int node = 0; node < controller->scheduler->fleet->nodes; node++)
        if (occupancy->type_of[node] == occupancy->type_of[like] && !occupancy->off[node] &&
            !is_avoided(controller, i, node) && !has_node(chosen, node) &&
            !has_node(&job->placement, node) && erg_occupancy_free_of(occupancy, node) >= gpus &&
            (best < 0 ||
             erg_occupancy_free_of(occupancy, node) < erg_occupancy_free_of(occupancy, best)))
            best = node;
    return best;
}

/*
 * Policies are not told that a job failed on a node. A job that gets GPUs there gets as many on
 * another node of that kind instead. If no other has them, the job gives up its place for a while,
 * so that no GPUs stay reserved for it.
 */
static void steer(struct erg_controller *controller, size_t i)
{
    struct erg_managed_job *record = &controller->records[i];
    const int id = controller->tracks[i].job;
    struct erg_scheduler *scheduler = controller->scheduler;
    const struct erg_placement *decided = &scheduler->jobs[id].placement;
    struct erg_placement other = {0};
    int avoided = -1, node = 0;
    for (int s = 0; node >= 0 && s < decided->count; s++) {
        const struct erg_slice *slice = &decided->slices[s];
        if (!is_avoided(controller, i, slice->node)) {
            erg_placement_add(&other, slice->node, slice->gpus);
            continue;
        }
        const int gpus = __builtin_popcountll(slice->gpus);
        avoided = slice->node;
        node = find_node(controller, i, avoided, gpus, &other);
        if (node >= 0)
            erg_placement_add(&other, node,
                              erg_gpus_lowest(scheduler->occupancy->free[node], gpus));
    }
    if (avoided >= 0 && node >= 0) {
        erg_scheduler_correct(scheduler, id, &other);
    } else if (avoided >= 0) {
        erg_controller_note(controller, "job %u waits: it recently failed on node %s", record->id,
                            controller->node_names[avoided]);
        erg_scheduler_withdraw(scheduler, id);
        record->not_before_s = controller->now_s + controller->limits.retry_s;
    }
    erg_placement_release(&other);
}

/* ---- decisions ---- */

/* A job gets other GPUs, or none. */
static void intend(struct erg_controller *controller, size_t i, json_t *changes)
{
    struct erg_managed_job *record = &controller->records[i];
    struct erg_live_track *track = &controller->tracks[i];
    const struct erg_cluster_job *job = &controller->scheduler->jobs[track->job];
    const struct erg_scheduler *scheduler = controller->scheduler;
    const int before = erg_placement_gpus(&record->intended);
    const double before_s = erg_controller_left_s(
        scheduler, track->job, shape_of(scheduler, &record->intended), record->point);
    if (job->state == ERG_JOB_RUNNING)
        steer(controller, i);
    const bool runs = job->state == ERG_JOB_RUNNING;
    const bool moves = !runs || !erg_placement_equal(&record->intended, &job->placement);
    track->dirty = true;
    if (!runs && before == 0 && job->state != ERG_JOB_REJECTED)
        return; /* it was waiting already */
    if (job->state == ERG_JOB_REJECTED) {
        erg_controller_note(controller, "job %u is rejected by the policy", record->id);
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
    json_array_append_new(changes, change_json(record, before, after, moves));
    struct erg_live_note *note;
    if (!moves)
        note = erg_controller_note(controller, "job %u: now at operating point %d", record->id,
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

/* Operating points that respect the power cap, and the resulting power of jobs. */
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
    int *jobs = erg_xmalloc((count + 1) * sizeof *jobs); /* a copy, since the scheduler's list
                                                          * changes */
    for (size_t k = 0; k < count; k++)
        jobs[k] = changed[k];
    for (size_t k = 0; k < count; k++) {
        const size_t i =
            erg_controller_find(controller, controller->scheduler->trace->jobs[jobs[k]].id);
        if (i < controller->count)
            intend(controller, i, changes);
    }
    free(jobs);
    pace(controller);
    int result = 0;
    if (controller->journal && json_array_size(changes) > 0)
        result =
            erg_journal_decision(controller->journal, controller->setup.policy->name, changes, err);
    json_decref(changes);
    return result;
}
