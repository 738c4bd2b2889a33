/* A run of training (ergon/train.h): a trainer with its ranks, device, log and checkpoints. */
#include "train/run/session_internal.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "device/backend.h"
#include "plan/plan_pace.h"
#include "train/run/run_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const erg_train_type_names[] = {"bfloat16", "float32", NULL};

/* ---- opening ---- */

/* Ranks connect before they read the job, so that one of them reports its errors. */
static int meet_ranks(struct erg_train *train, struct erg_error *err)
{
    enum { MEETING_S = 300 };
    if (erg_launch_environment_read(&train->env, err) != 0)
        return -1;
    erg_job_report_open(&train->report, erg_train_tells(train) ? erg_launch_job_folder() : NULL);
    if (train->report.folder)
        erg_plan_watch_open(&train->plans, getenv("ERGON_PLAN"));
    return train->env.world > 1
               ? erg_rendezvous_open(&train->rendezvous, &train->env, MEETING_S, err)
               : 0;
}

static int load_job(struct erg_train *train, const char *job, struct erg_error *err)
{
    const struct erg_job_overrides any = {.any_layout = true};
    int result = erg_job_load(&train->job, job, train->tuning.on ? &any : NULL, err);
    return erg_rendezvous_agree(train->rendezvous, result, err);
}

static int open_device(struct erg_train *train, struct erg_error *err)
{
    struct erg_backend_options wanted = {.kind = (enum erg_backend_kind)train->options.device,
                                         .float32 = train->options.type == ERG_TRAIN_FLOAT32};
    wanted.local_rank = train->env.local_rank;
    wanted.rendezvous = train->rendezvous;
    wanted.deterministic = train->job->training && train->job->training->deterministic;
    return erg_backend_open(&train->backend, &wanted, err);
}

static int may_commit(void *context, struct erg_error *err)
{
    return erg_job_report_check(context, err);
}

static int find_gpu(struct erg_train *train, size_t *gpu, struct erg_error *err)
{
    const bool on_host = strcmp(train->backend->name, "host") == 0;
    return erg_gpus_open(&train->gpus, NULL, err) ||
                   erg_rank_find_gpu(train->gpus, on_host ? NULL : train->backend->name,
                                     train->env.local_rank, gpu, err)
               ? -1
               : 0;
}

/*
 * Finds the GPUs whose clocks are set; clocks->gpus stays NULL if none are. A plan for GPUs that
 * chose their own clocks sets none.
 */
static int find_clocks(struct erg_train *train, long stage,
                       struct erg_clock_controller_options *clocks, struct erg_error *err)
{
    *clocks = (struct erg_clock_controller_options){.required = train->options.require_clocks};
    if (!train->plan || !train->options.lock_clocks ||
        !isnan(erg_plan_stage_kind(train->plan, (size_t)stage)->mean_clock_mhz))
        return 0;
    if (find_gpu(train, &clocks->gpu, err) == 0)
        clocks->gpus = train->gpus;
    else if (clocks->required)
        return erg_fail_context(err, "clocks of the plan");
    else
        erg_log(ERG_LOG_WARNING, "clocks: refused: %s; GPUs keep their own", err->message);
    return 0;
}

static int open_plan(struct erg_train *train, struct erg_clock_controller_options *clocks,
                     struct erg_error *err)
{
    struct erg_ranks place = {0};
    if (train->env.rank <
        erg_layout_gpus(&train->job->layout)) /* otherwise the trainer refuses it */
        erg_ranks_place(&place, &train->job->layout, train->env.rank);
    int result = train->tuning.on
                     ? erg_train_tune_plan(train, place.stage, err)
                     : erg_run_plan_open(&train->plan, &train->plan_text, &train->options,
                                         train->job, train->backend->name, place.stage, err);
    return result || find_clocks(train, place.stage, clocks, err) ? -1 : 0;
}

static int open_trainer(struct erg_train *train, struct erg_error *err)
{
    struct erg_clock_controller_options clocks = {0};
    if (erg_rendezvous_agree(train->rendezvous, open_plan(train, &clocks, err), err) != 0)
        return -1;
    const struct erg_trainer_options options = {.backend = train->backend,
                                                .job = train->job,
                                                .init = train->options.init,
                                                .changed = train->options.allow_change,
                                                .rank = train->env.rank,
                                                .world = train->env.world,
                                                .local_rank = train->env.local_rank,
                                                .rendezvous = train->rendezvous,
                                                .may_commit = may_commit,
                                                .commit_context = &train->report,
                                                .plan = train->plan,
                                                .plan_text = train->plan_text,
                                                .chooses = train->tuning.on && train->plan,
                                                .clocks = clocks.gpus ? &clocks : NULL,
                                                .stuck = train->options.stuck};
    const struct erg_run_memory_request memory = {train->job, train->backend, train->env.rank,
                                                  train->env.world, train->rendezvous};
    return erg_rendezvous_agree(train->rendezvous, erg_trainer_check(&options, err), err) ||
                   erg_run_memory_check(&memory, train->most, err) ||
                   erg_trainer_open(&train->trainer, &options, err)
               ? -1
               : 0;
}

static void start(struct erg_train *train, int64_t start_ns)
{
    uint64_t updates = train->job->training->updates, steps = train->options.steps;
    train->end = steps && steps < updates ? steps : updates;
    double time_s = train->options.time_s;
    erg_run_plan_expect(&train->expected, train->plan, train->options.plan, train->job);
    if (time_s > 0) /* includes the time spent so far */
        time_s = fmax(time_s - erg_train_seconds_since(start_ns), 1e-9);
    erg_time_limit_init(&train->limit, time_s, getenv("SLURM_JOB_END_TIME"),
                        train->most[ERG_RANK_OPTIMIZER]);
    train->saved_ns = erg_now_ns();
    erg_power_hold_plan(&train->hold, 1, INFINITY);
    if (train->plan)
        train->own_point = train->plan->selected;
    train->stats = (struct erg_train_stats){
        .size = sizeof train->stats,
        .steps = train->end,
        .loss = NAN,
        .validation_loss = NAN,
        .gradient_norm = NAN,
        .learning_rate = NAN,
        .step_s = NAN,
        .j_per_token = NAN,
        .j_per_token_uncertainty = NAN,
        .memory_bytes = erg_trainer_bytes(train->trainer),
        .rank = train->env.rank,
        .ranks = train->env.world,
    };
}

int erg_train_open_auto(struct erg_train **out, const char *job,
                        const struct erg_train_options *options, const struct erg_train_auto *asked,
                        struct erg_error *err)
{
    struct erg_error ignored;
    int64_t start_ns = erg_now_ns();
    struct erg_train_options taken = {.size = sizeof taken};
    err = err ? err : &ignored;
    if (erg_sized_take(&taken, sizeof taken, options, "erg_train_options", err) != 0)
        return -1;
    if ((unsigned)taken.device > ERG_TRAIN_HOST || (unsigned)taken.type > ERG_TRAIN_FLOAT32)
        return erg_fail(err, ERG_USAGE,
                        "the options of a run have device %d and type %d; expected constants of "
                        "ergon/train.h",
                        taken.device, taken.type);
    if (asked && taken.plan)
        return erg_fail(err, ERG_USAGE,
                        "the options have the plan %s, expected none: a run that searches for the "
                        "best way to train makes its own plan",
                        taken.plan);
    struct erg_train *train = erg_xcalloc(1, sizeof *train);
    train->options = taken;
    if (asked)
        train->tuning = (struct erg_way_search){.on = true, .asked = *asked};
    if (train->options.folder)
        train->options.folder = train->folder = erg_xstrdup(train->options.folder);
    if (train->options.init)
        train->options.init = train->init = erg_xstrdup(train->options.init);
    if (train->options.plan)
        train->options.plan = train->plan_file = erg_xstrdup(train->options.plan);
    if (train->options.method)
        train->options.method = train->method = erg_xstrdup(train->options.method);
    if (meet_ranks(train, err) || load_job(train, job, err) || open_device(train, err) ||
        (asked && erg_train_tune_layout(train, job, err)) || open_trainer(train, err)) {
        erg_train_close(train, NULL);
        return -1;
    }
    start(train, start_ns);
    *out = train;
    return 0;
}

int erg_train_open(struct erg_train **train, const char *job,
                   const struct erg_train_options *options, struct erg_error *err)
{
    return erg_train_open_auto(train, job, options, NULL, err);
}

int erg_train_close(struct erg_train *train, struct erg_error *err)
{
    if (!train)
        return 0;
    int result = 0;
    struct erg_rank_numbers ignored;
    erg_train_tune_release(train); /* its marks belong to the meter */
    if (train->held.time_ns)
        erg_rank_meter_end(&train->meter, &train->held, &ignored);
    if (train->begun) {
        erg_rank_meter_close(&train->meter);
        result = erg_train_tells(train) ? erg_run_log_close(&train->log, err) : 0;
    }
    if (train->stats.end == ERG_TRAIN_DONE && result == 0)
        erg_job_report_state(&train->report, ERG_JOB_DONE);
    erg_job_report_close(&train->report);
    erg_plan_watch_close(&train->plans);
    erg_trainer_close(train->trainer);
    erg_train_kernels_release(train);
    if (train->gpus)
        erg_gpus_close(train->gpus);
    erg_plan_free(train->plan);
    free(train->plan_text);
    if (train->backend)
        train->backend->table->close(train->backend);
    erg_rendezvous_close(train->rendezvous);
    erg_job_free(train->job);
    free(train->resumed);
    erg_text_release(&train->said);
    free(train->folder);
    free(train->init);
    free(train->plan_file);
    free(train->method);
    free(train);
    return result;
}

/* ---- a step ---- */

static int begin(struct erg_train *train, struct erg_error *err)
{
    const struct erg_run_about about = {.job = train->job,
                                        .folder = train->options.folder,
                                        .device = train->backend->name,
                                        .type = erg_train_type_names[train->options.type],
                                        .ranks = (size_t)train->env.world,
                                        .memory_items = train->most,
                                        .step = erg_trainer_steps(train->trainer),
                                        .tokens = erg_trainer_tokens(train->trainer),
                                        .steps = train->end,
                                        .expected = train->expected,
                                        .fresh = train->options.fresh,
                                        .changed = train->options.allow_change};
    bool on_host = strcmp(about.device, "host") == 0;
    if (train->begun)
        return 0;
    train->begun = true;
    int result = erg_train_tells(train) ? erg_run_log_open(&train->log, &about, err) : 0;
    erg_rank_meter_open(&train->meter, on_host ? NULL : about.device, train->env.local_rank);
    erg_job_report_state(&train->report, ERG_JOB_TRAINING);
    if (erg_rendezvous_agree(train->rendezvous, result, err) != 0)
        return -1;
    return train->tuning.on ? erg_train_tune_begin(train, err) : 0;
}

/* This rank's request after the next step; rank 0 watches the time for all. */
static int requested(struct erg_train *train)
{
    const struct erg_training_checkpoint *checkpoint = &train->job->training->checkpoint;
    if (train->stop)
        return train->stop;
    if (!erg_train_tells(train) && !train->save_soon)
        return 0;
    if (erg_train_tells(train) && erg_time_limit_is_near(&train->limit, erg_now_ns()))
        return ERG_TRAINER_TIME_UP;
    bool due = erg_train_tells(train) && checkpoint->minutes > 0 && checkpoint->keep > 0 &&
               erg_train_seconds_since(train->saved_ns) >= 60 * checkpoint->minutes;
    if (train->save_soon) {
        train->save_soon = 0;
        due = true;
    }
    return due && train->options.folder ? ERG_TRAINER_SAVE : 0;
}

/* World call: the numbers of all ranks; free them. */
static struct erg_rank_numbers *measure_ranks(struct erg_train *train, struct erg_error *err)
{
    struct erg_rank_numbers own, *all = erg_xcalloc((size_t)train->env.world, sizeof *all);
    erg_rank_meter_take(&train->meter, &own);
    own.memory_bytes = (double)train->stats.memory_bytes;
    if (train->traced && train->traced == erg_trainer_steps(train->trainer)) {
        own.bubble_s = train->bubble_s;
        own.exposed_s[ERG_EXPOSED_GRADIENTS] = train->gradients_s;
    }
    own.exposed_s[ERG_EXPOSED_DATA] = train->waited_s / (double)train->waits;
    train->waited_s = 0;
    train->waits = 0;
    if (!erg_trainer_clocks(train->trainer, &own.clocks))
        own.clocks.refused = -1;
    if (erg_rendezvous_all_gather(train->rendezvous, &own, sizeof own, all,
                                  ERG_RENDEZVOUS_PATIENCE_S, err) != 0) {
        free(all);
        return NULL;
    }
    return all;
}

static int validate(struct erg_train *train, struct erg_error *err)
{
    struct erg_rank_numbers between;
    if (erg_trainer_validate(train->trainer, &train->stats.validation_loss, err) != 0)
        return -1;
    erg_rank_meter_take(&train->meter, &between); /* energy between steps is not that of steps */
    return 0;
}

static void write_line(struct erg_train *train, const struct erg_run_log_entry *entry)
{
    struct erg_text line = {0};
    erg_run_log_step(&train->log, entry, &line);
    if (line.count && train->options.line)
        train->options.line(train->options.context, line.data);
    train->stats.j_per_token = train->log.j_per_token;
    train->stats.j_per_token_uncertainty = train->log.j_per_token_uncertainty;
    erg_text_release(&line);
    erg_job_report_step(&train->report, entry->step->step, entry->step_s + entry->pause_s,
                        train->log.history.energy_j);
}

/*
 * Whether other work slows the next step down, so that it does not show a layout's speed: warm-up
 * of the first steps, a trace, the writing of a checkpoint, cold caches after a validation.
 */
static bool is_disturbed(const struct erg_train *train, bool traces)
{
    enum { WARM_UP_STEPS = 3 };
    return traces || train->made < WARM_UP_STEPS || train->writing ||
           !isnan(train->stats.validation_loss);
}

/* Validates and writes a line of the log, if due. */
static int report(struct erg_train *train, const struct erg_train_step *step, bool disturbed,
                  struct erg_error *err)
{
    const struct erg_training *training = train->job->training;
    const struct erg_training_validation *validation = &training->validation;
    struct erg_rank_numbers *ranks = NULL;
    bool last = step->step == train->end;
    bool validates = validation->data &&
                     (last || (validation->every && step->step % (uint64_t)validation->every == 0));
    if ((validates || erg_run_log_due(training, step->step, last)) &&
        (ranks = measure_ranks(train, err)) == NULL)
        return -1;
    int result = validates ? validate(train, err) : 0;
    const struct erg_run_log_entry entry = {.step = step,
                                            .step_s = train->stats.step_s,
                                            .pause_s = train->pause_s,
                                            .disturbed = disturbed,
                                            .ranks = ranks,
                                            .trials = train->tuning.news,
                                            .validation_loss =
                                                validates ? &train->stats.validation_loss : NULL};
    if (result == 0 && erg_train_tells(train))
        write_line(train, &entry);
    if (ranks) {
        json_decref(train->tuning.news);
        train->tuning.news = NULL;
    }
    free(ranks);
    return result;
}

static void warn_of_jump(struct erg_train *train, const struct erg_train_step *step)
{
    double mean, above = erg_loss_watch_add(&train->watch, step->loss, &mean);
    if (above > 0 && erg_train_tells(train))
        erg_log(ERG_LOG_WARNING,
                "step %llu: the loss jumped to %.4f, %.0f standard deviations above the mean %.4f "
                "of the %d steps before",
                (unsigned long long)step->step, step->loss, above, mean, ERG_LOSS_WATCH_STEPS);
}

static void note_wait(struct erg_train *train, const struct erg_train_step *step)
{
    train->waited_s += step->own_wait_s;
    train->waits++;
    double share = erg_data_watch_add(&train->data, step->longest_wait_s, train->stats.step_s);
    if (share > 0 && erg_train_tells(train))
        erg_log(ERG_LOG_WARNING,
                "step %llu: steps wait for their tokens for %.0f %% of the time; a faster disk, or "
                "fewer processes that read from it, would train faster",
                (unsigned long long)step->step, 100 * share);
}

static void note(struct erg_train *train, const struct erg_train_step *step)
{
    struct erg_train_stats *stats = &train->stats;
    bool last = step->step == train->end;
    stats->step = step->step;
    stats->updates = step->updates;
    stats->tokens = step->tokens;
    stats->loss = step->loss;
    stats->validation_loss = NAN;
    stats->gradient_norm = step->gradient_norm;
    stats->learning_rate = step->learning_rate;
    stats->clipped = step->clipped;
    stats->skipped = step->skipped;
    stats->saved = 0;
    stats->signal = step->signal > 0 ? step->signal : 0;
    stats->end = last                                  ? ERG_TRAIN_DONE
                 : step->signal > 0                    ? ERG_TRAIN_STOPPED
                 : step->signal == ERG_TRAINER_TIME_UP ? ERG_TRAIN_TIME_UP
                                                       : ERG_TRAIN_GOES_ON;
}

/* Ends the window of power that holds the run to its limit. Returns its mean power, to which every
 * machine or GPU adds its own once; NaN: unknown. */
static double end_window(struct erg_train *train)
{
    struct erg_rank_numbers numbers = {.energy_j = NAN};
    if (train->held.time_ns)
        erg_rank_meter_end(&train->meter, &train->held, &numbers);
    return train->meter.elsewhere ? 0 : numbers.energy_j / numbers.measured_s;
}

/* Begins the next one, where the run has a limit. */
static void begin_window(struct erg_train *train)
{
    if (isfinite(train->hold.limit_w))
        erg_rank_meter_begin(&train->meter, &train->held);
}

/*
 * Without trials, a run by a plan uses the point of least energy that is fast enough. Returns the
 * point's part of the slowdown; pauses make up the rest.
 */
static double follow_point(struct erg_train *train, double slowdown)
{
    struct erg_plan *plan = train->plan;
    const struct erg_plan_selection *own = &train->own_point;
    if (!plan || train->tuning.on)
        return 1;
    const size_t point = erg_plan_pace_point(plan, own, slowdown);
    if (point != plan->selected.point) {
        plan->selected.point = point;
        erg_train_put_into_force(train, true);
        if (erg_train_tells(train))
            erg_log(ERG_LOG_INFO, "the scheduler's plan: continues at point %zu of '%s'",
                    plan->selected.point + 1, train->options.plan);
    }
    const struct erg_plan_point *points = plan->methods[own->method].points;
    return erg_plan_step(plan, &points[point]).time_s /
           erg_plan_step(plan, &points[own->point]).time_s;
}

/*
 * World call: from now on the ranks follow the plan that rank 0 found before this step. A plan that
 * they followed before has had a whole step, which all ranks have ended.
 */
static void follow_plan(struct erg_train *train, const struct erg_train_step *step)
{
    const struct erg_train_pace *pace = &step->pace;
    if (erg_power_hold_due(&train->hold))
        erg_power_hold_measured(&train->hold, step->power_w);
    if (train->hold.saturated && !train->unheld && erg_train_tells(train))
        erg_log(ERG_LOG_WARNING,
                "GPUs draw %.0f W on average, but the scheduler allows %.0f W: pauses that make "
                "steps %.3g times as long do not keep this limit",
                step->power_w, train->hold.limit_w, train->hold.slowdown);
    train->unheld |= train->hold.saturated;
    if (pace->number && pace->number == train->pace.number) {
        if (erg_train_tells(train))
            erg_job_report_plan(&train->report, pace->number);
    } else if (pace->number) {
        const double left = pace->slowdown / follow_point(train, pace->slowdown);
        erg_power_hold_plan(&train->hold, left > 1 ? left : 1, pace->limit_w);
        end_window(train);
        begin_window(train);
    }
    train->pace = *pace;
}

/*
 * Pauses between steps, which the watchdog does not watch: GPUs idle until steps are as slow as
 * requested, and the mean power falls. A signal ends the pause.
 */
static void pause_run(struct erg_train *train, const struct erg_train_step *step)
{
    const int64_t slice_ns = 100000000, start_ns = erg_now_ns();
    train->pause_s = 0;
    if (train->pace.number == 0 || train->stats.end != ERG_TRAIN_GOES_ON)
        return;
    const double planned_ns = 1e9 * erg_power_hold_pause(&train->hold, step->busy_s);
    if (!(planned_ns > 0))
        return;
    const int64_t end_ns = start_ns + (int64_t)planned_ns;
    for (int64_t left_ns; (left_ns = end_ns - erg_now_ns()) > 0;) {
        if (train->stop || erg_interrupted())
            break;
        erg_sleep_ns(left_ns < slice_ns ? left_ns : slice_ns);
    }
    train->pause_s = erg_train_seconds_since(start_ns);
}

static int make_step(struct erg_train *train, struct erg_train_step *step, struct erg_error *err)
{
    struct erg_train_pace wanted;
    if (erg_train_tells(train) && erg_plan_watch_look(&train->plans, &wanted))
        erg_trainer_want_pace(train->trainer, wanted);
    if (erg_power_hold_due(&train->hold)) {
        erg_trainer_note_power(train->trainer, end_window(train));
        begin_window(train);
    }
    return erg_trainer_step(train->trainer, requested(train), step, err);
}

int erg_train_step(struct erg_train *train, struct erg_error *err)
{
    struct erg_error ignored;
    err = err ? err : &ignored;
    uint64_t every = (uint64_t)train->job->training->checkpoint.every;
    struct erg_train_step step = {0};
    if (train->stats.end != ERG_TRAIN_GOES_ON)
        return erg_fail(err, ERG_USAGE, "the run ended at step %llu; expected no further step",
                        (unsigned long long)train->stats.step);
    if (begin(train, err) != 0)
        return -1;
    bool traces = erg_train_traces(train, erg_trainer_steps(train->trainer) + 1);
    bool disturbed = is_disturbed(train, traces);
    if (traces && erg_train_trace_begin(train, err) != 0)
        return erg_train_explain(train, err);
    int64_t start_ns = erg_now_ns();
    if (make_step(train, &step, err) != 0 ||
        (traces && erg_train_trace(train, step.step, err) != 0))
        return erg_train_explain(train, err);
    erg_train_note_written(train);
    train->stats.step_s = erg_train_seconds_since(start_ns);
    if (!disturbed) {
        train->kernels.others_s += train->stats.step_s;
        train->kernels.others++;
    }
    note(train, &step);
    note_wait(train, &step);
    warn_of_jump(train, &step);
    train->made++;
    /* Trials wait while the run is slowed down: their energy would count the pauses. */
    bool untried = disturbed || train->hold.slowdown > 1 || step.pace.slowdown > 1;
    if ((train->tuning.on && erg_train_tune_step(train, untried, err) != 0) ||
        report(train, &step, disturbed, err) != 0)
        return erg_train_explain(train, err);
    follow_plan(train, &step);
    erg_time_limit_add_step(&train->limit, train->pause_s + erg_train_seconds_since(start_ns));
    if ((train->stats.end || step.signal == ERG_TRAINER_SAVE ||
         (every && step.step % every == 0)) &&
        erg_train_save(train, train->stats.end != ERG_TRAIN_GOES_ON, err) != 0)
        return -1;
    pause_run(train, &step);
    return 0;
}

/* ---- results ---- */

int erg_train_stats(const struct erg_train *train, struct erg_train_stats *stats,
                    struct erg_error *err)
{
    return erg_sized_give(stats, &train->stats, sizeof train->stats, "erg_train_stats", err);
}

void erg_train_stop(struct erg_train *train, int signal)
{
    train->stop = signal;
}

void erg_train_save_soon(struct erg_train *train)
{
    train->save_soon = 1;
}

int erg_train_export(struct erg_train *train, const char *folder, struct erg_error *err)
{
    struct erg_error ignored;
    err = err ? err : &ignored;
    return erg_trainer_export(train->trainer, folder, train->options.type == ERG_TRAIN_BFLOAT16,
                              err);
}

const struct erg_job *erg_train_job(const struct erg_train *train)
{
    return train->job;
}

const struct erg_run_expected *erg_train_expected(const struct erg_train *train)
{
    return &train->expected;
}

const char *erg_train_device_name(const struct erg_train *train)
{
    return train->backend->name;
}
