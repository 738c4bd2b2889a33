/*
 * The mini cluster of test_live_faults.c: a real Slurm with fake trainers, its controller and jobs,
 * and what must hold of them at the end.
 */
#ifndef ERGON_TESTS_LIVE_CLUSTER_H
#define ERGON_TESTS_LIVE_CLUSTER_H

#include "cluster/live/controller.h"
#include "cluster/policies/policies.h"
#include "live_day.h"
#include "live_power.h"
#include "side_by_side.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_JOBS = 64 };

static const double compress = 60;

struct day_job {
    long id;
    char token[24];
};

static struct day_job jobs[MOST_JOBS];
static size_t jobs_count;
static pid_t controller;

static inline double random_s(double most_s)
{
    return most_s * (double)random() / (double)RAND_MAX;
}

static inline void wait_s(double seconds)
{
    sleep_until(unix_s() + seconds);
}

/* ---- the cluster: 8 H800 on h1, 4 A100 each on b1 and b2 ---- */

static inline void mini(const char *verb, const char *names)
{
    assert_int_equal(shell_of("'" ERGON_TEST_SOURCE_DIR "/tests/live/mini-cluster.sh' %s @/mini %s "
                              ">>@/mini.log 2>&1",
                              verb, names),
                     0);
}

/* `more`: lines of the live file; `settings`: of the cluster. */
static inline void begin_with(const char *more, const char *settings)
{
    const char *seed = getenv("LIVE_SEED");
    char text[2000];
    srandom((unsigned)(seed ? atol(seed) : 1));
    snprintf(text, sizeof text,
             "slurm: {partition: ergon, spool: %s/spool, poll_s: 0.2, settle_s: 0.2}\n"
             "profiles: " ERGON_TEST_SOURCE_DIR "/examples/cluster/profiles\n"
             "reconfiguration: {fixed_s: %g}\n%stypes:\n"
             "  - {name: H800-SXM-80GB, nodes: h1, gpus_per_node: 8, memory_gb: 85.9,"
             " idle_power_w: 70}\n"
             "  - {name: A100-SXM4-40GB, nodes: \"b[1-2]\", gpus_per_node: 4, memory_gb: 42.9,"
             " idle_power_w: 50}\n",
             folder, 1.5 * compress, more);
    write_text("live.yaml", text);
    assert_true(chmod(folder, 0755) == 0);
    mkdir(in_folder("spool"), 0777);
    chmod(in_folder("spool"), 01777);
    snprintf(text, sizeof text, "OWNER=%d NODES='h:1:h800:8 b:2:a100-40:4' CPUS=16 %s",
             (int)getpid(), settings);
    mini("start", text);
    setenv("SLURM_CONF", in_folder("mini/slurm.conf"), 1);
}

static inline void begin(const char *more)
{
    begin_with(more, "");
}

/* The command line as it is, in a process of its own. */
static inline pid_t start_schedule(const char *option, const char *value, const char *log)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!freopen(in_folder(log), "a", stderr) || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
            _exit(99);
        execl(ERGON_TEST_PROGRAM, "ergon", "schedule", in_folder("live.yaml"), "--compress", "60",
              option, value, (char *)NULL);
        _exit(99);
    }
    return child;
}

static inline void start_controller(void)
{
    controller = start_schedule("--policy", "ergon", "schedule.log");
}

static inline void say(void *context, const char *line)
{
    (void)context;
    fprintf(stderr, "%s\n", line);
}

/* A controller that waits less than those of real clusters do. */
static inline int control(const struct erg_reconcile_limits *limits)
{
    struct erg_error err;
    struct erg_controller_setup setup = {.limits = limits, .compress = compress, .say = say};
    struct erg_live_file *file;
    struct erg_controller *made;
    if (erg_live_file_load(&file, in_folder("live.yaml"), &err) == 0 &&
        erg_policy_find(&setup.policy, "ergon", &err) == 0 &&
        erg_slurm_engine_open(&setup.engine, &file->fleet, (const char *const *)file->nodes.items,
                              "ergon", &err) == 0) {
        setup.file = file;
        setup.journal = in_folder("live.yaml.journal");
        if (erg_controller_new(&made, &setup, &err) == 0)
            for (double next_s; erg_controller_pass(made, &next_s, &err) == 0;)
                wait_s(next_s);
    }
    fprintf(stderr, "%s\n", err.message);
    return 1;
}

static inline void start_quick_controller(const struct erg_reconcile_limits *limits)
{
    fflush(NULL);
    controller = fork();
    assert_true(controller >= 0);
    if (controller == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!freopen(in_folder("schedule.log"), "a", stderr))
            _exit(99);
        setvbuf(stderr, NULL, _IOLBF, 0);
        _exit(control(limits));
    }
}

static inline void show(void)
{
    shell_of("tail -n 60 @/schedule.log; squeue -h; cat @/mini/log/jobcomp | cut -c1-150");
    if (getenv("LIVE_KEEP"))
        shell_of("cp -r @ %s/", getenv("LIVE_KEEP"));
}

static inline void end_controller(int number)
{
    int status;
    assert_int_equal(kill(controller, number), 0);
    assert_int_equal(waitpid(controller, &status, 0), controller);
    if (status != 0 && (!WIFSIGNALED(status) || WTERMSIG(status) != number)) {
        show();
        fail_msg("the controller has ended before, with wait status %d", status);
    }
}

static inline bool controller_lives(void)
{
    int status;
    return waitpid(controller, &status, WNOHANG) == 0;
}

/* ---- jobs ---- */

static inline void submit(long gpus, long iterations, const char *arguments)
{
    struct day_job *job = &jobs[jobs_count];
    assert_true(jobs_count < MOST_JOBS);
    if (shell_of("'" ERGON_TEST_PROGRAM "' submit --live @/live.yaml --like "
                 "Llama-3.2-1B-1.24B:128:%ld -n %ld --json '" ERGON_TEST_FAKE_TRAINER
                 "' -- compress=60 report_s=0.5 checkpoint_s=1 log=@/steps %s >@/submitted "
                 "2>>@/submit.log",
                 iterations, gpus, arguments) != 0) {
        shell_of("cat @/submit.log");
        fail_msg("a job cannot be submitted");
    }
    json_t *said = json_load_file(in_folder("submitted"), 0, NULL);
    job->id = (long)json_integer_value(json_object_get(said, "job"));
    snprintf(job->token, sizeof job->token, "%s",
             json_string_value(json_object_get(said, "token")));
    json_decref(said);
    jobs_count++;
}

/* Jobs of 1 to 8 GPUs: all of them are of about so many seconds of the whole cluster. */
static inline void submit_day(size_t count, double seconds, const char *arguments)
{
    static const long gpus[] = {4, 2, 8, 1, 4, 8, 2, 4};
    const double each_s = 16 * seconds / (double)count; /* of a GPU */
    for (size_t i = 0; i < count; i++)
        submit(gpus[i % 8], (long)(each_s * (0.6 + 0.8 * (double)(i % 3) / 2) / 0.27), arguments);
}

/* How often Slurm has written that an incarnation of a job ended so. */
static inline long ends(long id, const char *state)
{
    char line[2000], job[40], how[60];
    long count = 0;
    FILE *file = fopen(in_folder("mini/log/jobcomp"), "r");
    snprintf(job, sizeof job, "JobId=%ld ", id);
    snprintf(how, sizeof how, " JobState=%s ", state);
    while (file && fgets(line, sizeof line, file))
        count += strncmp(line, job, strlen(job)) == 0 && strstr(line, how) != NULL;
    if (file)
        fclose(file);
    return count;
}

static inline size_t ended(void)
{
    size_t count = 0;
    for (size_t i = 0; i < jobs_count; i++)
        count += ends(jobs[i].id, "COMPLETED") > 0;
    return count;
}

static double patience_s = 100;

/* Until so many of the jobs have; some times as long as that should take. */
static inline void await_ended(size_t count)
{
    const double give_up_s = unix_s() + patience_s;
    while (ended() < count) {
        if (unix_s() > give_up_s || !controller_lives()) {
            show();
            fail_msg("%zu of %zu jobs have ended", ended(), count);
        }
        wait_s(0.3);
    }
}

static inline void await_line(const char *file, const char *text)
{
    for (int i = 0; i < 300; i++) {
        if (shell_of("grep -qF -e '%s' @/%s 2>/dev/null", text, file) == 0)
            return;
        wait_s(0.1);
    }
    show();
    fail_msg("%s never says: %s", file, text);
}

static inline long lines_with(const char *file, const char *text)
{
    long count = 0;
    char line[2000];
    FILE *lines = fopen(in_folder(file), "r");
    while (lines && fgets(line, sizeof line, lines))
        count += strstr(line, text) != NULL;
    if (lines)
        fclose(lines);
    return count;
}

static inline void check_ends_once(void)
{
    for (size_t i = 0; i < jobs_count; i++) {
        assert_int_equal(ends(jobs[i].id, "COMPLETED"), 1);
        assert_int_equal(ends(jobs[i].id, "CANCELLED"), 0);
    }
}

static inline void check_all_left(const struct steps *steps)
{
    for (size_t k = 0; k < steps->lives_count; k++)
        if (!steps->lives[k].leaves)
            fail_msg("job %s: incarnation %ld was killed", steps->lives[k].token,
                     steps->lives[k].incarnation);
}

static inline long incarnations(const struct steps *steps, const char *token)
{
    long count = 0;
    for (size_t k = 0; k < steps->lives_count; k++)
        count += strcmp(steps->lives[k].token, token) == 0;
    return count;
}

/* A job of somebody else's: its shell logs as a trainer does. */
static inline long submit_foreign(const char *partition, long gpus, double seconds)
{
    assert_int_equal(
        shell_of("sbatch --parsable -p %s --gres=gpu:%ld -o /dev/null --wrap='"
                 "log() { echo $(date +%%s.%%3N) foreign-$SLURM_JOB_ID $((1 + "
                 "${SLURM_RESTART_COUNT:-0})) 0 $SLURMD_NODENAME $SLURM_JOB_GPUS $1 0 >>@/steps; "
                 "}; log starts; for i in $(seq %ld); do sleep 0.2; log step; done; log leaves' "
                 ">@/foreign",
                 partition, gpus, lround(seconds / 0.2)),
        0);
    char *text;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("foreign"), 100, &text, NULL, &err), &err);
    const long id = atol(text);
    free(text);
    return id;
}

#endif
