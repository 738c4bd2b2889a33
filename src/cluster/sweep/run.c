/*
 * Sweeps: running them. A point runs in a child of this process, made for it alone: it shares the
 * inputs that were loaded once, needs no care for threads in policies and solvers, and when it
 * crashes or the kernel takes its memory back, that is one failed point. This process is the only
 * one that writes.
 */
#define _GNU_SOURCE /* pipe2 */
#include "cluster/sweep/sweep_internal.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/thread.h"
#include "io/json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a signal that came just before the wait may go unnoticed. */
enum { LOOK_MS = 200 };

/* What a child writes first. */
enum { ANSWER_DOCUMENT = '=', ANSWER_ERROR = '!' };

struct worker {
    pid_t child; /* 0: none */
    int pipe;    /* from it, until it closes its end */
    struct erg_sweep_point point;
    struct erg_text answer;
};

struct running {
    const struct erg_sweep *sweep;
    struct erg_documents *store;
    struct worker *workers;
    size_t workers_count, busy;
    size_t *points; /* that are to be simulated */
    size_t points_count, begun, failed;
    size_t finished, total; /* of the whole part, for progress */
    struct erg_error first; /* of those that failed */
};

/* ---- the child ---- */

static void write_all(int file, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t put = write(file, bytes, count);
        if (put < 0 && errno != EINTR)
            return; /* nobody reads: the parent is gone */
        if (put > 0) {
            bytes += put;
            count -= (size_t)put;
        }
    }
}

/* Never returns. It says nothing but its answer: what it would warn of, every point would. */
static void become_point(const struct erg_sweep *sweep, const struct erg_sweep_point *point,
                         int answer, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(ERG_FAILED);   /* it died before the line above */
    signal(SIGINT, SIG_IGN); /* the parent gets it too, and says what becomes of its children */
    signal(SIGTERM, SIG_DFL);
    erg_log_set_sink(NULL);
    struct erg_error err;
    struct erg_text text = {0};
    json_t *document;
    if (erg_sweep_simulate(sweep, point, &document, &err) == 0) {
        char *json = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(17));
        erg_text_printf(&text, "%c%s", ANSWER_DOCUMENT, json);
    } else {
        erg_text_printf(&text, "%c%s", ANSWER_ERROR, err.message);
    }
    write_all(answer, text.data, text.count);
    _exit(ERG_OK);
}

/* ---- the parent ---- */

static int begin_point(struct running *run, struct worker *worker, struct erg_error *err)
{
    int ends[2];
    pid_t parent = getpid();
    worker->point = erg_sweep_point(run->sweep, run->points[run->begun]);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return erg_fail(err, ERG_FAILED, "starting a simulation: %s", strerror(errno));
    worker->child = fork();
    if (worker->child == 0) {
        close(ends[0]);
        become_point(run->sweep, &worker->point, ends[1], parent);
    }
    close(ends[1]);
    if (worker->child < 0) {
        worker->child = 0;
        close(ends[0]);
        return erg_fail(err, ERG_FAILED, "starting a simulation: %s", strerror(errno));
    }
    worker->pipe = ends[0];
    worker->answer.count = 0;
    run->begun++;
    run->busy++;
    return 0;
}

/* What the child left behind: a document, or the error with which it ended. */
static int read_answer(const struct worker *worker, int status, json_t **document,
                       struct erg_error *err)
{
    const struct erg_text *answer = &worker->answer;
    if (WIFSIGNALED(status))
        return erg_fail(err, ERG_FAILED, "the simulation was ended by signal %d (%s)",
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != ERG_OK || answer->count == 0)
        return erg_fail(err, ERG_FAILED, "the simulation ended with exit code %d and no result",
                        WEXITSTATUS(status));
    if (answer->data[0] == ANSWER_ERROR)
        return erg_fail(err, ERG_FAILED, "%s", answer->data + 1);
    return erg_json_parse(document, "result", answer->data + 1, answer->count - 1, err);
}

static void note_failure(struct running *run, const struct worker *worker,
                         const struct erg_error *reason)
{
    struct erg_text point = {0};
    erg_sweep_describe(&point, run->sweep, &worker->point);
    erg_log(ERG_LOG_WARNING, "%s: %s", point.data, reason->message);
    if (run->failed++ == 0)
        erg_fail(&run->first, ERG_FAILED, "%s: %s", point.data, reason->message);
    erg_text_release(&point);
}

static json_t *coordinates(const struct erg_sweep *sweep, const struct erg_sweep_point *point)
{
    return erg_json_pack(
        "{s:s, s:s, s:s, s:f, s:o, s:i}", "cluster", sweep->clusters[point->cluster], "trace",
        sweep->traces[point->trace], "policy", sweep->policies[point->policy], "load",
        sweep->loads[point->load], "power_cap", erg_json_number(sweep->power_caps[point->cap]),
        "seed", (int)point->seed + 1);
}

/* Fails where storing does: then nothing that follows could be kept either. */
static int end_point(struct running *run, struct worker *worker, struct erg_error *err)
{
    int status, result = 0;
    json_t *document = NULL;
    struct erg_error reason;
    close(worker->pipe);
    while (waitpid(worker->child, &status, 0) < 0 && errno == EINTR)
        ;
    worker->child = 0;
    run->busy--;
    if (read_answer(worker, status, &document, &reason) == 0) {
        struct erg_sweep_key key = erg_sweep_key(run->sweep, &worker->point);
        json_t *about = coordinates(run->sweep, &worker->point);
        result = erg_documents_put(run->store, key.text, about, document, err);
        json_decref(about);
        json_decref(document);
    } else {
        note_failure(run, worker, &reason);
    }
    erg_progress("simulations", ++run->finished, run->total);
    return result;
}

/* *ended tells that the child closed its end. */
static int read_some(struct worker *worker, bool *ended, struct erg_error *err)
{
    char block[4096];
    ssize_t got = read(worker->pipe, block, sizeof block);
    if (got < 0 && errno != EINTR)
        return erg_fail(err, ERG_FAILED, "reading the result of a simulation: %s", strerror(errno));
    if (got > 0)
        erg_text_add_bytes(&worker->answer, block, (size_t)got);
    *ended = got == 0;
    return 0;
}

/* Waits until a child has something to say, and hears it. */
static int listen_once(struct running *run, struct pollfd *polls, struct erg_error *err)
{
    for (size_t i = 0; i < run->workers_count; i++)
        polls[i] = (struct pollfd){
            .fd = run->workers[i].child ? run->workers[i].pipe : -1,
            .events = POLLIN,
        };
    if (poll(polls, run->workers_count, LOOK_MS) <= 0)
        return 0;
    for (size_t i = 0; i < run->workers_count; i++) {
        bool ended = false;
        if (!polls[i].revents)
            continue;
        if (read_some(&run->workers[i], &ended, err) != 0 ||
            (ended && end_point(run, &run->workers[i], err) != 0))
            return -1;
    }
    return 0;
}

static int run_points(struct running *run, struct pollfd *polls, struct erg_error *err)
{
    while (run->busy > 0 || run->begun < run->points_count) {
        if (erg_interrupt_check(err) != 0)
            return -1;
        for (size_t i = 0; i < run->workers_count && run->begun < run->points_count; i++)
            if (!run->workers[i].child && begin_point(run, &run->workers[i], err) != 0)
                return -1;
        if (listen_once(run, polls, err) != 0)
            return -1;
    }
    return 0;
}

static void end_children(struct running *run)
{
    for (size_t i = 0; i < run->workers_count; i++) {
        struct worker *worker = &run->workers[i];
        if (worker->child) {
            kill(worker->child, SIGKILL);
            while (waitpid(worker->child, NULL, 0) < 0 && errno == EINTR)
                ;
            close(worker->pipe);
        }
        erg_text_release(&worker->answer);
    }
}

/* The points of the part that the store lacks. */
static int list_points(struct running *run, const struct erg_sweep_part *part,
                       struct erg_error *err)
{
    size_t all = erg_sweep_points(run->sweep);
    run->points = erg_xcalloc(all / part->count + 1, sizeof *run->points);
    for (size_t i = part->index; i < all; i += part->count) {
        struct erg_sweep_point point = erg_sweep_point(run->sweep, i);
        json_t *known;
        if (erg_sweep_point_get(run->sweep, run->store, &point, &known, err) != 0)
            return -1;
        if (known)
            run->finished++;
        else
            run->points[run->points_count++] = i;
        run->total++;
        json_decref(known);
    }
    return 0;
}

int erg_sweep_run(const struct erg_sweep *sweep, struct erg_documents *store,
                  const struct erg_sweep_part *part, struct erg_error *err)
{
    struct running run = {.sweep = sweep, .store = store, .workers_count = erg_thread_count()};
    run.workers = erg_xcalloc(run.workers_count, sizeof *run.workers);
    struct pollfd *polls = erg_xcalloc(run.workers_count, sizeof *polls);
    int result = list_points(&run, part, err);
    if (result == 0) {
        erg_progress("simulations", run.finished, run.total);
        result = run_points(&run, polls, err);
    }
    end_children(&run);
    free(polls);
    free(run.workers);
    free(run.points);
    if (result == 0 && run.failed > 0)
        return erg_fail(err, ERG_FAILED, "%zu of %zu simulations failed; the first is %s",
                        run.failed, run.total, run.first.message);
    return result;
}
