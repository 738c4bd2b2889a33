/* Child: runs a program in the foreground, and passes signals on to it. */
#include "observe/child.h"

#include "launch/launch.h"

#include "base/memory.h"

#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static sigset_t awaited(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaddset(&set, passed[i]);
    return set;
}

void erg_child_block(struct erg_child_signals *signals)
{
    sigset_t set = awaited();
    pthread_sigmask(SIG_BLOCK, &set, &signals->before);
}

static bool ends_programs(int number)
{
    return number != SIGUSR1 && number != SIGUSR2 && number != SIGCHLD;
}

/* A signal that came while no child ran asks us to end. */
static int check_before(struct erg_error *err)
{
    sigset_t set = awaited();
    struct timespec at_once = {0};
    int number;
    while ((number = sigtimedwait(&set, NULL, &at_once)) > 0)
        if (ends_programs(number))
            return erg_fail(err, ERG_INTERRUPTED, "interrupted before the command was started");
    return 0;
}

/* The shell runs a script without an interpreter line, as with execvp() and all shells. */
static int start_script(pid_t *pid, const posix_spawnattr_t *attributes, char *const *words)
{
    static char shell[] = "/bin/sh", option[] = "-c", script[] = "exec \"$0\" \"$@\"";
    size_t count = 0;
    while (words[count])
        count++;
    char **line = erg_xcalloc(count + 4, sizeof *line);
    line[0] = shell;
    line[1] = option;
    line[2] = script; /* the shell finds it where posix_spawnp() did */
    memcpy(line + 3, words, count * sizeof *line);
    int result = posix_spawn(pid, shell, NULL, attributes, line, environ);
    free(line);
    return result;
}

static int start(pid_t *pid, const struct erg_child_signals *signals, const char *const *command,
                 struct erg_error *err)
{
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &signals->before);
    char *const *words = (char *const *)(uintptr_t)command;
    int result = posix_spawnp(pid, command[0], NULL, &attributes, words, environ);
    if (result == ENOEXEC)
        result = start_script(pid, &attributes, words);
    posix_spawnattr_destroy(&attributes);
    if (result == 0)
        return 0;
    result = erg_launch_command_error(command[0], result);
    return erg_fail(err, (enum erg_status)(result == ENOENT ? 127 : 126),
                    "starting '%s': %s, expected a program that can be run", command[0],
                    strerror(result));
}

static void await(pid_t pid, struct erg_child_end *end)
{
    sigset_t set = awaited();
    int status;
    for (;;) {
        siginfo_t info;
        int number = sigwaitinfo(&set, &info);
        if (number == SIGCHLD && waitpid(pid, &status, WNOHANG) == pid)
            break;
        if (number <= 0 || number == SIGCHLD)
            continue;
        end->interrupted |= ends_programs(number);
        if (info.si_code != SI_KERNEL) /* the terminal signalled the child itself */
            kill(pid, number);
    }
    end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end->status = end->signal ? 128 + end->signal : WEXITSTATUS(status);
}

int erg_child_run(const struct erg_child_signals *signals, const char *const *command,
                  struct erg_child_end *end, struct erg_error *err)
{
    pid_t pid;
    *end = (struct erg_child_end){0};
    if (check_before(err) != 0 || start(&pid, signals, command, err) != 0)
        return -1;
    await(pid, end);
    return 0;
}

int erg_child_check(const struct erg_child_end *end, const char *const *command,
                    struct erg_error *err)
{
    if (end->status == 0)
        return 0;
    if (end->signal)
        return erg_fail(err, (enum erg_status)end->status, "'%s' was killed by signal %d (%s)",
                        command[0], end->signal, strsignal(end->signal));
    return erg_fail(err, (enum erg_status)end->status, "'%s' ended with exit status %d", command[0],
                    end->status);
}
