/* A run of training (ergon/train.h): a trainer with its ranks, device, log and checkpoints. */
#include "train/run/session.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/backend.h"
#include "launch/launch.h"
#include "report/report.h"
#include "train/log/run_log.h"
#include "train/run/run_memory.h"
#include "train/run/time_limit.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

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
    volatile sig_atomic_t stop; /* the number of a signal */

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
    if (erg_launch_environment_read(&train->env, err) != 0 ||
        (train->env.world > 1 &&
         erg_rendezvous_open(&train->rendezvous, &train->env, MEETING_S, err) != 0))
        return -1;
    wanted.local_rank = train->env.local_rank;
    wanted.rendezvous = train->rendezvous;
    return erg_backend_open(&train->backend, &wanted, err);
}

static int open_trainer(struct erg_train *train, struct erg_error *err)
{
    const struct erg_trainer_options options = {train->backend,      train->job,
                                                train->options.init, train->env.rank,
                                                train->env.world,    train->rendezvous};
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

int erg_train_checkpoint(struct erg_train *train, struct erg_error *err)
{
    int64_t start_ns = erg_now_ns();
    if (!train->options.folder)
        return erg_fail(err, ERG_USAGE,
                        "a checkpoint of step %llu: the run has no folder; expected "
                        "one in its options",
                        (unsigned long long)train->stats.step);
    if (train->begun && tells(train))
        write_page(&train->log);
    if (erg_trainer_save(train->trainer, train->options.folder,
                         train->job->training->checkpoint.keep, err) != 0)
        return -1;
    train->saved_ns = erg_now_ns();
    train->stats.saved = 1;
    erg_time_limit_add_write(&train->limit, seconds_since(start_ns));
    return 0;
}

/* One that cannot be written is a warning: training goes on, and older ones stay. */
static void save(struct erg_train *train)
{
    struct erg_error err;
    if (train->options.folder && erg_train_checkpoint(train, &err) != 0 && tells(train))
        erg_log(ERG_LOG_WARNING, "%s; there is no checkpoint of this step", err.message);
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
    return erg_rendezvous_agree(train->rendezvous, result, err);
}

/* What this rank wants after the next step; rank 0 sees to the clock for all. */
static int wish(const struct erg_train *train)
{
    const struct erg_training_checkpoint *checkpoint = &train->job->training->checkpoint;
    if (train->stop)
        return train->stop;
    if (!tells(train))
        return 0;
    if (erg_time_limit_is_near(&train->limit, erg_now_ns()))
        return ERG_TRAINER_TIME_UP;
    bool due =
        checkpoint->minutes > 0 && seconds_since(train->saved_ns) >= 60 * checkpoint->minutes;
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

static int write_line(struct erg_train *train, const struct erg_run_log_entry *entry,
                      struct erg_error *err)
{
    struct erg_text line = {0};
    int result = erg_run_log_step(&train->log, entry, &line, err);
    if (result == 0 && line.count && train->options.line)
        train->options.line(train->options.context, line.data);
    train->stats.j_per_token = train->log.j_per_token;
    train->stats.j_per_token_uncertainty = train->log.j_per_token_uncertainty;
    erg_text_release(&line);
    return result;
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
        result = write_line(train, &entry, err);
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
        return -1;
    train->stats.step_s = seconds_since(start_ns);
    note(train, &step);
    if (report(train, &step, err) != 0)
        return -1;
    erg_time_limit_add_step(&train->limit, seconds_since(start_ns));
    if (train->stats.end || step.signal == ERG_TRAINER_SAVE || (every && step.step % every == 0))
        save(train);
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
