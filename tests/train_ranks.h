/* Ranks of ergon train that a test starts, awaits and sees the ends of. */
#ifndef ERGON_TESTS_TRAIN_RANKS_H
#define ERGON_TESTS_TRAIN_RANKS_H

#include "rank_world.h"
#include "train_job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

enum { MOST_RANKS = 8 };

/* ---- ranks without a launcher, whose ends this test sees itself ---- */

static struct world {
    int ranks, status[MOST_RANKS]; /* as of a shell */
    pid_t pids[MOST_RANKS];
} world;

static inline void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* In the child. */
static inline void become(int rank, int ranks, int port, int listener, const char *command)
{
    char text[4][32], path[32];
    snprintf(text[0], sizeof text[0], "%d", rank);
    snprintf(text[1], sizeof text[1], "%d", ranks);
    snprintf(text[2], sizeof text[2], "%d", port);
    snprintf(text[3], sizeof text[3], "%d", listener);
    snprintf(path, sizeof path, "out.%d", rank);
    if (rank == 0)
        setenv("ERGON_LISTENER", text[3], 1);
    setenv("ERGON_RANK", text[0], 1);
    setenv("ERGON_LOCAL_RANK", text[0], 1);
    setenv("ERGON_WORLD_SIZE", text[1], 1);
    setenv("ERGON_PORT", text[2], 1);
    setenv("ERGON_HOST", "127.0.0.1", 1);
    setenv("ERGON_JOB", "failures", 1);
    setenv("ERGON_JOB_SECRET", "0123456789abcdef0123456789abcdef", 1);
    int out = open(in_folder(path), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(out, 1);
    dup2(out, 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct erg_text line = {0}, rest = with_folder(command);
    erg_text_printf(&line, "exec '%s' train %s --device host", ERGON_TEST_PROGRAM, rest.data);
    execl("/bin/sh", "sh", "-c", line.data, (char *)NULL);
    _exit(127);
}

static inline void start(int ranks, const char *command)
{
    int port, listener = listen_anywhere(&port);
    world = (struct world){.ranks = ranks};
    for (int rank = 0; rank < ranks; rank++) {
        fflush(NULL);
        world.pids[rank] = fork();
        assert_true(world.pids[rank] >= 0);
        if (world.pids[rank] == 0)
            become(rank, ranks, port, listener, command);
    }
    close(listener);
}

/* Waits for the ends of all ranks but `besides`, -1: none. */
static inline void finish_but(int besides)
{
    for (int rank = 0; rank < world.ranks; rank++) {
        int status;
        if (rank == besides)
            continue;
        assert_int_equal(waitpid(world.pids[rank], &status, 0), world.pids[rank]);
        world.status[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

static inline void finish(void)
{
    finish_but(-1);
}

/* What all ranks have printed; release it. */
static inline struct erg_text output_of_all(void)
{
    struct erg_text all = {0};
    erg_text_add(&all, "");
    for (int rank = 0; rank < world.ranks; rank++) {
        char path[32], *text;
        struct erg_error err;
        snprintf(path, sizeof path, "out.%d", rank);
        assert_ok(erg_file_read(in_folder(path), 0, &text, NULL, &err), &err);
        erg_text_add(&all, text);
        free(text);
    }
    return all;
}

static inline int times_in(const char *text, const char *part)
{
    int times = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        times++;
    return times;
}

static inline void check_status(int rank, int status)
{
    if (world.status[rank] == status)
        return;
    struct erg_text all = output_of_all();
    fail_msg("rank %d ended with %d, expected %d:\n%s", rank, world.status[rank], status, all.data);
}

/* ---- ranks of ergon run ---- */

/* Starts four; what they print goes to `out.0`, their numbers to pid.RANK. `shell_text`: what each
 * runs, with @ for the folder. */
static inline pid_t launch(const char *shell_text)
{
    world = (struct world){.ranks = 1};
    shell("rm -f @/pid.*");
    fflush(NULL);
    pid_t launcher = fork();
    assert_true(launcher >= 0);
    if (launcher > 0)
        return launcher;
    struct erg_text script = with_folder(shell_text);
    int out = open(in_folder("out.0"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(out, 1);
    dup2(out, 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("ERGON", ERGON_TEST_PROGRAM, 1);
    execl(ERGON_TEST_PROGRAM, "ergon", "run", "-n", "4", "--plain", "--", "sh", "-c", script.data,
          (char *)NULL);
    _exit(127);
}

/* The launcher's status as of a shell. Orphans end at this process, which waits for all. */
static inline int finish_launched(pid_t launcher)
{
    int status, result = -1;
    pid_t ended;
    while ((ended = waitpid(-1, &status, 0)) > 0 || errno == EINTR)
        if (ended == launcher)
            result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    assert_int_equal(errno, ECHILD);
    return result;
}

/* ---- runs ---- */

static inline size_t lines_of(const char *run)
{
    char path[64], *text;
    size_t lines = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    if (erg_file_read(in_folder(path), 0, &text, NULL, NULL) != 0)
        return 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    free(text);
    return lines;
}

/* Waits until a run has logged so many steps. */
static inline void await_steps(const char *run, size_t steps)
{
    while (lines_of(run) < steps) {
        assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* nobody has ended */
        nap();
    }
}

#endif
