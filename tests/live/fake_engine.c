/* The fake resource manager as an engine: its verbs, its judgement of the caller, and what tests
 * do. */
#include "fake_engine_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- verbs --- */

/* Whether a verb makes sense for a job as it is; a second one like it does nothing. */
static bool allows(const struct fake_job *job, enum verb verb)
{
    switch (verb) {
    case PLACE:
        return job->state == ERG_LIVE_HELD || job->state == ERG_LIVE_PENDING ||
               job->state == ERG_LIVE_RUNNING;
    case HOLD:
    case HAND_BACK:
        return job->state == ERG_LIVE_HELD || job->state == ERG_LIVE_PENDING;
    case STOP:
        return job->state == ERG_LIVE_RUNNING;
    case KILL:
        return job->state == ERG_LIVE_RUNNING || job->state == ERG_LIVE_FAILED ||
               job->state == ERG_LIVE_HELD;
    }
    return false;
}

static void judge_place(struct fake_engine *fake, struct fake_job *job,
                        const struct erg_placement *placement)
{
    if (job->seen_state != ERG_LIVE_HELD)
        WRONG(fake, "job %u is placed while its state is %d", job->id, (int)job->seen_state);
    for (int i = 0; i < placement->count; i++) {
        struct fake_node *node = &fake->nodes[placement->slices[i].node];
        int count = fake_bits(placement->slices[i].gpus);
        if (node->seen_free < count)
            WRONG(fake, "job %u is placed on %d GPUs of node %d, which has %d free for it", job->id,
                  count, placement->slices[i].node, node->seen_free);
        node->seen_free -= count;
    }
    job->seen_state = ERG_LIVE_PENDING;
}

/* What the last snapshot and the reports that were read allow. */
static void judge(struct fake_engine *fake, struct fake_job *job, enum verb verb,
                  const struct erg_placement *placement)
{
    bool runs = job->seen_state == ERG_LIVE_RUNNING;
    bool reported = job->read_run == job->seen_run || job->confused;
    bool stopped = job->stopped_run == job->seen_run;
    if (verb == PLACE) {
        judge_place(fake, job, placement);
    } else if (verb == STOP) {
        if (!runs || !reported)
            WRONG(fake, "job %u is signalled and %s", job->id,
                  runs ? "has not reported" : "does not run");
        if (stopped)
            WRONG(fake, "job %u is signalled twice", job->id);
    } else if (verb == HOLD) {
        if (job->seen_state != ERG_LIVE_PENDING && job->seen_state != ERG_LIVE_HELD)
            WRONG(fake, "job %u is held while its state is %d", job->id, (int)job->seen_state);
    } else if (verb == KILL) {
        bool late = stopped && fake->now_s - job->stopped_s >= 60;
        bool silent = job->stage == FAKE_NO_TRAINER || job->trainer.silent ||
                      fake->now_s - job->written_s >= 60;
        if (job->seen_state != ERG_LIVE_FAILED &&
            !(runs && (!reported || job->confused || late || silent)))
            WRONG(fake, "job %u is killed while its state is %d, %s", job->id, (int)job->seen_state,
                  stopped ? "before its time is over" : "unasked");
    }
}

static struct fake_job *of_id(struct fake_engine *fake, uint32_t id)
{
    for (size_t i = fake->jobs_count; i-- > 0;)
        if (fake->jobs[i].id == id && !fake->jobs[i].lost)
            return &fake->jobs[i];
    return NULL;
}

static enum erg_engine_answer later(struct fake_engine *fake, struct fake_job *job, enum verb verb,
                                    const struct erg_placement *placement, int gpus)
{
    struct fake_late_call call = {.at_s = fake->now_s + fake_between(fake, 0, 20),
                                  .verb = verb,
                                  .job = (int)(job - fake->jobs),
                                  .run = job->runs,
                                  .gpus = gpus};
    if (placement)
        erg_placement_assign(&call.placement, placement);
    ERG_PUSH(&fake->late, items, call);
    return ERG_ENGINE_LATER;
}

static enum erg_engine_answer answer(struct fake_engine *fake, enum erg_engine_answer what,
                                     const char *text, struct erg_error *err)
{
    erg_fail(err, ERG_FAILED, "%s", text);
    (void)fake;
    return what;
}

static enum erg_engine_answer do_call(struct erg_live_engine *engine, uint32_t id,
                                      const char *token, enum verb verb,
                                      const struct erg_placement *placement, int gpus,
                                      struct erg_error *err)
{
    struct fake_engine *fake = (struct fake_engine *)engine;
    fake->calls++;
    fake_save_state(fake);
    struct fake_job *job = fake_engine_job(fake, token), *with_id = of_id(fake, id);
    if (!fake->lenient && (!job || !job->seen))
        WRONG(fake, "a call for job %u, token %s, which was in no snapshot", id, token);
    if (!fake->lenient && job && job->seen)
        judge(fake, job, verb, placement);
    if (fake->now_s < fake->down_until_s)
        return answer(fake, ERG_ENGINE_LATER, "it is down", err);
    if (!with_id || strcmp(with_id->token, token) != 0)
        return answer(fake, ERG_ENGINE_GONE, "it is another job's id", err);
    for (size_t i = 0; i < fake->late.count;) /* calls have their effects in order */
        if (&fake->jobs[fake->late.items[i].job] == job)
            fake_step_late(fake, i);
        else
            i++;
    double luck = erg_rng_uniform(&fake->rng);
    const struct fake_faults *faults = &fake->faults;
    if ((luck -= faults->refused) < 0) {
        if (verb == PLACE && job->state == ERG_LIVE_HELD) /* update is not atomic */
            erg_placement_assign(&job->asked, placement);
        return answer(fake, ERG_ENGINE_REFUSED, "refused for no reason", err);
    }
    if ((luck -= faults->broken) < 0)
        return answer(fake, ERG_ENGINE_BROKEN, "there is no scontrol", err);
    if ((luck -= faults->later) < 0)
        return answer(fake, ERG_ENGINE_LATER, "no answer", err);
    if (!allows(job, verb))
        return answer(fake, ERG_ENGINE_REFUSED, "it is in another state", err);
    if ((luck -= faults->later_delayed) < 0)
        return later(fake, job, verb, placement, gpus);
    fake_apply(fake, job, verb, placement, gpus);
    if (fake->settings.after)
        fake->settings.after(fake->settings.context, fake);
    if (luck - faults->later_done < 0)
        return answer(fake, ERG_ENGINE_LATER, "no answer", err);
    return ERG_ENGINE_DONE;
}

static enum erg_engine_answer call(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   enum verb verb, const struct erg_placement *placement, int gpus,
                                   struct erg_error *err)
{
    enum erg_engine_answer answer = do_call(engine, id, token, verb, placement, gpus, err);
    struct fake_engine *fake = (struct fake_engine *)engine;
    struct fake_job *job = fake_engine_job(fake, token);
    if (job && !fake->lenient && verb == STOP &&
        (answer == ERG_ENGINE_DONE || answer == ERG_ENGINE_LATER)) {
        job->stopped_run = job->seen_run;
        job->stopped_s = fake->now_s;
    }
    return answer;
}

static enum erg_engine_answer place(struct erg_live_engine *engine, uint32_t id, const char *token,
                                    const struct erg_placement *placement, struct erg_error *err)
{
    return call(engine, id, token, PLACE, placement, 0, err);
}

static enum erg_engine_answer hold(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   struct erg_error *err)
{
    return call(engine, id, token, HOLD, NULL, 0, err);
}

static enum erg_engine_answer stop(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   struct erg_error *err)
{
    return call(engine, id, token, STOP, NULL, 0, err);
}

static enum erg_engine_answer kill_job(struct erg_live_engine *engine, uint32_t id,
                                       const char *token, struct erg_error *err)
{
    return call(engine, id, token, KILL, NULL, 0, err);
}

static enum erg_engine_answer hand_back(struct erg_live_engine *engine, uint32_t id,
                                        const char *token, int gpus, struct erg_error *err)
{
    return call(engine, id, token, HAND_BACK, NULL, gpus, err);
}

static enum erg_engine_answer wake(struct erg_live_engine *engine, int node, struct erg_error *err)
{
    struct fake_engine *fake = (struct fake_engine *)engine;
    fake->calls++;
    struct fake_node *of = &fake->nodes[node];
    if (fake->now_s < fake->down_until_s || erg_rng_uniform(&fake->rng) < fake->faults.later)
        return answer(fake, ERG_ENGINE_LATER, "no answer", err);
    if (of->state == ERG_NODE_OFF) {
        of->state = ERG_NODE_CHANGES;
        of->until_s = fake->now_s + fake->settings.wake_s;
        of->then = ERG_NODE_UP;
    }
    return ERG_ENGINE_DONE;
}

static enum erg_engine_answer sleep_node(struct erg_live_engine *engine, int node,
                                         struct erg_error *err)
{
    struct fake_engine *fake = (struct fake_engine *)engine;
    fake->calls++;
    struct fake_node *of = &fake->nodes[node];
    if (of->state != ERG_NODE_UP || of->taken)
        return answer(fake, ERG_ENGINE_REFUSED, "the node has jobs, or is not up", err);
    of->state = ERG_NODE_CHANGES;
    of->until_s = fake->now_s + fake->settings.sleep_s;
    of->then = ERG_NODE_OFF;
    return ERG_ENGINE_DONE;
}

static double now_s(struct erg_live_engine *engine)
{
    return ((struct fake_engine *)engine)->now_s;
}

static void close_engine(struct erg_live_engine *engine)
{
    (void)engine;
}

static const char *state_text(enum erg_live_state state)
{
    static const char *const texts[] = {
        [ERG_LIVE_HELD] = "PENDING",        [ERG_LIVE_PENDING] = "PENDING",
        [ERG_LIVE_RUNNING] = "RUNNING",     [ERG_LIVE_COMPLETING] = "COMPLETING",
        [ERG_LIVE_COMPLETED] = "COMPLETED", [ERG_LIVE_FAILED] = "FAILED",
        [ERG_LIVE_CANCELLED] = "CANCELLED", [ERG_LIVE_UNKNOWN] = "?",
    };
    return texts[state];
}

static enum erg_engine_answer snapshot(struct erg_live_engine *engine, struct erg_live_snapshot *to,
                                       struct erg_error *err)
{
    struct fake_engine *fake = (struct fake_engine *)engine;
    if (fake->now_s < fake->down_until_s || erg_rng_uniform(&fake->rng) < fake->faults.no_snapshot)
        return answer(fake, ERG_ENGINE_LATER, "no answer", err);
    erg_live_snapshot_release(to);
    to->at_s = fake->now_s;
    to->nodes_count = (size_t)fake->fleet->nodes;
    to->nodes = erg_xcalloc(to->nodes_count, sizeof *to->nodes);
    for (size_t i = 0; i < to->nodes_count; i++) {
        struct fake_node *node = &fake->nodes[i];
        to->nodes[i] = (struct erg_live_node){
            fake->now_s < fake->unsure_until_s ? ERG_NODE_UNKNOWN : node->state, ""};
        node->seen_free = to->nodes[i].state == ERG_NODE_UP
                              ? fake_bits(fake_gpus_of(fake, (int)i) & ~node->taken)
                              : -1;
    }
    for (size_t i = 0; i < fake->jobs_count; i++) {
        struct fake_job *job = &fake->jobs[i];
        job->seen = !job->lost;
        job->seen_state = fake->now_s < job->unknown_until_s ? ERG_LIVE_UNKNOWN : job->state;
        job->seen_run = job->runs;
        if (job->lost)
            continue;
        struct erg_live_job shown = {
            .id = job->id,
            .uid = 1000,
            .user = "user",
            .account = "account",
            .name = erg_arena_printf(&to->strings, "job%zu", i),
            .state = job->seen_state,
            .state_text = state_text(job->seen_state),
            .reason = job->state == ERG_LIVE_HELD ? "JobHeld" : "None",
            .held_by_administrator = job->state == ERG_LIVE_HELD && job->held_by_administrator,
            .single = true,
            .in_partition = true,
            .exit_status = job->runs > 0 && !fake_has_gpus(job) ? job->exit_status : -1,
            .restarts = job->restarts,
            .submitted_unix_s = NAN,
            .started_unix_s = fake_has_gpus(job) ? 1e9 + floor(job->started_s) : 0,
        };
        memcpy(shown.token, job->token, sizeof shown.token);
        if (fake_has_gpus(job))
            erg_placement_assign(&shown.placement, &job->has);
        if (to->jobs_count == to->jobs_capacity) {
            to->jobs_capacity = erg_grow_capacity(to->jobs_capacity, to->jobs_count + 1);
            to->jobs = erg_xrealloc(to->jobs, to->jobs_capacity, sizeof *to->jobs);
        }
        to->jobs[to->jobs_count++] = shown;
    }
    return ERG_ENGINE_DONE;
}

static const struct erg_live_engine_calls calls = {
    .now_s = now_s,
    .snapshot = snapshot,
    .place = place,
    .hold = hold,
    .stop = stop,
    .kill = kill_job,
    .hand_back = hand_back,
    .wake = wake,
    .sleep = sleep_node,
    .close = close_engine,
};

/* --- for tests --- */

struct fake_engine *fake_engine_new(const struct erg_fleet *fleet,
                                    const struct fake_settings *settings)
{
    struct fake_engine *fake = erg_xcalloc(1, sizeof *fake);
    fake->engine.calls = &calls;
    fake->settings = *settings;
    fake->fleet = fleet;
    fake->next_id = 1;
    fake->nodes = erg_xcalloc((size_t)fleet->nodes, sizeof *fake->nodes);
    for (int i = 0; i < fleet->nodes; i++)
        fake->nodes[i] = (struct fake_node){.state = ERG_NODE_UP, .until_s = INFINITY};
    erg_rng_seed(&fake->rng, settings->seed);
    return fake;
}

void fake_engine_free(struct fake_engine *fake)
{
    for (size_t i = 0; i < fake->jobs_count; i++) {
        erg_placement_release(&fake->jobs[i].asked);
        erg_placement_release(&fake->jobs[i].has);
    }
    while (fake->late.count > 0)
        fake_forget_late(fake, fake->late.count - 1);
    free(fake->late.items);
    free(fake->ghosts.items);
    fake_free_state(fake->saved);
    free(fake->nodes);
    free(fake->jobs);
    free(fake);
}

int fake_engine_submit(struct fake_engine *fake, const char *token,
                       const struct fake_trainer *trainer, int node, int gpus)
{
    fake_save_state(fake);
    struct fake_job job = {
        .id = fake->next_id++,
        .state = ERG_LIVE_HELD,
        .exit_status = -1,
        .asked_gpus = token ? 1 : gpus,
        .trainer = *trainer,
        .plan_point = -1,
        .kill_s = INFINITY,
        .until_s = INFINITY,
        .obeys_at_s = INFINITY,
        .iteration_s = trainer->iteration_s,
        .fastest_s = trainer->iteration_s,
        .report_run = -1,
        .read_run = -1,
        .stopped_run = -1,
    };
    snprintf(job.token, sizeof job.token, "%s", token ? token : "");
    if (!token && node >= 0)
        erg_placement_add(&job.asked, node, (1ull << gpus) - 1);
    if (!token)
        fake_release_job(fake, &job, 0);
    if (fake->jobs_count == fake->jobs_capacity) {
        fake->jobs_capacity = erg_grow_capacity(fake->jobs_capacity, fake->jobs_count + 1);
        fake->jobs = erg_xrealloc(fake->jobs, fake->jobs_capacity, sizeof *fake->jobs);
    }
    fake->jobs[fake->jobs_count++] = job;
    return (int)fake->jobs_count - 1;
}

struct fake_job *fake_engine_job(struct fake_engine *fake, const char *token)
{
    for (size_t i = fake->jobs_count; i-- > 0;)
        if (strcmp(fake->jobs[i].token, token) == 0)
            return &fake->jobs[i];
    return NULL;
}

bool fake_engine_report(struct fake_engine *fake, const char *token, struct erg_report *report,
                        bool *fresh)
{
    struct fake_job *job = fake_engine_job(fake, token);
    fake_catch_up(fake, job);
    *report = job->report;
    *fresh = job->unread;
    job->unread = false;
    if (job->report_run >= 0)
        job->read_run = job->report_run;
    if (job->read_run == job->runs)
        job->confused = false;
    return job->report_run >= 0;
}

void fake_engine_plan(struct fake_engine *fake, const char *token, long number, int point,
                      double watts)
{
    struct fake_job *job = fake_engine_job(fake, token);
    job->plan = number;
    job->plan_point = point;
    job->plan_w = watts;
    if (job->stage != FAKE_NO_TRAINER)
        job->obeys_at_s = fake->now_s + fake_between(fake, 0, fake->settings.obey_s);
}

double fake_engine_watts(const struct fake_engine *fake)
{
    double sum = 0;
    for (size_t i = 0; i < fake->jobs_count; i++)
        if (fake->jobs[i].stage != FAKE_NO_TRAINER && !fake_is_foreign(&fake->jobs[i]))
            sum += fake->jobs[i].watts;
    return sum;
}

void fake_user_cancel(struct fake_engine *fake, int index)
{
    struct fake_job *job = &fake->jobs[index];
    fake_save_state(fake);
    if (job->lost || fake_is_over(job))
        return;
    job->cancelled = true;
    if (fake_has_gpus(job)) {
        fake_end_trainer(fake, job, FAKE_TO_CANCEL);
    } else {
        job->state = ERG_LIVE_CANCELLED;
        job->over_s = fake->now_s;
    }
}

void fake_user_release(struct fake_engine *fake, int index)
{
    struct fake_job *job = &fake->jobs[index];
    fake_save_state(fake);
    if (!job->lost && job->state == ERG_LIVE_HELD && !job->held_by_administrator)
        fake_release_job(fake, job, 0);
}

void fake_user_hold(struct fake_engine *fake, int index)
{
    struct fake_job *job = &fake->jobs[index];
    fake_save_state(fake);
    if (!job->lost && job->state == ERG_LIVE_PENDING)
        fake_hold_job(job, false);
}

void fake_user_move(struct fake_engine *fake, int index, int node)
{
    struct fake_job *job = &fake->jobs[index];
    if (job->lost || (job->state != ERG_LIVE_HELD && job->state != ERG_LIVE_PENDING))
        return;
    job->asked.count = 0;
    erg_placement_add(&job->asked, node, 1);
}

void fake_unknown(struct fake_engine *fake, int index, double for_s)
{
    fake->jobs[index].unknown_until_s = fake->now_s + for_s;
}

void fake_preempt(struct fake_engine *fake, int index)
{
    struct fake_job *job = &fake->jobs[index];
    fake_save_state(fake);
    if (!job->lost && job->state == ERG_LIVE_RUNNING)
        fake_end_trainer(fake, job, FAKE_TO_REQUEUE);
}

void fake_user_requeue(struct fake_engine *fake, int index)
{
    fake_preempt(fake, index);
}

void fake_crash_trainer(struct fake_engine *fake, int index)
{
    struct fake_job *job = &fake->jobs[index];
    if (job->lost || job->stage == FAKE_NO_TRAINER)
        return;
    fake_excuse(job);
    fake_leave(fake, job, 1);
}

static bool is_on(const struct fake_job *job, int node)
{
    for (int i = 0; i < job->has.count; i++)
        if (job->has.slices[i].node == node)
            return true;
    return false;
}

void fake_node_fail(struct fake_engine *fake, int node, bool cut)
{
    fake_save_state(fake);
    fake->nodes[node].state = ERG_NODE_DOWN;
    fake->nodes[node].until_s = INFINITY;
    for (size_t i = 0; i < fake->jobs_count; i++) {
        struct fake_job *job = &fake->jobs[i];
        if (job->lost || !fake_has_gpus(job) || !is_on(job, node))
            continue;
        if (job->stage != FAKE_NO_TRAINER) {
            fake_excuse(job);
            if (cut && job->stage == FAKE_TRAINS)
                ERG_PUSH(&fake->ghosts, items,
                         (struct fake_ghost){(int)i, job->incarnation,
                                             fake_engine_iteration(fake, job),
                                             fake->now_s + fake_between(fake, 0, 200)});
            fake_leave(fake, job, 137);
        }
        if (job->leaves != FAKE_TO_CANCEL && job->leaves != FAKE_TO_HOLD && job->exit != 0)
            job->leaves = FAKE_TO_REQUEUE;
        fake_finish(fake, job);
    }
}

void fake_node_drain(struct fake_engine *fake, int node)
{
    if (fake->nodes[node].state == ERG_NODE_UP)
        fake->nodes[node].state = ERG_NODE_DRAINS;
}

void fake_node_return(struct fake_engine *fake, int node)
{
    if (fake->nodes[node].state == ERG_NODE_DOWN || fake->nodes[node].state == ERG_NODE_DRAINS)
        fake->nodes[node].state = ERG_NODE_UP;
}
