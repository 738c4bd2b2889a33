/* Runs a program for its answer. */
#define _GNU_SOURCE /* pipe2 */

#include "io/subprocess.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int start(pid_t *pid, const char *const *words, const char *const *environment,
                 const int out[2], const int err[2])
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, piped;
    sigemptyset(&none);
    sigemptyset(&piped);
    sigaddset(&piped, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, err[1], STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &piped);
    int result = posix_spawnp(pid, words[0], &files, &attributes, (char *const *)(uintptr_t)words,
                              environment ? (char *const *)(uintptr_t)environment : environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return result;
}

/* Reads the available output; false at the end. */
static bool take(int file, struct erg_text *text, bool *full)
{
    char block[1 << 16];
    ssize_t count = read(file, block, sizeof block);
    if (count < 0)
        return errno == EINTR || errno == EAGAIN;
    const size_t room = ERG_SUBPROCESS_MOST_BYTES - text->count;
    *full |= (size_t)count > room;
    erg_text_add_bytes(text, block, (size_t)count < room ? (size_t)count : room);
    return count > 0;
}

/* Until both ends are closed; false where the time ends before. */
static bool listen_to(struct erg_subprocess *process, int out, int err, int64_t until_ns)
{
    struct pollfd files[] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
    while (files[0].fd >= 0 || files[1].fd >= 0) {
        int64_t left_ns = until_ns - erg_now_ns();
        if (left_ns <= 0)
            return false;
        if (poll(files, 2, (int)(left_ns / 1000000 < 60000 ? left_ns / 1000000 + 1 : 60000)) <= 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (files[i].fd >= 0 && files[i].revents &&
                !take(files[i].fd, i == 0 ? &process->out : &process->err, &process->full))
                files[i].fd = -1;
    }
    return true;
}

/* Whether it has ended by then; what closes its output is not always at its end. */
static bool await(pid_t pid, int *status, int64_t until_ns)
{
    pid_t ended;
    while ((ended = waitpid(pid, status, WNOHANG)) != pid) {
        if (ended < 0 && errno != EINTR) { /* this process ignores SIGCHLD: how it went is lost */
            *status = -1;
            return true;
        }
        if (erg_now_ns() >= until_ns)
            return false;
        erg_sleep_ns(500000);
    }
    return true;
}

int erg_subprocess_run(struct erg_subprocess *process, const char *const *words,
                       const char *const *environment, double limit_s, struct erg_error *err)
{
    int out[2], error[2], status = 0;
    pid_t pid;
    *process = (struct erg_subprocess){0};
    erg_text_add(&process->out, "");
    erg_text_add(&process->err, "");
    if (pipe2(out, O_CLOEXEC) != 0)
        return erg_fail(err, ERG_FAILED, "starting '%s': %s", words[0], strerror(errno));
    if (pipe2(error, O_CLOEXEC) != 0) {
        int failure = errno;
        close(out[0]);
        close(out[1]);
        return erg_fail(err, ERG_FAILED, "starting '%s': %s", words[0], strerror(failure));
    }
    int64_t until_ns = erg_now_ns() + (int64_t)(1e9 * limit_s);
    int result = start(&pid, words, environment, out, error);
    close(out[1]);
    close(error[1]);
    if (result == 0) {
        process->late =
            !listen_to(process, out[0], error[0], until_ns) || !await(pid, &status, until_ns);
        if (process->late) {
            kill(-pid, SIGKILL);
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        }
        process->signal = status == -1 ? -1 : WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        process->status = process->signal > 0 ? 128 + process->signal : WEXITSTATUS(status);
    }
    close(out[0]);
    close(error[0]);
    if (result == 0)
        return 0;
    if (result == EAGAIN || result == ENOMEM)
        return erg_fail(err, ERG_FAILED, "starting '%s': %s", words[0], strerror(result));
    return erg_fail(err, (enum erg_status)(result == ENOENT ? 127 : 126),
                    "starting '%s': %s, expected a program that can be run", words[0],
                    strerror(result));
}

void erg_subprocess_release(struct erg_subprocess *process)
{
    erg_text_release(&process->out);
    erg_text_release(&process->err);
    *process = (struct erg_subprocess){0};
}

const char *erg_subprocess_reason(const struct erg_subprocess *process)
{
    static char reason[256];
    struct erg_text line = {0}, whole = {0};
    erg_text_add_utf8(&whole, process->err.data, strcspn(process->err.data, "\n"));
    if (whole.count)
        erg_text_add_printable(&line, whole.data);
    else if (process->late)
        erg_text_add(&line, "it does not answer");
    else
        erg_text_printf(&line, "it ended with exit status %d", process->status);
    snprintf(reason, sizeof reason, "%s", line.data);
    erg_utf8_repair(reason, sizeof reason);
    erg_text_release(&line);
    erg_text_release(&whole);
    return reason;
}

void erg_subprocess_remove(const char *path)
{
    struct erg_subprocess process = {0};
    const char *const words[] = {"rm", "-rf", "--", path, NULL};
    (void)erg_subprocess_run(&process, words, NULL, 600, NULL);
    erg_subprocess_release(&process);
}

void erg_subprocess_quote(struct erg_text *out, const char *word)
{
    erg_text_add(out, "'");
    for (; *word; word++)
        if (*word == '\'')
            erg_text_add(out, "'\\''");
        else
            erg_text_add_bytes(out, word, 1);
    erg_text_add(out, "'");
}
