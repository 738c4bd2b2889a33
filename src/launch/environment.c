#include "launch/launch.h"

#include "base/text.h"
#include "io/file.h"
#include "launch/launch_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* Ports that Slurm jobs are spread over: below those that Linux gives to outgoing connections. */
enum { SLURM_FIRST_PORT = 20000, SLURM_PORTS = 12000 };

/* A missing or empty variable is NULL. */
static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int read_number(const char *name, long least, long most, int *value, struct erg_error *err)
{
    const char *text = variable(name);
    long number;
    if (!text)
        return erg_fail(err, ERG_USAGE,
                        "the environment says only in part which rank this is: %s is not set",
                        name);
    if (!erg_parse_long(text, &number) || number < least || number > most)
        return erg_fail(err, ERG_USAGE,
                        "the environment variable %s is \"%s\", but must be a whole number from "
                        "%ld to %ld",
                        name, text, least, most);
    *value = (int)number;
    return 0;
}

static int read_ranks(struct erg_launch_environment *env, const char *rank, const char *world,
                      const char *local, struct erg_error *err)
{
    if (read_number(world, 1, ERG_LAUNCH_MOST_RANKS, &env->world, err) ||
        read_number(rank, 0, env->world - 1, &env->rank, err))
        return -1;
    return read_number(local, 0, env->world - 1, &env->local_rank, err);
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
        return erg_fail(err, ERG_USAGE,
                        "the environment says only in part which rank this is: %s is not set",
                        name);
    return copy_text(out, capacity, name, text, strlen(text), err);
}

static int read_torchrun(struct erg_launch_environment *env, struct erg_error *err)
{
    if (read_ranks(env, "RANK", "WORLD_SIZE", "LOCAL_RANK", err) ||
        read_text(env->host, sizeof env->host, "MASTER_ADDR", err) ||
        read_number("MASTER_PORT", 1, 65535, &env->port, err))
        return -1;
    const char *agent = variable("TORCHELASTIC_USE_AGENT_STORE");
    if (agent && !strcmp(agent, "True"))
        env->port += env->port < 65535 ? 1 : -1;
    const char *job = variable("TORCHELASTIC_RUN_ID");
    snprintf(env->job, sizeof env->job, "torchrun %s", job ? job : "");
    return 0;
}

/* The first host of a list: "node[007-009,12],x3" is node007. Everything up to the first comma
 * outside brackets counts, and within brackets the first number. */
static int first_host(struct erg_launch_environment *env, struct erg_error *err)
{
    const char *list = variable("SLURM_STEP_NODELIST");
    char host[sizeof env->host];
    size_t count = 0;
    bool inside = false, skip = false;
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
    return copy_text(env->host, sizeof env->host, "SLURM_STEP_NODELIST", host, count, err);
}

static int read_slurm(struct erg_launch_environment *env, struct erg_error *err)
{
    const char *tasks = variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    int job = 0, step = 0;
    if (read_ranks(env, "SLURM_PROCID", tasks, "SLURM_LOCALID", err) || first_host(env, err) ||
        read_number("SLURM_JOB_ID", 0, 2147483647, &job, err))
        return -1;
    if (variable("SLURM_STEP_ID") && read_number("SLURM_STEP_ID", 0, 2147483647, &step, err))
        return -1;
    env->port = SLURM_FIRST_PORT + (int)(((long)job * 16 + step) % SLURM_PORTS);
    snprintf(env->job, sizeof env->job, "slurm %d.%d", job, step);
    return 0;
}

int erg_launch_environment_read(struct erg_launch_environment *env, struct erg_error *err)
{
    *env = (struct erg_launch_environment){.world = 1, .host = "127.0.0.1"};
    if (variable("ERGON_RANK") || variable("ERGON_WORLD_SIZE"))
        return read_ranks(env, "ERGON_RANK", "ERGON_WORLD_SIZE", "ERGON_LOCAL_RANK", err) ||
                       read_text(env->host, sizeof env->host, "ERGON_HOST", err) ||
                       read_number("ERGON_PORT", 1, 65535, &env->port, err) ||
                       read_text(env->job, sizeof env->job, "ERGON_JOB", err)
                   ? -1
                   : 0;
    int result = 0;
    if (variable("RANK") && variable("WORLD_SIZE"))
        result = read_torchrun(env, err);
    else if (variable("SLURM_PROCID") && variable("SLURM_STEP_NODELIST"))
        result = read_slurm(env, err);
    if (result == 0 && variable("ERGON_PORT"))
        result = read_number("ERGON_PORT", 1, 65535, &env->port, err);
    return result;
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

/* What is not handed down: ours of a job that this one is part of, and those of torchrun, whose
 * agent serves a store at the port that ranks would then not open themselves. */
static bool is_of_a_launcher(const char *variable)
{
    static const char *const names[] = {
        "ERGON_RANK",
        "ERGON_WORLD_SIZE",
        "ERGON_LOCAL_RANK",
        "ERGON_HOST",
        "ERGON_PORT",
        "ERGON_JOB",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_USE_AGENT_STORE",
    };
    size_t length = strcspn(variable, "=");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && strncmp(variable, names[i], length) == 0)
            return true;
    return false;
}

char **erg_launch_rank_environment(int rank, int ranks, int port, int64_t start_ns,
                                   struct erg_arena *arena)
{
    enum { OWN = 12 };
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **list = erg_arena_alloc(arena, (count + OWN + 1) * sizeof *list);
    for (size_t i = 0; i < count; i++)
        if (!is_of_a_launcher(environ[i]))
            list[kept++] = environ[i];
    const struct {
        const char *ours, *torchrun;
        int value;
    } numbers[] = {{"ERGON_RANK", "RANK", rank},
                   {"ERGON_WORLD_SIZE", "WORLD_SIZE", ranks},
                   {"ERGON_LOCAL_RANK", "LOCAL_RANK", rank},
                   {"ERGON_PORT", "MASTER_PORT", port}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        list[kept++] = erg_arena_printf(arena, "%s=%d", numbers[i].ours, numbers[i].value);
        list[kept++] = erg_arena_printf(arena, "%s=%d", numbers[i].torchrun, numbers[i].value);
    }
    list[kept++] = erg_arena_printf(arena, "LOCAL_WORLD_SIZE=%d", ranks);
    list[kept++] = erg_arena_printf(arena, "ERGON_HOST=127.0.0.1");
    list[kept++] = erg_arena_printf(arena, "MASTER_ADDR=127.0.0.1");
    list[kept++] = erg_arena_printf(arena, "ERGON_JOB=%d.%lld", (int)getpid(), (long long)start_ns);
    return list;
}
