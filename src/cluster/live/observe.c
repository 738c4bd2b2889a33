/* Reports the state of the resource manager and of the jobs' folders to the scheduler. */
#include "cluster/live/controller_internal.h"

#include "base/clock.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reports arrive every ten seconds; one that is late by another ten is overdue. */
static const double report_due_s = 20;

/* An invalid request is read again after this time, even if it seems unchanged. */
static const double retry_request_s = 60;

/* ---- new jobs ---- */

/* The place of a token in the table, or of a new one. Tokens are users' texts: collisions on
 * purpose slow a search only by the number of that user's jobs. */
static size_t slot_of(const struct erg_controller *controller, const char *token)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *at = token; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    size_t slot = hash & (controller->by_token_capacity - 1), i;
    while ((i = controller->by_token[slot]) != 0 &&
           strcmp(controller->records[i - 1].token, token) != 0)
        slot = (slot + 1) & (controller->by_token_capacity - 1);
    return slot;
}

size_t erg_controller_find(const struct erg_controller *controller, const char *token)
{
    const size_t i =
        controller->by_token_capacity ? controller->by_token[slot_of(controller, token)] : 0;
    return i ? i - 1 : controller->count;
}

/* At least twice as many places as records. */
void erg_controller_index(struct erg_controller *controller)
{
    free(controller->by_token);
    controller->by_token_capacity = 64;
    while (controller->by_token_capacity < 2 * controller->capacity)
        controller->by_token_capacity *= 2;
    controller->by_token = erg_xcalloc(controller->by_token_capacity, sizeof *controller->by_token);
    for (size_t i = 0; i < controller->count; i++)
        controller->by_token[slot_of(controller, controller->records[i].token)] = i + 1;
}

static void name_user(struct erg_live_track *track, const struct erg_live_job *job)
{
    free(track->user);
    free(track->account);
    track->uid = job->uid;
    track->user = erg_xstrdup(job->user ? job->user : "");
    track->account = erg_xstrdup(job->account ? job->account : "");
}

static size_t add_record(struct erg_controller *controller, const struct erg_live_job *job)
{
    if (controller->count == controller->capacity) {
        controller->capacity = erg_grow_capacity(controller->capacity, controller->count + 1);
        controller->records =
            erg_xrealloc(controller->records, controller->capacity, sizeof *controller->records);
        controller->tracks =
            erg_xrealloc(controller->tracks, controller->capacity, sizeof *controller->tracks);
        erg_controller_index(controller);
    }
    const size_t i = controller->count++;
    erg_managed_job_init(&controller->records[i], job->id, job->token);
    controller->by_token[slot_of(controller, job->token)] = i + 1;
    controller->tracks[i] = (struct erg_live_track){.job = -1, .decided_s = NAN};
    name_user(&controller->tracks[i], job);
    return i;
}

/* The job in the scheduler's form. */
static int introduce(struct erg_controller *controller, size_t i, struct erg_error *err)
{
    struct erg_live_track *track = &controller->tracks[i];
    const struct erg_managed_job *record = &controller->records[i];
    const struct erg_live_request *request = &track->request;
    const double now_s = controller->scheduler->now_s, unix_s = erg_unix_s();
    const double compress = controller->setup.compress;
    const double submitted_s = fmin(now_s, now_s - (unix_s - request->submitted_unix_s) * compress);
    track->job = erg_scheduler_find_job(controller->scheduler, record->token);
    if (track->job >= 0) /* it had ended, and its record was dropped */
        return 0;
    const int type =
        request->type ? erg_fleet_type(controller->scheduler->fleet, request->type) : -1;
    if (request->type && type < 0)
        return erg_fail(err, ERG_FAILED, "the GPU type '%s' is not in this cluster", request->type);
    return erg_scheduler_add_job(
        controller->scheduler,
        &(struct erg_new_job){
            .name = record->token,
            .family = request->has_profile ? record->token : request->family,
            .size = request->size,
            .batch = request->batch,
            .tenant = track->account,
            .submitted_s = submitted_s,
            .deadline_s = isinf(request->deadline_unix_s)
                              ? INFINITY
                              : now_s + (request->deadline_unix_s - unix_s) * compress,
            .iterations = request->iterations,
            .type = type,
            .gpus = request->gpus,
        },
        &track->job, err);
}

/* A job with an invalid request stays unchanged; each reason is reported once. */
static void leave_alone(struct erg_controller *controller, size_t i, const char *why)
{
    struct erg_live_track *track = &controller->tracks[i];
    controller->records[i].left_alone = true;
    track->tried_s = controller->now_s;
    if (track->left_why && strcmp(track->left_why, why) == 0)
        return;
    erg_controller_note(controller, "job %u is left alone: %s", controller->records[i].id, why);
    free(track->left_why);
    track->left_why = erg_xstrdup(why);
}

/* The highest power of a job on its GPUs, beyond idle power. */
static double most_w(const struct erg_controller *controller, size_t i,
                     const struct erg_placement *placement)
{
    const struct erg_scheduler *scheduler = controller->scheduler;
    double each_w = 0;
    for (int shape = 0; shape < scheduler->speeds->shapes_count; shape++) {
        const struct erg_speed *speed =
            erg_scheduler_speed(scheduler, controller->tracks[i].job, shape);
        const int type = scheduler->speeds->shapes[shape].type;
        bool has = false;
        for (int s = 0; s < placement->count; s++)
            has |= scheduler->occupancy->type_of[placement->slices[s].node] == type;
        if (has && erg_speed_feasible(speed))
            each_w =
                fmax(each_w, speed->points[0].power_w - scheduler->fleet->types[type].idle_power_w);
    }
    return placement->count == 0 ? 0
           : each_w > 0          ? each_w * erg_placement_gpus(placement)
                                 : ERG_UNKNOWN_W;
}

/* Plans that an earlier controller has written; its journal may be lost. */
static void find_plan(struct erg_controller *controller, size_t i, const struct erg_live_job *job)
{
    struct erg_managed_job *record = &controller->records[i];
    const struct erg_fleet *fleet = controller->scheduler->fleet;
    struct erg_arena arena = {0};
    struct erg_live_plan plan;
    struct erg_error why;
    const int found =
        erg_job_folder_find_plan(&plan, controller->setup.file->slurm.spool, record->token,
                                 controller->tracks[i].uid, &arena, &why);
    const int type = found > 0 ? erg_fleet_type(fleet, plan.type) : -1;
    const bool known = type >= 0 && plan.number > 0 && !isnan(plan.power_w);
    /* A waiting job that never had a plan cannot draw power. */
    const bool fresh = found == 0 && record->plan == 0 && job->state == ERG_LIVE_HELD;
    const double may_w =
        known || job->placement.count > 0 ? most_w(controller, i, &job->placement) : ERG_UNKNOWN_W;
    const double allows_w = known ? plan.nodes * plan.gpus_per_node *
                                        fmax(0, plan.power_w - fleet->types[type].idle_power_w)
                                  : 0;
    if (!fresh)
        erg_reconcile_found_plan(record, known ? plan.number : 0, plan.point, allows_w, may_w);
    if (known && plan.capped != isfinite(controller->limits.cap_w))
        record->told_point = -1; /* its plan is written again */
    erg_arena_release(&arena);
}

static int meet(struct erg_controller *controller, size_t i, const struct erg_live_job *job,
                struct erg_error *err)
{
    struct erg_managed_job *record = &controller->records[i];
    struct erg_live_track *track = &controller->tracks[i];
    const char *spool = controller->setup.file->slurm.spool;
    const bool known = erg_scheduler_find_job(controller->scheduler, record->token) >= 0;
    struct erg_error why = {0};
    track->stamp = erg_job_folder_stamp(spool, record->token, track->uid);
    if (erg_job_folder_request(&track->request, spool, record->token, track->uid, &track->strings,
                               &why) != 0 ||
        introduce(controller, i, &why) != 0) {
        leave_alone(controller, i, why.message);
        return 0;
    }
    struct erg_journal_job kept = {.record = record};
    bool found = false;
    if (controller->journal &&
        erg_journal_get_job(controller->journal, &kept, &found, controller->node_names,
                            controller->scheduler->fleet->nodes, controller->now_s, err) != 0)
        return -1;
    if (found && !known) {
        erg_scheduler_recall(controller->scheduler, track->job, kept.attained_gpu_s, kept.starts);
        track->starts = kept.starts;
        track->chosen_point = kept.chosen_point;
        track->failed_starts = record->failed_starts;
    }
    erg_controller_recall_speeds(controller, track->job);
    find_plan(controller, i, job);
    track->dirty = true;
    if (!controller->journal || found)
        return 0;
    return erg_journal_delay(controller->journal, record->token, "seen",
                             fmax(0, erg_unix_s() - track->request.submitted_unix_s), err);
}

/* Reads a job that was left alone again after its folder changed, and from time to time, since a
 * file system may have been unavailable. */
static int meet_once_more(struct erg_controller *controller, size_t i,
                          const struct erg_live_job *job, struct erg_error *err)
{
    struct erg_managed_job *record = &controller->records[i], before = *record;
    struct erg_live_track *track = &controller->tracks[i];
    if (controller->now_s < track->tried_s + retry_request_s &&
        erg_job_folder_stamp(controller->setup.file->slurm.spool, record->token, track->uid) ==
            track->stamp)
        return 0;
    erg_managed_job_init(record, before.id, before.token);
    erg_managed_job_release(&before);
    erg_arena_release(&track->strings);
    if (meet(controller, i, job, err) != 0)
        return -1;
    if (!record->left_alone)
        erg_controller_note(controller, "job %u is now valid", record->id);
    return 0;
}

static bool is_managed(const struct erg_live_job *job)
{
    return job->token[0] && job->in_partition && job->single;
}

/* Submitted again from its folder: the same job with another id, and with all its attempts. */
static void meet_again(struct erg_managed_job *record, uint32_t id)
{
    record->id = id;
    record->given_up = record->needs_attention = false;
    record->failures = record->failed_starts = 0;
    record->not_before_s = record->retry_s = -INFINITY;
}

static int meet_new(struct erg_controller *controller, struct erg_error *err)
{
    const struct erg_live_snapshot *snapshot = &controller->snapshot;
    for (size_t k = 0; k < snapshot->jobs_count; k++) {
        const struct erg_live_job *job = &snapshot->jobs[k];
        const bool over = job->state == ERG_LIVE_COMPLETED || job->state == ERG_LIVE_CANCELLED;
        const size_t i =
            is_managed(job) ? erg_controller_find(controller, job->token) : controller->count;
        if (!is_managed(job))
            continue;
        if (i == controller->count) {
            if (!over && meet(controller, add_record(controller, job), job, err) != 0)
                return -1;
        } else if (controller->records[i].left_alone) {
            /* It may be another job with that token, to which the folder belongs. */
            controller->records[i].id = job->id;
            name_user(&controller->tracks[i], job);
            if (!over && meet_once_more(controller, i, job, err) != 0)
                return -1;
        } else if (controller->records[i].id != job->id && !over) {
            const enum erg_live_phase phase = controller->records[i].phase;
            if (!erg_live_phase_holds_gpus(phase) && phase != ERG_PHASE_WAITING)
                meet_again(&controller->records[i], job->id);
        }
    }
    return 0;
}

/* ---- reports ---- */

static void read_reports(struct erg_controller *controller, size_t i)
{
    struct erg_live_track *track = &controller->tracks[i];
    struct erg_managed_job *record = &controller->records[i];
    struct erg_error why = {0};
    bool fresh = false;
    const size_t ignored = track->reader.ignored;
    if (erg_job_folder_reports(&track->reader, &fresh, controller->setup.file->slurm.spool,
                               record->token, track->uid, &why) != 0 &&
        !track->complained) {
        track->complained = true;
        erg_controller_note(controller, "job %u: its reports cannot be read: %s", record->id,
                            why.message);
    }
    if (ignored == 0 && track->reader.ignored > 0)
        erg_controller_note(controller, "job %u: lines of its reports are ignored: %s", record->id,
                            track->reader.ignored_why);
    if (fresh) {
        erg_reconcile_report(record, &track->reader.last, controller->now_s);
        track->dirty = true;
    }
}

/* A start or a move has completed: records its duration. */
static int note_training(struct erg_controller *controller, size_t i, struct erg_error *err)
{
    struct erg_live_track *track = &controller->tracks[i];
    const struct erg_report *last = &track->reader.last;
    if (last->state != ERG_JOB_TRAINING || last->incarnation <= track->trained)
        return 0;
    const bool first = track->starts == 0;
    track->trained = last->incarnation;
    track->starts++;
    if (isnan(track->decided_s))
        return 0;
    const double took_s = controller->scheduler->now_s - track->decided_s;
    erg_scheduler_restarted(controller->scheduler, track->job, took_s);
    track->decided_s = NAN;
    if (!controller->journal)
        return 0;
    return erg_journal_restart(controller->journal,
                               &(struct erg_journal_restart){
                                   .token = controller->records[i].token,
                                   .first = first,
                                   .gpus = erg_placement_gpus(&controller->records[i].actual),
                                   .took_s = took_s / controller->setup.compress,
                                   .save_s = controller->records[i].longest_save_s,
                                   .load_s = last->load_s,
                               },
                               err);
}

static int tell_progress(struct erg_controller *controller, size_t i, struct erg_error *err)
{
    struct erg_live_track *track = &controller->tracks[i];
    const struct erg_report *last = &track->reader.last;
    const double compress = controller->setup.compress;
    const struct erg_managed_job *record = &controller->records[i];
    if (controller->scheduler->jobs[track->job].state != ERG_JOB_RUNNING || !record->reported ||
        record->phase != ERG_PHASE_RUNNING)
        return 0;
    if (note_training(controller, i, err) != 0)
        return -1;
    if (record->report_s != controller->now_s || isnan(last->iteration))
        return 0;
    erg_scheduler_report(
        controller->scheduler, track->job,
        &(struct erg_progress_report){
            .at_s = controller->scheduler->now_s,
            .iteration = last->iteration,
            .checkpoint = isnan(last->checkpoint) ? 0 : last->checkpoint,
            .iteration_s = last->state == ERG_JOB_TRAINING ? last->iteration_s * compress : NAN,
            .due_s = report_due_s * compress,
        });
    return 0;
}

/* ---- changes of jobs ---- */

/* Returns true if no GPU of the placement belongs to another job, for the scheduler. */
static bool can_have(const struct erg_controller *controller, int job,
                     const struct erg_placement *placement)
{
    for (int s = 0; s < placement->count; s++)
        for (int gpu = 0; gpu < ERG_NODE_GPUS_MOST; gpu++) {
            if (!(placement->slices[s].gpus >> gpu & 1))
                continue;
            const int owner = erg_occupancy_owner(controller->scheduler->occupancy,
                                                  placement->slices[s].node, gpu);
            if (owner >= 0 && owner != job)
                return false;
        }
    return true;
}

/* A job has GPUs unknown to the scheduler: an earlier controller placed it. */
static void adopt(struct erg_controller *controller, size_t i)
{
    struct erg_live_track *track = &controller->tracks[i];
    struct erg_managed_job *record = &controller->records[i];
    struct erg_scheduler *scheduler = controller->scheduler;
    const struct erg_placement *has = record->actual.count ? &record->actual : &record->asked;
    /* Its destination in the journal, or else its present GPUs. A job that is to leave waits. */
    const bool moves = record->phase == ERG_PHASE_STOPPING && record->intended.count > 0 &&
                       can_have(controller, track->job, &record->intended);
    const bool leaves = record->phase == ERG_PHASE_STOPPING && record->intended.count == 0;
    if (!moves && !leaves)
        erg_placement_assign(&record->intended, has);
    const struct erg_placement *at = &record->intended;
    if (!leaves && at->count > 0 && can_have(controller, track->job, at) &&
        (erg_scheduler_adopt(scheduler, track->job, at, track->chosen_point) ||
         erg_scheduler_adopt(scheduler, track->job, at, 0))) {
        record->point = erg_scheduler_point(scheduler, track->job);
        record->intended_w = erg_controller_watts(scheduler, track->job, record->point);
        const struct erg_report *last = &track->reader.last;
        track->trained = last->state == ERG_JOB_TRAINING ? last->incarnation : 0;
        return;
    }
    record->intended.count = 0;
    erg_scheduler_arrive(scheduler, track->job);
}

static void lose(struct erg_controller *controller, size_t i, bool withdraw)
{
    struct erg_live_track *track = &controller->tracks[i];
    const struct erg_cluster_job *job = &controller->scheduler->jobs[track->job];
    const bool there = job->state == ERG_JOB_RUNNING || job->state == ERG_JOB_WAITING;
    track->dirty |= there || controller->records[i].intended.count > 0;
    controller->records[i].intended.count = 0;
    if (withdraw && there)
        erg_scheduler_withdraw(controller->scheduler, track->job);
    else if (job->state == ERG_JOB_RUNNING)
        erg_scheduler_evict(controller->scheduler, track->job);
}

static void end(struct erg_controller *controller, size_t i)
{
    struct erg_live_track *track = &controller->tracks[i];
    const struct erg_cluster_job *job = &controller->scheduler->jobs[track->job];
    if (job->state == ERG_JOB_ENDED || job->state == ERG_JOB_REJECTED)
        return;
    controller->records[i].intended.count = 0;
    track->dirty = true;
    if (job->state == ERG_JOB_FUTURE)
        return;
    erg_scheduler_end(controller->scheduler, track->job);
}

/* Returns true if it is to start on a node that accepts no more jobs: jobs that run there stay,
 * this one does not start. */
static bool is_to_drained(const struct erg_controller *controller,
                          const struct erg_placement *intended)
{
    for (int s = 0; s < intended->count; s++)
        if (controller->node_states[intended->slices[s].node] == ERG_NODE_DRAINS)
            return true;
    return false;
}

/* A held job: it waits for a decision, or for a time. */
static void tell_waiting(struct erg_controller *controller, size_t i)
{
    struct erg_live_track *track = &controller->tracks[i];
    struct erg_managed_job *record = &controller->records[i];
    const struct erg_cluster_job *job = &controller->scheduler->jobs[track->job];
    if (record->given_up || record->not_before_s > controller->now_s) {
        lose(controller, i, true);
        return;
    }
    if (job->state == ERG_JOB_FUTURE) {
        record->intended.count = 0;
        if (!erg_scheduler_arrive(controller->scheduler, track->job))
            erg_controller_note(controller, "job %u can run on no GPUs of this cluster",
                                record->id);
    } else if (job->state == ERG_JOB_RUNNING && (record->failed_starts > track->failed_starts ||
                                                 is_to_drained(controller, &record->intended))) {
        lose(controller, i, false); /* the GPUs are taken: decide again */
    }
}

static void correct(struct erg_controller *controller, size_t i)
{
    struct erg_live_track *track = &controller->tracks[i];
    struct erg_managed_job *record = &controller->records[i];
    const struct erg_cluster_job *job = &controller->scheduler->jobs[track->job];
    if (job->state != ERG_JOB_RUNNING || record->actual.count == 0 ||
        record->actual.count != record->intended.count ||
        erg_placement_equal(&record->actual, &record->intended) ||
        erg_placement_gpus(&record->actual) != erg_placement_gpus(&record->intended))
        return;
    for (int s = 0; s < record->actual.count; s++) {
        bool same_node = false;
        for (int t = 0; t < record->intended.count; t++)
            same_node |= record->intended.slices[t].node == record->actual.slices[s].node;
        if (!same_node)
            return; /* it is moving elsewhere */
    }
    erg_scheduler_correct(controller->scheduler, track->job, &record->actual);
    erg_placement_assign(&record->intended, &record->actual);
    track->dirty = true;
}

/* Time between the last iteration and now. */
static int note_end(const struct erg_controller *controller, size_t i, struct erg_error *err)
{
    const struct erg_managed_job *record = &controller->records[i];
    const struct erg_report *last = &controller->tracks[i].reader.last;
    if (!controller->journal || last->state != ERG_JOB_DONE || isnan(record->report_s))
        return 0;
    return erg_journal_delay(
        controller->journal, record->token, "end",
        record->since_s - record->report_s + (isnan(last->save_s) ? 0 : last->save_s), err);
}

static int tell_phase(struct erg_controller *controller, size_t i, enum erg_live_phase before,
                      struct erg_error *err)
{
    struct erg_live_track *track = &controller->tracks[i];
    const struct erg_managed_job *record = &controller->records[i];
    const enum erg_cluster_job_state state = controller->scheduler->jobs[track->job].state;
    switch (record->phase) {
    case ERG_PHASE_WAITING:
        tell_waiting(controller, i);
        break;
    case ERG_PHASE_STARTING:
    case ERG_PHASE_RUNNING:
    case ERG_PHASE_STOPPING:
        if (state == ERG_JOB_FUTURE)
            adopt(controller, i);
        if (record->phase != ERG_PHASE_STOPPING)
            correct(controller, i);
        break;
    case ERG_PHASE_RETURNED:
        if (state == ERG_JOB_FUTURE)
            erg_scheduler_arrive(controller->scheduler, track->job);
        else if (state == ERG_JOB_RUNNING)
            lose(controller, i, false);
        break;
    case ERG_PHASE_FAILED:
        lose(controller, i, true);
        break;
    case ERG_PHASE_GONE:
        if (before != ERG_PHASE_GONE)
            erg_controller_note(controller,
                                "job %u is lost: the resource manager no longer lists it; \"ergon "
                                "submit --resume %s/%s\" submits it again",
                                record->id, controller->setup.file->slurm.spool, record->token);
        lose(controller, i, true); /* it may return */
        break;
    case ERG_PHASE_ENDED:
        if (before != ERG_PHASE_ENDED && before != ERG_PHASE_NEW &&
            note_end(controller, i, err) != 0)
            return -1;
        end(controller, i);
        break;
    case ERG_PHASE_CANCELLED:
        lose(controller, i, true); /* its user may submit or requeue it again */
        break;
    default:
        break;
    }
    track->failed_starts = record->failed_starts;
    if (record->phase != before) {
        track->dirty = true;
        if (record->needs_attention)
            erg_controller_note(controller, "job %u needs attention: %s", record->id,
                                record->reason);
    }
    return 0;
}

/* ---- nodes and GPUs of others ---- */

static void tell_nodes(struct erg_controller *controller)
{
    struct erg_scheduler *scheduler = controller->scheduler;
    for (int node = 0; node < scheduler->fleet->nodes; node++) {
        enum erg_live_node_state *known = &controller->node_states[node];
        const enum erg_live_node_state is = controller->snapshot.nodes[node].state;
        if (is == *known || is == ERG_NODE_UNKNOWN || is == ERG_NODE_CHANGES)
            continue;
        if (is == ERG_NODE_DOWN)
            erg_scheduler_fail_node(scheduler, node);
        else if (*known == ERG_NODE_DOWN)
            erg_scheduler_repair_node(scheduler, node);
        if (is != ERG_NODE_DOWN)
            erg_scheduler_drain_node(scheduler, node, is == ERG_NODE_DRAINS);
        if (is == ERG_NODE_OFF && erg_occupancy_idle(scheduler->occupancy, node))
            erg_scheduler_switch_node(scheduler, node, true, 0);
        else if (*known == ERG_NODE_OFF && scheduler->occupancy->off[node])
            erg_scheduler_switch_node(scheduler, node, false, 0);
        const char *reason = controller->snapshot.nodes[node].reason;
        erg_controller_node_event(controller, node, *known, is);
        erg_controller_note(controller, "node %s is %s%s%s", controller->node_names[node],
                            erg_live_node_state_name(is), reason && *reason ? ": " : "",
                            reason ? reason : "");
        *known = is;
    }
}

/* GPUs of jobs that are not managed, or unknown to the scheduler: they may draw up to their
 * limit. */
static void tell_foreign(struct erg_controller *controller)
{
    const struct erg_live_snapshot *snapshot = &controller->snapshot;
    const int nodes = controller->scheduler->fleet->nodes;
    uint64_t *foreign = erg_xcalloc((size_t)nodes, sizeof *foreign);
    for (size_t k = 0; k < snapshot->jobs_count; k++) {
        const struct erg_live_job *job = &snapshot->jobs[k];
        const size_t i =
            is_managed(job) ? erg_controller_find(controller, job->token) : controller->count;
        const bool ours = i < controller->count && controller->records[i].id == job->id &&
                          controller->tracks[i].job >= 0 &&
                          controller->records[i].phase != ERG_PHASE_UNKNOWN;
        for (int s = 0; !ours && s < job->placement.count; s++)
            foreign[job->placement.slices[s].node] |= job->placement.slices[s].gpus;
    }
    controller->limits.idle_w = erg_fleet_idle_power(controller->scheduler->fleet);
    for (int node = 0; node < nodes; node++) {
        const struct erg_gpu_type *type =
            &controller->scheduler->fleet->types[controller->scheduler->occupancy->type_of[node]];
        controller->limits.idle_w += __builtin_popcountll(foreign[node]) *
                                     fmax(0, type->points[0].power_w - type->idle_power_w);
        erg_scheduler_set_foreign(controller->scheduler, node, foreign[node]);
    }
    free(foreign);
}

int erg_controller_observe(struct erg_controller *controller, struct erg_error *err)
{
    if (meet_new(controller, err) != 0)
        return -1;
    enum erg_live_phase *before = erg_xmalloc((controller->count + 1) * sizeof *before);
    for (size_t i = 0; i < controller->count; i++) {
        before[i] = controller->records[i].phase;
        /* There may be thousands of ended ones. */
        if (controller->tracks[i].job >= 0 && before[i] != ERG_PHASE_ENDED &&
            before[i] != ERG_PHASE_CANCELLED)
            read_reports(controller, i);
    }
    erg_reconcile_see(controller->records, controller->count, &controller->snapshot,
                      &controller->limits, controller->now_s);
    int result = 0;
    for (size_t i = 0; result == 0 && i < controller->count; i++) {
        if (controller->tracks[i].job < 0)
            continue;
        result = tell_phase(controller, i, before[i], err) || tell_progress(controller, i, err);
    }
    free(before);
    if (result != 0)
        return -1;
    tell_nodes(controller);
    tell_foreign(controller);
    return 0;
}
