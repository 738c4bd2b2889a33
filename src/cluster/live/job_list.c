/* Lists managed jobs for their users. */
#include "cluster/live/job_list.h"

#include "base/text.h"
#include "cluster/live/host_list.h"
#include "cluster/live/slurm_read.h"
#include "io/file.h"
#include "io/json.h"
#include "io/subprocess.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The comment, which is free text, comes last. */
static const char format[] = "%i|%U|%u|%T|%r|%N|%D|%b|%M|%k";
enum { FIELDS = 10, SLURM_S = 30, MOST_STATUS_BYTES = 64 << 20 };

/* "1-02:03:04", "03:04"; NAN for other texts. */
static double read_elapsed(const char *text)
{
    if (text[strspn(text, "0123456789-:")])
        return NAN;
    double seconds = 0, part;
    const char *dash = strchr(text, '-');
    char *end;
    if (dash) {
        seconds = 24 * strtod(text, &end);
        if (end != dash || strchr(dash + 1, '-'))
            return NAN;
        text = dash + 1;
    }
    for (int i = 0;; i++) {
        part = strtod(text, &end);
        if (end == text || i > 2)
            return NAN;
        seconds = (i == 0 ? seconds : 60 * seconds) + part;
        if (!*end)
            return dash && i < 2 ? NAN : seconds;
        if (*end != ':')
            return NAN;
        text = end + 1;
    }
}

/* Number of nodes of a job; 0 if the text is not a number. */
static int read_nodes(const char *text)
{
    long count;
    return erg_parse_long(text, &count) && count > 0 && count <= ERG_HOST_LIST_MOST ? (int)count
                                                                                    : 0;
}

/* GPUs of each node in "gres:gpu:3", "gres/gpu:h100:3" or "gpu:3(S:0)". */
static int read_gpus(const char *text)
{
    const char *gpu = strstr(text, "gpu:");
    if (!gpu)
        return 0;
    gpu += 4;
    if (*gpu < '0' || *gpu > '9')
        gpu += strcspn(gpu, ":,") + 1;
    long count = strtol(gpu, NULL, 10);
    return count > 0 && count <= 1000 ? (int)count : 0;
}

bool erg_live_line_parse(struct erg_live_line *line, const char *text, struct erg_arena *arena)
{
    static const char head[] = "ergon:1:";
    char *fields[FIELDS], *rest = erg_arena_strdup(arena, text);
    size_t count = 0;
    while (count < FIELDS - 1 && strchr(rest, '|')) {
        fields[count++] = rest;
        rest = strchr(rest, '|');
        *rest++ = '\0';
    }
    if (count < FIELDS - 1 || strncmp(rest, head, sizeof head - 1) != 0)
        return false;
    const char *token = rest + sizeof head - 1;
    if (strlen(token) != ERG_TOKEN_LENGTH || strspn(token, "0123456789abcdef") != ERG_TOKEN_LENGTH)
        return false;
    const enum erg_live_state state = erg_slurm_job_state(fields[3]);
    *line = (struct erg_live_line){.id = fields[0],
                                   .user = fields[2],
                                   .state = fields[3],
                                   .reason = fields[4],
                                   .nodes = fields[5],
                                   .waits = state == ERG_LIVE_PENDING,
                                   .since_s = NAN,
                                   .speed = NAN,
                                   .left_s = NAN,
                                   .begins_unix_s = NAN};
    memcpy(line->token, token, sizeof line->token);
    line->ended = erg_live_state_is_over(state);
    if (!line->waits && !line->ended) {
        line->gpus = read_nodes(fields[6]) * read_gpus(fields[7]);
        line->since_s = read_elapsed(fields[8]);
    }
    line->request.uid = (uid_t)strtoul(fields[1], NULL, 10);
    return true;
}

/* The state in the folder; none if the folder is unreadable. */
static void read_folder(struct erg_live_line *line, const char *spool, struct erg_arena *arena)
{
    struct erg_report_reader reader = {0};
    struct erg_error ignored;
    const uid_t uid = line->request.uid;
    bool fresh;
    line->is_readable =
        erg_job_folder_request(&line->request, spool, line->token, uid, arena, &ignored) == 0;
    off_t before;
    do { /* read a long file in pieces */
        before = reader.at;
        if (erg_job_folder_reports(&reader, &fresh, spool, line->token, uid, &ignored) != 0)
            break;
    } while (reader.at > before);
    line->report = reader.last;
    if (!line->is_readable || line->report.incarnation == 0 || !(line->report.iteration_s > 0))
        return;
    line->speed = 1 / line->report.iteration_s;
    if (line->gpus > 0)
        line->left_s =
            fmax(0, line->request.iterations - line->report.iteration) * line->report.iteration_s;
}

/* ---- the controller's state ---- */

/* Beyond this age, its controller has ended. */
static const double fresh_s = 300;

void erg_live_list_status(struct erg_live_list *list, const char *text, size_t length,
                          double now_unix_s)
{
    struct erg_error ignored;
    json_t *root, *job;
    size_t k;
    if (erg_json_parse(&root, "status", text, length, &ignored) != 0)
        return;
    const double at_s = json_number_value(json_object_get(root, "at_unix_s"));
    const bool is_fresh = at_s > now_unix_s - fresh_s;
    const json_t *jobs = is_fresh ? json_object_get(root, "jobs") : NULL;
    json_array_foreach(jobs, k, job)
    {
        const char *token = json_string_value(json_object_get(job, "token"));
        const char *why = json_string_value(json_object_get(job, "reason"));
        for (size_t i = 0; token && i < list->count; i++) {
            struct erg_live_line *line = &list->items[i];
            if (strcmp(line->token, token) != 0)
                continue;
            line->why = why ? erg_arena_strdup(&list->arena, why) : NULL;
            line->begins_unix_s = erg_json_number_or(job, "starts_unix_s", NAN);
        }
    }
    json_decref(root);
}

/* Any user may put a file into the spool: only one of the spool's owner or root is used. */
static void read_status(struct erg_live_list *list, const char *spool)
{
    struct stat above, info;
    char *path = erg_file_path(spool, ".controller/status.json"), *text;
    size_t length;
    if (stat(spool, &above) == 0 && lstat(path, &info) == 0 && S_ISREG(info.st_mode) &&
        (info.st_uid == above.st_uid || info.st_uid == 0) &&
        erg_file_read(path, MOST_STATUS_BYTES, &text, &length, NULL) == 0) {
        erg_live_list_status(list, text, length, (double)time(NULL));
        free(text);
    }
    free(path);
}

int erg_live_list_read(struct erg_live_list *list, const char *partition, const char *spool,
                       bool all, struct erg_error *err)
{
    const char *words[12] = {"squeue", "--noheader", "--format", format, "--partition", partition};
    struct erg_subprocess process;
    char user[24];
    size_t count = 6;
    snprintf(user, sizeof user, "%lu", (unsigned long)geteuid());
    words[count++] = all ? "--states=all" : "--user";
    if (!all)
        words[count++] = user;
    if (erg_subprocess_run(&process, words, NULL, SLURM_S, err) != 0)
        return -1;
    if (process.status != 0 || process.late) {
        erg_fail(err, ERG_FAILED, "asking Slurm for the jobs of the partition '%s': %s", partition,
                 erg_subprocess_reason(&process));
        erg_subprocess_release(&process);
        return -1;
    }
    char *rest = process.out.data, *text;
    while ((text = strtok_r(rest, "\n", &rest)) != NULL) {
        struct erg_live_line line;
        if (!erg_live_line_parse(&line, text, &list->arena))
            continue;
        read_folder(&line, spool, &list->arena);
        ERG_PUSH(list, items, line);
    }
    erg_subprocess_release(&process);
    read_status(list, spool);
    return 0;
}

void erg_live_list_release(struct erg_live_list *list)
{
    free(list->items);
    erg_arena_release(&list->arena);
    *list = (struct erg_live_list){0};
}

const char *erg_live_line_says(const struct erg_live_line *line)
{
    static const char *const doing[] = {"loads", "trains", "saves", "leaves its GPUs", "ends"};
    if (line->ended)
        return !strcmp(line->state, "COMPLETED")   ? "done"
               : !strcmp(line->state, "CANCELLED") ? "cancelled"
                                                   : "failed";
    if (line->waits && strcmp(line->state, "PENDING") == 0 &&
        strcmp(line->reason, "JobHeldUser") != 0 && strcmp(line->reason, "JobHeldAdmin") != 0 &&
        strcmp(line->reason, "None") != 0 && !strstr(line->reason, "held"))
        return "placed, waits for its GPUs";
    if (line->waits)
        return line->report.incarnation ? "waits for its next place" : "waits for its place";
    return line->report.incarnation ? doing[line->report.state] : "starts";
}
