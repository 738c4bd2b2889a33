/* The log of a run, for people and as JSON lines. */
#define _DEFAULT_SOURCE /* strsep */

#include "train/engine/run_log.h"

#include "base/memory.h"
#include "io/file.h"
#include "io/json.h"
#include "train/checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_STEPS = 3 }; /* of which every one is shown */

/* Keeps the lines of steps up to `step`; what is no line of a log is not kept. */
static int cut_off(const char *path, uint64_t step, struct erg_error *err)
{
    char *text;
    struct erg_text kept = {0};
    if (access(path, F_OK) != 0)
        return 0;
    if (erg_file_read(path, 0, &text, NULL, err) != 0)
        return -1;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *object = json_loads(line, 0, NULL);
        const json_t *value = json_object_get(object, "step");
        if (json_is_integer(value) && (uint64_t)json_integer_value(value) <= step)
            erg_text_printf(&kept, "%s\n", line);
        json_decref(object);
    }
    int result = erg_file_write(path, kept.data ? kept.data : "", kept.count, err);
    erg_text_release(&kept);
    free(text);
    return result;
}

/* What run.json says of a run; to be freed. */
static char *describe(const struct erg_job *job)
{
    char *model = erg_checkpoint_model(job->model);
    json_t *document = erg_json_pack(
        "{s:s, s:i, s:s, s:I, s:I, s:I}", "schema", "ergon.run", "schema_version", 1, "model",
        model, "seed", (json_int_t)job->training->seed, "batch",
        (json_int_t)(job->layout.microbatch * job->layout.microbatches * job->layout.data),
        "sequence", (json_int_t)job->layout.sequence);
    char *text = erg_json_text(document);
    json_decref(document);
    free(model);
    return text;
}

/* Makes the folder one of this run, or finds that it is; *same: it was one before. */
static int claim_folder(const char *folder, const struct erg_job *job, bool *same,
                        struct erg_error *err)
{
    struct erg_text path = {0};
    char *text = describe(job), *there = NULL;
    erg_text_printf(&path, "%s/run.json", folder);
    int result = erg_dir_make(folder, err);
    *same = result == 0 && erg_file_read(path.data, 0, &there, NULL, NULL) == 0 &&
            strcmp(there, text) == 0;
    if (result == 0 && !there)
        result = erg_file_write(path.data, text, strlen(text), err);
    free(there);
    free(text);
    erg_text_release(&path);
    return result;
}

int erg_run_log_open(struct erg_run_log *log, const struct erg_job *job, const char *folder,
                     uint64_t step, uint64_t tokens, bool fresh, size_t memory_bytes,
                     struct erg_error *err)
{
    *log = (struct erg_run_log){.job = job, .memory_bytes = memory_bytes, .last_tokens = tokens};
    if (!folder)
        return 0;
    struct erg_text path = {0};
    bool same;
    erg_text_printf(&path, "%s/metrics.jsonl", folder);
    log->path = path.data;
    if (claim_folder(folder, job, &same, err) != 0)
        return -1;
    bool goes_on = step > 0 || (same && !fresh);
    if (goes_on && cut_off(log->path, step, err) != 0)
        return -1;
    log->metrics = fopen(log->path, goes_on ? "ae" : "wxe");
    if (log->metrics)
        return 0;
    return errno == EEXIST
               ? erg_fail(
                     err, ERG_FAILED,
                     "writing '%s': this file is there already, of another run; expected a folder "
                     "without one",
                     log->path)
               : erg_fail(err, ERG_FAILED, "writing '%s': %s", log->path, strerror(errno));
}

static int write_metrics(struct erg_run_log *log, const struct erg_train_step *step,
                         double tokens_per_s, struct erg_error *err)
{
    if (!log->metrics)
        return 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    json_t *line = erg_json_pack(
        "{s:i, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:b, s:b, s:{s:f, s:f, s:f}, s:f, s:I, s:n}",
        "schema_version", 1, "step", (json_int_t)step->step, "updates", (json_int_t)step->updates,
        "tokens", (json_int_t)step->tokens, "targets", (json_int_t)step->targets, "time_unix_s",
        (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, "loss", step->loss, "gradient_norm",
        step->gradient_norm, "learning_rate", step->learning_rate, "clipped", step->clipped,
        "skipped", step->skipped, "step_ms", "mean", 1e3 * log->spent_s / (double)log->in_window,
        "min", 1e3 * log->shortest_s, "max", 1e3 * log->longest_s, "tokens_per_s", tokens_per_s,
        "memory_bytes", (json_int_t)log->memory_bytes, "energy_j");
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    bool written = fprintf(log->metrics, "%s\n", text) > 0 && fflush(log->metrics) == 0;
    free(text);
    json_decref(line);
    return written ? 0 : erg_fail(err, ERG_FAILED, "writing '%s': %s", log->path, strerror(errno));
}

int erg_run_log_step(struct erg_run_log *log, const struct erg_train_step *step, double step_s,
                     bool last, struct erg_text *line, struct erg_error *err)
{
    const struct erg_training *training = log->job->training;
    log->shortest_s = log->in_window ? fmin(log->shortest_s, step_s) : step_s;
    log->longest_s = log->in_window ? fmax(log->longest_s, step_s) : step_s;
    log->spent_s += step_s;
    log->in_window++;
    if (!last && step->step > FIRST_STEPS && step->step % (uint64_t)training->log_every != 0)
        return 0;
    double tokens_per_s = (double)(step->tokens - log->last_tokens) / log->spent_s;
    int result = write_metrics(log, step, tokens_per_s, err);
    erg_text_printf(line,
                    "step %" PRIu64 "/%" PRIu64
                    "  loss %.4f  norm %.3f  lr %.2e  %.0f ms  %.0f tok/s  %.3g GiB%s",
                    step->step, training->updates, step->loss, step->gradient_norm,
                    step->learning_rate, 1e3 * log->spent_s / (double)log->in_window, tokens_per_s,
                    (double)log->memory_bytes / 0x1p30, step->skipped ? "  skipped" : "");
    log->last_tokens = step->tokens;
    log->spent_s = 0;
    log->in_window = 0;
    return result;
}

int erg_run_log_close(struct erg_run_log *log, struct erg_error *err)
{
    bool failed = log->metrics && fclose(log->metrics) != 0;
    int reason = errno;
    if (failed)
        erg_fail(err, ERG_FAILED, "writing '%s': %s", log->path, strerror(reason));
    free(log->path);
    *log = (struct erg_run_log){0};
    return failed ? -1 : 0;
}
