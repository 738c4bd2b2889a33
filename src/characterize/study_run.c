/* Studies: runs their points, several at a time, and stores the results. */
#define _GNU_SOURCE /* flock */
#include "characterize/study_run.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "io/file.h"
#include "io/json.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- the folder ---- */

char *erg_study_point_path(const char *folder, const char *id)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/points/%s.json", folder, id);
    return path.data;
}

static int lock_folder(const char *folder, struct erg_error *err)
{
    char *path = erg_file_path(folder, "lock");
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) {
        erg_fail(err, ERG_FAILED, "writing '%s': %s", path, strerror(errno));
    } else if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        erg_fail(err, ERG_FAILED,
                 "another \"ergon characterize\" runs in '%s'; wait until it has ended, or use "
                 "another folder",
                 folder);
        close(file);
        file = -1;
    }
    free(path);
    return file;
}

static int write_study(const struct erg_study *study, const char *folder, struct erg_error *err)
{
    json_t *document = erg_study_document(study);
    char *path = erg_file_path(folder, "sweep.json");
    int result = erg_json_write(path, document, err);
    free(path);
    json_decref(document);
    return result;
}

int erg_study_claim(int *claim, const struct erg_study *study, const char *folder,
                    struct erg_error *err)
{
    char *points = erg_file_path(folder, "points");
    int result = erg_dir_make(points, err);
    free(points);
    if (result != 0 || (*claim = lock_folder(folder, err)) < 0)
        return -1;
    if (write_study(study, folder, err) == 0)
        return 0;
    erg_study_release(*claim);
    return -1;
}

void erg_study_release(int claim)
{
    close(claim);
}

/* ---- points ---- */

struct study_running {
    const struct erg_study_run *run;
    struct erg_study_tally *tally;
    size_t *points; /* points to run */
    size_t count, done, total;
    pthread_mutex_t lock; /* guards tally, first and done */
    size_t first_failed;
};

/* The status in a point's file; ERG_RESULT_SKIPPED if there is no readable one. */
static enum erg_result_status known_status(const struct erg_study_run *run, size_t index,
                                           struct erg_error *reason)
{
    const char *id = run->study->points[index].id;
    char *path = erg_study_point_path(run->folder, id);
    enum erg_result_status status = ERG_RESULT_SKIPPED;
    struct erg_study_result result;
    struct erg_arena arena = {0};
    struct erg_error err;
    json_t *root = NULL;
    reason->status = ERG_OK;
    if (access(path, F_OK) == 0) {
        if (erg_study_result_read(&result, &root, path, &arena, &err) != 0)
            erg_log(ERG_LOG_WARNING, "%s; running the point again", err.message);
        else if (!strcmp(result.id, id))
            status = result.status;
        if (status == ERG_RESULT_FAILED)
            erg_fail(reason, ERG_FAILED, "%s", result.message ? result.message : "it failed");
    }
    json_decref(root);
    erg_arena_release(&arena);
    free(path);
    return status;
}

static const char *name_of(const struct erg_study *study, size_t point)
{
    for (size_t i = 0; i < study->mark_count; i++)
        if (study->marks[i].point == point)
            return study->marks[i].name;
    return "";
}

/* Called by one thread at a time; the failure reported is the first in the file's order. */
static void count(struct study_running *running, size_t index, enum erg_result_status status,
                  const struct erg_error *reason)
{
    struct erg_study_tally *tally = running->tally;
    pthread_mutex_lock(&running->lock);
    tally->by_status[status]++;
    if (status == ERG_RESULT_FAILED && (!tally->first.status || index < running->first_failed)) {
        running->first_failed = index;
        erg_fail(&tally->first, ERG_FAILED, "%s: %s", name_of(running->run->study, index),
                 reason->message);
    }
    pthread_mutex_unlock(&running->lock);
}

static void note_done(struct study_running *running)
{
    pthread_mutex_lock(&running->lock);
    running->tally->ran++;
    erg_progress("points", ++running->done, running->total);
    pthread_mutex_unlock(&running->lock);
}

/* Fills all that is known without a run. */
static void begin_result(const struct erg_study_run *run, struct erg_study_result *result)
{
    const struct erg_cluster *cluster = run->study->machine.cluster;
    erg_study_result_init(result);
    result->gpus = erg_cluster_gpus(cluster);
    result->nodes = cluster->nodes;
    result->node_gpus = cluster->gpus_per_node;
}

/* Computes the result of a point, even of a failed one. Fails only if the run must end. */
static int find_result(const struct erg_study_run *run, const struct erg_study_point *point,
                       struct erg_study_result *result, struct erg_arena *arena,
                       struct erg_error *err)
{
    struct erg_error reason;
    if (point->impossible) {
        result->status = ERG_RESULT_IMPOSSIBLE;
        result->message = point->impossible;
        return 0;
    }
    if (run->point(run->context, point, result, arena, &reason) == 0)
        return 0;
    if (reason.status == ERG_INTERRUPTED)
        return erg_fail(err, ERG_INTERRUPTED, "%s", reason.message);
    /* Discards what the point filled before it failed. */
    begin_result(run, result);
    result->status = ERG_RESULT_FAILED;
    result->message = erg_arena_strdup(arena, reason.message);
    return 0;
}

static int run_point(void *context, size_t i, struct erg_error *err)
{
    struct study_running *running = context;
    const struct erg_study_run *run = running->run;
    const size_t index = running->points[i];
    const struct erg_study_point *point = &run->study->points[index];
    struct erg_study_result result;
    struct erg_arena arena = {0};
    struct erg_error reason = {.status = ERG_OK};
    if (erg_interrupt_check(err) != 0)
        return -1;
    begin_result(run, &result);
    int status = find_result(run, point, &result, &arena, err);
    if (status == 0) {
        json_t *keys = erg_study_keys(point), *identity = erg_study_identity(run->study, point);
        char *path = erg_study_point_path(run->folder, point->id);
        result.id = point->id;
        result.point = keys;
        result.identity = identity;
        status = erg_study_result_write(&result, path, err);
        if (result.status == ERG_RESULT_FAILED)
            erg_fail(&reason, ERG_FAILED, "%s", result.message);
        free(path);
        json_decref(keys);
        json_decref(identity);
    }
    if (status == 0) {
        count(running, index, result.status, &reason);
        note_done(running);
    }
    erg_arena_release(&arena);
    return status;
}

static bool is_wanted(const struct erg_study_run *run, size_t point)
{
    const struct erg_study *study = run->study;
    for (size_t i = 0; i < study->mark_count; i++)
        if (study->marks[i].point == point &&
            (!run->only || fnmatch(run->only, study->marks[i].name, 0) == 0))
            return true;
    return false;
}

static void list_points(struct study_running *running)
{
    const struct erg_study_run *run = running->run;
    running->points = erg_xcalloc(run->study->point_count + 1, sizeof *running->points);
    for (size_t i = 0; i < run->study->point_count; i++) {
        struct erg_error reason;
        enum erg_result_status status = known_status(run, i, &reason);
        bool missing = status == ERG_RESULT_SKIPPED || (run->retry && status == ERG_RESULT_FAILED);
        if (missing && is_wanted(run, i))
            running->points[running->count++] = i;
        else
            count(running, i, status, &reason);
    }
    running->total = run->study->point_count;
    running->done = running->total - running->count;
}

int erg_study_run(const struct erg_study_run *run, struct erg_study_tally *tally,
                  struct erg_error *err)
{
    struct study_running running = {.run = run, .tally = tally, .lock = PTHREAD_MUTEX_INITIALIZER};
    memset(tally, 0, sizeof *tally);
    list_points(&running);
    erg_progress("points", running.done, running.total);
    int result = erg_parallel_for(running.count, run->jobs, run_point, &running, err);
    free(running.points);
    if (result != 0)
        erg_interrupt_explain(err);
    return result;
}
