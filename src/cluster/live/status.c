/* The state of a controller as a document for people, pages and metrics. */
#include "cluster/live/controller_internal.h"

#include "base/clock.h"
#include "io/file.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- expected starts and ends ---- */

/* Time until a running job has finished, on the engine's clock; NAN: unknown. */
static double left_s(const struct erg_controller *controller, size_t i)
{
    const struct erg_scheduler *scheduler = controller->scheduler;
    const int id = controller->tracks[i].job;
    if (id < 0 || scheduler->jobs[id].state != ERG_JOB_RUNNING)
        return NAN;
    return erg_controller_left_s(scheduler, id, scheduler->jobs[id].shape,
                                 controller->records[i].point) /
           controller->setup.compress;
}

/* When GPUs become free. */
struct release {
    double at_s;
    int gpus;
};

static int compare_releases(const void *a, const void *b)
{
    const struct release *x = a, *y = b;
    return (x->at_s > y->at_s) - (x->at_s < y->at_s);
}

struct releases {
    struct release *items;
    size_t count, capacity;
};

/* The time at which the given number of GPUs will be free, if jobs end as expected and none grows;
 * takes them. */
static double take(struct releases *releases, int gpus)
{
    int found = 0;
    for (size_t k = 0; k < releases->count; k++) {
        found += releases->items[k].gpus;
        if (found < gpus)
            continue;
        const double at_s = releases->items[k].at_s;
        releases->items[k].gpus = found - gpus;
        for (size_t before = 0; before < k; before++)
            releases->items[before].gpus = 0;
        return at_s;
    }
    return NAN;
}

static int free_gpus(const struct erg_scheduler *scheduler)
{
    int gpus = 0;
    for (unsigned t = 0; t < scheduler->fleet->types_count; t++)
        gpus += scheduler->occupancy->free_gpus[t];
    return gpus;
}

/* ---- the document ---- */

static json_t *nodes_json(const struct erg_controller *controller)
{
    const struct erg_fleet *fleet = controller->scheduler->fleet;
    json_t *nodes = json_array();
    for (int n = 0; n < fleet->nodes; n++) {
        const struct erg_gpu_type *type =
            &fleet->types[controller->scheduler->occupancy->type_of[n]];
        json_t *gpus = json_array();
        for (int g = 0; g < type->gpus_per_node; g++)
            json_array_append_new(gpus, json_null());
        const struct erg_live_snapshot *snapshot = &controller->snapshot;
        for (size_t k = 0; k < snapshot->jobs_count; k++)
            for (int s = 0; s < snapshot->jobs[k].placement.count; s++)
                for (int g = 0; g < type->gpus_per_node; g++)
                    if (snapshot->jobs[k].placement.slices[s].node == n &&
                        snapshot->jobs[k].placement.slices[s].gpus >> g & 1)
                        json_array_set_new(gpus, (size_t)g, json_integer(snapshot->jobs[k].id));
        json_array_append_new(
            nodes, erg_json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", controller->node_names[n],
                                 "type", type->name, "state",
                                 erg_live_node_state_name(snapshot->nodes ? snapshot->nodes[n].state
                                                                          : ERG_NODE_UNKNOWN),
                                 "reason", snapshot->nodes ? snapshot->nodes[n].reason : NULL,
                                 "gpus", gpus));
    }
    return nodes;
}

static const char *why_waiting(const struct erg_controller *controller, size_t i)
{
    const struct erg_managed_job *record = &controller->records[i];
    if (record->needs_attention || record->given_up)
        return record->reason;
    if (record->phase != ERG_PHASE_WAITING && record->phase != ERG_PHASE_FAILED)
        return NULL;
    if (record->waits_for)
        return record->waits_for;
    if (record->not_before_s > controller->now_s)
        return "it failed and is tried again later";
    const enum erg_wait_reason reason =
        erg_scheduler_reason(controller->scheduler, controller->tracks[i].job);
    return reason == ERG_WAIT_NONE ? "its placement is starting" : erg_wait_reason_text(reason);
}

static json_t *job_json(const struct erg_controller *controller, size_t i, double unix_s,
                        double starts_s)
{
    const struct erg_managed_job *record = &controller->records[i];
    const struct erg_live_track *track = &controller->tracks[i];
    const struct erg_report *last = &track->reader.last;
    const bool reported = last->incarnation > 0;
    json_t *nodes = json_array();
    for (int s = 0; s < record->actual.count; s++)
        json_array_append_new(
            nodes, erg_json_new_string(controller->node_names[record->actual.slices[s].node]));
    return erg_json_pack(
        "{s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:o, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f,"
        " s:f, s:f, s:f, s:i, s:i, s:b}",
        "token", record->token, "id", (json_int_t)record->id, "name", track->request.name, "user",
        track->user, "account", track->account, "phase", erg_live_phase_name(record->phase),
        "reason", why_waiting(controller, i), "gpus", erg_placement_gpus(&record->actual),
        "gpus_intended", erg_placement_gpus(&record->intended), "nodes", nodes, "point",
        record->point, "since_unix_s", unix_s - (controller->now_s - record->since_s),
        "submitted_unix_s", track->request.submitted_unix_s, "deadline_unix_s",
        track->request.deadline_unix_s, "iteration", reported ? last->iteration : NAN, "iterations",
        track->request.iterations, "iteration_s", reported ? last->iteration_s : NAN, "joules",
        reported ? last->joules : NAN, "starts_unix_s", unix_s + starts_s, "ends_unix_s",
        unix_s + left_s(controller, i), "attained_gpu_s",
        erg_scheduler_attained(controller->scheduler, track->job) / controller->setup.compress,
        "starts", track->starts, "gpus_asked", track->request.gpus, "needs_attention",
        record->needs_attention);
}

/* Waiting jobs are counted in the order of their records, which is that of their arrival. */
static json_t *jobs_json(const struct erg_controller *controller, double unix_s)
{
    struct releases releases = {0};
    const int idle = free_gpus(controller->scheduler);
    if (idle > 0)
        ERG_PUSH(&releases, items, (struct release){0, idle});
    for (size_t i = 0; i < controller->count; i++) {
        const double left = left_s(controller, i);
        if (!isnan(left))
            ERG_PUSH(&releases, items,
                     (struct release){left, erg_placement_gpus(&controller->records[i].intended)});
    }
    if (releases.count > 0)
        qsort(releases.items, releases.count, sizeof *releases.items, compare_releases);
    json_t *jobs = json_array();
    for (size_t i = 0; i < controller->count; i++) {
        if (controller->tracks[i].job < 0)
            continue;
        const bool waits = controller->records[i].phase == ERG_PHASE_WAITING &&
                           controller->records[i].intended.count == 0 &&
                           !controller->records[i].given_up;
        const double starts_s = waits ? take(&releases, controller->tracks[i].request.gpus) : NAN;
        json_array_append_new(jobs, job_json(controller, i, unix_s, starts_s));
    }
    free(releases.items);
    return jobs;
}

static json_t *notes_json(const struct erg_controller *controller)
{
    json_t *notes = json_array();
    const size_t count = controller->notes_count < ERG_NOTES ? controller->notes_count : ERG_NOTES;
    for (size_t k = 0; k < count; k++) {
        const struct erg_live_note *note =
            &controller->notes[(controller->notes_count - count + k) % ERG_NOTES];
        json_array_append_new(notes, erg_json_pack("{s:f, s:s, s:s, s:s, s:s}", "at_unix_s",
                                                   note->unix_s, "text", note->text, "why",
                                                   *note->why ? note->why : NULL, "gain",
                                                   *note->gain ? note->gain : NULL, "cost",
                                                   *note->cost ? note->cost : NULL));
    }
    return notes;
}

json_t *erg_controller_status(const struct erg_controller *controller)
{
    const double unix_s = erg_unix_s(), cap_w = controller->limits.cap_w;
    return erg_json_pack(
        "{s:i, s:f, s:s, s:f, s:b, s:i, s:i, s:i, s:{s:f, s:f, s:f}, s:o, s:o, s:o}",
        "schema_version", 1, "at_unix_s", unix_s, "policy", controller->setup.policy->name,
        "compress", controller->setup.compress, "answers",
        controller->seen && controller->late_s == 0, "decisions", (int)controller->decisions,
        "actions", (int)controller->actions_done, "actions_failed", (int)controller->actions_failed,
        "power", "now_w", erg_scheduler_power(controller->scheduler), "idle_w",
        controller->limits.idle_w, "cap_w", cap_w, "nodes", nodes_json(controller), "jobs",
        jobs_json(controller, unix_s), "notes", notes_json(controller));
}

void erg_controller_publish(struct erg_controller *controller)
{
    if (controller->setup.dry_run)
        return;
    struct erg_error why = {0};
    json_t *status = erg_controller_status(controller);
    char *path = erg_file_path(controller->folder, "status.json");
    const bool failed = erg_json_write(path, status, &why) != 0;
    if (failed && !controller->complained)
        erg_controller_note(controller, "%s", why.message);
    controller->complained = failed;
    json_decref(status);
    free(path);
}
