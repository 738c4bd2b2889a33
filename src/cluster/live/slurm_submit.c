/* Submits jobs to Slurm, and finds them again by their comments. */
#include "cluster/live/slurm_submit.h"

#include "cluster/live/slurm_command.h"
#include "cluster/live/slurm_read.h"

#include "io/subprocess.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double patience_s = 15, submit_patience_s = 60;

/* ---- finding ---- */

/* A line "id|state|nodes|comment". squeue lists only this user's jobs, so other users cannot forge
 * lines. */
static bool read_line(struct erg_slurm_found *found, char *line, const char *comment)
{
    char *fields[4], *end;
    for (int i = 0; i < 4; i++) {
        fields[i] = line;
        line = i < 3 ? strchr(line, '|') : line;
        if (!line)
            return false;
        if (i < 3)
            *line++ = '\0';
    }
    const unsigned long id = strtoul(fields[0], &end, 10);
    if (end == fields[0] || *end || id == 0 || id > UINT32_MAX || strcmp(fields[3], comment) != 0)
        return false;
    *found = (struct erg_slurm_found){(uint32_t)id, erg_slurm_job_state(fields[1]), "", ""};
    snprintf(found->state_text, sizeof found->state_text, "%s", fields[1]);
    snprintf(found->nodes, sizeof found->nodes, "%s", fields[2][0] == '(' ? "" : fields[2]);
    return true;
}

enum erg_engine_answer erg_slurm_find(struct erg_slurm_found *found, const char *comment,
                                      struct erg_error *err)
{
    char user[16];
    snprintf(user, sizeof user, "%u", (unsigned)geteuid());
    const char *const words[] = {"squeue", "-h", "-a", "-t",          "all",
                                 "-u",     user, "-o", "%i|%T|%N|%k", NULL};
    struct erg_text text = {0};
    *found = (struct erg_slurm_found){0};
    const enum erg_engine_answer answer = erg_slurm_command(words, patience_s, &text, err);
    if (answer == ERG_ENGINE_DONE)
        for (char *rest = text.data, *line; (line = strtok_r(rest, "\n", &rest)) != NULL;) {
            struct erg_slurm_found one;
            if (read_line(&one, line, comment) && erg_slurm_is_over(found))
                *found = one;
        }
    erg_text_release(&text);
    return answer;
}

bool erg_slurm_is_over(const struct erg_slurm_found *found)
{
    return found->id == 0 || erg_live_state_is_over(found->state);
}

/* ---- submitting ---- */

/* Returns true if a request that failed was not even sent. */
static bool is_unsent(const char *text)
{
    return strstr(text, "connect failure") || strstr(text, "Connection refused");
}

enum erg_engine_answer erg_slurm_submit(uint32_t *id, const char *const *words, const char *comment,
                                        struct erg_error *err)
{
    struct erg_subprocess process;
    struct erg_slurm_found found;
    enum erg_engine_answer answer = ERG_ENGINE_DONE;
    *id = 0;
    if (erg_subprocess_run(&process, words, NULL, submit_patience_s, err) != 0) {
        erg_subprocess_release(&process);
        return ERG_ENGINE_BROKEN;
    }
    char *end = process.out.data;
    const unsigned long number = strtoul(process.out.data, &end, 10);
    const bool printed = end != process.out.data && number > 0 && number <= UINT32_MAX;
    /* An sbatch that succeeds prints a number. */
    if (process.late || process.signal != 0 || (process.status == 0 && !printed))
        answer = ERG_ENGINE_LATER;
    else if (process.status != 0)
        answer =
            is_unsent(process.err.data) ? ERG_ENGINE_REFUSED : erg_slurm_classify(process.err.data);
    if (answer == ERG_ENGINE_DONE)
        *id = (uint32_t)number;
    else
        erg_fail(err, ERG_FAILED, "%s", erg_subprocess_reason(&process));
    erg_subprocess_release(&process);
    if (answer == ERG_ENGINE_LATER && erg_slurm_find(&found, comment, NULL) == ERG_ENGINE_DONE &&
        !erg_slurm_is_over(&found)) {
        *id = found.id;
        return ERG_ENGINE_DONE;
    }
    return answer;
}
