/* Switches nodes off that no job has had for a while, where the live file saves power. */
#include "cluster/live/controller_internal.h"

#include <assert.h>
#include <math.h>

enum { AT_ONCE = 8 }; /* nodes per cycle, so that a cycle stays short */

/* Until the next attempt for a node that stays on, since a setting or a right is missing. */
static const double again_s = 600;

/* Seconds of the engine for which a node stays on that has just become idle. */
static double lingers_s(const struct erg_controller *controller)
{
    const struct erg_policy *policy = controller->setup.policy;
    const double after_s = controller->setup.file->fleet.power_saving.after_s;
    const double own_s = policy->linger ? policy->linger(controller->scheduler) : after_s;
    return fmax(0, fmin(after_s, own_s)) / controller->setup.compress;
}

static void mark(bool *busy, const struct erg_placement *placement)
{
    for (int s = 0; s < placement->count; s++)
        busy[placement->slices[s].node] = true;
}

/* Nodes on which a job runs, leaves, is to run, or may start at any moment. */
static bool *find_busy(const struct erg_controller *controller)
{
    const struct erg_live_snapshot *snapshot = &controller->snapshot;
    bool *busy = erg_xcalloc(snapshot->nodes_count + 1, sizeof *busy);
    for (size_t i = 0; i < snapshot->jobs_count; i++)
        mark(busy, &snapshot->jobs[i].placement);
    for (size_t i = 0; i < controller->count; i++) {
        const struct erg_managed_job *record = &controller->records[i];
        mark(busy, &record->intended);
        mark(busy, &record->actual);
        if (record->unsure || !isnan(record->released_s))
            mark(busy, &record->asked);
    }
    return busy;
}

static enum erg_engine_answer switch_off(struct erg_controller *controller, int node)
{
    struct erg_live_engine *engine = controller->setup.engine;
    struct erg_error why = {0};
    const char *name = controller->node_names[node];
    const enum erg_engine_answer answer =
        controller->setup.dry_run ? ERG_ENGINE_DONE : engine->calls->sleep(engine, node, &why);
    controller->actions_done++;
    controller->actions_failed += answer != ERG_ENGINE_DONE;
    if (answer == ERG_ENGINE_DONE)
        erg_controller_note(controller, "node %s: sleeps, since no job needs it", name);
    else
        erg_controller_note(controller, "node %s stays on: %s", name, why.message);
    return answer;
}

int erg_controller_switch_off(struct erg_controller *controller, struct erg_error *err)
{
    const struct erg_live_snapshot *snapshot = &controller->snapshot;
    if (!controller->setup.file->fleet.saves_power)
        return 0;
    assert(snapshot->nodes_count == (size_t)controller->setup.file->fleet.nodes);
    bool *busy = find_busy(controller);
    int left = AT_ONCE, result = 0;
    for (size_t node = 0; result == 0 && node < snapshot->nodes_count; node++) {
        double *due_s = &controller->sleep_s[node];
        if (busy[node] || snapshot->nodes[node].state != ERG_NODE_UP)
            *due_s = NAN;
        else if (isnan(*due_s))
            *due_s = controller->now_s + lingers_s(controller);
        if (isnan(*due_s) || *due_s > controller->now_s || left == 0)
            continue;
        result = erg_controller_renew_lease(controller, err);
        if (result != 0)
            break;
        const enum erg_engine_answer answer = switch_off(controller, (int)node);
        *due_s = controller->now_s + again_s;
        /* After a call without an answer, this cycle switches no other node off. */
        left = answer == ERG_ENGINE_LATER || answer == ERG_ENGINE_BROKEN ? 0 : left - 1;
    }
    free(busy);
    return result;
}
