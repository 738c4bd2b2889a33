/* Starts the ranks of a job on this machine, passes their output on and judges how they end. */
#define _GNU_SOURCE /* execvpe, pipe2 */
#include "launch/launch.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/text.h"
#include "launch/launch_internal.h"
#include "launch/proof_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LONGEST_LINE = 64 << 10,
    GRACE_S = 2,          /* from SIGTERM to SIGKILL */
    DEAF_S = 1,           /* a rank that handles signals does so by then */
    TIMEOUT_STATUS = 124, /* as timeout(1) */
    CANNOT_RUN_STATUS = 126,
    NOT_FOUND_STATUS = 127, /* as shells say of a command */
};

/* Passed on to the ranks; the first four also mean "end". */
static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on, ENDING = 4 };

struct stream {
    int fd; /* -1 = at its end */
    struct erg_text line;
};

struct process {
    pid_t pid;
    bool ended;
    uint64_t owed; /* bits: signals to pass on to it */
    int64_t start_ns;
    struct stream streams[2]; /* standard output, standard error */
};

struct launcher {
    const struct erg_launch_job *job;
    struct erg_warden warden;
    struct process *processes;
    int started, running;
    int signals;      /* signalfd */
    sigset_t blocked; /* its input */
    sigset_t before;  /* the mask to restore */
    struct erg_launch_meeting meeting;
    uint64_t sent; /* bits: signals that were sent to the ranks */
    int endings;   /* how many of them were passed on and mean "end" */
    int64_t kill_ns;
    int64_t stop_ns; /* when ranks that have not stopped with the others are ended; 0 = none has */
    /* The rank that failed first, -1 = none yet, and its status from waitpid. */
    int blamed, blamed_status;
    double blamed_s;
    bool timed_out;
};

/* ---- start ---- */

/* A socket bound to a free port of the loopback address, or -1 with errno. */
static int bind_free_port(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &size) == 0) {
        *port = ntohs(address.sin_port);
        return fd;
    }
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

/*
 * Listens for rank 0, which inherits the socket: a port that is only bound could be taken by any
 * user. A script of torchrun's listens at its port itself, so that one is free again.
 */
static int prepare_meeting(struct erg_launch_meeting *meeting, struct erg_error *err)
{
    unsigned char secret[sizeof meeting->secret / 2];
    if (erg_random_bytes(secret, sizeof secret, err))
        return -1;
    for (size_t i = 0; i < sizeof secret; i++)
        snprintf(meeting->secret + 2 * i, 3, "%02x", secret[i]);
    meeting->listener = bind_free_port(&meeting->port);
    int other = meeting->listener < 0 ? -1 : bind_free_port(&meeting->torchrun_port);
    int code = other < 0 || listen(meeting->listener, SOMAXCONN) != 0 ? errno : 0;
    if (other >= 0)
        close(other);
    return code ? erg_fail(err, ERG_FAILED, "cannot listen for the ranks: %s", strerror(code)) : 0;
}

int erg_launch_command_error(const char *command, int code)
{
    const char *path = getenv("PATH");
    if (code != EACCES || strchr(command, '/') || !path)
        return code;
    bool there = false;
    struct erg_text file = {0};
    for (const char *at = path, *end; at && !there; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ":");
        file.count = 0;
        erg_text_printf(&file, "%.*s%s%s", (int)(end - at), at, end > at ? "/" : "", command);
        there = access(file.data, F_OK) == 0;
    }
    erg_text_release(&file);
    return there ? code : ENOENT;
}

/* In the child: never returns. `report` takes errno when the command cannot be run. */
static void become_rank(const struct launcher *launcher, int rank, pid_t parent, const int *outputs,
                        int report, char *const *environment)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127); /* the parent died before the line above */
    int empty = open("/dev/null", O_RDONLY);
    bool ready =
        empty >= 0 && dup2(empty, 0) >= 0 && dup2(outputs[0], 1) >= 0 && dup2(outputs[1], 2) >= 0;
    if (rank == 0)
        ready = ready && fcntl(launcher->meeting.listener, F_SETFD, 0) == 0;
    sigprocmask(SIG_SETMASK, &launcher->before, NULL);
    if (ready)
        execvpe(launcher->job->command[0], (char *const *)(uintptr_t)launcher->job->command,
                environment);
    int code = errno;
    while (write(report, &code, sizeof code) < 0 && errno == EINTR)
        ;
    _exit(127);
}

static int start_rank(struct launcher *launcher, int rank, struct erg_arena *arena,
                      struct erg_error *err)
{
    struct process *process = &launcher->processes[rank];
    char **environment =
        erg_launch_rank_environment(rank, launcher->job->ranks, &launcher->meeting, arena);
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}; /* output, error, report */
    pid_t parent = getpid();
    int code = 0;
    for (int i = 0; i < 3; i++)
        if (pipe2(pipes[i], O_CLOEXEC) < 0)
            code = errno;
    if (!code && (process->pid = fork()) < 0)
        code = errno;
    if (!code && process->pid == 0)
        become_rank(launcher, rank, parent, (int[]){pipes[0][1], pipes[1][1]}, pipes[2][1],
                    environment);
    for (int i = 0; i < 3; i++)
        if (pipes[i][1] >= 0)
            close(pipes[i][1]);
    if (!code) {
        process->start_ns = erg_now_ns();
        setpgid(process->pid, process->pid); /* as the child does: the first of both */
        erg_warden_tell(&launcher->warden, process->pid);
        ssize_t count;
        while ((count = read(pipes[2][0], &code, sizeof code)) < 0 && errno == EINTR)
            ;
        if (count > 0) {
            waitpid(process->pid, NULL, 0);
            erg_warden_tell(&launcher->warden, -process->pid);
        }
    }
    if (pipes[2][0] >= 0)
        close(pipes[2][0]);
    for (int i = 0; i < 2; i++) {
        process->streams[i].fd = pipes[i][0];
        if (pipes[i][0] >= 0)
            fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
    }
    launcher->started++;
    if (code) {
        code = erg_launch_command_error(launcher->job->command[0], code);
        process->ended = true;
        return erg_fail(
            err, (enum erg_status)(code == ENOENT ? NOT_FOUND_STATUS : CANNOT_RUN_STATUS),
            "cannot run \"%s\" as rank %d: %s", launcher->job->command[0], rank, strerror(code));
    }
    launcher->running++;
    return 0;
}

/* ---- output ---- */

static void pass_lines(struct launcher *launcher, int rank, bool is_error, struct erg_text *line,
                       bool all)
{
    size_t start = 0;
    while (start < line->count) {
        const char *text = line->data + start, *end = memchr(text, '\n', line->count - start);
        size_t count = end ? (size_t)(end - text) : line->count - start;
        if (!end && !all && count < LONGEST_LINE)
            break;
        launcher->job->line(launcher->job->context, rank, is_error, text, count);
        start += count + (end != NULL);
    }
    if (start) {
        memmove(line->data, line->data + start, line->count - start);
        line->count -= start;
    }
}

/* The output so far; `last`: no more follows. */
static void drain(struct launcher *launcher, int rank, bool last)
{
    struct process *process = &launcher->processes[rank];
    for (int i = 0; i < 2; i++) {
        struct stream *stream = &process->streams[i];
        char block[16384];
        ssize_t count = 0;
        while (stream->fd >= 0 && (count = read(stream->fd, block, sizeof block)) > 0) {
            erg_text_add_bytes(&stream->line, block, (size_t)count);
            pass_lines(launcher, rank, i == 1, &stream->line, false);
            if (!last)
                break; /* the turn of the other ranks */
        }
        bool at_end = last || count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
        if (stream->fd < 0 || !at_end)
            continue;
        pass_lines(launcher, rank, i == 1, &stream->line, true);
        close(stream->fd);
        stream->fd = -1;
    }
}

/* ---- the end of ranks ---- */

static void signal_ranks(struct launcher *launcher, int number)
{
    launcher->sent |= 1ull << number;
    for (int rank = 0; rank < launcher->started; rank++)
        if (!launcher->processes[rank].ended)
            kill(-launcher->processes[rank].pid, number);
}

/* The signals that a process handles or ignores, as bits; 0 where not known. */
static uint64_t heard_signals(pid_t pid)
{
    char path[40], line[200];
    unsigned long long caught = 0, ignored = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        (void)sscanf(line, "SigCgt: %llx", &caught);
        (void)sscanf(line, "SigIgn: %llx", &ignored);
    }
    if (file)
        fclose(file);
    return (uint64_t)(caught | ignored) << 1; /* signals count from 1 */
}

/*
 * Passes signals on. A rank that has just started may not handle a signal yet and would die of it,
 * so the signal waits until the rank handles it or has run for DEAF_S. False while some wait.
 */
static bool pass_signals_on(struct launcher *launcher)
{
    bool all = true;
    for (int rank = 0; rank < launcher->started; rank++) {
        struct process *process = &launcher->processes[rank];
        if (process->ended || !process->owed)
            continue;
        bool old = erg_now_ns() - process->start_ns >= DEAF_S * 1000000000LL;
        uint64_t heard = old ? UINT64_MAX : heard_signals(process->pid);
        for (int i = 0; i < PASSED_ON; i++)
            if (process->owed & heard & 1ull << passed_on[i])
                kill(-process->pid, passed_on[i]);
        process->owed &= ~heard;
        all = all && !process->owed;
    }
    return all;
}

/* A signal to this process is one to all ranks. */
static void take_signal(struct launcher *launcher, int number)
{
    for (int i = 0; i < PASSED_ON; i++) {
        if (number != passed_on[i])
            continue;
        launcher->endings += i < ENDING;
        if (launcher->endings > 1) {
            signal_ranks(launcher, SIGKILL);
            return;
        }
        launcher->sent |= 1ull << number;
        for (int rank = 0; rank < launcher->job->ranks; rank++)
            launcher->processes[rank].owed |= 1ull << number;
    }
}

static void end_ranks(struct launcher *launcher)
{
    if (launcher->kill_ns)
        return;
    launcher->kill_ns = erg_now_ns() + GRACE_S * 1000000000LL;
    signal_ranks(launcher, SIGTERM);
}

/* Whether a rank with this status stopped because a signal told it to. */
static bool is_stop(int status)
{
    return WIFEXITED(status) &&
           (WEXITSTATUS(status) == ERG_RESUMABLE || WEXITSTATUS(status) == ERG_INTERRUPTED ||
            WEXITSTATUS(status) == ERG_SUPERSEDED);
}

static void judge(struct launcher *launcher, int rank, int status)
{
    bool own_death = WIFSIGNALED(status) && !(launcher->sent >> WTERMSIG(status) & 1);
    bool own_end = own_death || (WIFEXITED(status) && !launcher->kill_ns);
    bool first = launcher->blamed < 0 && !launcher->timed_out;
    bool outranks = launcher->blamed >= 0 && own_death && !WIFSIGNALED(launcher->blamed_status);
    if (launcher->blamed >= 0 && is_stop(launcher->blamed_status))
        outranks = own_end && !is_stop(status);
    if (!first && !outranks)
        return;
    launcher->blamed = rank;
    launcher->blamed_status = status;
    launcher->blamed_s = (double)(erg_now_ns() - launcher->meeting.start_ns) * 1e-9;
}

static void reap(struct launcher *launcher)
{
    bool failed = false;
    for (int rank = 0; rank < launcher->started; rank++) {
        struct process *process = &launcher->processes[rank];
        siginfo_t info = {0};
        /* A dead process keeps its number until it is reaped. So this is the moment to end the
         * remaining processes in a failed rank's process group. */
        if (process->ended ||
            waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == 0)
            continue;
        if (info.si_code != CLD_EXITED || info.si_status != 0)
            kill(-process->pid, SIGKILL);
        int status = 0;
        waitpid(process->pid, &status, 0);
        erg_warden_tell(&launcher->warden, -process->pid);
        process->ended = true;
        launcher->running--;
        if (status != 0)
            judge(launcher, rank, status);
        if (is_stop(status) && !launcher->stop_ns)
            launcher->stop_ns = erg_now_ns() + (int64_t)(1e9 * launcher->job->stop_s);
        failed = failed || (status != 0 && !is_stop(status));
    }
    if (failed)
        end_ranks(launcher);
}

static void take_signals(struct launcher *launcher)
{
    struct signalfd_siginfo info;
    while (read(launcher->signals, &info, sizeof info) == sizeof info)
        take_signal(launcher, (int)info.ssi_signo);
}

static void check_times(struct launcher *launcher)
{
    int64_t now_ns = erg_now_ns();
    double elapsed_s = (double)(now_ns - launcher->meeting.start_ns) * 1e-9;
    if (launcher->job->timeout_s > 0 && elapsed_s >= launcher->job->timeout_s &&
        launcher->blamed < 0 && !launcher->timed_out) {
        launcher->timed_out = true;
        end_ranks(launcher);
    }
    if (launcher->stop_ns && now_ns >= launcher->stop_ns)
        end_ranks(launcher);
    if (launcher->kill_ns && now_ns >= launcher->kill_ns) {
        signal_ranks(launcher, SIGKILL);
        launcher->kill_ns = INT64_MAX;
    }
}

/* ---- all of it ---- */

static void watch(struct launcher *launcher)
{
    int started = launcher->started;
    struct pollfd *fds = erg_xcalloc((size_t)started * 2 + 1, sizeof *fds);
    while (launcher->running > 0) {
        for (int i = 0; i < started * 2; i++)
            fds[i] = (struct pollfd){.fd = launcher->processes[i / 2].streams[i % 2].fd,
                                     .events = POLLIN};
        fds[(size_t)started * 2] = (struct pollfd){.fd = launcher->signals, .events = POLLIN};
        poll(fds, (nfds_t)started * 2 + 1, pass_signals_on(launcher) ? 100 : 5);
        for (int rank = 0; rank < started; rank++)
            drain(launcher, rank, false);
        take_signals(launcher);
        reap(launcher);
        check_times(launcher);
    }
    free(fds);
    for (int rank = 0; rank < started; rank++)
        drain(launcher, rank, true);
}

static int verdict(const struct launcher *launcher, struct erg_error *err)
{
    if (launcher->timed_out)
        return erg_fail(err, (enum erg_status)TIMEOUT_STATUS,
                        "ranks still ran after the timeout of %g s and were ended",
                        launcher->job->timeout_s);
    if (launcher->blamed < 0)
        return 0;
    const char *others = launcher->job->ranks > 1 ? "; the other ranks were ended" : "";
    if (WIFSIGNALED(launcher->blamed_status)) {
        int number = WTERMSIG(launcher->blamed_status);
        return erg_fail(err, (enum erg_status)(128 + number),
                        "rank %d was killed by signal %d (%s) after %.1f s%s", launcher->blamed,
                        number, strsignal(number), launcher->blamed_s, others);
    }
    int status = WEXITSTATUS(launcher->blamed_status);
    if (is_stop(launcher->blamed_status))
        return erg_fail(err, (enum erg_status)status,
                        "rank %d stopped with status %d after %.1f s%s", launcher->blamed, status,
                        launcher->blamed_s, launcher->kill_ns ? others : "");
    return erg_fail(err, (enum erg_status)status, "rank %d exited with status %d after %.1f s%s",
                    launcher->blamed, status, launcher->blamed_s, others);
}

static int start_all(struct launcher *launcher, struct erg_error *err)
{
    sigemptyset(&launcher->blocked);
    sigaddset(&launcher->blocked, SIGCHLD);
    for (int i = 0; i < PASSED_ON; i++)
        sigaddset(&launcher->blocked, passed_on[i]);
    pthread_sigmask(SIG_BLOCK, &launcher->blocked, &launcher->before);
    launcher->signals = signalfd(-1, &launcher->blocked, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launcher->signals < 0)
        return erg_fail(err, ERG_FAILED, "cannot watch for signals: %s", strerror(errno));
    if (prepare_meeting(&launcher->meeting, err) ||
        erg_warden_start(&launcher->warden, launcher->job->ranks, err))
        return -1;
    /* The program's own handlers have received signals from before the block. */
    take_signal(launcher, erg_interrupt_signal());
    if (erg_interrupt_take_request())
        take_signal(launcher, SIGUSR2);
    struct erg_arena arena = {0};
    int result = 0;
    for (int rank = 0; rank < launcher->job->ranks && result == 0; rank++)
        result = start_rank(launcher, rank, &arena, err);
    erg_arena_release(&arena);
    return result;
}

int erg_launch_run(const struct erg_launch_job *asked, struct erg_error *err)
{
    struct erg_launch_job whole = *asked, *job = &whole;
    if (!(job->stop_s > 0))
        job->stop_s = ERG_LAUNCH_STOP_S;
    struct launcher launcher = {.job = job,
                                .warden = {.link = -1},
                                .processes =
                                    erg_xcalloc((size_t)job->ranks, sizeof *launcher.processes),
                                .signals = -1,
                                .meeting = {.listener = -1, .start_ns = erg_now_ns()},
                                .blamed = -1};
    int result = start_all(&launcher, err);
    if (result)
        signal_ranks(&launcher, SIGKILL);
    watch(&launcher);
    if (result == 0)
        result = verdict(&launcher, err);
    for (int rank = 0; rank < launcher.started; rank++)
        for (int i = 0; i < 2; i++)
            erg_text_release(&launcher.processes[rank].streams[i].line);
    free(launcher.processes);
    erg_warden_end(&launcher.warden);
    if (launcher.signals >= 0)
        close(launcher.signals);
    if (launcher.meeting.listener >= 0)
        close(launcher.meeting.listener);
    pthread_sigmask(SIG_SETMASK, &launcher.before, NULL);
    return result;
}
