/* A run of training (ergon/train.h): a trainer with its ranks, device, log and checkpoints. */
#include "train/run/session.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/backend.h"
#include "launch/launch.h"
#include "report/report.h"
#include "train/log/job_report.h"
#include "train/log/run_log.h"
#include "train/run/run_memory.h"
#include "train/run/time_limit.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const erg_train_type_names[] = {"bfloat16", "float32", NULL};

struct erg_train {
    struct erg_train_options options; /* with these strings */
    char *folder, *init;
    struct erg_job *job;
    struct erg_launch_environment env;
    struct erg_rendezvous *rendezvous; /* NULL: one rank */
    struct erg_backend *backend;
    struct erg_trainer *trainer;
    size_t most[ERG_RANK_ITEMS]; /* what the rank with most memory takes */
    struct erg_time_limit limit;
    uint64_t end; /* the last step */
    int64_t saved_ns;
    char *resumed;
    struct erg_train_stats stats;
    volatile sig_atomic_t stop;       /* the number of a signal */
    volatile sig_atomic_t save_soon;
    struct erg_job_report report; /* at rank 0 */
    uint64_t writing;             /* the step whose checkpoint is being written, 0: none */
    int64_t writing_ns;           /* since when */

    /* From the first step on. */
    bool begun;
    struct erg_rank_meter meter;
    struct erg_run_log log; /* at rank 0, which writes it for all */
};

static bool tells(const struct erg_train *train)
{
    return train->env.rank == 0;
}

static double seconds_since(int64_t start_ns)
{
    return 1e-9 * (double)(erg_now_ns() - start_ns);
}

/* ---- opening ---- */

static int open_ranks(struct erg_train *train, struct erg_error *err)
{
    enum { MEETING_S = 300 };
    struct erg_backend_options wanted = {(enum erg_backend_kind)train->options.device,
                                         train->options.type == ERG_TRAIN_FLOAT32, 0, NULL};
    if (erg_launch_environment_read(&train->env, err) != 0)
        return -1;
    erg_job_report_open(&train->report, tells(train) ? erg_launch_job_folder() : NULL);
    if ((train->env.world > 1 &&
         erg_rendezvous_open(&train->rendezvous, &train->env, MEETING_S, err) != 0))
        return -1;
    wanted.local_rank = train->env.local_rank;
    wanted.rendezvous = train->rendezvous;
    return erg_backend_open(&train->backend, &wanted, err);
}

static int open_trainer(struct erg_train *train, struct erg_error *err)
{
    const struct erg_trainer_options options = {.backend = train->backend,
                                                .job = train->job,
                                                .init = train->options.init,
                                                .rank = train->env.rank,
                                                .world = train->env.world,
                                                .rendezvous = train->rendezvous,
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
    if (time_s > 0) /* what has been spent so far is a part of it */
        time_s = fmax(time_s - seconds_since(start_ns), 1e-9);
    erg_time_limit_init(&train->limit, time_s, getenv("SLURM_JOB_END_TIME"),
                        train->most[ERG_RANK_OPTIMIZER]);
    train->saved_ns = erg_now_ns();
    train->stats = (struct erg_train_stats){
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

int erg_train_open(struct erg_train **out, const char *job, const struct erg_train_options *options,
                   struct erg_error *err)
{
    static const struct erg_train_options defaults = {0};
    int64_t start_ns = erg_now_ns();
    struct erg_train *train = erg_xcalloc(1, sizeof *train);
    train->options = options ? *options : defaults;
    if (train->options.folder)
        train->options.folder = train->folder = erg_xstrdup(train->options.folder);
    if (train->options.init)
        train->options.init = train->init = erg_xstrdup(train->options.init);
    if (erg_job_load(&train->job, job, NULL, err) || open_ranks(train, err) ||
        open_trainer(train, err)) {
        erg_train_close(train, NULL);
        return -1;
    }
    start(train, start_ns);
    *out = train;
    return 0;
}

int erg_train_close(struct erg_train *train, struct erg_error *err)
{
    if (!train)
        return 0;
    int result = 0;
    if (train->begun) {
        erg_rank_meter_close(&train->meter);
        result = tells(train) ? erg_run_log_close(&train->log, err) : 0;
    }
    if (train->stats.end == ERG_TRAIN_DONE && result == 0)
        erg_job_report_state(&train->report, ERG_JOB_DONE);
    erg_job_report_close(&train->report);
    erg_trainer_close(train->trainer);
    if (train->backend)
        train->backend->table->close(train->backend);
    erg_rendezvous_close(train->rendezvous);
    erg_job_free(train->job);
    free(train->resumed);
    free(train->folder);
    free(train->init);
    free(train);
    return result;
}

/* ---- checkpoints ---- */

/* As with a checkpoint, a page that cannot be written is a warning. */
static void write_page(const struct erg_run_log *log)
{
    struct erg_error err;
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/report.html", log->about.folder);
    json_t *document = erg_run_log_document(log);
    if (erg_report_training_write(path.data, document, &err) != 0)
        erg_log(ERG_LOG_WARNING, "%s", err.message);
    json_decref(document);
    erg_text_release(&path);
}

/* What is written meanwhile is there, or has failed: how long that took is known. */
static void note_written(struct erg_train *train)
{
    train->report.checkpoint = erg_trainer_checkpoint(train->trainer);
    if (train->writing && train->report.checkpoint >= train->writing) {
        erg_time_limit_add_write(&train->limit, seconds_since(train->writing_ns));
        train->writing = 0;
    }
}

/* World call. `waits`: until the checkpoint is there. */
static int checkpoint(struct erg_train *train, bool waits, struct erg_error *err)
{
    const char *folder = train->options.folder;
    int keep = train->job->training->checkpoint.keep;
    if (train->begun && tells(train))
        write_page(&train->log);
    if (waits)
        erg_job_report_state(&train->report, ERG_JOB_SAVING);
    train->writing = train->stats.step;
    train->writing_ns = erg_now_ns();
    int result = waits ? erg_trainer_save(train->trainer, folder, keep, err)
                       : erg_trainer_save_begin(train->trainer, folder, keep, err);
    note_written(train);
    if (waits)
        erg_job_report_state(&train->report, result == 0 ? ERG_JOB_SAVED : ERG_JOB_TRAINING);
    if (result != 0)
        return -1;
    train->saved_ns = erg_now_ns();
    train->stats.saved = 1;
    return 0;
}

int erg_train_checkpoint(struct erg_train *train, struct erg_error *err)
{
    if (!train->options.folder)
        return erg_fail(err, ERG_USAGE,
                        "a checkpoint of step %llu: the run has no folder; expected "
                        "one in its options",
                        (unsigned long long)train->stats.step);
    return checkpoint(train, true, err);
}

/* One that cannot be written is a warning: training goes on, and older ones stay. */
static void save(struct erg_train *train, bool waits)
{
    struct erg_error err;
    if (train->options.folder && checkpoint(train, waits, &err) != 0 && tells(train))
        erg_log(ERG_LOG_WARNING, "%s; there is no checkpoint of this step", err.message);
}

/* What the rank that speaks for all says of a run that failed at one of its steps, which is saved
 * before where that can be. */
static int explain_failure(struct erg_train *train, struct erg_error *err)
{
    const char *folder = train->options.folder;
    struct erg_text latest = {0};
    char name[64];
    bool all_there = !train->rendezvous || erg_rendezvous_check(train->rendezvous, NULL) == 0;
    if (all_there && erg_trainer_is_whole(train->trainer) && train->stats.step > 0)
        save(train, true);
    else
        erg_rendezvous_explain(train->rendezvous, err);
    erg_text_printf(&latest, "%s/latest", folder ? folder : "");
    ssize_t length = folder ? readlink(latest.data, name, sizeof name) : -1;
    size_t used = strlen(err->message);
    if (used && length > 0)
        snprintf(err->message + used, sizeof err->message - used,
                 "; the last checkpoint is %s/%.*s", folder, (int)length, name);
    erg_text_release(&latest);
    return -1;
}

int erg_train_resume(struct erg_train *train, const char *from, struct erg_error *err)
{
    const char *folder = from ? from : train->options.folder;
    char *found = NULL;
    if (!folder)
        return 0;
    int result = erg_trainer_resume(train->trainer, folder, &found, err);
    if (result == 0 && !found && from)
        result =
            erg_fail(err, ERG_FAILED,
                     "going on: '%s' has no checkpoint; expected one, or a run's folder", from);
    if (result == 0 && found) {
        free(train->resumed);
        train->resumed = found;
        train->stats.resumed = found;
        train->stats.step = erg_trainer_steps(train->trainer);
        train->stats.updates = erg_trainer_updates(train->trainer);
        train->stats.tokens = erg_trainer_tokens(train->trainer);
        train->stats.end = train->stats.step >= train->end ? ERG_TRAIN_DONE : ERG_TRAIN_GOES_ON;
        return 0;
    }
    free(found);
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
                                        .fresh = train->options.fresh};
    bool on_host = strcmp(about.device, "host") == 0;
    if (train->begun)
        return 0;
    train->begun = true;
    int result = tells(train) ? erg_run_log_open(&train->log, &about, err) : 0;
    erg_rank_meter_open(&train->meter, on_host ? NULL : about.device, train->env.local_rank);
    erg_job_report_state(&train->report, ERG_JOB_TRAINING);
    return erg_rendezvous_agree(train->rendezvous, result, err);
}

/* What this rank wants after the next step; rank 0 sees to the clock for all. */
static int wish(struct erg_train *train)
{
    const struct erg_training_checkpoint *checkpoint = &train->job->training->checkpoint;
    if (train->stop)
        return train->stop;
    if (!tells(train) && !train->save_soon)
        return 0;
    if (tells(train) && erg_time_limit_is_near(&train->limit, erg_now_ns()))
        return ERG_TRAINER_TIME_UP;
    bool due =
        tells(train) && checkpoint->minutes > 0 && seconds_since(train->saved_ns) >= 60 * checkpoint->minutes;
    due = due || train->save_soon;
    train->save_soon = 0;
    return due && train->options.folder ? ERG_TRAINER_SAVE : 0;
}

/* World call: the numbers of all ranks, to be freed. */
static struct erg_rank_numbers *measure_ranks(struct erg_train *train, struct erg_error *err)
{
    enum { PATIENCE_S = 600 };
    struct erg_rank_numbers own, *all = erg_xcalloc((size_t)train->env.world, sizeof *all);
    erg_rank_meter_take(&train->meter, &own);
    own.memory_bytes = (double)train->stats.memory_bytes;
    *all = own;
    if (train->rendezvous &&
        erg_rendezvous_all_gather(train->rendezvous, &own, sizeof own, all, PATIENCE_S, err) != 0) {
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
    erg_rank_meter_take(&train->meter, &between); /* its energy is not that of steps */
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
    erg_job_report_step(&train->report, entry->step->step, entry->step_s,
                        train->log.history.energy_j);
}

/* Validation and a line of the log, where they are due. */
static int report(struct erg_train *train, const struct erg_train_step *step, struct erg_error *err)
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
                                            .ranks = ranks,
                                            .validation_loss =
                                                validates ? &train->stats.validation_loss : NULL};
    if (result == 0 && tells(train))
        write_line(train, &entry);
    free(ranks);
    return result;
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

int erg_train_step(struct erg_train *train, struct erg_error *err)
{
    uint64_t every = (uint64_t)train->job->training->checkpoint.every;
    struct erg_train_step step = {0};
    if (train->stats.end != ERG_TRAIN_GOES_ON)
        return erg_fail(err, ERG_USAGE, "the run ended at step %llu; expected no further step",
                        (unsigned long long)train->stats.step);
    if (begin(train, err) != 0)
        return -1;
    int64_t start_ns = erg_now_ns();
    if (erg_trainer_step(train->trainer, wish(train), &step, err) != 0)
        return explain_failure(train, err);
    note_written(train);
    train->stats.step_s = seconds_since(start_ns);
    note(train, &step);
    if (report(train, &step, err) != 0)
        return explain_failure(train, err);
    erg_time_limit_add_step(&train->limit, seconds_since(start_ns));
    if (train->stats.end || step.signal == ERG_TRAINER_SAVE || (every && step.step % every == 0))
        save(train, train->stats.end != ERG_TRAIN_GOES_ON);
    return 0;
}

/* ---- what comes out ---- */

void erg_train_stats(const struct erg_train *train, struct erg_train_stats *stats)
{
    *stats = train->stats;
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
    return erg_trainer_export(train->trainer, folder, train->options.type == ERG_TRAIN_BFLOAT16,
                              err);
}

const struct erg_job *erg_train_job(const struct erg_train *train)
{
    return train->job;
}

const char *erg_train_device_name(const struct erg_train *train)
{
    return train->backend->name;
}
