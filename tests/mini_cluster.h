/*
 * A Slurm cluster of the test's own (tests/live/mini-cluster.sh), the engine on it, and jobs. Where
 * Slurm is not installed the test program says so and exits with 77.
 */
#ifndef ERGON_TESTS_MINI_CLUSTER_H
#define ERGON_TESTS_MINI_CLUSTER_H

#include "base/clock.h"
#include "check.h"
#include "cluster/live/live_engine.h"
#include "folder.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

/* The output of a command of the shell with @ for the folder, without the last line break. Release
 * it. */
static inline struct erg_text output_of(const char *command)
{
    struct erg_text line = with_folder(command), out = {0};
    FILE *pipe = popen(line.data, "r");
    assert_non_null(pipe);
    char block[4096];
    size_t count;
    erg_text_add(&out, "");
    while ((count = fread(block, 1, sizeof block, pipe)) > 0)
        erg_text_add_bytes(&out, block, count);
    if (pclose(pipe) != 0)
        fail_msg("%s failed: %s", line.data, out.data);
    erg_text_release(&line);
    while (out.count && out.data[out.count - 1] == '\n')
        out.data[--out.count] = '\0';
    return out;
}

static inline void skip_without_slurm(void)
{
    if (system(
            "PATH=$PATH:/usr/sbin:/sbin; for each in munged slurmctld slurmd scontrol sbatch; do "
            "command -v $each >/dev/null || { echo \"skipped: $each is not installed\"; exit 1; }; "
            "done") != 0)
        exit(77);
}

/* Begins it in the folder's "mini" with these settings of the script. */
static inline int begin_mini_cluster(const char *settings)
{
    if (make_folder(NULL) != 0 || chmod(folder, 0755) != 0)
        return -1;
    struct erg_text line = {0};
    erg_text_printf(&line, "%s/tests/live/mini-cluster.sh start %s/mini OWNER=%d %s",
                    ERGON_TEST_SOURCE_DIR, folder, (int)getpid(), settings);
    int status = system(line.data);
    erg_text_release(&line);
    setenv("SLURM_CONF", in_folder("mini/slurm.conf"), 1);
    return status;
}

static inline int end_mini_cluster(void **state)
{
    struct erg_text line = {0};
    erg_text_printf(&line, "%s/tests/live/mini-cluster.sh stop %s/mini", ERGON_TEST_SOURCE_DIR,
                    folder);
    int status = system(line.data);
    erg_text_release(&line);
    return remove_folder(state) | status;
}

/* down, up or kill a daemon or a node of it. */
static inline void mini_cluster(const char *verb, const char *name)
{
    struct erg_text line = {0};
    erg_text_printf(&line, "%s/tests/live/mini-cluster.sh %s @/mini %s", ERGON_TEST_SOURCE_DIR,
                    verb, name);
    shell(line.data);
    erg_text_release(&line);
}

/* The fleet of the default nodes: a1, a2 with 4 A40 each, h1, h2 with 4 H100 each. */
static struct erg_gpu_type mini_types[] = {
    {.name = (char[]){"a40"}, .nodes = 2, .gpus_per_node = 4},
    {.name = (char[]){"h100"}, .nodes = 2, .gpus_per_node = 4, .first_node = 2},
};
static const struct erg_fleet mini_fleet = {
    .types = mini_types, .types_count = 2, .nodes = 4, .gpus = 16};
static const char *const mini_nodes[] = {"a1", "a2", "h1", "h2"};
enum { A1, A2, H1, H2 };

static inline struct erg_live_engine *open_mini_engine(void)
{
    struct erg_live_engine *engine;
    struct erg_error err;
    assert_ok(erg_slurm_engine_open(&engine, &mini_fleet, mini_nodes, "ergon", &err), &err);
    return engine;
}

/* GPUs of one node or two. */
static inline struct erg_placement *placed_on(int node, uint64_t gpus, int other,
                                              uint64_t other_gpus)
{
    static struct erg_placement placement;
    placement.count = 0;
    erg_placement_add(&placement, node, gpus);
    if (other >= 0)
        erg_placement_add(&placement, other, other_gpus);
    return &placement;
}

static struct erg_live_engine *engine;
static struct erg_live_snapshot seen;

static inline int begin_with(const char *settings)
{
    if (begin_mini_cluster(settings) != 0)
        return -1;
    /* The first job after a start of slurmctld waits for up to three seconds. */
    shell("sbatch -W -Q -o /dev/null --wrap=true >/dev/null");
    engine = open_mini_engine();
    return 0;
}

static inline int end_with(void **state)
{
    if (engine)
        engine->calls->close(engine);
    erg_live_snapshot_release(&seen);
    return end_mini_cluster(state);
}

/* A trainer that writes what it has to FOLDER/NAME.out, and at USR1 exits with 85. */
#define TRAINER                                                                                    \
    "trap \"exit 85\" USR1; echo begins ${SLURM_RESTART_COUNT:-0} $SLURM_JOB_NODELIST "            \
    "$SLURM_JOB_GPUS; while :; do sleep 0.1; done"
#define DEAF "trap \"\" USR1 TERM; echo begins; while :; do sleep 0.1; done"

struct mini_job {
    uint32_t id;
    char token[ERG_TOKEN_LENGTH + 1];
};

/* As "ergon submit" does; `options` before. */
static inline struct mini_job submit(const char *name, const char *options, const char *script)
{
    static unsigned next;
    struct mini_job job;
    struct erg_text line = {0};
    snprintf(job.token, sizeof job.token, "%015x%x", (unsigned)getpid(), next++ % 16);
    erg_text_printf(&line,
                    "sbatch --parsable --hold --requeue --open-mode=append -p ergon -N1 "
                    "--ntasks-per-node=1 --gres=gpu:1 --comment=ergon:1:%s -J %s -o @/%s.out %s "
                    "--wrap='%s'",
                    job.token, name, name, options, script);
    struct erg_text out = output_of(line.data);
    job.id = (uint32_t)strtoul(out.data, NULL, 10);
    assert_true(job.id > 0);
    erg_text_release(&out);
    erg_text_release(&line);
    return job;
}

/* The job of an id, or NULL. */
static inline const struct erg_live_job *snapshot_find(const struct erg_live_snapshot *snapshot,
                                                       uint32_t id)
{
    for (size_t i = 0; i < snapshot->jobs_count; i++)
        if (snapshot->jobs[i].id == id)
            return &snapshot->jobs[i];
    return NULL;
}

static inline const struct erg_live_job *look(struct mini_job job)
{
    struct erg_error err;
    if (engine->calls->snapshot(engine, &seen, &err) != ERG_ENGINE_DONE)
        fail_msg("snapshot: %s", err.message);
    return snapshot_find(&seen, job.id);
}

/* Waits for up to 20 s. */
static inline const struct erg_live_job *await_state(struct mini_job job, enum erg_live_state state)
{
    const struct erg_live_job *at = NULL;
    for (int i = 0; i < 200; i++) {
        at = look(job);
        if (at && at->state == state)
            return at;
        erg_sleep_ns(100000000);
    }
    fail_msg("job %u is in state %d (%s, %s), expected %d", job.id, at ? (int)at->state : -1,
             at ? at->state_text : "gone", at ? at->reason : "", state);
    return NULL;
}

static inline void await_text(const char *file, const char *text)
{
    struct erg_text line = {0};
    erg_text_printf(&line,
                    "for i in $(seq 200); do grep -q '%s' @/%s && exit 0; sleep 0.1; done; "
                    "cat @/%s; exit 1",
                    text, file, file);
    shell(line.data);
    erg_text_release(&line);
}

#define assert_answer(expected, err, call)                                                         \
    do {                                                                                           \
        enum erg_engine_answer answer_got = (call);                                                \
        if (answer_got != (expected))                                                              \
            fail_msg("%s: answer %d (%s), expected %s", #call, answer_got,                         \
                     answer_got ? (err).message : "", #expected);                                  \
    } while (0)

static inline void place(struct mini_job job, const struct erg_placement *placement)
{
    struct erg_error err;
    assert_answer(ERG_ENGINE_DONE, err,
                  engine->calls->place(engine, job.id, job.token, placement, &err));
}

static inline void stop(struct mini_job job)
{
    struct erg_error err;
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->stop(engine, job.id, job.token, &err));
}

static inline void assert_gpus(const struct erg_live_job *job, int node, int gpus)
{
    for (int i = 0; i < job->placement.count; i++)
        if (job->placement.slices[i].node == node) {
            assert_int_equal(__builtin_popcountll(job->placement.slices[i].gpus), gpus);
            return;
        }
    if (gpus)
        fail_msg("job %u has no GPUs of %s", job->id, mini_nodes[node]);
}

/* All jobs end, and their GPUs are free. */
static inline void clear_cluster(void)
{
    shell(
        "scancel -s KILL -t R; scancel -t PD; for i in $(seq 200); do test -z \"$(squeue -h)\" && "
        "exit 0; scancel -t PD; sleep 0.1; done; squeue; exit 1");
}

#endif
