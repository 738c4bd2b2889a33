/* The controller of a live cluster: its cycles, its actions, and the state that it stores. */
#include "cluster/live/controller_internal.h"

#include "base/clock.h"
#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TALKS_MOST_S = 30,
    LEASE_S = 30,
    FORGOTTEN_MOST = 500, /* rows of the scheduler's tables for forgotten jobs */
};

struct erg_live_note *erg_controller_note(struct erg_controller *controller, const char *format,
                                          ...)
{
    struct erg_live_note *note = &controller->notes[controller->notes_count++ % ERG_NOTES];
    *note = (struct erg_live_note){0};
    char line[240];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    erg_utf8_repair(line, sizeof line);
    struct erg_text printable = {0};
    erg_text_add_printable(&printable, line);
    note->unix_s = erg_unix_s();
    snprintf(note->text, sizeof note->text, "%s", printable.data ? printable.data : "");
    erg_utf8_repair(note->text, sizeof note->text);
    if (controller->setup.say)
        controller->setup.say(controller->setup.context, note->text);
    erg_text_release(&printable);
    return note;
}

/* Converts a time of the engine to one of the scheduler. */
static double scheduler_time(const struct erg_controller *controller, double engine_s)
{
    return (engine_s - controller->began_s) * controller->setup.compress;
}

/* ---- start ---- */

/* A table for jobs with their own profiles: powers of two up to all GPUs of a type. */
static struct erg_speeds *table_of(const struct erg_fleet *fleet)
{
    int counts[32], count = 0, most = 1;
    for (unsigned t = 0; t < fleet->types_count; t++) {
        int gpus = fleet->types[t].nodes * fleet->types[t].gpus_per_node;
        most = gpus > most ? gpus : most;
    }
    for (int n = 1; n <= most && count < 31; n *= 2)
        counts[count++] = n;
    return erg_speeds_new(fleet, 0, counts, (size_t)count);
}

static int open_speeds(struct erg_controller *controller, struct erg_error *err)
{
    const struct erg_live_file *file = controller->setup.file;
    if (!file->profiles) {
        controller->speeds = table_of(&file->fleet);
        return 0;
    }
    if (erg_profile_source_open(&controller->profiles, file->profiles, &file->fleet, err) != 0)
        return -1;
    controller->speeds = erg_profile_source_table(controller->profiles);
    return 0;
}

static void name_nodes(struct erg_controller *controller)
{
    const struct erg_live_file *file = controller->setup.file;
    const size_t nodes = (size_t)file->fleet.nodes;
    controller->node_names = erg_xcalloc(nodes, sizeof *controller->node_names);
    controller->node_states = erg_xcalloc(nodes, sizeof *controller->node_states);
    controller->sleep_s = erg_xcalloc(nodes, sizeof *controller->sleep_s);
    for (size_t i = 0; i < nodes; i++) {
        controller->node_names[i] = file->nodes.items[i];
        controller->sleep_s[i] = NAN;
    }
}

/* The scheduler's clock continues that of the previous controller. */
static int go_on_with_clock(struct erg_controller *controller, struct erg_error *err)
{
    double epoch_s;
    if (erg_journal_epoch(controller->journal, &epoch_s, err) != 0)
        return -1;
    controller->began_s -= fmax(0, erg_unix_s() - epoch_s);
    return 0;
}

/* Fills a zeroed controller; release it even after an error. */
static int begin(struct erg_controller *controller, const struct erg_controller_setup *setup,
                 struct erg_error *err)
{
    const struct erg_live_file *file = setup->file;
    const double idle_w = erg_fleet_idle_power(&file->fleet);
    controller->setup = *setup;
    controller->began_s = setup->engine->calls->now_s(setup->engine);
    controller->decided_s = controller->leased_s = controller->forgot_s = -INFINITY;
    if (setup->limits)
        controller->limits = *setup->limits;
    else
        erg_reconcile_limits_init(&controller->limits);
    controller->limits.cap_w = file->power_cap_w;
    controller->limits.idle_w = idle_w;
    name_nodes(controller);
    int result = 0;
    if (file->power_cap_w <= idle_w)
        result = erg_fail(err, ERG_FAILED,
                          "the power cap of %g W cannot be kept: the cluster's idle GPUs draw %g W",
                          file->power_cap_w, idle_w);
    if (result == 0 && !setup->dry_run)
        result = erg_controller_folder(&controller->folder, file->slurm.spool, err) ||
                 erg_journal_open(&controller->journal, setup->journal, err);
    if (result == 0 && controller->journal)
        result = go_on_with_clock(controller, err) ||
                 erg_journal_get_speeds(controller->journal, &controller->recalled_speeds, err);
    if (result == 0)
        result = open_speeds(controller, err);
    if (result != 0)
        return -1;
    controller->scheduler = erg_scheduler_new_live(&(struct erg_live_setup){
        .fleet = &file->fleet,
        .speeds = controller->speeds,
        .source = {erg_controller_fill_speeds, controller},
        .policy = setup->policy,
        .tariff = setup->tariff,
        .power_cap_w = file->power_cap_w,
    });
    return 0;
}

int erg_controller_new(struct erg_controller **controller, const struct erg_controller_setup *setup,
                       struct erg_error *err)
{
    struct erg_controller_setup own = *setup;
    own.journal = setup->journal ? erg_xstrdup(setup->journal) : NULL;
    *controller = erg_xcalloc(1, sizeof **controller);
    if (begin(*controller, &own, err) == 0)
        return 0;
    erg_controller_free(*controller);
    return -1;
}

void erg_live_track_release(struct erg_live_track *track)
{
    erg_arena_release(&track->strings);
    free(track->user);
    free(track->account);
    free(track->left_why);
    erg_placement_release(&track->shown);
}

static void release(struct erg_controller *controller)
{
    if (controller->folder)
        erg_lease_give_back(&controller->lease, controller->folder);
    for (size_t i = 0; i < controller->count; i++) {
        erg_managed_job_release(&controller->records[i]);
        erg_live_track_release(&controller->tracks[i]);
    }
    erg_scheduler_free(controller->scheduler);
    erg_speeds_free(controller->speeds);
    erg_profile_source_close(controller->profiles);
    erg_journal_close(controller->journal);
    erg_live_snapshot_release(&controller->snapshot);
    free(controller->records);
    free(controller->tracks);
    free(controller->by_token);
    free(controller->actions.items);
    free(controller->node_names);
    free(controller->folder);
    erg_text_release(&controller->events);
    json_decref(controller->recalled_speeds);
    free(controller->node_states);
    free(controller->sleep_s);
}

void erg_controller_free(struct erg_controller *controller)
{
    if (!controller)
        return;
    release(controller);
    free((char *)(uintptr_t)controller->setup.journal); /* a copy */
    free(controller);
}

/* The tables of the scheduler and of its policy keep a row for every job that ever arrived. When
 * most rows belong to forgotten jobs, both start again, as after the end of a controller: the
 * journal has all that they need. */
static int renew(struct erg_controller *controller, struct erg_error *err)
{
    if (controller->scheduler->jobs_count <= FORGOTTEN_MOST + 2 * controller->count)
        return 0;
    struct erg_controller *before = erg_xmalloc(sizeof *before);
    *before = *controller;
    release(controller);
    *controller = (struct erg_controller){0};
    int result = begin(controller, &before->setup, err);
    memcpy(controller->notes, before->notes, sizeof before->notes);
    controller->notes_count = before->notes_count;
    controller->decisions = before->decisions;
    controller->actions_done = before->actions_done;
    controller->actions_failed = before->actions_failed;
    free(before);
    return result;
}

bool erg_controller_is_busy(const struct erg_controller *controller)
{
    for (size_t i = 0; i < controller->count; i++) {
        enum erg_live_phase phase = controller->records[i].phase;
        bool ended = phase == ERG_PHASE_ENDED || phase == ERG_PHASE_CANCELLED ||
                     phase == ERG_PHASE_GONE || controller->records[i].given_up;
        if (!ended && controller->tracks[i].job >= 0)
            return true;
    }
    return !controller->seen;
}

/* ---- actions ---- */

/* The plan file for the GPUs that a job is to get. */
static int write_plan(const struct erg_controller *controller, size_t i, struct erg_error *err)
{
    const struct erg_managed_job *record = &controller->records[i];
    const struct erg_live_track *track = &controller->tracks[i];
    const struct erg_scheduler *scheduler = controller->scheduler;
    const struct erg_cluster_job *job = &scheduler->jobs[track->job];
    const struct erg_fleet *fleet = scheduler->fleet;
    if (job->shape < 0)
        return 0;
    const struct erg_gpu_shape *shape = &scheduler->speeds->shapes[job->shape];
    const struct erg_speed *speed = erg_scheduler_speed(scheduler, track->job, job->shape);
    const double slowdown = erg_speed_slowdown(speed, record->point, scheduler->throttle);
    const double idle_w = fleet->types[shape->type].idle_power_w;
    /* A job that pauses, or takes points, by the profile is not to follow its own measurements. */
    const double by_profile = erg_speeds_profile_slowdown(scheduler->speeds, job->request->workload,
                                                          job->shape, record->point) /
                              speed->points[record->point].slowdown;
    const struct erg_live_plan plan = {
        .number = record->plan + 1,
        .type = fleet->types[shape->type].name,
        .nodes = shape->nodes,
        .gpus_per_node = shape->gpus_per_node,
        .point = record->point,
        .slowdown = fmax(slowdown * by_profile, 1),
        /* The power counted for the job, no more. */
        .power_w = idle_w + record->intended_w / erg_shape_gpus(shape),
        .capped = isfinite(controller->limits.cap_w),
        .iteration_s = speed->iteration_s * slowdown,
    };
    return erg_job_folder_plan(controller->setup.file->slurm.spool, record->token, track->uid,
                               &plan, err);
}

static const char *answer_text(enum erg_engine_answer answer)
{
    static const char *const texts[] = {"done", "the job is gone", "refused", "no answer in time",
                                        "failed"};
    return texts[answer];
}

static void say_action(struct erg_controller *controller, const struct erg_action *action,
                       enum erg_engine_answer answer, const struct erg_error *why)
{
    const struct erg_managed_job *record = &controller->records[action->job];
    const char *node = action->node >= 0 ? controller->node_names[action->node] : "";
    const bool done = answer == ERG_ENGINE_DONE;
    struct erg_live_note *note = erg_controller_note(
        controller, "job %u: %s%s%s%s%s%s%s", record->id, erg_action_verb_name(action->verb),
        *node ? " of node " : "", node, action->why ? ", since " : "",
        action->why ? action->why : "", done ? "" : ": ", done ? "" : answer_text(answer));
    snprintf(note->why, sizeof note->why, "%s", action->why ? action->why : "");
    if (!done && why->message[0])
        erg_controller_note(controller, "job %u: %s", record->id, why->message);
    controller->actions_done++;
    controller->actions_failed += !done;
}

static int act(struct erg_controller *controller, const struct erg_action *action,
               struct erg_error *err)
{
    struct erg_managed_job *record = &controller->records[action->job];
    struct erg_error why = {0};
    enum erg_engine_answer answer = ERG_ENGINE_DONE;
    int64_t id;
    if (controller->setup.dry_run) {
        say_action(controller, action, answer, &why);
        return 0;
    }
    if (erg_journal_begin(controller->journal, &id, record->token, action->verb, action->node,
                          action->why ? action->why : "", err) != 0)
        return -1;
    if ((action->verb == ERG_ACTION_PACE || action->verb == ERG_ACTION_PLACE) &&
        write_plan(controller, action->job, &why) != 0)
        answer = ERG_ENGINE_BROKEN;
    else
        answer = erg_reconcile_act(controller->setup.engine, controller->records, action, &why);
    /* The time after the command, which may have waited. */
    const double now_s = controller->setup.engine->calls->now_s(controller->setup.engine);
    erg_reconcile_answer(record, action, answer, &controller->limits, now_s);
    controller->tracks[action->job].dirty = true;
    say_action(controller, action, answer, &why);
    return erg_journal_end(controller->journal, id, answer,
                           answer == ERG_ENGINE_DONE ? "" : why.message, err);
}

int erg_controller_renew_lease(struct erg_controller *controller, struct erg_error *err)
{
    const double now_s = controller->setup.engine->calls->now_s(controller->setup.engine);
    if (controller->setup.dry_run || now_s - controller->leased_s < LEASE_S / 3.0)
        return 0;
    const int result = erg_lease_renew(&controller->lease, controller->folder, LEASE_S, err);
    if (result < 0 || (result > 0 && controller->leased_s == -INFINITY))
        return -1;
    if (result > 0 && !controller->lease_late)
        erg_controller_note(controller, "%s", err->message);
    controller->lease_late = result > 0;
    if (result == 0)
        controller->leased_s = now_s;
    return 0;
}

static int act_all(struct erg_controller *controller, struct erg_error *err)
{
    erg_reconcile_next(controller->records, controller->count, &controller->snapshot,
                       &controller->setup.file->fleet, &controller->limits, controller->now_s,
                       &controller->actions);
    for (size_t i = 0; i < controller->actions.count; i++)
        if (erg_controller_renew_lease(controller, err) != 0 ||
            act(controller, &controller->actions.items[i], err) != 0)
            return -1;
    return 0;
}

/* ---- stored state ---- */

static int keep(struct erg_controller *controller, struct erg_error *err)
{
    if (!controller->journal)
        return 0;
    bool any = false;
    for (size_t i = 0; !any && i < controller->count; i++)
        any = controller->tracks[i].dirty && controller->tracks[i].job >= 0;
    if (!any)
        return 0;
    if (erg_journal_gather(controller->journal, err) != 0)
        return -1;
    for (size_t i = 0; i < controller->count; i++) {
        struct erg_live_track *track = &controller->tracks[i];
        if (!track->dirty || track->job < 0)
            continue;
        const struct erg_journal_job job = {
            .record = &controller->records[i],
            .attained_gpu_s = erg_scheduler_attained(controller->scheduler, track->job),
            .starts = track->starts,
            .chosen_point = controller->scheduler->jobs[track->job].point,
        };
        if (erg_journal_put_job(controller->journal, &job, controller->node_names,
                                controller->now_s, err) != 0)
            return -1;
        track->dirty = false;
    }
    json_t *policy = erg_scheduler_save(controller->scheduler);
    json_t *measured = erg_controller_measured(controller);
    int result = erg_journal_put_speeds(controller->journal, measured, err);
    json_decref(measured);
    if (result == 0)
        result = policy ? erg_journal_put_policy(controller->journal,
                                                 controller->setup.policy->name, policy, err)
                        : 0;
    json_decref(policy);
    return result == 0 ? erg_journal_flush(controller->journal, err) : result;
}

/* The effect of an action that an earlier controller started and did not finish is unknown. */
static int doubt_open_actions(struct erg_controller *controller, struct erg_error *err)
{
    struct erg_open_action *open = NULL;
    size_t count = 0;
    int result = erg_journal_take_open(controller->journal, &open, &count, err);
    for (size_t k = 0; result == 0 && k < count; k++) {
        const size_t i = erg_controller_find(controller, open[k].token);
        if (i == controller->count)
            continue;
        open[k].action.job = i;
        erg_reconcile_doubt(&controller->records[i], &open[k].action, &controller->limits,
                            controller->now_s);
    }
    free(open);
    return result;
}

static int recall(struct erg_controller *controller, struct erg_error *err)
{
    json_t *policy = NULL;
    controller->recalled = true;
    if (!controller->journal)
        return 0;
    if (doubt_open_actions(controller, err) != 0 ||
        erg_journal_get_policy(controller->journal, controller->setup.policy->name, &policy, err) !=
            0)
        return -1;
    if (policy)
        erg_scheduler_load(controller->scheduler, policy);
    json_decref(policy);
    return 0;
}

/* ---- cycles ---- */

/* No answer: increases the wait each time. */
static void back_off(struct erg_controller *controller, const struct erg_error *why, double *wait_s)
{
    if (controller->late_s == 0)
        erg_controller_note(controller, "the resource manager does not answer: %s", why->message);
    controller->late_s = fmin(TALKS_MOST_S, fmax(1, 2 * controller->late_s));
    *wait_s = controller->late_s;
}

/* The time of the next cycle. */
static double next_wait(const struct erg_controller *controller)
{
    const struct erg_live_slurm *slurm = &controller->setup.file->slurm;
    const double due_s =
        controller->began_s + erg_scheduler_due(controller->scheduler) / controller->setup.compress;
    return fmax(0.01, fmin(slurm->poll_s, due_s - controller->now_s));
}

int erg_controller_pass(struct erg_controller *controller, double *wait_s, struct erg_error *err)
{
    struct erg_live_engine *engine = controller->setup.engine;
    struct erg_error why = {0};
    controller->now_s = engine->calls->now_s(engine);
    if (erg_controller_renew_lease(controller, err) != 0)
        return -1;
    enum erg_engine_answer answer = engine->calls->snapshot(engine, &controller->snapshot, &why);
    if (answer == ERG_ENGINE_BROKEN)
        return erg_fail(err, ERG_FAILED, "%s", why.message);
    if (answer != ERG_ENGINE_DONE) {
        back_off(controller, &why, wait_s);
        return 0;
    }
    if (controller->late_s > 0)
        erg_controller_note(controller, "the resource manager answers again");
    controller->late_s = 0;
    controller->seen = true;
    controller->now_s = controller->snapshot.at_s;
    erg_scheduler_advance(controller->scheduler, scheduler_time(controller, controller->now_s));
    if ((controller->journal && erg_journal_gather(controller->journal, err) != 0) ||
        erg_controller_observe(controller, err) != 0 ||
        (!controller->recalled && recall(controller, err) != 0) ||
        (controller->journal && erg_journal_flush(controller->journal, err) != 0) ||
        erg_controller_decide(controller, err) != 0 || keep(controller, err) != 0 ||
        act_all(controller, err) != 0 || keep(controller, err) != 0)
        return -1;
    if (erg_controller_switch_off(controller, err) != 0)
        return -1;
    erg_controller_write_events(controller);
    if (erg_controller_forget(controller, err) != 0)
        return -1;
    erg_controller_publish(controller);
    *wait_s = next_wait(controller);
    return renew(controller, err);
}

int erg_controller_hand_back(struct erg_controller *controller, size_t *count,
                             struct erg_error *err)
{
    struct erg_live_engine *engine = controller->setup.engine;
    struct erg_error why = {0};
    *count = 0;
    if (engine->calls->snapshot(engine, &controller->snapshot, &why) != ERG_ENGINE_DONE)
        return erg_fail(err, ERG_FAILED, "%s", why.message);
    controller->now_s = controller->snapshot.at_s;
    if (erg_controller_observe(controller, err) != 0)
        return -1;
    for (size_t i = 0; i < controller->count; i++) {
        const struct erg_managed_job *record = &controller->records[i];
        const struct erg_live_track *track = &controller->tracks[i];
        if (record->phase != ERG_PHASE_WAITING || track->job < 0)
            continue;
        if (!controller->setup.dry_run &&
            engine->calls->hand_back(engine, record->id, record->token, track->request.gpus,
                                     &why) != ERG_ENGINE_DONE) {
            erg_controller_note(controller, "job %u could not be returned: %s", record->id,
                                why.message);
            continue;
        }
        erg_controller_note(controller, "job %u is now an ordinary job of the resource manager",
                            record->id);
        ++*count;
    }
    return 0;
}
