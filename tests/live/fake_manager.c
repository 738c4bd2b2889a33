/* The fake resource manager: its events, its trainers, and what it has on disk. */
#include "fake_engine_internal.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only the first is kept. */
void fake_say(char *where, size_t size, const char *format, ...)
{
    if (*where)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(where, size, format, arguments);
    va_end(arguments);
}

int fake_bits(uint64_t gpus)
{
    return __builtin_popcountll(gpus);
}

uint64_t fake_gpus_of(const struct fake_engine *fake, int node)
{
    for (unsigned i = 0; i < fake->fleet->types_count; i++) {
        const struct erg_gpu_type *type = &fake->fleet->types[i];
        if (node >= type->first_node && node < type->first_node + type->nodes)
            return type->gpus_per_node == 64 ? ~0ull : (1ull << type->gpus_per_node) - 1;
    }
    abort();
}

double fake_between(struct fake_engine *fake, double least, double most)
{
    return least + (most - least) * erg_rng_uniform(&fake->rng);
}

bool fake_has_gpus(const struct fake_job *job)
{
    return job->state == ERG_LIVE_RUNNING || job->state == ERG_LIVE_COMPLETING;
}

bool fake_is_over(const struct fake_job *job)
{
    return job->state == ERG_LIVE_COMPLETED || job->state == ERG_LIVE_FAILED ||
           job->state == ERG_LIVE_CANCELLED;
}

bool fake_is_foreign(const struct fake_job *job)
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
void fake_catch_up(struct fake_engine *fake, struct fake_job *job)
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
void fake_leave(struct fake_engine *fake, struct fake_job *job, int status)
{
    fake_catch_up(fake, job);
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
        fake_leave(fake, job, ERG_RESUMABLE);
    } else if (job->stage == FAKE_TRAINS) {
        fake_catch_up(fake, job);
        job->base = fake_engine_iteration(fake, job);
        enter(fake, job, FAKE_SAVES, job->trainer.save_s);
        write_report(fake, job, ERG_JOB_SAVING, job->base, fake->now_s);
    }
}

static void signal_usr1(struct fake_engine *fake, struct fake_job *job)
{
    if (job->stage == FAKE_BOOTS) {
        fake->early_signals += !job->confused;
        fake_leave(fake, job, 138);
    } else if (!job->trainer.ignores_usr1) {
        save_and_leave(fake, job);
    }
}

/* A fault, for which work since the last checkpoint may be lost. */
void fake_excuse(struct fake_job *job)
{
    job->excuses++;
    job->may_lose +=
        job->trainer.checkpoint_s > 0 ? job->trainer.checkpoint_s / job->fastest_s : INFINITY;
}

/* TERM, and KILL later; `leaves` says what becomes of the job. */
void fake_end_trainer(struct fake_engine *fake, struct fake_job *job, enum fake_leaving leaves)
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
        fake_excuse(job); /* it will lose what it did */
    if (job->stage == FAKE_BOOTS)
        fake_leave(fake, job, 143);
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
        fake_leave(fake, job, 137);
    } else if (job->obeys_at_s <= now_s) {
        fake_catch_up(fake, job);
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
                fake_excuse(job);
                fake_leave(fake, job, 1);
                return;
            }
            fake_catch_up(fake, job);
            job->base = job->trainer.iterations;
            job->base_s = now_s;
            commit(fake, job, job->trainer.iterations, job->incarnation);
            write_report(fake, job, ERG_JOB_DONE, job->trainer.iterations, now_s);
            job->stage = FAKE_SAVES; /* so that no periodical report follows */
            fake_leave(fake, job, 0);
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
            fake_leave(fake, job, 7);
        } else {
            train(fake, job);
        }
    } else if (job->trainer.dies_saving) {
        job->trainer.dies_saving = false;
        fake_excuse(job);
        fake_leave(fake, job, 137);
    } else {
        commit(fake, job, job->base, job->incarnation);
        write_report(fake, job, ERG_JOB_SAVED, job->base, now_s);
        fake_leave(fake, job, ERG_RESUMABLE);
    }
}

/* --- the manager --- */

static void give_gpus_back(struct fake_engine *fake, struct fake_job *job)
{
    for (int i = 0; i < job->has.count; i++)
        fake->nodes[job->has.slices[i].node].taken &= ~job->has.slices[i].gpus;
    job->has.count = 0;
}

void fake_release_job(struct fake_engine *fake, struct fake_job *job, double after_s)
{
    job->state = ERG_LIVE_PENDING;
    job->held_by_administrator = false;
    job->start_at_s = fake->now_s + after_s +
                      fake_between(fake, fake->settings.start_least_s, fake->settings.start_most_s);
}

void fake_hold_job(struct fake_job *job, bool by_administrator)
{
    job->state = ERG_LIVE_HELD;
    job->held_by_administrator = by_administrator;
}

/* A job that is COMPLETING no more. */
void fake_finish(struct fake_engine *fake, struct fake_job *job)
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
        fake_hold_job(job, true);
    } else if (leaves == FAKE_TO_REQUEUE) {
        job->restarts++;
        fake_release_job(fake, job, fake->settings.requeue_s);
    } else if (job->exit == ERG_RESUMABLE) {
        job->restarts++;
        fake_hold_job(job, false);
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
    int count = fake_bits(asked);
    if (!fake->settings.other_gpus && (asked & ~free) == 0)
        return asked;
    if (!fake->settings.other_gpus)
        return erg_gpus_lowest(free, count);
    while (fake_bits(free) > count)
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
            fake_bits(fake_gpus_of(fake, slice->node) & ~node->taken) < fake_bits(slice->gpus))
            return false;
    }
    job->has.count = 0;
    for (int i = 0; i < job->asked.count; i++) {
        const struct erg_slice *slice = &job->asked.slices[i];
        struct fake_node *node = &fake->nodes[slice->node];
        uint64_t gpus = choose_gpus(fake, slice->node, slice->gpus,
                                    fake_gpus_of(fake, slice->node) & ~node->taken);
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
            uint64_t free = fake_gpus_of(fake, node) & ~fake->nodes[node].taken;
            if (fake->nodes[node].state == ERG_NODE_UP && fake_bits(free) >= job->asked_gpus)
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

void fake_apply(struct fake_engine *fake, struct fake_job *job, enum verb verb,
                const struct erg_placement *placement, int gpus)
{
    if (job->lost)
        return;
    switch (verb) {
    case PLACE:
        if (job->state != ERG_LIVE_HELD)
            break;
        erg_placement_assign(&job->asked, placement);
        fake_release_job(fake, job, 0);
        break;
    case HOLD:
        if (job->state == ERG_LIVE_PENDING || job->state == ERG_LIVE_HELD)
            fake_hold_job(job, true);
        break;
    case STOP:
        if (job->state == ERG_LIVE_RUNNING)
            signal_usr1(fake, job);
        break;
    case KILL:
        if (job->state == ERG_LIVE_RUNNING) {
            fake_end_trainer(fake, job, FAKE_TO_HOLD);
        } else if (job->state == ERG_LIVE_FAILED) {
            job->restarts++;
            fake_hold_job(job, true);
        }
        break;
    case HAND_BACK:
        if (job->state != ERG_LIVE_HELD && job->state != ERG_LIVE_PENDING)
            break;
        job->asked.count = 0;
        job->asked_gpus = gpus;
        fake_release_job(fake, job, 0);
        break;
    }
}

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
    else if (fake_is_over(job))
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
        fake_finish(fake, job);
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

void fake_forget_late(struct fake_engine *fake, size_t index)
{
    erg_placement_release(&fake->late.items[index].placement);
    fake->late.count--;
    memmove(&fake->late.items[index], &fake->late.items[index + 1],
            (fake->late.count - index) * sizeof *fake->late.items);
}

void fake_step_late(struct fake_engine *fake, size_t index)
{
    struct fake_late_call *call = &fake->late.items[index];
    struct fake_job *job = &fake->jobs[call->job];
    if (job->runs == call->run || (call->verb != STOP && call->verb != KILL))
        fake_apply(fake, job, call->verb, &call->placement, call->gpus);
    fake_forget_late(fake, index);
}

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
            fake_step_late(fake, i);
            return true;
        }
    return false;
}

void fake_engine_advance(struct fake_engine *fake, double to_s)
{
    for (double next_s; (next_s = fake_engine_next(fake)) <= to_s;) {
        if (next_s > fake->now_s)
            fake_save_state(fake);
        fake->now_s = fmax(fake->now_s, next_s);
        while (step(fake))
            if (fake->settings.after)
                fake->settings.after(fake->settings.context, fake);
    }
    fake->now_s = fmax(fake->now_s, to_s);
}

/* --- what is on disk --- */

void fake_free_state(struct fake_state *state)
{
    if (!state)
        return;
    for (size_t i = 0; i < state->jobs_count; i++)
        erg_placement_release(&state->jobs[i].asked);
    free(state->jobs);
    free(state);
}

void fake_save_state(struct fake_engine *fake)
{
    if (isinf(fake->settings.state_s) ||
        (fake->saved && fake->now_s - fake->saved->at_s < fake->settings.state_s))
        return;
    fake_free_state(fake->saved);
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
    if (job->lost || fake_is_over(job) || !waited)
        return;
    if (kept->state == job->state && kept->held_by_administrator == job->held_by_administrator &&
        kept->restarts == job->restarts)
        return;
    if (job->stage != FAKE_NO_TRAINER) {
        job->confused = job->seen_run != job->runs || job->seen_state != ERG_LIVE_RUNNING;
        fake_excuse(job);
        fake_leave(fake, job, 137);
    }
    give_gpus_back(fake, job);
    bool cancelled = job->leaves == FAKE_TO_CANCEL;
    job->leaves = FAKE_AS_IT_EXITS;
    job->restarts = kept->restarts;
    erg_placement_assign(&job->asked, &kept->asked);
    if (cancelled)
        job->state = ERG_LIVE_CANCELLED;
    else if (kept->state == ERG_LIVE_HELD)
        fake_hold_job(job, kept->held_by_administrator);
    else
        fake_release_job(fake, job, 0);
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
                fake_leave(fake, job, 137);
            give_gpus_back(fake, job);
            job->lost = true;
        }
        while (fake->late.count > 0)
            fake_forget_late(fake, 0);
        fake->next_id = fake->saved->next_id;
    }
    fake->down_until_s = fake->now_s + for_s;
    fake->unsure_until_s = fake->down_until_s + 5;
}
