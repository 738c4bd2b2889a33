/* The log of a run. */
#define _DEFAULT_SOURCE /* strsep, gethostname */

#include "train/log/run_log.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "ergon/ergon.h"
#include "io/file.h"
#include "io/json.h"
#include "train/checkpoint/checkpoint.h"
#include "train/log/run_line.h"
#include "train/log/run_session.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_STEPS = 3 }; /* steps that always get a line */

/* Keeps the lines of steps up to `step`; drops invalid lines. */
static int cut_off(struct erg_run_log *log, uint64_t step, struct erg_error *err)
{
    char *text;
    struct erg_text kept = {0};
    if (access(log->path, F_OK) != 0)
        return 0;
    if (erg_file_read(log->path, 0, &text, NULL, err) != 0)
        return -1;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *object = json_loads(line, 0, NULL);
        const json_t *value = json_object_get(object, "step");
        if (json_is_integer(value) && (uint64_t)json_integer_value(value) <= step) {
            erg_text_printf(&kept, "%s\n", line);
            erg_run_history_add(&log->history, object);
        }
        json_decref(object);
    }
    int result = erg_file_write(log->path, kept.data ? kept.data : "", kept.count, err);
    erg_text_release(&kept);
    free(text);
    return result;
}

/* The content of run.json for a run; the caller frees it. */
static char *describe(const struct erg_job *job)
{
    char *model = erg_checkpoint_model(job->model);
    json_t *document = erg_json_pack(
        "{s:s, s:i, s:s, s:I, s:I, s:I}", "schema", "ergon.run", "schema_version", 1, "model",
        model, "seed", (json_int_t)job->training->seed, "batch",
        (json_int_t)erg_layout_batch(&job->layout), "sequence", (json_int_t)job->layout.sequence);
    char *text = erg_json_text(document);
    json_decref(document);
    free(model);
    return text;
}

/* Checks that the folder belongs to this run. Does not change a folder of another run. */
static int check_run(const char *folder, const char *there, const char *own, bool anew,
                     struct erg_error *err)
{
    static const char *const of_run[] = {"run.json", NULL};
    static const char *const replaced[] = {"metrics.jsonl", "report.html", "latest", NULL};
    static const char rest[] = "of another run; expected a folder without one";
    if (there && strcmp(there, own) != 0)
        return erg_dir_refuse_files(folder, of_run, rest, err);
    return there && !anew ? 0 : erg_dir_refuse_files(folder, replaced, rest, err);
}

int erg_run_log_check(const char *folder, const struct erg_job *job, bool anew, bool changed,
                      struct erg_error *err)
{
    char *path = erg_file_path(folder, "run.json"), *own = describe(job), *there = NULL;
    (void)erg_file_read(path, 0, &there, NULL, NULL);
    int result = changed ? 0 : check_run(folder, there, own, anew, err);
    free(path);
    free(own);
    free(there);
    return result;
}

/* Locks the folder for this process while its file is open. */
static int lock_run(struct erg_run_log *log, const char *path, struct erg_error *err)
{
    log->lock = open(path, O_RDWR | O_CLOEXEC); /* some file systems lock only writable files */
    if (log->lock < 0)
        return erg_fail(err, ERG_FAILED, "writing '%s': %s", path, strerror(errno));
    if (flock(log->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 0; /* a file system without locks does not stop a run */
    return erg_fail(err, ERG_FAILED,
                    "'%s' belongs to a run that is still active; expected another folder, or a run "
                    "that has ended",
                    path);
}

/* Claims the folder for this run; *same: it already belonged to it. `anew`: it must have no log. */
static int claim_folder(struct erg_run_log *log, bool anew, bool *same, struct erg_error *err)
{
    const char *folder = log->about.folder;
    struct erg_text path = {0};
    char *text = describe(log->about.job), *there = NULL;
    erg_text_printf(&path, "%s/run.json", folder);
    int result = erg_dir_make(folder, err);
    *same = result == 0 && erg_file_read(path.data, 0, &there, NULL, NULL) == 0;
    bool becomes_it =
        *same && strcmp(there, text) != 0 && log->about.changed && log->about.step > 0;
    if (result == 0 && !becomes_it)
        result = check_run(folder, there, text, anew, err);
    if (result == 0 && (!*same || becomes_it))
        result = erg_file_write(path.data, text, strlen(text), err);
    if (result == 0)
        result = lock_run(log, path.data, err);
    free(there);
    free(text);
    erg_text_release(&path);
    return result;
}

int erg_run_log_open(struct erg_run_log *log, const struct erg_run_about *about,
                     struct erg_error *err)
{
    *log = (struct erg_run_log){.about = *about,
                                .metrics = -1,
                                .lock = -1,
                                .memory_bytes = NAN,
                                .memory_outside_bytes = NAN,
                                .j_per_token = NAN,
                                .j_per_token_uncertainty = NAN,
                                .last_tokens = about->tokens};
    if (!about->folder)
        return 0;
    struct erg_text path = {0};
    bool same, anew = about->fresh && about->step == 0;
    erg_text_printf(&path, "%s/metrics.jsonl", about->folder);
    log->path = path.data;
    if (claim_folder(log, anew, &same, err) != 0)
        return -1;
    if ((same && cut_off(log, about->step, err) != 0) ||
        erg_run_session_add(about, erg_unix_s(), err) != 0)
        return -1;
    log->metrics = open(log->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log->metrics < 0)
        return erg_fail(err, ERG_FAILED, "writing '%s': %s", log->path, strerror(errno));
    return erg_event_file_open(&log->events, about->folder, erg_unix_s(), about->step, err);
}

bool erg_run_log_due(const struct erg_training *training, uint64_t step, bool last)
{
    return last || step <= FIRST_STEPS || step % (uint64_t)training->log_every == 0;
}

/* Writes the pending data; keeps the rest if it cannot be written. */
static int write_lines(struct erg_run_log *log, struct erg_error *err)
{
    return erg_file_write_some(log->metrics, &log->unwritten) == 0
               ? 0
               : erg_fail(err, ERG_FAILED, "writing '%s': %s", log->path, strerror(errno));
}

static void keep_line(struct erg_run_log *log, const struct erg_run_line *line)
{
    struct erg_event_scalar scalars[ERG_RUN_SCALARS];
    struct erg_error err;
    json_t *object = erg_run_line_json(line, &log->about);
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    erg_text_printf(&log->unwritten, "%s\n", text);
    erg_run_history_add(&log->history, object);
    free(text);
    json_decref(object);
    size_t count = erg_run_line_scalars(line, scalars);
    int failed = write_lines(log, &err);
    if (erg_event_file_write(&log->events, line->time_unix_s, line->entry->step->step, scalars,
                             count, failed ? NULL : &err) == 0 &&
        !failed)
        return;
    if (!log->warned)
        erg_log(ERG_LOG_WARNING, "%s; training continues, and lines are written later",
                err.message);
    log->warned = true;
}

void erg_run_log_step(struct erg_run_log *log, const struct erg_run_log_entry *entry,
                      struct erg_text *text)
{
    struct erg_run_line line;
    log->shortest_s = log->in_window ? fmin(log->shortest_s, entry->step_s) : entry->step_s;
    log->longest_s = log->in_window ? fmax(log->longest_s, entry->step_s) : entry->step_s;
    log->spent_s += entry->step_s;
    log->paused_s += entry->pause_s;
    log->in_window++;
    if (!entry->disturbed) {
        log->undisturbed_s += entry->step_s;
        log->undisturbed++;
    }
    if (!entry->ranks)
        return;
    erg_run_line_make(&line, log, entry, erg_unix_s());
    log->memory_bytes = line.memory_bytes;
    log->memory_outside_bytes = line.memory_outside_bytes;
    log->j_per_token = line.j_per_token;
    log->j_per_token_uncertainty = line.j_per_token_uncertainty;
    log->last_tokens = entry->step->tokens;
    log->spent_s = log->paused_s = log->undisturbed_s = 0;
    log->in_window = log->undisturbed = 0;
    erg_run_line_text(text, &line, log->about.steps);
    if (log->metrics >= 0)
        keep_line(log, &line);
}

/* Bytes of each item of the rank with the most; null: not known. */
static json_t *memory_items(const struct erg_run_log *log)
{
    json_t *object = log->about.memory_items ? json_object() : json_null();
    for (size_t i = 0; i < ERG_RANK_ITEMS && log->about.memory_items; i++)
        json_object_set_new(object, erg_rank_item_names[i],
                            json_integer((json_int_t)log->about.memory_items[i]));
    return object;
}

/* The plan of the passes, and its prediction of a step. */
static json_t *expected_json(const struct erg_run_expected *expected)
{
    return expected->plan
               ? erg_json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f}", "file", expected->plan,
                               "method", expected->method, "rule", expected->rule, "point",
                               (json_int_t)expected->point, "points", (json_int_t)expected->points,
                               "step_s", expected->step_s, "step_j", expected->step_j)
               : json_null();
}

json_t *erg_run_log_document(const struct erg_run_log *log)
{
    const struct erg_job *job = log->about.job;
    const struct erg_layout *layout = &job->layout;
    char host[256] = "", now[32];
    gethostname(host, sizeof host - 1);
    erg_utc_now(now, sizeof now);
    return erg_json_pack(
        "{s:s, s:i, s:s, s:s, s:f, s:s, s:I, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, "
        "s:I, s:I, s:s, s:f, s:f, s:o, s:f, s:o, s:o, s:o}",
        "schema", "ergon.training", "schema_version", 1, "job", job->name, "model",
        job->model->name, "parameters", erg_model_trained_parameters(job->model), "device",
        log->about.device, "ranks", (json_int_t)log->about.ranks, "type", log->about.type, "host",
        host, "written", now, "version", erg_version(), "updates",
        (json_int_t)job->training->updates, "batch", (json_int_t)erg_layout_batch(layout),
        "microbatch", (json_int_t)layout->microbatch, "sequence", (json_int_t)layout->sequence,
        "tensor", (json_int_t)layout->tensor, "context", (json_int_t)layout->context, "pipeline",
        (json_int_t)layout->pipeline, "virtual_stages", (json_int_t)layout->virtual_stages, "data",
        (json_int_t)layout->data, "recompute", erg_recompute_name(layout->recompute),
        "memory_bytes", log->memory_bytes, "memory_outside_bytes", log->memory_outside_bytes,
        "memory_items", memory_items(log), "energy_j", log->history.energy_j, "columns",
        erg_run_history_columns(&log->history), "trials",
        log->history.trials ? json_incref(log->history.trials) : json_null(), "by",
        expected_json(&log->about.expected));
}

int erg_run_log_close(struct erg_run_log *log, struct erg_error *err)
{
    bool failed = log->metrics >= 0 && write_lines(log, err) != 0;
    if (log->metrics >= 0)
        close(log->metrics);
    if (log->lock >= 0)
        close(log->lock);
    erg_text_release(&log->unwritten);
    int result = erg_event_file_close(&log->events, failed ? NULL : err);
    erg_run_history_release(&log->history);
    free(log->path);
    *log = (struct erg_run_log){0};
    return failed ? -1 : result;
}
