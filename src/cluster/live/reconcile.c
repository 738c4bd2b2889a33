/* The next actions of a live controller, and the meaning of their answers. */
#include "cluster/live/reconcile_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Lists of actions, in the order of their execution. */
enum step { LOWER, STOP, HOLD, KILL, WAKE, RAISE, PLACE, STEPS };

/* A cycle: which GPUs are free, and which are promised in it. */
struct pass {
    struct erg_managed_job *jobs;
    const struct erg_live_snapshot *snapshot;
    const struct erg_reconcile_limits *limits;
    double now_s;
    int *free;   /* free GPUs by node */
    bool *woken; /* by node */
    double budget_w;
    struct erg_actions steps[STEPS];
};

const char *erg_action_verb_name(enum erg_action_verb verb)
{
    static const char *const names[] = {
        [ERG_ACTION_PACE] = "pace", [ERG_ACTION_STOP] = "stop", [ERG_ACTION_HOLD] = "hold",
        [ERG_ACTION_KILL] = "kill", [ERG_ACTION_WAKE] = "wake", [ERG_ACTION_PLACE] = "place",
    };
    return names[verb];
}

static void take(int *free_gpus, const struct erg_placement *placement, int sign)
{
    for (int i = 0; i < placement->count; i++)
        free_gpus[placement->slices[i].node] -=
            sign * __builtin_popcountll(placement->slices[i].gpus);
}

/* Returns true if a job that does not run may get its requested GPUs at any moment. */
static bool is_promised(const struct erg_managed_job *job)
{
    return (job->phase == ERG_PHASE_STARTING && !job->running) ||
           (job->phase == ERG_PHASE_WAITING && job->unsure);
}

static void count_free(struct pass *pass, size_t count, const struct erg_fleet *fleet)
{
    for (unsigned type = 0; type < fleet->types_count; type++)
        for (int i = 0; i < fleet->types[type].nodes; i++)
            pass->free[fleet->types[type].first_node + i] = fleet->types[type].gpus_per_node;
    for (size_t i = 0; i < pass->snapshot->jobs_count; i++) {
        const struct erg_live_job *job = &pass->snapshot->jobs[i];
        if (job->state == ERG_LIVE_RUNNING || job->state == ERG_LIVE_COMPLETING ||
            job->state == ERG_LIVE_UNKNOWN)
            take(pass->free, &job->placement, 1);
    }
    for (size_t i = 0; i < count; i++)
        if (is_promised(&pass->jobs[i]))
            take(pass->free, &pass->jobs[i].asked, 1);
}

/* Power in W that a running job may draw under its plans. */
static double allowed_w(const struct erg_managed_job *job)
{
    return fmax(job->told_w, job->before_w);
}

static double draw_w(const struct erg_managed_job *job)
{
    switch (job->phase) {
    case ERG_PHASE_WAITING:
        return job->unsure || !job->held_by_administrator ? allowed_w(job) : 0;
    case ERG_PHASE_NEW:
    case ERG_PHASE_ENDED:
    case ERG_PHASE_FAILED:
    case ERG_PHASE_CANCELLED:
    case ERG_PHASE_GONE:
        return 0;
    case ERG_PHASE_STARTING:
    case ERG_PHASE_RETURNED:
    case ERG_PHASE_RUNNING:
    case ERG_PHASE_STOPPING:
    case ERG_PHASE_ENDING:
    case ERG_PHASE_UNKNOWN:
        break;
    }
    return allowed_w(job);
}

static void push(struct pass *pass, enum step step, enum erg_action_verb verb, size_t job,
                 const char *why)
{
    const struct erg_managed_job *of = &pass->jobs[job];
    if (verb != ERG_ACTION_PACE && pass->now_s < of->retry_s)
        return;
    ERG_PUSH(&pass->steps[step], items,
             (struct erg_action){.verb = verb, .job = job, .node = -1, .why = why});
}

static bool should_run(const struct erg_managed_job *job)
{
    return job->intended.count > 0 && !job->given_up;
}

/* Equal powers: files contain rounding errors. */
static const double same_w = 1e-6;

static void pace(struct pass *pass, size_t index)
{
    struct erg_managed_job *job = &pass->jobs[index];
    const double above_w = job->intended_w - job->told_w;
    if (job->told_point == job->point && fabs(above_w) <= same_w)
        return;
    /* If jobs together may exceed the cap because too little is known, jobs that may have to lower
     * their power get a plan, even if their power may also rise. */
    double more_w = job->intended_w - allowed_w(job);
    if (above_w <= same_w) {
        push(pass, LOWER, ERG_ACTION_PACE, index, "another operating point");
    } else if (more_w <= pass->budget_w) {
        pass->budget_w -= fmax(more_w, 0);
        push(pass, RAISE, ERG_ACTION_PACE, index, "another operating point");
    }
}

static void reconcile_pending(struct pass *pass, size_t index)
{
    const struct erg_managed_job *job = &pass->jobs[index];
    if (!should_run(job) || !erg_placement_alike(&job->asked, &job->intended)) {
        push(pass, HOLD, ERG_ACTION_HOLD, index, "its intended GPUs changed before it started");
        return;
    }
    for (int i = 0; i < job->asked.count; i++) {
        enum erg_live_node_state state = pass->snapshot->nodes[job->asked.slices[i].node].state;
        if (state == ERG_NODE_DRAINS || state == ERG_NODE_DOWN || state == ERG_NODE_OFF) {
            push(pass, HOLD, ERG_ACTION_HOLD, index, "its node accepts no more jobs");
            return;
        }
    }
    if (pass->now_s - job->released_s > pass->limits->start_deadline_s) {
        size_t before = pass->steps[HOLD].count;
        push(pass, HOLD, ERG_ACTION_HOLD, index, "it did not start in time");
        if (pass->steps[HOLD].count > before)
            pass->steps[HOLD].items[before].failed = true;
        return;
    }
    pace(pass, index);
}

static bool is_silent(const struct pass *pass, const struct erg_managed_job *job)
{
    return pass->now_s - fmax(job->report_s, job->since_s) > 3 * pass->limits->silence_s;
}

static void reconcile_running(struct pass *pass, size_t index)
{
    const struct erg_managed_job *job = &pass->jobs[index];
    bool fits = job->actual.count == 0 || erg_placement_alike(&job->actual, &job->intended);
    bool stays = should_run(job) && fits;
    if (is_silent(pass, job))
        push(pass, KILL, ERG_ACTION_KILL, index, "it stopped reporting");
    else if (stays)
        pace(pass, index);
    else if (job->reported)
        push(pass, STOP, ERG_ACTION_STOP, index,
             should_run(job) ? "it gets other GPUs" : "it has to wait");
    else if (!job->in_doubt)
        push(pass, KILL, ERG_ACTION_KILL, index, "it must leave and has nothing to save yet");
}

static void reconcile_stopping(struct pass *pass, size_t index)
{
    const struct erg_managed_job *job = &pass->jobs[index];
    /* A trainer's report of its save time cannot hold GPUs for days. */
    double deadline_s =
        fmax(pass->limits->save_least_s, 3 * fmin(job->longest_save_s, pass->limits->silence_s));
    if (!isnan(job->killed_s)) {
        if (pass->now_s - job->killed_s > pass->limits->kill_again_s)
            push(pass, KILL, ERG_ACTION_KILL, index, "it was killed and still runs");
    } else if (pass->now_s - job->stopped_s > deadline_s) {
        push(pass, KILL, ERG_ACTION_KILL, index, "it was signalled and did not leave in time");
    }
}

/* Why a waiting job is not placed now, or NULL. Wakes its nodes. */
static const char *obstacle(struct pass *pass, size_t index)
{
    const struct erg_managed_job *job = &pass->jobs[index];
    const struct erg_placement *intended = &job->intended;
    if (pass->now_s < job->not_before_s)
        return job->needs_attention ? "it needs attention" : "it failed and is tried again later";
    if (pass->now_s < job->retry_s)
        return "the resource manager did not carry out the last request";
    for (int i = 0; i < intended->count; i++) {
        enum erg_live_node_state state = pass->snapshot->nodes[intended->slices[i].node].state;
        if (state == ERG_NODE_DRAINS || state == ERG_NODE_DOWN)
            return "a node drains or is down";
        if (state == ERG_NODE_UNKNOWN)
            return "the state of a node is unknown";
        if (erg_reconcile_avoids(job, intended->slices[i].node, pass->now_s))
            return "it failed on that node";
    }
    if (job->intended_w - draw_w(job) > pass->budget_w)
        return "the power cap leaves no room yet";
    bool asleep = false, taken = false;
    for (int i = 0; i < intended->count; i++) {
        int node = intended->slices[i].node;
        enum erg_live_node_state state = pass->snapshot->nodes[node].state;
        asleep = asleep || state == ERG_NODE_OFF || state == ERG_NODE_CHANGES;
        taken = taken || pass->free[node] < __builtin_popcountll(intended->slices[i].gpus);
        if (state != ERG_NODE_OFF || pass->woken[node])
            continue;
        pass->woken[node] = true;
        push(pass, WAKE, ERG_ACTION_WAKE, index, "a job is to run there");
        pass->steps[WAKE].items[pass->steps[WAKE].count - 1].node = node;
    }
    return asleep ? "a node is powered up" : taken ? "its GPUs are not free yet" : NULL;
}

static void reconcile_waiting(struct pass *pass, size_t index)
{
    struct erg_managed_job *job = &pass->jobs[index];
    if (should_run(job)) {
        if (job->unsure)
            take(pass->free, &job->asked, -1);
        job->waits_for = obstacle(pass, index);
        if (!job->waits_for) {
            take(pass->free, &job->intended, 1);
            pass->budget_w -= fmax(job->intended_w - draw_w(job), 0);
            push(pass, PLACE, ERG_ACTION_PLACE, index, "its GPUs are free");
            return;
        }
        if (job->unsure)
            take(pass->free, &job->asked, 1);
    }
    if (job->unsure)
        push(pass, HOLD, ERG_ACTION_HOLD, index, "a placement was not answered");
    else if (!job->held_by_administrator)
        push(pass, HOLD, ERG_ACTION_HOLD, index, "its user could start it");
}

static void reconcile_job(struct pass *pass, size_t index)
{
    const struct erg_managed_job *job = &pass->jobs[index];
    if (job->completing)
        return;
    switch (job->phase) {
    case ERG_PHASE_RETURNED:
        push(pass, HOLD, ERG_ACTION_HOLD, index, "it was requeued");
        break;
    case ERG_PHASE_STARTING:
        if (!job->running) {
            reconcile_pending(pass, index);
            break;
        }
        reconcile_running(pass, index);
        break;
    case ERG_PHASE_RUNNING:
        reconcile_running(pass, index);
        break;
    case ERG_PHASE_STOPPING:
        reconcile_stopping(pass, index);
        break;
    case ERG_PHASE_ENDING:
        if (job->reported && pass->now_s - job->since_s > 3 * pass->limits->silence_s)
            push(pass, KILL, ERG_ACTION_KILL, index, "it is done and does not leave");
        break;
    case ERG_PHASE_FAILED:
        if (!job->given_up)
            push(pass, KILL, ERG_ACTION_KILL, index, "it failed and is requeued");
        break;
    case ERG_PHASE_WAITING: /* later, in order */
    case ERG_PHASE_NEW:
    case ERG_PHASE_ENDED:
    case ERG_PHASE_CANCELLED:
    case ERG_PHASE_GONE:
    case ERG_PHASE_UNKNOWN:
        break;
    }
}

struct placing_turn {
    long order;
    size_t job;
};

static int compare_turns(const void *a, const void *b)
{
    const struct placing_turn *x = a, *y = b;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

void erg_reconcile_next(struct erg_managed_job *jobs, size_t count,
                        const struct erg_live_snapshot *snapshot, const struct erg_fleet *fleet,
                        const struct erg_reconcile_limits *limits, double now_s,
                        struct erg_actions *actions)
{
    struct pass pass = {.jobs = jobs, .snapshot = snapshot, .limits = limits, .now_s = now_s};
    pass.free = erg_xcalloc((size_t)fleet->nodes + 1, sizeof *pass.free);
    pass.woken = erg_xcalloc((size_t)fleet->nodes + 1, sizeof *pass.woken);
    struct placing_turn *turns = erg_xcalloc(count + 1, sizeof *turns);
    size_t waiting = 0;
    count_free(&pass, count, fleet);
    pass.budget_w = limits->cap_w - limits->idle_w;
    for (size_t i = 0; i < count; i++)
        pass.budget_w -= draw_w(&jobs[i]);
    for (size_t i = 0; i < count; i++) {
        jobs[i].waits_for = NULL;
        if (jobs[i].left_alone)
            continue;
        if (jobs[i].phase == ERG_PHASE_WAITING)
            turns[waiting++] = (struct placing_turn){jobs[i].order, i};
        else
            reconcile_job(&pass, i);
    }
    qsort(turns, waiting, sizeof *turns, compare_turns);
    for (size_t i = 0; i < waiting; i++)
        reconcile_waiting(&pass, turns[i].job);
    actions->count = 0;
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < pass.steps[step].count; i++)
            ERG_PUSH(actions, items, pass.steps[step].items[i]);
        free(pass.steps[step].items);
    }
    free(turns);
    free(pass.woken);
    free(pass.free);
}

enum erg_engine_answer erg_reconcile_act(struct erg_live_engine *engine,
                                         const struct erg_managed_job *jobs,
                                         const struct erg_action *action, struct erg_error *err)
{
    const struct erg_managed_job *job = &jobs[action->job];
    switch (action->verb) {
    case ERG_ACTION_STOP:
        return engine->calls->stop(engine, job->id, job->token, err);
    case ERG_ACTION_HOLD:
        return engine->calls->hold(engine, job->id, job->token, err);
    case ERG_ACTION_KILL:
        return engine->calls->kill(engine, job->id, job->token, err);
    case ERG_ACTION_WAKE:
        return engine->calls->wake(engine, action->node, err);
    case ERG_ACTION_PLACE:
        return engine->calls->place(engine, job->id, job->token, &job->intended, err);
    case ERG_ACTION_PACE:
        break;
    }
    return ERG_ENGINE_DONE;
}

/* Records that the plan file has the intended plan, or, if not `surely`, that it may have it.
 * `alone`: no running incarnation has read another plan. */
static void tell(struct erg_managed_job *job, bool surely, bool alone)
{
    job->plan++;
    if (!surely) {
        job->before_w = fmax(allowed_w(job), job->intended_w);
        job->told_w = fmin(job->told_w, job->intended_w);
        job->told_point = -1;
        return;
    }
    job->before_w = alone ? 0 : allowed_w(job);
    job->told_w = job->intended_w;
    job->told_point = job->point;
}

static void answer_place(struct erg_managed_job *job, enum erg_engine_answer answer,
                         const struct erg_reconcile_limits *limits, double now_s)
{
    bool written = answer != ERG_ENGINE_BROKEN;
    job->holds = job->holds && answer == ERG_ENGINE_BROKEN;
    tell(job, written, job->held_by_administrator && !job->unsure);
    if (answer == ERG_ENGINE_REFUSED)
        erg_managed_job_failed_start(job, "the resource manager refused the placement", 0, limits,
                                     now_s);
    if (answer != ERG_ENGINE_DONE && answer != ERG_ENGINE_LATER)
        return;
    erg_placement_assign(&job->asked, &job->intended);
    job->released_s = now_s;
    job->unsure = answer == ERG_ENGINE_LATER;
}

static void answer_hold(struct erg_managed_job *job, bool failed, enum erg_engine_answer answer,
                        const struct erg_reconcile_limits *limits, double now_s)
{
    if (answer == ERG_ENGINE_LATER && !isnan(job->released_s))
        job->unsure = true;
    if (answer != ERG_ENGINE_DONE)
        return;
    job->released_s = NAN;
    job->unsure = false;
    job->holds = true;
    if (failed)
        erg_managed_job_failed_start(job, "it did not start in time", 0, limits, now_s);
}

void erg_reconcile_answer(struct erg_managed_job *job, const struct erg_action *action,
                          enum erg_engine_answer answer, const struct erg_reconcile_limits *limits,
                          double now_s)
{
    bool may_be_done = answer == ERG_ENGINE_DONE || answer == ERG_ENGINE_LATER;
    switch (action->verb) {
    case ERG_ACTION_WAKE:
        return;
    case ERG_ACTION_PACE:
        tell(job, answer == ERG_ENGINE_DONE, false);
        return;
    case ERG_ACTION_STOP:
        if (may_be_done)
            job->stopped_s = now_s;
        break;
    case ERG_ACTION_KILL:
        if (may_be_done)
            job->killed_s = now_s;
        job->kill_unsure = answer == ERG_ENGINE_LATER;
        break;
    case ERG_ACTION_HOLD:
        answer_hold(job, action->failed, answer, limits, now_s);
        break;
    case ERG_ACTION_PLACE:
        answer_place(job, answer, limits, now_s);
        break;
    }
    if (answer == ERG_ENGINE_DONE) {
        job->tries = 0;
        job->retry_s = -INFINITY;
    } else if (answer != ERG_ENGINE_GONE) {
        job->retry_s = now_s + fmin(30, (double)(1 << (job->tries < 5 ? job->tries : 5)));
        job->tries++;
    }
}

void erg_reconcile_doubt(struct erg_managed_job *job, const struct erg_action *action,
                         const struct erg_reconcile_limits *limits, double now_s)
{
    const struct erg_managed_job found = *job;
    erg_reconcile_answer(job, action, ERG_ENGINE_LATER, limits, now_s);
    job->plan = found.plan;
    job->told_point = found.told_point;
    job->told_w = found.told_w;
    job->before_w = found.before_w;
}
