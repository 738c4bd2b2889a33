/*
 * Checkpoints of a run: writes them, measures the time, and loads the one from which a run
 * continues.
 */
#include "train/run/session_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As with a checkpoint, a failure to write the page gives a warning. */
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

/*
 * Files written in the background are complete or have failed, so the time of the writes is known.
 */
void erg_train_note_written(struct erg_train *train)
{
    uint64_t there = erg_trainer_checkpoint(train->trainer);
    erg_job_report_checkpoint(&train->report, there);
    if (train->writing && there >= train->writing) {
        erg_time_limit_add_write(&train->limit, erg_train_seconds_since(train->writing_ns));
        train->writing = 0;
    }
}

/* World call. `waits`: until the checkpoint is complete. */
static int checkpoint(struct erg_train *train, bool waits, struct erg_error *err)
{
    const char *folder = train->options.folder;
    int keep = train->job->training->checkpoint.keep;
    if (train->begun && erg_train_tells(train))
        write_page(&train->log);
    if (waits)
        erg_job_report_state(&train->report, ERG_JOB_SAVING);
    train->writing = train->stats.step;
    train->writing_ns = erg_now_ns();
    int result = waits ? erg_trainer_save(train->trainer, folder, keep, err)
                       : erg_trainer_save_begin(train->trainer, folder, keep, err);
    erg_train_note_written(train);
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
    struct erg_error ignored;
    err = err ? err : &ignored;
    if (train->job->training->checkpoint.keep == 0)
        return erg_fail(err, ERG_USAGE,
                        "a checkpoint of step %llu: the job's key 'train.checkpoint.keep' is 0; "
                        "expected at least 1",
                        (unsigned long long)train->stats.step);
    if (!train->options.folder)
        return erg_fail(err, ERG_USAGE,
                        "a checkpoint of step %llu: the run has no folder; expected "
                        "one in its options",
                        (unsigned long long)train->stats.step);
    return checkpoint(train, true, err);
}

/* A failure to write gives a warning: training continues, and older checkpoints stay. */
int erg_train_save(struct erg_train *train, bool waits, struct erg_error *err)
{
    struct erg_error failure;
    if (!train->options.folder)
        return 0;
    if (train->job->training->checkpoint.keep == 0) {
        if (train->begun && erg_train_tells(train))
            write_page(&train->log);
        return 0;
    }
    if (checkpoint(train, waits, &failure) == 0)
        return 0;
    if (failure.status == ERG_SUPERSEDED && err) {
        *err = failure;
        return -1;
    }
    if (erg_train_tells(train))
        erg_log(ERG_LOG_WARNING, "%s; there is no checkpoint of this step", failure.message);
    return 0;
}

/*
 * Completes the reporting rank's message for a run that failed at a step; saves the run first if
 * possible.
 */
int erg_train_explain(struct erg_train *train, struct erg_error *err)
{
    const char *folder = train->options.folder;
    struct erg_text latest = {0};
    char name[64];
    if (err->status == ERG_SUPERSEDED)
        return -1;
    bool all_there = !train->rendezvous || erg_rendezvous_check(train->rendezvous, NULL) == 0;
    if (all_there && erg_trainer_is_whole(train->trainer) && train->stats.step > 0)
        (void)erg_train_save(train, true, NULL);
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
    struct erg_error ignored;
    char *found = NULL;
    err = err ? err : &ignored;
    if (!folder)
        return 0;
    int result = erg_trainer_resume(train->trainer, folder, &found, err);
    if (result == 0 && !found && from)
        result =
            erg_fail(err, ERG_FAILED,
                     "continuing: '%s' has no checkpoint; expected one, or a run's folder", from);
    if (result == 0 && found) {
        free(train->resumed);
        train->resumed = found;
        train->stats.resumed = found;
        train->stats.step = erg_trainer_steps(train->trainer);
        erg_job_report_resumed(&train->report, train->stats.step);
        train->stats.updates = erg_trainer_updates(train->trainer);
        train->stats.tokens = erg_trainer_tokens(train->trainer);
        train->stats.end = train->stats.step >= train->end ? ERG_TRAIN_DONE : ERG_TRAIN_GOES_ON;
        return 0;
    }
    free(found);
    return result;
}
