/* The fake resource manager: its events, its trainers, and the verbs of an engine. */
#include "fake_engine.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum verb { PLACE, HOLD, STOP, KILL, HAND_BACK };

struct fake_late_call {
    double at_s;
    enum verb verb;
    int job, run; /* a late signal is only for the run that it was meant for */
    struct erg_placement placement;
    int gpus;
};

/* What is on disk of the manager: of a job what a start, a hold or a release changes. */
struct fake_state {
    double at_s;
    size_t jobs_count;
    uint32_t next_id;
    struct fake_kept {
        enum erg_live_state state;
        bool held_by_administrator;
        int restarts;
        struct erg_placement asked;
    } * jobs;
};

static void say(char *where, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Only the first is kept. */
static void say(char *where, size_t size, const char *format, ...)
{
    if (*where)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(where, size, format, arguments);
    va_end(arguments);
}

#define WRONG(fake, ...) say((fake)->wrong, sizeof(fake)->wrong, __VA_ARGS__)
#define BROKEN(fake, ...) say((fake)->broken, sizeof(fake)->broken, __VA_ARGS__)

static int bits(uint64_t gpus)
{
    return __builtin_popcountll(gpus);
}

static uint64_t gpus_of(const struct fake_engine *fake, int node)
{
    for (unsigned i = 0; i < fake->fleet->types_count; i++) {
        const struct erg_gpu_type *type = &fake->fleet->types[i];
        if (node >= type->first_node && node < type->first_node + type->nodes)
            return type->gpus_per_node == 64 ? ~0ull : (1ull << type->gpus_per_node) - 1;
    }
    abort();
}

static double between(struct fake_engine *fake, double least, double most)
{
    return least + (most - least) * erg_rng_uniform(&fake->rng);
}

static bool has_gpus(const struct fake_job *job)
{
    return job->state == ERG_LIVE_RUNNING || job->state == ERG_LIVE_COMPLETING;
}

static bool is_over(const struct fake_job *job)
{
    return job->state == ERG_LIVE_COMPLETED || job->state == ERG_LIVE_FAILED ||
           job->state == ERG_LIVE_CANCELLED;
}

static bool is_foreign(const struct fake_job *job)
{
    return job->token[0] == '\0';
}

void fake_settings_init(struct fake_settings *settings)
{
    *settings = (struct fake_settings){
        .start_least_s = 0.9,
        .start_most_s = 2.9,
        .complete_s = 0.2,
        .requeue_s = 121,
        .kill_wait_s = 30,
        .wake_s = 60,
        .sleep_s = 30,
        .forget_s = 300,
        .state_s = INFINITY,
        .obey_s = 5,
        .report_s = 10,
        .seed = 1,
    };
}

/* --- trainers --- */

double fake_engine_iteration(const struct fake_engine *fake, const struct fake_job *job)
{
    if (job->stage != FAKE_TRAINS)
        return job->base;
    double done = job->base + (fake->now_s - job->base_s) / job->iteration_s;
    return fmin(done, job->trainer.iterations);
}

static void write_report(struct fake_engine *fake, struct fake_job *job, enum erg_job_state state,
                         double iteration, double at_s)
{
    if (job->trainer.silent)
        return;
    job->report = (struct erg_report){
        .incarnation = job->incarnation,
        .state = state,
        .iteration = iteration,
        .iteration_s = job->stage == FAKE_TRAINS ? job->iteration_s : NAN,
        .joules = NAN,
        .checkpoint = job->checkpoint,
        .load_s = state == ERG_JOB_LOADING ? NAN : job->trainer.load_s,
        .save_s = state == ERG_JOB_SAVED ? job->trainer.save_s : NAN,
        .mono_s = at_s,
        .plan = job->follows,
    };
    job->written_s = at_s;
    job->report_run = job->runs;
    job->unread = true;
    if (iteration > job->best)
        job->best = iteration;
    (void)fake;
}

/* The periodical reports up to now, of which only the last matters. */
static void catch_up(struct fake_engine *fake, struct fake_job *job)
{
    if (job->stage != FAKE_TRAINS || job->trainer.silent)
        return;
    double periods = floor((fake->now_s - job->stage_s) / fake->settings.report_s);
    double at_s = job->stage_s + periods * fake->settings.report_s;
    if (at_s > job->written_s)
        write_report(fake, job, ERG_JOB_TRAINING,
                     fmin(job->base + fmax(at_s - job->base_s, 0) / job->iteration_s,
                          job->trainer.iterations),
                     at_s);
}

static void rebase(struct fake_engine *fake, struct fake_job *job)
{
    job->base = fake_engine_iteration(fake, job);
    job->base_s = fake->now_s;
    int gpus = erg_placement_gpus(&job->has);
    job->iteration_s =
        fake->settings.iteration_s
            ? fake->settings.iteration_s(fake->settings.context, (int)(job - fake->jobs), &job->has,
                                         job->point)
            : job->trainer.iteration_s / gpus;
    job->fastest_s = fmin(job->fastest_s, job->iteration_s);
}

static void enter(struct fake_engine *fake, struct fake_job *job, enum fake_stage stage, double s)
{
    job->stage = stage;
    job->stage_s = fake->now_s;
    job->until_s = fake->now_s + s;
}

/* The trainer is not there any more. */
static void leave(struct fake_engine *fake, struct fake_job *job, int status)
{
    catch_up(fake, job);
    double done = fake_engine_iteration(fake, job);
    if (done > job->best)
        job->best = done;
    job->base = done;
    job->stage = FAKE_NO_TRAINER;
    job->until_s = job->kill_s = job->obeys_at_s = INFINITY;
    job->exit = status;
    job->state = ERG_LIVE_COMPLETING;
    job->over_s = fake->now_s + fake->settings.complete_s;
}

static void commit(struct fake_engine *fake, struct fake_job *job, double iteration,
                   long incarnation)
{
    if (incarnation < job->incarnation)
        BROKEN(fake, "I2: incarnation %ld of job %u commits after %ld began", incarnation, job->id,
               job->incarnation);
    if (iteration > job->checkpoint)
        job->starts_without_checkpoint = 0;
    job->checkpoint = iteration;
    if (iteration > job->best)
        job->best = iteration;
}

static void save_and_leave(struct fake_engine *fake, struct fake_job *job)
{
    if (job->stage == FAKE_LOADS) {
        leave(fake, job, ERG_RESUMABLE);
    } else if (job->stage == FAKE_TRAINS) {
        catch_up(fake, job);
        job->base = fake_engine_iteration(fake, job);
        enter(fake, job, FAKE_SAVES, job->trainer.save_s);
        write_report(fake, job, ERG_JOB_SAVING, job->base, fake->now_s);
    }
}

static void signal_usr1(struct fake_engine *fake, struct fake_job *job)
{
    if (job->stage == FAKE_BOOTS) {
        fake->early_signals += !job->confused;
        leave(fake, job, 138);
    } else if (!job->trainer.ignores_usr1) {
        save_and_leave(fake, job);
    }
}

/* A fault, for which work since the last checkpoint may be lost. */
static void excuse(struct fake_job *job)
{
    job->excuses++;
    job->may_lose +=
        job->trainer.checkpoint_s > 0 ? job->trainer.checkpoint_s / job->fastest_s : INFINITY;
}

/* TERM, and KILL later; `leaves` says what becomes of the job. */
static void end_trainer(struct fake_engine *fake, struct fake_job *job, enum fake_leaving leaves)
{
    job->leaves = leaves;
    if (job->state == ERG_LIVE_RUNNING) {
        job->state = ERG_LIVE_COMPLETING;
        job->over_s = INFINITY;
    }
    if (job->stage == FAKE_NO_TRAINER)
        return;
    job->kill_s = fake->now_s + fake->settings.kill_wait_s;
    if (job->trainer.ignores_term || job->trainer.save_s >= fake->settings.kill_wait_s)
        excuse(job); /* it will lose what it did */
    if (job->stage == FAKE_BOOTS)
        leave(fake, job, 143);
    else if (!job->trainer.ignores_term)
        save_and_leave(fake, job);
}

static void train(struct fake_engine *fake, struct fake_job *job)
{
    enter(fake, job, FAKE_TRAINS, INFINITY);
    job->base_s = fake->now_s;
    rebase(fake, job);
    job->saves_at_s =
        job->trainer.checkpoint_s > 0 ? fake->now_s + job->trainer.checkpoint_s : INFINITY;
    write_report(fake, job, ERG_JOB_TRAINING, job->base, fake->now_s);
}

/* When a trainer that trains is done, or dies of itself. */
static double ends_s(const struct fake_job *job)
{
    double to = job->trainer.iterations;
    if (job->trainer.dies_at > 0 && job->trainer.dies_at < to)
        to = fmax(job->trainer.dies_at, job->base);
    return job->base_s + (to - job->base) * job->iteration_s;
}

static double trainer_next(const struct fake_job *job)
{
    if (job->stage == FAKE_NO_TRAINER)
        return INFINITY;
    double at_s = fmin(job->until_s, fmin(job->kill_s, job->obeys_at_s));
    if (job->stage == FAKE_TRAINS)
        at_s = fmin(at_s, fmin(job->saves_at_s, ends_s(job)));
    return at_s;
}

/* Of a run that begins: how far the job has got, and whether that may be. */
static void load(struct fake_engine *fake, struct fake_job *job)
{
    job->incarnation++;
    double lost = job->best - job->checkpoint;
    if (lost > 1e-6 * (1 + job->best) && job->excuses == 0)
        BROKEN(fake, "I3: job %u goes from %g back to %g without a fault", job->id, job->best,
               job->checkpoint);
    else if (lost > job->may_lose * (1 + 1e-6) + 1e-6)
        BROKEN(fake, "I3: job %u goes from %g back to %g after %d faults", job->id, job->best,
               job->checkpoint, job->excuses);
    job->excuses = 0;
    job->may_lose = 0;
    job->base = job->best = job->checkpoint;
    enter(fake, job, FAKE_LOADS, job->trainer.load_s);
    write_report(fake, job, ERG_JOB_LOADING, job->base, fake->now_s);
}

static void step_trainer(struct fake_engine *fake, struct fake_job *job)
{
    double now_s = fake->now_s;
    if (job->kill_s <= now_s) {
        leave(fake, job, 137);
    } else if (job->obeys_at_s <= now_s) {
        catch_up(fake, job);
        rebase(fake, job);
        job->follows = job->plan;
        job->point = job->plan_point;
        job->watts = job->plan_w;
        job->obeys_at_s = INFINITY;
        if (job->stage == FAKE_TRAINS) {
            rebase(fake, job);
            write_report(fake, job, ERG_JOB_TRAINING, job->base, now_s);
        }
    } else if (job->stage == FAKE_TRAINS) {
        if (ends_s(job) <= now_s) {
            bool done = ends_s(job) >=
                        job->base_s + (job->trainer.iterations - job->base) * job->iteration_s;
            if (!done) {
                excuse(job);
                leave(fake, job, 1);
                return;
            }
            catch_up(fake, job);
            job->base = job->trainer.iterations;
            job->base_s = now_s;
            commit(fake, job, job->trainer.iterations, job->incarnation);
            write_report(fake, job, ERG_JOB_DONE, job->trainer.iterations, now_s);
            job->stage = FAKE_SAVES; /* so that no periodical report follows */
            leave(fake, job, 0);
        } else {
            commit(fake, job, fake_engine_iteration(fake, job), job->incarnation);
            job->saves_at_s = now_s + job->trainer.checkpoint_s;
        }
    } else if (job->stage == FAKE_BOOTS) {
        job->starts_without_checkpoint++;
        load(fake, job);
    } else if (job->stage == FAKE_LOADS) {
        if (job->trainer.bad_starts > 0) {
            job->trainer.bad_starts--;
            leave(fake, job, 7);
        } else {
            train(fake, job);
        }
    } else if (job->trainer.dies_saving) {
        job->trainer.dies_saving = false;
        excuse(job);
        leave(fake, job, 137);
    } else {
        commit(fake, job, job->base, job->incarnation);
        write_report(fake, job, ERG_JOB_SAVED, job->base, now_s);
        leave(fake, job, ERG_RESUMABLE);
    }
}

/* --- the manager --- */

static void give_gpus_back(struct fake_engine *fake, struct fake_job *job)
{
    for (int i = 0; i < job->has.count; i++)
        fake->nodes[job->has.slices[i].node].taken &= ~job->has.slices[i].gpus;
    job->has.count = 0;
}

static void release_job(struct fake_engine *fake, struct fake_job *job, double after_s)
{
    job->state = ERG_LIVE_PENDING;
    job->held_by_administrator = false;
    job->start_at_s = fake->now_s + after_s +
                      between(fake, fake->settings.start_least_s, fake->settings.start_most_s);
}

static void hold_job(struct fake_job *job, bool by_administrator)
{
    job->state = ERG_LIVE_HELD;
    job->held_by_administrator = by_administrator;
}

/* A job that is COMPLETING no more. */
static void finish(struct fake_engine *fake, struct fake_job *job)
{
    give_gpus_back(fake, job);
    job->exit_status = job->exit;
    enum fake_leaving leaves = job->leaves;
    job->leaves = FAKE_AS_IT_EXITS;
    job->over_s = fake->now_s;
    if (leaves == FAKE_TO_CANCEL) {
        job->state = ERG_LIVE_CANCELLED;
    } else if (leaves == FAKE_TO_HOLD) {
        job->restarts++;
        hold_job(job, true);
    } else if (leaves == FAKE_TO_REQUEUE) {
        job->restarts++;
        release_job(fake, job, fake->settings.requeue_s);
    } else if (job->exit == ERG_RESUMABLE) {
        job->restarts++;
        hold_job(job, false);
    } else if (job->exit == 0) {
        job->state = ERG_LIVE_COMPLETED;
        if (++job->completed > 1)
            BROKEN(fake, "I4: job %u ended %d times", job->id, job->completed);
    } else {
        job->state = ERG_LIVE_FAILED;
    }
}

static uint64_t choose_gpus(const struct fake_engine *fake, int node, uint64_t asked, uint64_t free)
{
    int count = bits(asked);
    if (!fake->settings.other_gpus && (asked & ~free) == 0)
        return asked;
    if (!fake->settings.other_gpus)
        return erg_gpus_lowest(free, count);
    while (bits(free) > count)
        free &= free - 1;
    (void)node;
    return free;
}

/* Whether the GPUs that a pending job asks for are there; takes them. */
static bool take_gpus(struct fake_engine *fake, struct fake_job *job)
{
    for (int i = 0; i < job->asked.count; i++) {
        const struct erg_slice *slice = &job->asked.slices[i];
        const struct fake_node *node = &fake->nodes[slice->node];
        if (node->state != ERG_NODE_UP ||
            bits(gpus_of(fake, slice->node) & ~node->taken) < bits(slice->gpus))
            return false;
    }
    job->has.count = 0;
    for (int i = 0; i < job->asked.count; i++) {
        const struct erg_slice *slice = &job->asked.slices[i];
        struct fake_node *node = &fake->nodes[slice->node];
        uint64_t gpus =
            choose_gpus(fake, slice->node, slice->gpus, gpus_of(fake, slice->node) & ~node->taken);
        if (node->taken & gpus)
            BROKEN(fake, "I1: GPUs of node %d have two jobs", slice->node);
        node->taken |= gpus;
        erg_placement_add(&job->has, slice->node, gpus);
    }
    return true;
}

static void start_job(struct fake_engine *fake, struct fake_job *job)
{
    struct erg_placement any = {0};
    if (job->asked.count == 0) {
        for (int node = 0; node < fake->fleet->nodes && any.count == 0; node++) {
            uint64_t free = gpus_of(fake, node) & ~fake->nodes[node].taken;
            if (fake->nodes[node].state == ERG_NODE_UP && bits(free) >= job->asked_gpus)
                erg_placement_add(&any, node, erg_gpus_lowest(free, job->asked_gpus));
        }
        erg_placement_assign(&job->asked, &any);
    }
    bool taken = job->asked.count > 0 && take_gpus(fake, job);
    if (any.count > 0)
        job->asked.count = 0;
    erg_placement_release(&any);
    if (!taken) {
        job->start_at_s = fake->now_s + 1;
        return;
    }
    if (job->cancelled)
        BROKEN(fake, "I4: job %u runs after it was cancelled", job->id);
    job->state = ERG_LIVE_RUNNING;
    job->held_by_administrator = false;
    job->leaves = FAKE_AS_IT_EXITS;
    job->kill_s = job->obeys_at_s = INFINITY;
    job->runs++;
    job->started_s = fake->now_s;
    job->follows = job->plan;
    job->point = job->plan_point < 0 ? 0 : job->plan_point;
    job->watts = job->plan_w;
    enter(fake, job, FAKE_BOOTS, job->trainer.boot_s);
    double before = job->base;
    job->fastest_s = INFINITY;
    rebase(fake, job);
    job->base = before;
}

static void apply(struct fake_engine *fake, struct fake_job *job, enum verb verb,
                  const struct erg_placement *placement, int gpus);

static void step_node(struct fake_node *node)
{
    node->state = node->then;
    node->until_s = INFINITY;
}

static double job_next(const struct fake_engine *fake, const struct fake_job *job)
{
    if (job->lost)
        return INFINITY;
    double manager_s = INFINITY;
    if (job->state == ERG_LIVE_PENDING)
        manager_s = job->start_at_s;
    else if (job->state == ERG_LIVE_COMPLETING && job->stage == FAKE_NO_TRAINER)
        manager_s = job->over_s;
    else if (is_over(job))
        manager_s = job->over_s + fake->settings.forget_s;
    return fmin(trainer_next(job), fmax(manager_s, fake->down_until_s));
}

double fake_engine_next(const struct fake_engine *fake)
{
    double next_s = INFINITY;
    for (size_t i = 0; i < fake->jobs_count; i++)
        next_s = fmin(next_s, job_next(fake, &fake->jobs[i]));
    for (int i = 0; i < fake->fleet->nodes; i++)
        next_s = fmin(next_s, fake->nodes[i].until_s);
    for (size_t i = 0; i < fake->ghosts.count; i++)
        next_s = fmin(next_s, fake->ghosts.items[i].commits_s);
    for (size_t i = 0; i < fake->late.count; i++)
        next_s = fmin(next_s, fake->late.items[i].at_s);
    return next_s;
}

static void step_job(struct fake_engine *fake, struct fake_job *job)
{
    if (trainer_next(job) <= fake->now_s)
        step_trainer(fake, job);
    else if (job->state == ERG_LIVE_PENDING)
        start_job(fake, job);
    else if (job->state == ERG_LIVE_COMPLETING)
        finish(fake, job);
    else
        job->lost = true;
}

static void step_ghost(struct fake_engine *fake, size_t index)
{
    struct fake_ghost ghost = fake->ghosts.items[index];
    struct fake_job *job = &fake->jobs[ghost.job];
    fake->ghosts.items[index] = fake->ghosts.items[--fake->ghosts.count];
    if (job->incarnation > ghost.incarnation && !job->trainer.unfenced)
        fake->fenced++;
    else
        commit(fake, job, ghost.iteration, ghost.incarnation);
}

static void forget_late(struct fake_engine *fake, size_t index)
{
    erg_placement_release(&fake->late.items[index].placement);
    fake->late.count--;
    memmove(&fake->late.items[index], &fake->late.items[index + 1],
            (fake->late.count - index) * sizeof *fake->late.items);
}

static void step_late(struct fake_engine *fake, size_t index)
{
    struct fake_late_call *call = &fake->late.items[index];
    struct fake_job *job = &fake->jobs[call->job];
    if (job->runs == call->run || (call->verb != STOP && call->verb != KILL))
        apply(fake, job, call->verb, &call->placement, call->gpus);
    forget_late(fake, index);
}

static void save_state(struct fake_engine *fake);

/* One thing that is due. */
static bool step(struct fake_engine *fake)
{
    double now_s = fake->now_s;
    for (size_t i = 0; i < fake->jobs_count; i++)
        if (job_next(fake, &fake->jobs[i]) <= now_s) {
            step_job(fake, &fake->jobs[i]);
            return true;
        }
    for (int i = 0; i < fake->fleet->nodes; i++)
        if (fake->nodes[i].until_s <= now_s) {
            step_node(&fake->nodes[i]);
            return true;
        }
    for (size_t i = 0; i < fake->ghosts.count; i++)
        if (fake->ghosts.items[i].commits_s <= now_s) {
            step_ghost(fake, i);
            return true;
        }
    for (size_t i = 0; i < fake->late.count; i++)
        if (fake->late.items[i].at_s <= now_s) {
            step_late(fake, i);
            return true;
        }
    return false;
}

void fake_engine_advance(struct fake_engine *fake, double to_s)
{
    for (double next_s; (next_s = fake_engine_next(fake)) <= to_s;) {
        if (next_s > fake->now_s)
            save_state(fake);
        fake->now_s = fmax(fake->now_s, next_s);
        while (step(fake))
            if (fake->settings.after)
                fake->settings.after(fake->settings.context, fake);
    }
    fake->now_s = fmax(fake->now_s, to_s);
}

/* --- what is on disk --- */

static void free_state(struct fake_state *state)
{
    if (!state)
        return;
    for (size_t i = 0; i < state->jobs_count; i++)
        erg_placement_release(&state->jobs[i].asked);
    free(state->jobs);
    free(state);
}

static void save_state(struct fake_engine *fake)
{
    if (isinf(fake->settings.state_s) ||
        (fake->saved && fake->now_s - fake->saved->at_s < fake->settings.state_s))
        return;
    free_state(fake->saved);
    fake->saved = erg_xcalloc(1, sizeof *fake->saved);
    *fake->saved = (struct fake_state){
        .at_s = fake->now_s,
        .jobs_count = fake->jobs_count,
        .next_id = fake->next_id,
        .jobs = erg_xcalloc(fake->jobs_count + 1, sizeof *fake->saved->jobs),
    };
    for (size_t i = 0; i < fake->jobs_count; i++) {
        const struct fake_job *job = &fake->jobs[i];
        fake->saved->jobs[i] = (struct fake_kept){
            .state = job->state,
            .held_by_administrator = job->held_by_administrator,
            .restarts = job->restarts,
        };
        erg_placement_assign(&fake->saved->jobs[i].asked, &job->asked);
    }
}

/* The manager has another idea of a job than it had: its trainer dies for that. */
static void restore(struct fake_engine *fake, struct fake_job *job, const struct fake_kept *kept)
{
    bool waited = kept->state == ERG_LIVE_HELD || kept->state == ERG_LIVE_PENDING;
    if (job->lost || is_over(job) || !waited)
        return;
    if (kept->state == job->state && kept->held_by_administrator == job->held_by_administrator &&
        kept->restarts == job->restarts)
        return;
    if (job->stage != FAKE_NO_TRAINER) {
        job->confused = job->seen_run != job->runs || job->seen_state != ERG_LIVE_RUNNING;
        excuse(job);
        leave(fake, job, 137);
    }
    give_gpus_back(fake, job);
    bool cancelled = job->leaves == FAKE_TO_CANCEL;
    job->leaves = FAKE_AS_IT_EXITS;
    job->restarts = kept->restarts;
    erg_placement_assign(&job->asked, &kept->asked);
    if (cancelled)
        job->state = ERG_LIVE_CANCELLED;
    else if (kept->state == ERG_LIVE_HELD)
        hold_job(job, kept->held_by_administrator);
    else
        release_job(fake, job, 0);
}

void fake_manager_stop(struct fake_engine *fake, double for_s, bool unclean)
{
    if (unclean && fake->saved) {
        for (size_t i = 0; i < fake->jobs_count; i++) {
            struct fake_job *job = &fake->jobs[i];
            if (i < fake->saved->jobs_count) {
                restore(fake, job, &fake->saved->jobs[i]);
                continue;
            }
            if (job->stage != FAKE_NO_TRAINER)
                leave(fake, job, 137);
            give_gpus_back(fake, job);
            job->lost = true;
        }
        while (fake->late.count > 0)
            forget_late(fake, 0);
        fake->next_id = fake->saved->next_id;
    }
    fake->down_until_s = fake->now_s + for_s;
    fake->unsure_until_s = fake->down_until_s + 5;
}

/* --- verbs --- */

static void apply(struct fake_engine *fake, struct fake_job *job, enum verb verb,
                  const struct erg_placement *placement, int gpus)
{
    if (job->lost)
        return;
    switch (verb) {
    case PLACE:
        if (job->state != ERG_LIVE_HELD)
            break;
        erg_placement_assign(&job->asked, placement);
        release_job(fake, job, 0);
        break;
    case HOLD:
        if (job->state == ERG_LIVE_PENDING || job->state == ERG_LIVE_HELD)
            hold_job(job, true);
        break;
    case STOP:
        if (job->state == ERG_LIVE_RUNNING)
            signal_usr1(fake, job);
        break;
    case KILL:
        if (job->state == ERG_LIVE_RUNNING) {
            end_trainer(fake, job, FAKE_TO_HOLD);
        } else if (job->state == ERG_LIVE_FAILED) {
            job->restarts++;
            hold_job(job, true);
        }
        break;
    case HAND_BACK:
        if (job->state != ERG_LIVE_HELD && job->state != ERG_LIVE_PENDING)
            break;
        job->asked.count = 0;
        job->asked_gpus = gpus;
        release_job(fake, job, 0);
        break;
    }
}

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
        int count = bits(placement->slices[i].gpus);
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
    struct fake_late_call call = {.at_s = fake->now_s + between(fake, 0, 20),
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
    save_state(fake);
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
            step_late(fake, i);
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
    apply(fake, job, verb, placement, gpus);
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
        node->seen_free =
            to->nodes[i].state == ERG_NODE_UP ? bits(gpus_of(fake, (int)i) & ~node->taken) : -1;
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
            .exit_status = job->runs > 0 && !has_gpus(job) ? job->exit_status : -1,
            .restarts = job->restarts,
            .submitted_unix_s = NAN,
            .started_unix_s = has_gpus(job) ? 1e9 + floor(job->started_s) : 0,
        };
        memcpy(shown.token, job->token, sizeof shown.token);
        if (has_gpus(job))
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
        forget_late(fake, fake->late.count - 1);
    free(fake->late.items);
    free(fake->ghosts.items);
    free_state(fake->saved);
    free(fake->nodes);
    free(fake->jobs);
    free(fake);
}

int fake_engine_submit(struct fake_engine *fake, const char *token,
                       const struct fake_trainer *trainer, int node, int gpus)
{
    save_state(fake);
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
        release_job(fake, &job, 0);
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
    catch_up(fake, job);
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
        job->obeys_at_s = fake->now_s + between(fake, 0, fake->settings.obey_s);
}

double fake_engine_watts(const struct fake_engine *fake)
{
    double sum = 0;
    for (size_t i = 0; i < fake->jobs_count; i++)
        if (fake->jobs[i].stage != FAKE_NO_TRAINER && !is_foreign(&fake->jobs[i]))
            sum += fake->jobs[i].watts;
    return sum;
}

void fake_user_cancel(struct fake_engine *fake, int index)
{
    struct fake_job *job = &fake->jobs[index];
    save_state(fake);
    if (job->lost || is_over(job))
        return;
    job->cancelled = true;
    if (has_gpus(job)) {
        end_trainer(fake, job, FAKE_TO_CANCEL);
    } else {
        job->state = ERG_LIVE_CANCELLED;
        job->over_s = fake->now_s;
    }
}

void fake_user_release(struct fake_engine *fake, int index)
{
    struct fake_job *job = &fake->jobs[index];
    save_state(fake);
    if (!job->lost && job->state == ERG_LIVE_HELD && !job->held_by_administrator)
        release_job(fake, job, 0);
}

void fake_user_hold(struct fake_engine *fake, int index)
{
    struct fake_job *job = &fake->jobs[index];
    save_state(fake);
    if (!job->lost && job->state == ERG_LIVE_PENDING)
        hold_job(job, false);
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
    save_state(fake);
    if (!job->lost && job->state == ERG_LIVE_RUNNING)
        end_trainer(fake, job, FAKE_TO_REQUEUE);
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
    excuse(job);
    leave(fake, job, 1);
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
    save_state(fake);
    fake->nodes[node].state = ERG_NODE_DOWN;
    fake->nodes[node].until_s = INFINITY;
    for (size_t i = 0; i < fake->jobs_count; i++) {
        struct fake_job *job = &fake->jobs[i];
        if (job->lost || !has_gpus(job) || !is_on(job, node))
            continue;
        if (job->stage != FAKE_NO_TRAINER) {
            excuse(job);
            if (cut && job->stage == FAKE_TRAINS)
                ERG_PUSH(&fake->ghosts, items,
                         (struct fake_ghost){(int)i, job->incarnation,
                                             fake_engine_iteration(fake, job),
                                             fake->now_s + between(fake, 0, 200)});
            leave(fake, job, 137);
        }
        if (job->leaves != FAKE_TO_CANCEL && job->leaves != FAKE_TO_HOLD && job->exit != 0)
            job->leaves = FAKE_TO_REQUEUE;
        finish(fake, job);
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
