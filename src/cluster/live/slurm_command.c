/* Runs Slurm's commands and explains their failures. */
#define _GNU_SOURCE /* strcasestr */
#include "cluster/live/slurm_command.h"

#include "base/memory.h"
#include "io/subprocess.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the environment ---- */

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

/* Free it; the environment owns the strings. */
static const char **make_environment(void)
{
    size_t count = 0, kept = 0;
    while (environ && environ[count])
        count++;
    const char **made = erg_xcalloc(count + 3, sizeof *made);
    for (size_t i = 0; i < count; i++)
        if (is_kept(environ[i]))
            made[kept++] = environ[i];
    made[kept++] = "LC_ALL=C";
    made[kept] = "TZ=UTC";
    return made;
}

/* ---- meaning of failures ---- */

enum erg_engine_answer erg_slurm_classify(const char *text)
{
    /* The texts of slurm_strerror(), which do not depend on the locale. */
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

/* "scontrol hold 7"; the start of a long command. */
static void add_command(struct erg_text *line, const char *const *words)
{
    for (size_t i = 0; words[i] && line->count < 160; i++)
        erg_text_printf(line, "%s%.120s", i ? " " : "", words[i]);
}

/* The reason for a failure is in the last line; the lines before it are details. */
static void add_reason(struct erg_text *line, const struct erg_text *said)
{
    struct erg_text raw = {0};
    const char *end = said->data + said->count;
    while (end > said->data && end[-1] == '\n')
        end--;
    const char *first = end;
    while (first > said->data && first[-1] != '\n')
        first--;
    erg_text_add_utf8(&raw, first, (size_t)(end - first));
    erg_text_add_printable(line, raw.count ? raw.data : "it failed without a message");
    erg_text_release(&raw);
}

static enum erg_engine_answer judge(const struct erg_subprocess *process, const char *const *words,
                                    double limit_s, struct erg_error *err)
{
    if (!process->late && process->status == 0 && !process->full)
        return ERG_ENGINE_DONE;
    struct erg_text line = {0};
    enum erg_engine_answer answer = ERG_ENGINE_LATER;
    add_command(&line, words);
    if (process->late) {
        erg_text_printf(&line, ": no answer from Slurm within %g s", limit_s);
    } else if (process->signal > 0) {
        erg_text_printf(&line, ": ended by signal %d", process->signal);
    } else if (process->signal < 0) {
        erg_text_add(&line, ": its exit status is unknown");
    } else if (process->status == 0) {
        erg_text_printf(&line, ": its output exceeds %d MiB", ERG_SUBPROCESS_MOST_BYTES >> 20);
        answer = ERG_ENGINE_BROKEN;
    } else {
        erg_text_add(&line, ": ");
        add_reason(&line, &process->err);
        answer = erg_slurm_classify(process->err.data);
    }
    erg_fail(err, ERG_FAILED, "%s", line.data);
    erg_text_release(&line);
    return answer;
}

enum erg_engine_answer erg_slurm_command(const char *const *words, double limit_s,
                                         struct erg_text *out, struct erg_error *err)
{
    struct erg_subprocess process;
    struct erg_error why = {0};
    const char **environment = make_environment();
    if (out)
        erg_text_release(out);
    const int result = erg_subprocess_run(&process, words, environment, limit_s, &why);
    free(environment);
    if (result != 0) {
        if (why.status == (enum erg_status)ERG_SLURM_MISSING)
            erg_fail(err, why.status, "starting '%s': %s, expected a command of Slurm in PATH",
                     words[0], strerror(ENOENT));
        else
            erg_fail(err, why.status, "%s", why.message);
        erg_subprocess_release(&process);
        return why.status == ERG_FAILED ? ERG_ENGINE_LATER : ERG_ENGINE_BROKEN;
    }
    const enum erg_engine_answer answer = judge(&process, words, limit_s, err);
    if (out) {
        *out = process.out;
        process.out = (struct erg_text){0};
    }
    erg_subprocess_release(&process);
    return answer;
}
