/*
 * Sweeps: runs them. A point runs in its own child of this process. The child shares the inputs
 * that were loaded once, policies and solvers need not be thread-safe, and a crash or an
 * out-of-memory kill is one failed point. Only this process writes.
 */
#define _GNU_SOURCE /* memfd_create */
#include "cluster/sweep/sweep_internal.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/thread.h"
#include "io/file.h"
#include "io/json.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The first bytes of a child's answer. */
enum { ANSWER_DOCUMENT = '=', ANSWER_ERROR = '!' };

struct worker {
    pid_t child; /* 0: none */
    int answer;  /* memory file of its answer */
    struct erg_sweep_point point;
};

struct running {
    const struct erg_sweep *sweep;
    struct erg_documents *store;
    struct worker *workers;
    size_t workers_count, busy;
    size_t *points; /* points to simulate */
    size_t points_count, begun, failed;
    size_t finished, total; /* of the whole part, for progress */
    struct erg_error first; /* of the failed ones */
};

/* ---- the child ---- */

/* Never returns. It prints only its answer: otherwise every point would print the same warnings. */
static void become_point(const struct erg_sweep *sweep, const struct erg_sweep_point *point,
                         int answer, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(ERG_FAILED);   /* it died before the line above */
    signal(SIGINT, SIG_IGN); /* the parent gets it, too, and decides about its children */
    signal(SIGTERM, SIG_DFL);
    erg_log_set_sink(NULL);
    struct erg_error err;
    json_t *document;
    FILE *file = fdopen(answer, "w");
    if (!file)
        _exit(ERG_FAILED);
    if (erg_sweep_simulate(sweep, point, &document, &err) == 0) {
        fputc(ANSWER_DOCUMENT, file);
        json_dumpf(document, file, JSON_COMPACT | JSON_REAL_PRECISION(17));
    } else {
        fprintf(file, "%c%s", ANSWER_ERROR, err.message);
    }
    _exit(fclose(file) == 0 ? ERG_OK : ERG_FAILED);
}

/* ---- the parent ---- */

static int begin_point(struct running *run, struct worker *worker, struct erg_error *err)
{
    pid_t parent = getpid();
    worker->point = erg_sweep_point(run->sweep, run->points[run->begun]);
    worker->answer = memfd_create("answer", MFD_CLOEXEC);
    worker->child = worker->answer < 0 ? -1 : fork();
    if (worker->child == 0)
        become_point(run->sweep, &worker->point, worker->answer, parent);
    if (worker->child < 0) {
        erg_fail(err, ERG_FAILED, "starting a simulation: %s", strerror(errno));
        if (worker->answer >= 0)
            close(worker->answer);
        worker->child = 0;
        return -1;
    }
    run->begun++;
    run->busy++;
    return 0;
}

/* The child's result: a document, or the error with which it ended. */
static int read_answer(const struct worker *worker, int status, json_t **document,
                       struct erg_error *err)
{
    char path[64], *answer;
    size_t length;
    if (WIFSIGNALED(status))
        return erg_fail(err, ERG_FAILED, "the simulation was ended by signal %d (%s)",
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != ERG_OK)
        return erg_fail(err, ERG_FAILED, "the simulation ended with exit code %d and no result",
                        WEXITSTATUS(status));
    snprintf(path, sizeof path, "/proc/self/fd/%d", worker->answer);
    if (erg_file_read(path, 0, &answer, &length, err) != 0)
        return -1;
    int result = length == 0 ? erg_fail(err, ERG_FAILED, "the simulation ended without a result")
                 : answer[0] == ANSWER_ERROR
                     ? erg_fail(err, ERG_FAILED, "%s", answer + 1)
                     : erg_json_parse(document, "result", answer + 1, length - 1, err);
    free(answer);
    return result;
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

/* Fails if a result cannot be stored: later ones could not be, either. */
static int end_point(struct running *run, struct worker *worker, int status, struct erg_error *err)
{
    int result = 0;
    json_t *document = NULL;
    struct erg_error reason;
    if (read_answer(worker, status, &document, &reason) == 0) {
        struct erg_sweep_key key = erg_sweep_key(run->sweep, &worker->point);
        json_t *about = coordinates(run->sweep, &worker->point);
        result = erg_documents_put(run->store, key.text, about, document, err);
        json_decref(about);
        json_decref(document);
    } else {
        note_failure(run, worker, &reason);
    }
    close(worker->answer);
    worker->child = 0;
    run->busy--;
    erg_progress("simulations", ++run->finished, run->total);
    return result;
}

/* Collects children that ended; waits a little if there are none. */
static int end_points(struct running *run, struct erg_error *err)
{
    bool any = false;
    for (size_t i = 0; i < run->workers_count; i++) {
        struct worker *worker = &run->workers[i];
        int status;
        if (!worker->child || waitpid(worker->child, &status, WNOHANG) <= 0)
            continue;
        any = true;
        if (end_point(run, worker, status, err) != 0)
            return -1;
    }
    if (!any)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return 0;
}

static int run_points(struct running *run, struct erg_error *err)
{
    while (run->busy > 0 || run->begun < run->points_count) {
        if (erg_interrupt_check(err) != 0)
            return -1;
        for (size_t i = 0; i < run->workers_count && run->begun < run->points_count; i++)
            if (!run->workers[i].child && begin_point(run, &run->workers[i], err) != 0)
                return -1;
        if (end_points(run, err) != 0)
            return -1;
    }
    return 0;
}

static void end_children(struct running *run)
{
    for (size_t i = 0; i < run->workers_count; i++) {
        struct worker *worker = &run->workers[i];
        if (!worker->child)
            continue;
        kill(worker->child, SIGKILL);
        while (waitpid(worker->child, NULL, 0) < 0 && errno == EINTR)
            ;
        close(worker->answer);
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
    int result = list_points(&run, part, err);
    if (result == 0) {
        erg_progress("simulations", run.finished, run.total);
        result = run_points(&run, err);
    }
    end_children(&run);
    free(run.workers);
    free(run.points);
    if (result == 0 && run.failed > 0)
        return erg_fail(err, ERG_FAILED, "%zu of %zu simulations failed; the first is %s",
                        run.failed, run.total, run.first.message);
    return result;
}
