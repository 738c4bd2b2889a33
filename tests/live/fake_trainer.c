/*
 * A program that obeys the contract of trainers without training: it "does" iterations by the
 * clock, as fast as the controller's plan says, saves and loads for as long as it is told, and can
 * be told to misbehave. It uses nothing of ergon's, as programs of others do not.
 *
 *   fake_trainer [KEY=VALUE]...
 *
 *   iterations=N    in all (default: those of request.json)
 *   iteration_s=S   where there is no plan.json that says it (0.1)
 *   compress=C      a real second counts as so many (1)
 *   load_s=S save_s=S        real seconds (0.2, 0.1)
 *   checkpoint_s=S  real seconds between two checkpoints (none but at the end)
 *   report_s=S      real seconds between two reports (10, with compress above 1 it is 1)
 *   log=FILE        a line for each step of each node: see log_step()
 *   ignore=1        SIGUSR1 and SIGTERM are ignored
 *   exit=STATUS exits=K exit_s=S   of the first K incarnations, S real seconds after the start
 *   dies_saving=K   incarnation K kills itself between writing a checkpoint and naming it
 *   silent=1        makes no reports
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RESUMABLE = 85, SUPERSEDED = 86, TICK_MS = 50, ORPHAN_S = 20 };

static double iterations, iteration_s = 0.1, compress = 1, load_s = 0.2, save_s = 0.1;
static double checkpoint_s = INFINITY, report_s, exit_s, ignore, silent;
static double exit_status, exits, dies_saving;
static const char *log_path;

static const char *folder;
static long incarnation;
static int rank, local_rank;
static double done, checkpoint, begun_s, from, plan_iteration_s, power_w, joules, loaded_s = NAN,
                                                                                  saved_s = NAN;
static double reported_s;
static long plan_stamp;
static double plan_number = NAN;
static volatile sig_atomic_t asked;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double unix_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void wait_s(double seconds)
{
    const double until_s = now_s() + seconds;
    for (double left_s; (left_s = until_s - now_s()) > 0;) {
        struct timespec pause = {.tv_sec = (time_t)left_s};
        pause.tv_nsec = (long)(1e9 * (left_s - (double)pause.tv_sec));
        nanosleep(&pause, NULL);
    }
}

static void ask(int number)
{
    (void)number;
    asked = 1;
}

/* ---- files ---- */

static const char *in_folder(const char *name)
{
    static char paths[4][4096];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* The number behind "key": in a JSON file, or NAN. */
static double number_in(const char *name, const char *key)
{
    char text[8192], word[64];
    FILE *file = fopen(in_folder(name), "r");
    if (!file)
        return NAN;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    snprintf(word, sizeof word, "\"%s\":", key);
    const char *at = strstr(text, word);
    char *end;
    if (!at)
        return NAN;
    at += strlen(word);
    double value = strtod(at, &end);
    return end == at ? NAN : value;
}

/* In one write, so that nobody sees half of it, nor two lines in one. */
static void append(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text))
        perror(path);
    if (file >= 0)
        close(file);
}

static long highest_incarnation(void)
{
    long highest = 0, number;
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;)
        if (sscanf(entry->d_name, "incarnation.%ld", &number) == 1 && number > highest)
            highest = number;
    if (listing)
        closedir(listing);
    return highest;
}

/* ---- what it says ---- */

/* The GPUs of this node as 0,1; "-": none. */
static const char *my_gpus(void)
{
    const char *gpus = getenv("SLURM_STEP_GPUS");
    if (!gpus)
        gpus = getenv("SLURM_JOB_GPUS");
    return gpus ? gpus : "-";
}

/* UNIX_S JOB INCARNATION RANK NODE GPUS WHAT ITERATION */
static void log_step(const char *what)
{
    char line[512];
    const char *node = getenv("SLURMD_NODENAME");
    if (!log_path || local_rank != 0)
        return;
    snprintf(line, sizeof line, "%.3f %s %ld %d %s %s %s %.3f\n", unix_s(),
             strrchr(folder, '/') + 1, incarnation, rank, node ? node : "-", my_gpus(), what, done);
    append(log_path, line);
}

static void add_number(char *line, size_t size, const char *key, double value)
{
    size_t count = strlen(line);
    if (isnan(value))
        snprintf(line + count, size - count, ",\"%s\":null", key);
    else
        snprintf(line + count, size - count, ",\"%s\":%.9g", key, value);
}

static void report(const char *state)
{
    char line[512];
    if (rank != 0 || silent > 0)
        return;
    reported_s = now_s();
    snprintf(line, sizeof line, "{\"v\":1,\"incarnation\":%ld,\"state\":\"%s\"", incarnation,
             state);
    const bool knows = strcmp(state, "loading") != 0;
    add_number(line, sizeof line, "iteration", knows ? floor(done) : NAN);
    add_number(line, sizeof line, "iteration_s", done > from ? plan_iteration_s / compress : NAN);
    add_number(line, sizeof line, "joules", joules);
    add_number(line, sizeof line, "checkpoint", knows ? floor(checkpoint) : NAN);
    add_number(line, sizeof line, "load_s", loaded_s);
    add_number(line, sizeof line, "save_s", saved_s);
    add_number(line, sizeof line, "mono_s", now_s());
    if (plan_number > 0)
        add_number(line, sizeof line, "plan", plan_number);
    strcat(line, "}\n");
    append(in_folder("reports.jsonl"), line);
}

/* ---- ranks ---- */

/* Rank 0 says with which status all leave. */
static void leave(int status)
{
    char name[64], line[16];
    snprintf(name, sizeof name, "left.%ld", incarnation);
    snprintf(line, sizeof line, "%d\n", status);
    append(in_folder(name), line);
    log_step("leaves");
    exit(status);
}

/* All others follow; where rank 0 is no more, they fail. */
static void follow(void)
{
    char left[64], beat[64];
    snprintf(left, sizeof left, "left.%ld", incarnation);
    snprintf(beat, sizeof beat, "beat.%ld", incarnation);
    for (double seen_s = now_s();;) {
        int status;
        FILE *file = fopen(in_folder(left), "r");
        bool has = file && fscanf(file, "%d", &status) == 1;
        if (file)
            fclose(file);
        struct stat info;
        if (stat(in_folder(beat), &info) == 0 && unix_s() - (double)info.st_mtime < ORPHAN_S)
            seen_s = now_s();
        if (has || now_s() - seen_s > ORPHAN_S) {
            log_step("leaves");
            exit(has ? status : 1);
        }
        log_step("step");
        wait_s(1e-3 * TICK_MS);
    }
}

static void beat(void)
{
    char name[64];
    snprintf(name, sizeof name, "beat.%ld", incarnation);
    int file = open(in_folder(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file >= 0) {
        futimens(file, NULL);
        close(file);
    }
}

/* ---- progress ---- */

/* Where the plan is another one, iterations count from here on by its speed. */
static bool look_at_plan(void)
{
    struct stat info;
    if (stat(in_folder("plan.json"), &info) != 0)
        return false;
    const long stamp = info.st_mtim.tv_sec * 1000000000L + info.st_mtim.tv_nsec;
    if (stamp == plan_stamp)
        return false;
    plan_stamp = stamp;
    plan_number = number_in("plan.json", "number");
    const double planned_s = number_in("plan.json", "iteration_s");
    const double watts = number_in("plan.json", "power_w");
    plan_iteration_s = planned_s > 0 ? planned_s : plan_iteration_s;
    power_w = isnan(watts) ? power_w : watts;
    from = done;
    begun_s = now_s();
    char what[32];
    snprintf(what, sizeof what, "plan:%.1f", power_w);
    log_step(what);
    return true;
}

static void progress(void)
{
    const double before = done;
    const char *nodes = getenv("SLURM_STEP_NUM_TASKS"), *gpus = my_gpus();
    double count = nodes ? atof(nodes) : 1; /* of GPUs; all nodes have the same number */
    for (const char *comma = strchr(gpus, ','); comma; comma = strchr(comma + 1, ','))
        count += nodes ? atof(nodes) : 1;
    done = fmin(iterations, from + compress * (now_s() - begun_s) / plan_iteration_s);
    joules += (done - before) * plan_iteration_s * power_w * count;
}

static double load(void)
{
    double at;
    int length = 0;
    FILE *file = fopen(in_folder("checkpoint"), "r");
    if (!file)
        return 0;
    bool whole = fscanf(file, "iteration %lf end%n", &at, &length) == 1 && length > 0;
    fclose(file);
    if (!whole) {
        fprintf(stderr, "fake_trainer: the checkpoint is not whole\n");
        leave(1);
    }
    return at;
}

/* What is asked meanwhile is being done already. */
static void save(void)
{
    char text[64];
    const double start_s = now_s(), at = floor(done);
    report("saving");
    log_step("saving");
    snprintf(text, sizeof text, "iteration %.0f", at);
    unlink(in_folder("checkpoint.new"));
    append(in_folder("checkpoint.new"), text);
    wait_s(save_s);
    beat();
    if ((long)dies_saving == incarnation)
        kill(getpid(), SIGKILL);
    append(in_folder("checkpoint.new"), " end\n");
    if (highest_incarnation() > incarnation) {
        log_step("superseded");
        leave(SUPERSEDED);
    }
    if (rename(in_folder("checkpoint.new"), in_folder("checkpoint")) != 0) {
        perror("checkpoint");
        leave(1);
    }
    checkpoint = at;
    saved_s = now_s() - start_s;
    log_step("saved");
}

static void misbehave(double start_s)
{
    if ((double)incarnation <= exits && now_s() - start_s >= exit_s)
        leave((int)exit_status);
}

static void run(double start_s)
{
    report("loading");
    log_step("starts");
    done = from = checkpoint = load();
    for (double until_s = start_s + load_s; now_s() < until_s;) {
        if (asked)
            leave(RESUMABLE);
        misbehave(start_s);
        beat();
        wait_s(1e-3 * TICK_MS);
    }
    loaded_s = now_s() - start_s;
    plan_iteration_s = iteration_s;
    begun_s = now_s();
    look_at_plan();
    report("training");
    for (double committed_s = now_s(); done < iterations;) {
        misbehave(start_s);
        progress();
        log_step("step");
        beat();
        if (asked) {
            save();
            report("saved");
            leave(RESUMABLE);
        }
        if (now_s() - committed_s >= checkpoint_s) {
            save();
            report("training");
            from = done;
            begun_s = committed_s = now_s();
        }
        if (look_at_plan() || now_s() - reported_s >= report_s)
            report("training");
        wait_s(1e-3 * TICK_MS);
    }
    save();
    report("done");
    leave(0);
}

static void read_argument(const char *argument)
{
    static const struct {
        const char *key;
        double *value;
    } numbers[] = {
        {"iterations", &iterations}, {"iteration_s", &iteration_s}, {"compress", &compress},
        {"load_s", &load_s},         {"save_s", &save_s},           {"checkpoint_s", &checkpoint_s},
        {"report_s", &report_s},     {"ignore", &ignore},           {"exit", &exit_status},
        {"exits", &exits},           {"exit_s", &exit_s},           {"dies_saving", &dies_saving},
        {"silent", &silent}};
    const char *is = strchr(argument, '=');
    for (size_t i = 0; is && i < sizeof numbers / sizeof *numbers; i++)
        if (strlen(numbers[i].key) == (size_t)(is - argument) &&
            !strncmp(numbers[i].key, argument, (size_t)(is - argument))) {
            *numbers[i].value = atof(is + 1);
            return;
        }
    if (is && !strncmp(argument, "log=", 4)) {
        log_path = is + 1;
        return;
    }
    fprintf(stderr, "fake_trainer: what is \"%s\"?\n", argument);
    exit(2);
}

static int variable(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

int main(int argc, char **argv)
{
    const double start_s = now_s();
    struct sigaction action = {.sa_handler = ask};
    folder = getenv("ERGON_JOB");
    incarnation = variable("ERGON_INCARNATION");
    rank = variable("SLURM_PROCID");
    local_rank = variable("SLURM_LOCALID");
    for (int i = 1; i < argc; i++)
        read_argument(argv[i]);
    if (ignore > 0)
        action.sa_handler = SIG_IGN;
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (!folder || incarnation < 1) {
        fprintf(stderr, "fake_trainer: ERGON_JOB or ERGON_INCARNATION is not set\n");
        return 2;
    }
    if (!(iterations > 0))
        iterations = number_in("request.json", "iterations");
    if (!(report_s > 0))
        report_s = compress > 1 ? 1 : 10;
    if (rank == 0)
        run(start_s);
    log_step("starts");
    follow();
    return 1;
}
