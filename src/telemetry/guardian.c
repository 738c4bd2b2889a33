/* The owner's side of the guardian: finds its program, starts it and sends it requests. */
#define _GNU_SOURCE /* dladdr, secure_getenv, POSIX_SPAWN_SETSID, closefrom in a spawn */
#include "telemetry/guardian.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A driver that wakes eight GPUs up may take many seconds; one that is awake takes microseconds. */
static const int start_timeout_s = 60, answer_timeout_s = 10;

struct erg_guardian {
    pid_t process, owner;
    int socket;
    bool silent; /* it did not answer in time: no more waiting for it */
};

/* ---- finding the program ---- */

/* Next to the folder of `file` or above it; false if it is not there. */
static bool find_near(const char *file, struct erg_text *path)
{
    static const char *const ways[] = {"", "/..", "/../.."};
    char whole[PATH_MAX];
    char *slash = realpath(file, whole) ? strrchr(whole, '/') : NULL;
    if (!slash)
        return false;
    *slash = '\0';
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        path->count = 0;
        erg_text_printf(path, "%s%s/libexec/ergon/ergon-guardian", whole, ways[i]);
        if (access(path->data, X_OK) == 0)
            return true;
    }
    return false;
}

/*
 * Searches from the library (in lib/ or lib/<machine>/) or the program (bin/) that contains this
 * code.
 */
static int find_program(struct erg_text *path, struct erg_error *err)
{
    static const char here; /* an address in that file */
    Dl_info info;
    const char *given = secure_getenv("ERGON_GUARDIAN");
    if (given) {
        erg_text_add(path, given);
        return 0;
    }
    if ((dladdr(&here, &info) != 0 && find_near(info.dli_fname, path)) ||
        find_near("/proc/self/exe", path))
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "preparing to lock clocks: the program that unlocks them after a crash is "
                    "missing, expected libexec/ergon/ergon-guardian next to bin/ and lib/, or its "
                    "path in ERGON_GUARDIAN");
}

/* ---- starting it ---- */

/*
 * All signals stay blocked in the guardian. Stderr is the only file that it keeps from the owner.
 */
static int spawn(const char *path, int socket, pid_t *process)
{
    char owner[24], name[] = "ergon-guardian";
    char *arguments[] = {name, owner, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t all;
    snprintf(owner, sizeof owner, "%ld", (long)getpid());
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, socket, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (fcntl(STDERR_FILENO, F_GETFD) <
        0) /* otherwise the first file that it opens takes this number */
        posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
    int failure = posix_spawn(process, path, &files, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return failure;
}

/* Waits for a packet; false if none came. */
static bool await(struct erg_guardian *guardian, int timeout_s)
{
    struct pollfd wait = {.fd = guardian->socket, .events = POLLIN};
    int64_t end_ns = erg_now_ns() + (int64_t)timeout_s * 1000000000, left_ns;
    while ((left_ns = end_ns - erg_now_ns()) > 0) {
        int ready = poll(&wait, 1, (int)(left_ns / 1000000) + 1);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
    guardian->silent = true;
    return false;
}

static int take_answer(struct erg_guardian *guardian, int timeout_s, bool *refused,
                       struct erg_error *err)
{
    struct erg_guardian_answer answer;
    /* After a missing answer, a late one would be mistaken for the next. */
    if (guardian->silent || !await(guardian, timeout_s))
        return erg_fail(err, ERG_NO_DEVICE,
                        "asking the guardian of the clocks: it did not answer in %d s, expected a "
                        "driver that does not hang",
                        timeout_s);
    ssize_t count = recv(guardian->socket, &answer, sizeof answer, 0);
    if (count != (ssize_t)sizeof answer)
        return erg_fail(err, ERG_FAILED,
                        "asking the guardian of the clocks: its process has ended, expected it to "
                        "live as long as this one");
    if (answer.version != ERG_GUARDIAN_VERSION)
        return erg_fail(err, ERG_FAILED,
                        "asking the guardian of the clocks: its version is %d, expected %d, "
                        "as installed together",
                        (int)answer.version, ERG_GUARDIAN_VERSION);
    *refused = answer.refused != 0;
    if (!answer.failed)
        return 0;
    return erg_fail(err, answer.error.status, "%s", answer.error.message);
}

int erg_guardian_start(struct erg_guardian **out, struct erg_error *err)
{
    struct erg_text path = {0};
    int sockets[2];
    bool refused;
    if (find_program(&path, err) != 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        erg_text_release(&path);
        return erg_fail(err, ERG_FAILED, "starting the guardian of the clocks: no socket (%s)",
                        strerror(errno));
    }
    struct erg_guardian *guardian = erg_xcalloc(1, sizeof *guardian);
    guardian->socket = sockets[0];
    guardian->owner = getpid();
    int failure = spawn(path.data, sockets[1], &guardian->process);
    close(sockets[1]);
    if (failure) {
        erg_fail(err, ERG_FAILED,
                 "starting the guardian of the clocks: '%s' cannot be run (%s), expected ergon's "
                 "program of that name",
                 path.data, strerror(failure));
        close(guardian->socket);
        free(guardian);
    } else if ((failure = take_answer(guardian, start_timeout_s, &refused, err)) != 0) {
        erg_guardian_dismiss(guardian);
    }
    erg_text_release(&path);
    if (failure)
        return -1;
    *out = guardian;
    return 0;
}

/* ---- requests ---- */

bool erg_guardian_is_mine(const struct erg_guardian *guardian)
{
    return guardian->owner == getpid();
}

static int ask(struct erg_guardian *guardian, int task, const char *uuid, bool *refused,
               struct erg_error *err)
{
    struct erg_guardian_request request = {.task = task};
    snprintf(request.uuid, sizeof request.uuid, "%s", uuid);
    /* If the guardian has ended, the answer is an end of file. */
    send(guardian->socket, &request, sizeof request, MSG_NOSIGNAL);
    *refused = false;
    return take_answer(guardian, answer_timeout_s, refused, err);
}

int erg_guardian_watch(struct erg_guardian *guardian, const char *uuid, bool *refused,
                       struct erg_error *err)
{
    return ask(guardian, ERG_GUARDIAN_WATCH, uuid, refused, err);
}

int erg_guardian_watch_limit(struct erg_guardian *guardian, const char *uuid, bool *refused,
                             struct erg_error *err)
{
    return ask(guardian, ERG_GUARDIAN_LIMIT, uuid, refused, err);
}

bool erg_guardian_await_end(const struct erg_guardian *guardian, int stop)
{
    struct pollfd waits[] = {{.fd = guardian->socket}, {.fd = stop, .events = POLLIN}};
    while (poll(waits, 2, -1) < 0 && errno == EINTR)
        ;
    return !waits[1].revents;
}

/* Closes the socket and returns the exit code, or -1 if it is unknown. */
static int finish(struct erg_guardian *guardian)
{
    bool mine = erg_guardian_is_mine(guardian);
    int status = 0;
    pid_t ended = -1;
    close(guardian->socket);
    do
        ended = mine ? waitpid(guardian->process, &status, guardian->silent ? WNOHANG : 0) : -1;
    while (ended < 0 && mine && errno == EINTR);
    free(guardian);
    return ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void erg_guardian_dismiss(struct erg_guardian *guardian)
{
    const struct erg_guardian_request request = {.task = ERG_GUARDIAN_END};
    if (erg_guardian_is_mine(guardian))
        send(guardian->socket, &request, sizeof request, MSG_NOSIGNAL);
    finish(guardian);
}

int erg_guardian_release(struct erg_guardian *guardian, struct erg_error *err)
{
    if (finish(guardian) == 0)
        return 0;
    return erg_fail(err, ERG_NO_DEVICE,
                    "unlocking clocks: neither this process nor its guardian could, expected a "
                    "driver that unlocks what it has locked; 'nvidia-smi -rgc' unlocks by hand");
}
