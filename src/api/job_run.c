/* The work of a live job's batch script. */
#include "api/job_run.h"

#include "api/live_layout.h"
#include "api/managed_plan.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cluster/live/slurm_command.h"
#include "cluster/live/slurm_read.h"
#include "io/file.h"
#include "io/json.h"
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    LOOK_MS = 200,       /* between two looks at the reports */
    REPORT_S = 10,       /* between two reports for a trainer that makes none */
    LEFT_BEHIND_S = 600, /* how long tasks may run after the first has ended */
    HOST_S = 5,          /* how long Slurm may take to answer */
    ANSWER_S = 30,       /* likewise, where the job's end waits for it */
};

struct job_running {
    const char *folder, *program;
    char *spool, *token;
    struct erg_arena arena;
    struct erg_live_request request;
    struct erg_live_plan plan;
    int nodes, gpus_per_node; /* that Slurm has given */
    long incarnation;
    struct erg_report_reader reader;
    bool heard;          /* the trainer has reported by itself */
    double mono_s;       /* of the last report from here */
    int64_t reported_ns; /* likewise */
    sigset_t before;
    pid_t srun;
    int64_t started_ns;
    bool asked; /* to leave, and not passed on yet */
};

/* ---- signals ---- */

static const int awaited[] = {SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGCHLD};

static sigset_t awaited_set(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof awaited / sizeof *awaited; i++)
        sigaddset(&set, awaited[i]);
    return set;
}

/* ---- where it is ---- */

static int read_number(int *value, const char *name, struct erg_error *err)
{
    const char *text = getenv(name);
    long number;
    if (!text || !erg_parse_long(text, &number) || number < 1 || number > 1000000)
        return erg_fail(err, ERG_USAGE,
                        "the environment variable %s is \"%.80s\", expected a whole number above "
                        "0: this command is for the batch jobs that ergon submit makes",
                        name, text ? text : "");
    *value = (int)number;
    return 0;
}

static int open_running(struct job_running *at, struct erg_error *err)
{
    char *slash;
    if (at->folder[0] != '/')
        return erg_fail(err, ERG_USAGE, "the folder '%s' is not an absolute path", at->folder);
    at->spool = erg_xstrdup(at->folder);
    while ((slash = strrchr(at->spool, '/')) > at->spool && !slash[1])
        *slash = '\0';
    *slash = '\0';
    at->token = slash + 1;
    if (erg_job_folder_request(&at->request, at->spool, at->token, geteuid(), &at->arena, err) ||
        erg_job_folder_read_plan(&at->plan, at->folder, &at->arena, err) ||
        read_number(&at->nodes, "SLURM_JOB_NUM_NODES", err) ||
        read_number(&at->gpus_per_node, "SLURM_GPUS_ON_NODE", err))
        return -1;
    at->incarnation = erg_job_incarnation_take(at->folder);
    if (at->incarnation == 0)
        return erg_fail(err, ERG_FAILED, "making the next incarnation in '%s': %s", at->folder,
                        strerror(errno));
    return 0;
}

static int check_superseded(const struct job_running *at, struct erg_error *err)
{
    long highest = erg_job_incarnation_highest(at->folder);
    if (highest <= at->incarnation)
        return 0;
    return erg_fail(err, ERG_SUPERSEDED,
                    "incarnation %ld of the job in '%s' has begun, and this is incarnation %ld",
                    highest, at->folder, at->incarnation);
}

/* ---- reports ---- */

/* For the trainer: unknown values are null. */
static void report(struct job_running *at, enum erg_job_state state)
{
    char *path = erg_file_path(at->folder, "reports.jsonl");
    const struct erg_report *last = &at->reader.last;
    const bool same = last->incarnation == at->incarnation;
    at->reported_ns = erg_now_ns();
    at->mono_s = 1e-9 * (double)at->reported_ns;
    json_t *line = erg_json_pack("{s:i, s:I, s:s, s:f, s:f, s:f}", "v", 1, "incarnation",
                                 (json_int_t)at->incarnation, "state", erg_job_state_names[state],
                                 "iteration", same ? last->iteration : NAN, "checkpoint",
                                 same ? last->checkpoint : NAN, "mono_s", at->mono_s);
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    struct erg_text whole = {0};
    erg_text_printf(&whole, "%s\n", text);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0 || write(file, whole.data, whole.count) != (ssize_t)whole.count)
        erg_log(ERG_LOG_WARNING, "writing '%s': %s; the job's scheduler gets no reports", path,
                strerror(errno));
    if (file >= 0)
        close(file);
    erg_text_release(&whole);
    free(text);
    json_decref(line);
    free(path);
}

/* Whether the trainer speaks for itself. */
static void listen_to_trainer(struct job_running *at)
{
    bool fresh;
    struct erg_error ignored;
    if (erg_job_folder_reports(&at->reader, &fresh, at->spool, at->token, geteuid(), &ignored) == 0)
        at->heard |= fresh && at->reader.last.incarnation == at->incarnation &&
                     at->reader.last.mono_s != at->mono_s;
}

/* ---- the trainer ---- */

struct words {
    const char **items;
    size_t count, capacity;
};

static void add(struct words *words, const char *word)
{
    ERG_PUSH(words, items, word);
}

/* The plan that the job was given, if it is one for these GPUs; NULL: none, with the reason in
 * `why` if there is one. */
static struct erg_plan *open_plan(const struct job_running *at, struct erg_error *why)
{
    const struct erg_live_request *request = &at->request;
    struct erg_plan *plan;
    const bool any_type = erg_managed_plan_any_type(request->command, request->command_count);
    char *path = erg_managed_plan_path(at->folder);
    const int result = erg_plan_load(&plan, path, why);
    free(path);
    if (result != 0)
        return NULL;
    if (erg_managed_plan_check_type(plan, at->plan.type, any_type, why) == 0)
        return plan;
    erg_plan_free(plan);
    return NULL;
}

/* The job's file with a layout for the available GPUs. `planned`: it runs by its plan. */
static int prepare_training(struct job_running *at, const char **job, int *nodes, int *ranks,
                            bool *planned, struct erg_error *err)
{
    struct erg_error why = {0};
    struct erg_managed_options options;
    erg_managed_options_split(&options, at->request.command, at->request.command_count, &at->arena);
    struct erg_plan *plan = options.plan ? open_plan(at, &why) : NULL;
    const struct erg_layout own =
        plan ? erg_managed_plan_layout(plan, at->request.batch) : (struct erg_layout){0};
    const struct erg_live_layout_request request = {
        .path = erg_arena_printf(&at->arena, "%s/job.yaml", at->folder),
        .plan = &at->plan,
        .nodes = at->nodes,
        .gpus_per_node = at->gpus_per_node,
        .plans = erg_live_layout_plans(&at->request),
        .other = plan ? &own : NULL};
    struct erg_live_layout chosen;
    *job = erg_arena_printf(&at->arena, "%s/job.%ld.yaml", at->folder, at->incarnation);
    int result = erg_live_layout_choose(&chosen, &request, err);
    if (result == 0)
        result = erg_file_write(*job, chosen.job.data, chosen.job.count, err);
    if (result == 0) {
        *nodes = chosen.nodes;
        *ranks = chosen.ranks;
        *planned = plan && erg_managed_plan_check_job(plan, *job, &chosen.job, &why) == 0;
        erg_log(ERG_LOG_INFO, "incarnation %ld trains on %d of %d GPUs: %s", at->incarnation,
                chosen.ranks, at->nodes * at->gpus_per_node, chosen.why.data);
        if (options.plan && *planned)
            erg_log(ERG_LOG_INFO, "incarnation %ld runs by the job's plan", at->incarnation);
        else if (options.plan)
            erg_log(ERG_LOG_INFO,
                    "incarnation %ld cannot run by the job's plan and runs one operation after "
                    "the other: %s",
                    at->incarnation, why.message);
    }
    erg_plan_free(plan);
    erg_live_layout_release(&chosen);
    return result;
}

/* The command line. Memory is the arena's. */
static int make_command(struct job_running *at, struct words *words, struct erg_error *err)
{
    const struct erg_live_request *request = &at->request;
    int nodes = at->nodes, ranks = request->per_node ? nodes : nodes * at->gpus_per_node;
    const char *job = NULL;
    bool planned = false;
    if (request->trains && prepare_training(at, &job, &nodes, &ranks, &planned, err) != 0)
        return -1;
    add(words, "srun");
    add(words, erg_arena_printf(&at->arena, "--nodes=%d", nodes));
    add(words, erg_arena_printf(&at->arena, "--ntasks=%d", ranks));
    add(words, erg_arena_printf(&at->arena, "--ntasks-per-node=%d", ranks / nodes));
    add(words, "--overcommit"); /* more tasks than CPUs */
    /* Ranks leave one after the other, and none is to be killed for that. */
    add(words, "--kill-on-bad-exit=0");
    add(words, erg_arena_printf(&at->arena, "--wait=%d", LEFT_BEHIND_S));
    add(words, "--export=ALL");
    add(words, "--");
    if (request->trains) {
        add(words, at->program);
        add(words, "train");
        add(words, job);
        add(words, "--output");
        add(words, erg_arena_printf(&at->arena, "%s/run", at->folder));
    }
    struct erg_managed_options options = {.without = request->command,
                                          .without_count = request->command_count};
    if (request->trains && !planned)
        erg_managed_options_split(&options, request->command, request->command_count, &at->arena);
    for (size_t i = 0; i < options.without_count; i++)
        add(words, options.without[i]);
    add(words, NULL);
    return 0;
}

static int set_secret(struct erg_error *err)
{
    uint64_t bits[2];
    char text[33];
    if (getenv("ERGON_JOB_SECRET"))
        return 0;
    if (getrandom(bits, sizeof bits, 0) != sizeof bits)
        return erg_fail(err, ERG_FAILED, "drawing a secret: %s", strerror(errno));
    snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, bits[0], bits[1]);
    setenv("ERGON_JOB_SECRET", text, 1);
    return 0;
}

/* Rank 0 runs on this node, whose name others may not be able to look up. */
static void set_host(struct job_running *at)
{
    const char *node = getenv("SLURMD_NODENAME");
    const char *const words[] = {"scontrol", "-o", "show", "node", node, NULL};
    struct erg_text text = {0};
    if (at->nodes == 1 || !node || getenv("ERGON_HOST"))
        return;
    const char *address = erg_slurm_command(words, HOST_S, &text, NULL) == ERG_ENGINE_DONE
                              ? erg_slurm_value(text.data, "NodeAddr", &at->arena)
                              : NULL;
    if (address)
        setenv("ERGON_HOST", address, 1);
    erg_text_release(&text);
}

static int set_environment(struct job_running *at, struct erg_error *err)
{
    char number[24];
    snprintf(number, sizeof number, "%ld", at->incarnation);
    setenv("ERGON_JOB", at->folder, 1);
    setenv("ERGON_INCARNATION", number, 1);
    setenv("ERGON_PLAN", erg_arena_printf(&at->arena, "%s/plan.json", at->folder), 1);
    set_host(at);
    return set_secret(err);
}

/* A signal that has come before there is anything to be saved. */
static bool leaves_at_once(struct job_running *at)
{
    sigset_t pending;
    sigpending(&pending);
    for (size_t i = 0; i < sizeof awaited / sizeof *awaited; i++)
        at->asked |= awaited[i] != SIGCHLD && sigismember(&pending, awaited[i]) == 1;
    return at->asked;
}

static int start(struct job_running *at, struct erg_error *err)
{
    struct words words = {0};
    posix_spawnattr_t attributes;
    if (set_environment(at, err) != 0 || make_command(at, &words, err) != 0 || leaves_at_once(at)) {
        free(words.items);
        return at->asked ? 0 : -1;
    }
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &at->before);
    int result = posix_spawnp(&at->srun, words.items[0], NULL, &attributes,
                              (char *const *)(uintptr_t)words.items, environ);
    posix_spawnattr_destroy(&attributes);
    free(words.items);
    at->started_ns = erg_now_ns();
    return result ? erg_fail(err, (enum erg_status)(result == ENOENT ? 127 : 126),
                             "starting srun: %s", strerror(result))
                  : 0;
}

/* ---- while it runs ---- */

/* Whether srun would pass a SIGUSR1 on, rather than die of it: it blocks it, for a thread that
 * waits for it. */
static bool srun_listens(const struct job_running *at)
{
    static const char *const keys[] = {"SigBlk:", "SigCgt:"};
    char path[48], *text;
    unsigned long long set = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)at->srun);
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, NULL, NULL) != 0)
        return false;
    for (size_t i = 0; i < 2; i++) {
        const char *found = strstr(text, keys[i]);
        set |= found ? strtoull(found + strlen(keys[i]), NULL, 16) : 0;
    }
    free(text);
    return set >> (SIGUSR1 - 1) & 1;
}

/* A trainer that has reported handles the signal; one that never does gets time to be able to. */
static void pass_on(struct job_running *at)
{
    const bool ready = at->heard || erg_now_ns() - at->started_ns > (int64_t)REPORT_S * 1000000000;
    if (!at->asked || !ready || !srun_listens(at))
        return;
    kill(at->srun, SIGUSR1); /* SIGTERM would make srun kill all tasks */
    at->asked = false;
}

/* Until srun has ended: its status as a shell has it. */
static int await(struct job_running *at)
{
    const sigset_t set = awaited_set();
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    int status;
    while (waitpid(at->srun, &status, WNOHANG) != at->srun) {
        int number = sigtimedwait(&set, NULL, &pause);
        at->asked |= number > 0 && number != SIGCHLD;
        listen_to_trainer(at);
        pass_on(at);
        if (!at->heard && erg_now_ns() - at->reported_ns > (int64_t)REPORT_S * 1000000000)
            report(at, ERG_JOB_TRAINING);
    }
    listen_to_trainer(at);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- its end ---- */

/* Whether "85,90-95" has a status. */
static bool has_status(const char *list, int status)
{
    for (const char *at = list; *at >= '0' && *at <= '9';) {
        char *end;
        long from = strtol(at, &end, 10), to = from;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        if (from <= status && status <= to)
            return true;
        at = *end == ',' ? end + 1 : "";
    }
    return false;
}

static bool slurm_requeues(struct job_running *at)
{
    const char *const words[] = {"scontrol", "show", "config", NULL};
    struct erg_text text = {0};
    const char *list = erg_slurm_command(words, ANSWER_S, &text, NULL) == ERG_ENGINE_DONE
                           ? erg_slurm_value(text.data, "RequeueExitHold", &at->arena)
                           : NULL;
    erg_text_release(&text);
    return list && has_status(list, ERG_RESUMABLE);
}

/* A job that its user has cancelled must not come back. */
static bool is_running(const char *job)
{
    const char *const words[] = {"squeue", "-h", "-j", job, "-o", "%T", NULL};
    struct erg_text text = {0};
    const bool known = erg_slurm_command(words, ANSWER_S, &text, NULL) == ERG_ENGINE_DONE;
    const char *state = known ? strtok(text.data, "\n") : NULL;
    const bool runs = state && erg_slurm_job_state(state) == ERG_LIVE_RUNNING;
    erg_text_release(&text);
    return runs;
}

/* Where Slurm does not put the job back by itself. */
static void requeue(struct job_running *at)
{
    const char *job = getenv("SLURM_JOB_ID");
    const char *const words[] = {"scontrol", "requeuehold", job, NULL};
    struct erg_error why = {0};
    if (!job || slurm_requeues(at) || !is_running(job))
        return;
    if (erg_slurm_command(words, ANSWER_S, NULL, &why) != ERG_ENGINE_DONE)
        erg_log(ERG_LOG_WARNING,
                "requeueing job %s: %s; it ends as failed, and its checkpoint stays", job,
                why.message);
}

static int finish(struct job_running *at, int status, struct erg_error *err)
{
    const enum erg_job_state last = at->reader.last.state;
    const bool same = at->reader.last.incarnation == at->incarnation;
    if ((status == 0 || status == ERG_RESUMABLE) && check_superseded(at, err) != 0)
        return -1;
    if (status == 0) {
        if (!same || last != ERG_JOB_DONE)
            report(at, ERG_JOB_DONE);
        return 0;
    }
    if (status == ERG_RESUMABLE) {
        if (!at->heard && at->srun)
            report(at, ERG_JOB_SAVED);
        requeue(at);
        return erg_fail(err, ERG_RESUMABLE, "the job has left its GPUs and continues later");
    }
    return erg_fail(err, (enum erg_status)status, "the trainer ended with exit status %d", status);
}

int erg_job_run(const char *folder, const char *program, struct erg_error *err)
{
    struct job_running at = {.folder = folder, .program = program};
    const sigset_t set = awaited_set();
    pthread_sigmask(SIG_BLOCK, &set, &at.before);
    at.asked = erg_interrupt_signal() != 0; /* it came before */
    int result = open_running(&at, err);
    if (result == 0) {
        report(&at, ERG_JOB_LOADING);
        result = start(&at, err);
    }
    if (result == 0)
        result = finish(&at, at.srun ? await(&at) : ERG_RESUMABLE, err);
    erg_arena_release(&at.arena);
    free(at.spool);
    return result;
}
