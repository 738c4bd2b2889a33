/* Runs Slurm's commands and says what their failures mean. */
#define _GNU_SOURCE /* pipe2, strcasestr */
#include "cluster/live/slurm_command.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Of 100,000 jobs; and of complaints, of which only the first lines are shown. */
enum { OUT_MOST_BYTES = 256 << 20, ERR_MOST_BYTES = 1 << 16 };

/* ---- the process ---- */

static bool is_kept(const char *variable)
{
    static const char *const others[] = {"SLURM_",  "SBATCH_", "SCANCEL_", "SCONTROL_",
                                         "LC_ALL=", "LANG=",   "TZ="};
    if (strncmp(variable, "SLURM_CONF=", 11) == 0)
        return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(variable, others[i], strlen(others[i])) == 0)
            return false;
    return true;
}

/* To be freed; the strings are the environment's own. */
static char **make_environment(void)
{
    static char locale[] = "LC_ALL=C", zone[] = "TZ=UTC";
    size_t count = 0, kept = 0;
    while (environ && environ[count])
        count++;
    char **made = erg_xcalloc(count + 3, sizeof *made);
    for (size_t i = 0; i < count; i++)
        if (is_kept(environ[i]))
            made[kept++] = environ[i];
    made[kept++] = locale;
    made[kept] = zone;
    return made;
}

static int start(pid_t *pid, const char *const *words, int out, int err)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, piped;
    sigemptyset(&none);
    sigemptyset(&piped);
    sigaddset(&piped, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    /* A group of its own: what is typed at our terminal does not cut a command in two. */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &piped);
    char **environment = make_environment();
    int result = posix_spawnp(pid, words[0], &files, &attributes, (char *const *)(uintptr_t)words,
                              environment);
    free(environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return result;
}

/* False at the end of the file. */
static bool take(int file, struct erg_text *text, size_t most)
{
    char block[1 << 16];
    ssize_t count = read(file, block, sizeof block);
    if (count < 0)
        return errno == EINTR || errno == EAGAIN;
    size_t room = most - text->count;
    erg_text_add_bytes(text, block, (size_t)count < room ? (size_t)count : room);
    return count > 0;
}

/* Takes what it says until it closes both ends; false where the time ends before. */
static bool hear(int out_file, int err_file, struct erg_text *out, struct erg_text *said,
                 int64_t until_ns)
{
    struct pollfd files[] = {{out_file, POLLIN, 0}, {err_file, POLLIN, 0}};
    while (files[0].fd >= 0 || files[1].fd >= 0) {
        int64_t left_ms = (until_ns - erg_now_ns()) / 1000000;
        if (left_ms < 0)
            return false;
        if (poll(files, 2, (int)left_ms + 1) <= 0)
            continue;
        if (files[0].fd >= 0 && files[0].revents && !take(out_file, out, OUT_MOST_BYTES))
            files[0].fd = -1;
        if (files[1].fd >= 0 && files[1].revents && !take(err_file, said, ERR_MOST_BYTES))
            files[1].fd = -1;
    }
    return true;
}

static bool await(pid_t pid, int *status, int64_t until_ns)
{
    for (;;) {
        pid_t ended = waitpid(pid, status, WNOHANG);
        if (ended == pid)
            return true;
        if (ended < 0 && errno != EINTR) { /* somebody ignores SIGCHLD: how it went is not known */
            *status = -1;
            return true;
        }
        if (erg_now_ns() >= until_ns)
            return false;
        erg_sleep_ns(500000);
    }
}

/* ---- what it means ---- */

enum erg_engine_answer erg_slurm_classify(const char *text)
{
    /* In the words of slurm_strerror(), which the locale does not change. */
    static const char *const gone[] = {"Invalid job id", "job id is invalid"};
    static const char *const later[] = {
        "Unable to contact slurm controller",
        "Socket timed out",
        "Connection refused",
        "Connection reset",
        "Connection timed out",
        "Communication connection failure",
        "Communication shutdown failure",
        "Message send failure",
        "Message receive failure",
        "Header lengths are longer",
        "Zero Bytes were transmitted",
        "Unexpected message received",
        "Slurm backup controller in standby mode",
        "authentication error",
        "Munge encode failed",
        "Resource temporarily unavailable",
        "Slurm temporarily unable to accept job",
        "Transport endpoint is not connected",
        "Job update not available right now",
        "Interrupted system call",
    };
    static const char *const broken[] = {"fatal:", "Could not establish a configuration source"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (strcasestr(text, later[i]))
            return ERG_ENGINE_LATER;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        if (strcasestr(text, broken[i]))
            return ERG_ENGINE_BROKEN;
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        if (strcasestr(text, gone[i]))
            return ERG_ENGINE_GONE;
    return ERG_ENGINE_REFUSED;
}

/* "scontrol hold 7", of a long command the beginning. */
static void add_command(struct erg_text *line, const char *const *words)
{
    for (size_t i = 0; words[i] && line->count < 160; i++)
        erg_text_printf(line, "%s%.120s", i ? " " : "", words[i]);
}

static enum erg_engine_answer explain(const char *const *words, int status, bool late,
                                      double limit_s, const struct erg_text *said,
                                      struct erg_error *err)
{
    struct erg_text command = {0}, raw = {0}, line = {0};
    enum erg_engine_answer answer = ERG_ENGINE_LATER;
    add_command(&command, words);
    erg_text_add(&line, "");
    /* Its last line: what comes before are the reasons of reasons. */
    const char *end = said->data + said->count;
    while (end > said->data && end[-1] == '\n')
        end--;
    const char *first = end;
    while (first > said->data && first[-1] != '\n')
        first--;
    erg_text_add_utf8(&raw, first, (size_t)(end - first));
    if (raw.count)
        erg_text_add_printable(&line, raw.data);
    if (late) {
        erg_fail(err, ERG_FAILED, "%s: Slurm does not answer within %g s", command.data, limit_s);
    } else if (status == -1 || WIFSIGNALED(status)) {
        erg_fail(err, ERG_FAILED, "%s: ended by signal %d", command.data,
                 status == -1 ? 0 : WTERMSIG(status));
    } else {
        answer = erg_slurm_classify(said->data ? said->data : "");
        erg_fail(err, ERG_FAILED, "%s: %s", command.data,
                 line.count ? line.data : "it fails and does not say why");
    }
    erg_text_release(&line);
    erg_text_release(&raw);
    erg_text_release(&command);
    return answer;
}

static enum erg_engine_answer talk(const char *const *words, double limit_s, const int out_pipe[2],
                                   const int err_pipe[2], struct erg_text *out,
                                   struct erg_error *err)
{
    int64_t until_ns = erg_now_ns() + (int64_t)(1e9 * limit_s);
    pid_t pid;
    int status = 0, result = start(&pid, words, out_pipe[1], err_pipe[1]);
    close(out_pipe[1]);
    close(err_pipe[1]);
    if (result != 0) {
        erg_fail(err, result == ENOENT ? (enum erg_status)ERG_SLURM_MISSING : ERG_FAILED,
                 "starting '%s': %s, expected a command of Slurm in PATH", words[0],
                 strerror(result));
        return ERG_ENGINE_BROKEN;
    }
    struct erg_text said = {0};
    erg_text_add(&said, "");
    bool late =
        !hear(out_pipe[0], err_pipe[0], out, &said, until_ns) || !await(pid, &status, until_ns);
    if (late) {
        kill(-pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
    }
    enum erg_engine_answer answer = ERG_ENGINE_DONE;
    if (late || status != 0)
        answer = explain(words, status, late, limit_s, &said, err);
    else if (out->count == OUT_MOST_BYTES) {
        erg_fail(err, ERG_FAILED, "%s %s: more than %d MiB of answer", words[0], words[1],
                 OUT_MOST_BYTES >> 20);
        answer = ERG_ENGINE_BROKEN;
    }
    erg_text_release(&said);
    return answer;
}

enum erg_engine_answer erg_slurm_command(const char *const *words, double limit_s,
                                         struct erg_text *out, struct erg_error *err)
{
    int out_pipe[2], err_pipe[2];
    struct erg_text unread = {0};
    if (!out)
        out = &unread;
    out->count = 0;
    erg_text_add(out, "");
    if (pipe2(out_pipe, O_CLOEXEC) != 0) {
        erg_fail(err, ERG_FAILED, "starting '%s': %s", words[0], strerror(errno));
        return ERG_ENGINE_LATER;
    }
    if (pipe2(err_pipe, O_CLOEXEC) != 0) {
        erg_fail(err, ERG_FAILED, "starting '%s': %s", words[0], strerror(errno));
        close(out_pipe[0]);
        close(out_pipe[1]);
        return ERG_ENGINE_LATER;
    }
    enum erg_engine_answer answer = talk(words, limit_s, out_pipe, err_pipe, out, err);
    close(out_pipe[0]);
    close(err_pipe[0]);
    erg_text_release(&unread);
    return answer;
}
