/* The environments of launchers: the variables that a rank reads, and those that our own ranks
 * get. */
#include "launch/launch.h"

#include "base/log.h"
#include "base/text.h"
#include "io/file.h"
#include "launch/launch_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* Ports that Slurm jobs are spread over: below those that Linux gives to outgoing connections. */
enum { SLURM_FIRST_PORT = 20000, SLURM_PORTS = 12000 };

enum { SHORTEST_SECRET = 16 };

/* A missing or empty variable is NULL. */
static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int fail_unset(const char *name, struct erg_error *err)
{
    return erg_fail(err, ERG_USAGE,
                    "the environment describes this rank only in part: %s is not set", name);
}

static int read_number(const char *name, long least, long most, int *value, struct erg_error *err)
{
    const char *text = variable(name);
    long number;
    if (!text)
        return fail_unset(name, err);
    if (!erg_parse_long(text, &number) || number < least || number > most)
        return erg_fail(
            err, ERG_USAGE,
            "the environment variable %s is \"%s\", expected a whole number from %ld to %ld", name,
            text, least, most);
    *value = (int)number;
    return 0;
}

/* Slurm's numbers have 32 bits without sign; some of its special steps are printed with one. */
static int read_slurm_number(const char *name, uint32_t *value, struct erg_error *err)
{
    const char *text = variable(name);
    long number = 0;
    if (text && (!erg_parse_long(text, &number) || number < INT32_MIN || number > UINT32_MAX))
        return erg_fail(err, ERG_USAGE,
                        "the environment variable %s is \"%s\", expected a whole number of 32 bits",
                        name, text);
    *value = (uint32_t)number;
    return 0;
}

/* `local` is NULL where there is one rank on each machine. */
static int read_ranks(struct erg_launch_environment *env, const char *rank, const char *world,
                      const char *local, struct erg_error *err)
{
    if (read_number(world, 1, ERG_LAUNCH_MOST_RANKS, &env->world, err) ||
        read_number(rank, 0, env->world - 1, &env->rank, err))
        return -1;
    return local ? read_number(local, 0, env->world - 1, &env->local_rank, err) : 0;
}

static int copy_text(char *out, size_t capacity, const char *name, const char *text, size_t length,
                     struct erg_error *err)
{
    if (length >= capacity)
        return erg_fail(err, ERG_USAGE,
                        "the environment variable %s is too long: at most %zu characters", name,
                        capacity - 1);
    memcpy(out, text, length);
    out[length] = 0;
    return 0;
}

static int read_text(char *out, size_t capacity, const char *name, struct erg_error *err)
{
    const char *text = variable(name);
    if (!text)
        return fail_unset(name, err);
    return copy_text(out, capacity, name, text, strlen(text), err);
}

static void meet_here(struct erg_launch_environment *env)
{
    snprintf(env->host, sizeof env->host, "127.0.0.1");
}

static int read_torchrun(struct erg_launch_environment *env, struct erg_error *err)
{
    const char *local = variable("LOCAL_RANK"), *world_here = variable("LOCAL_WORLD_SIZE");
    const char *local_name = local || world_here ? "LOCAL_RANK" : NULL;
    if (read_ranks(env, "RANK", "WORLD_SIZE", local_name, err))
        return -1;
    if (env->world == 1)
        return 0;
    if (read_text(env->host, sizeof env->host, "MASTER_ADDR", err) ||
        read_number("MASTER_PORT", 1, 65535, &env->port, err))
        return -1;
    int here = 0;
    if (world_here && read_number("LOCAL_WORLD_SIZE", 1, env->world, &here, err))
        return -1;
    if (here == env->world)
        meet_here(env);
    const char *agent = variable("TORCHELASTIC_USE_AGENT_STORE");
    if (agent && !strcmp(agent, "True"))
        env->port += env->port < 65535 ? 1 : -1;
    const char *job = variable("TORCHELASTIC_RUN_ID");
    snprintf(env->job, sizeof env->job, "torchrun %s", job ? job : "");
    return 0;
}

/* The first host of a list: "node[007-009,12],x3" is node007. Everything up to the first comma
 * outside brackets counts, and within brackets the first number. A single host is this one. */
static int first_host(struct erg_launch_environment *env, struct erg_error *err)
{
    const char *list = variable("SLURM_STEP_NODELIST");
    char host[sizeof env->host];
    size_t count = 0;
    bool inside = false, skip = false;
    if (!strpbrk(list, ",[")) {
        meet_here(env);
        return 0;
    }
    for (const char *at = list; *at && (inside || *at != ','); at++) {
        if (*at == '[')
            inside = true;
        else if (*at == ']')
            inside = skip = false;
        else if (inside && (*at == '-' || *at == ','))
            skip = true;
        else if (!skip && count < sizeof host)
            host[count++] = *at;
    }
    if (count == 0)
        return erg_fail(err, ERG_USAGE,
                        "the environment variable SLURM_STEP_NODELIST is \"%s\", expected a list "
                        "that begins with the name of a node",
                        list);
    return copy_text(env->host, sizeof env->host, "SLURM_STEP_NODELIST", host, count, err);
}

static int read_slurm(struct erg_launch_environment *env, struct erg_error *err)
{
    const char *tasks = variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    uint32_t job = 0, step = 0;
    if (read_ranks(env, "SLURM_PROCID", tasks, "SLURM_LOCALID", err))
        return -1;
    if (env->world == 1)
        return 0;
    if (!variable("SLURM_JOB_ID"))
        return fail_unset("SLURM_JOB_ID", err);
    if (first_host(env, err) || read_slurm_number("SLURM_JOB_ID", &job, err) ||
        read_slurm_number("SLURM_STEP_ID", &step, err))
        return -1;
    env->port = SLURM_FIRST_PORT + (int)(((uint64_t)job * 16 + step) % SLURM_PORTS);
    snprintf(env->job, sizeof env->job, "slurm %" PRIu32 ".%" PRIu32, job, step);
    return 0;
}

/* The job's name is the set one, or the last part of a folder's path. */
static int read_job(struct erg_launch_environment *env, struct erg_error *err)
{
    const char *job = erg_launch_job_folder();
    if (!job)
        return read_text(env->job, sizeof env->job, "ERGON_JOB", err);
    size_t length = strlen(job), most = sizeof env->job - 1;
    snprintf(env->job, sizeof env->job, "%s", length > most ? job + length - most : job);
    return 0;
}

static int read_own(struct erg_launch_environment *env, struct erg_error *err)
{
    if (read_ranks(env, "ERGON_RANK", "ERGON_WORLD_SIZE", "ERGON_LOCAL_RANK", err))
        return -1;
    if (env->world == 1)
        return 0;
    if (read_text(env->host, sizeof env->host, "ERGON_HOST", err) ||
        read_number("ERGON_PORT", 1, 65535, &env->port, err) || read_job(env, err))
        return -1;
    return env->rank == 0 && variable("ERGON_LISTENER")
               ? read_number("ERGON_LISTENER", 3, INT_MAX, &env->listener, err)
               : 0;
}

static int read_secret(struct erg_launch_environment *env, struct erg_error *err)
{
    if (!variable("ERGON_JOB_SECRET"))
        return 0;
    if (read_text(env->secret, sizeof env->secret, "ERGON_JOB_SECRET", err))
        return -1;
    if (strlen(env->secret) >= SHORTEST_SECRET)
        return 0;
    return erg_fail(err, ERG_USAGE,
                    "the environment variable ERGON_JOB_SECRET is too short to be one: expected at "
                    "least %d characters, such as 32 random hexadecimal digits",
                    SHORTEST_SECRET);
}

int erg_launch_environment_read(struct erg_launch_environment *env, struct erg_error *err)
{
    *env = (struct erg_launch_environment){.world = 1, .host = "127.0.0.1"};
    bool own = variable("ERGON_RANK") || variable("ERGON_WORLD_SIZE");
    int result = 0;
    if (own)
        result = read_own(env, err);
    else if (variable("RANK") && variable("WORLD_SIZE"))
        result = read_torchrun(env, err);
    else if (variable("SLURM_PROCID") && variable("SLURM_STEP_NODELIST"))
        result = read_slurm(env, err);
    else if (variable("RANK") || variable("WORLD_SIZE")) /* others may wait for this one */
        result = fail_unset(variable("RANK") ? "WORLD_SIZE" : "RANK", err);
    if (result || env->world == 1)
        return result;
    if (!own && variable("ERGON_PORT") && read_number("ERGON_PORT", 1, 65535, &env->port, err))
        return -1;
    if (!own && variable("ERGON_HOST") && read_text(env->host, sizeof env->host, "ERGON_HOST", err))
        return -1;
    return read_secret(env, err);
}

const char *erg_launch_job_folder(void)
{
    const char *job = variable("ERGON_JOB");
    return job && *job == '/' ? job : NULL;
}

int erg_launch_own_rank(void)
{
    struct erg_launch_environment env = {0};
    return variable("ERGON_RANK") && read_own(&env, NULL) == 0 ? env.rank : 0;
}

bool erg_launch_leads(bool any)
{
    int rank = erg_launch_own_rank();
    struct erg_launch_environment env;
    if (any && erg_launch_environment_read(&env, NULL) == 0)
        rank = env.rank;
    if (rank != 0)
        erg_log(ERG_LOG_WARNING, "rank %d leaves the result to rank 0", rank);
    return rank == 0;
}

void erg_launch_machine(char name[ERG_LAUNCH_MACHINE_BYTES])
{
    char *text = NULL;
    snprintf(name, ERG_LAUNCH_MACHINE_BYTES, "unknown");
    if (erg_file_read("/proc/sys/kernel/random/boot_id", ERG_FILE_SMALL_BYTES, &text, NULL, NULL))
        return;
    snprintf(name, ERG_LAUNCH_MACHINE_BYTES, "%.36s", text);
    free(text);
}

/* ---- for ranks ---- */

/* Variables that are not passed on: our own ones of an enclosing job, and those of torchrun, whose
 * agent serves a store at the port that ranks would then not open themselves. */
static bool is_of_a_launcher(const char *variable)
{
    static const char *const names[] = {
        "ERGON_RANK",       "ERGON_WORLD_SIZE", "ERGON_LOCAL_RANK",
        "ERGON_HOST",       "ERGON_PORT",       "ERGON_JOB",
        "ERGON_JOB_SECRET", "ERGON_LISTENER",   "RANK",
        "WORLD_SIZE",       "LOCAL_RANK",       "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",      "MASTER_PORT",      "TORCHELASTIC_USE_AGENT_STORE",
    };
    size_t length = strcspn(variable, "=");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && strncmp(variable, names[i], length) == 0)
            return true;
    return false;
}

char **erg_launch_rank_environment(int rank, int ranks, const struct erg_launch_meeting *meeting,
                                   struct erg_arena *arena)
{
    enum { OWN = 14 };
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **list = erg_arena_alloc(arena, (count + OWN + 1) * sizeof *list);
    for (size_t i = 0; i < count; i++)
        if (!is_of_a_launcher(environ[i]))
            list[kept++] = environ[i];
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"ERGON_RANK", rank},
                   {"RANK", rank},
                   {"ERGON_LOCAL_RANK", rank},
                   {"LOCAL_RANK", rank},
                   {"ERGON_WORLD_SIZE", ranks},
                   {"WORLD_SIZE", ranks},
                   {"LOCAL_WORLD_SIZE", ranks},
                   {"ERGON_PORT", meeting->port},
                   {"MASTER_PORT", meeting->torchrun_port}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        list[kept++] = erg_arena_printf(arena, "%s=%d", numbers[i].name, numbers[i].value);
    if (rank == 0)
        list[kept++] = erg_arena_printf(arena, "ERGON_LISTENER=%d", meeting->listener);
    list[kept++] = erg_arena_printf(arena, "ERGON_HOST=127.0.0.1");
    list[kept++] = erg_arena_printf(arena, "MASTER_ADDR=127.0.0.1");
    const char *folder = erg_launch_job_folder();
    list[kept++] = folder ? erg_arena_printf(arena, "ERGON_JOB=%s", folder)
                          : erg_arena_printf(arena, "ERGON_JOB=%d.%lld", (int)getpid(),
                                             (long long)meeting->start_ns);
    list[kept++] = erg_arena_printf(arena, "ERGON_JOB_SECRET=%s", meeting->secret);
    return list;
}
