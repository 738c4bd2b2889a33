/*
 * A resource manager in memory that does at once what it is asked to, for tests of the controller:
 * nodes of eight GPUs, jobs of one user. Its clock is the test's, or this machine's.
 */
#ifndef LIVE_WORLD_H
#define LIVE_WORLD_H

#include "base/clock.h"
#include "check.h"
#include "cluster/live/controller.h"
#include "folder.h"

#include <math.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_JOBS = 4000, GPUS = 8 };

struct world_job {
    enum erg_live_state state;
    bool by_administrator, forgotten; /* the manager does not show it any more */
    bool silent;                      /* what it starts does not report */
    bool queued;                      /* what is placed waits for ever */
    bool stays;                       /* it is asked to leave, and does not yet */
    long follows;                     /* number of the plan that it reports; 0: it says nothing */
    int restarts;
    struct erg_placement has;
};

static struct {
    struct erg_live_engine base;
    long count, nodes;
    long drained;        /* so many of the last nodes take no jobs */
    bool off[MOST_JOBS]; /* by node */
    bool keeps_on;       /* refuses to switch nodes off */
    const char *saving;  /* a line of the live file; NULL: none */
    struct world_job jobs[MOST_JOBS];
    uint64_t taken[MOST_JOBS]; /* by node */
    double at_s;               /* NAN: the clock of this machine */
    double ahead_s;            /* the clock where jobs are submitted */
    double mono_s;             /* that of trainers */
    double snapshot_s;         /* how long the last one took */
    long calls;                /* placements */
} world;

static double now_s(struct erg_live_engine *engine)
{
    (void)engine;
    return isnan(world.at_s) ? 1e-9 * (double)erg_now_ns() : world.at_s;
}

static void token_of(char token[ERG_TOKEN_LENGTH + 1], long job)
{
    snprintf(token, ERG_TOKEN_LENGTH + 1, "%016lx", (unsigned long)job + 1);
}

static enum erg_engine_answer snapshot(struct erg_live_engine *engine,
                                       struct erg_live_snapshot *snapshot, struct erg_error *err)
{
    (void)err;
    erg_live_snapshot_release(snapshot);
    snapshot->at_s = now_s(engine);
    snapshot->nodes = erg_xcalloc((size_t)world.nodes, sizeof *snapshot->nodes);
    snapshot->nodes_count = (size_t)world.nodes;
    for (long node = world.nodes - world.drained; node < world.nodes; node++)
        snapshot->nodes[node] = (struct erg_live_node){ERG_NODE_DRAINS, ""};
    for (long node = 0; node < world.nodes; node++)
        if (world.off[node])
            snapshot->nodes[node].state = ERG_NODE_OFF;
    snapshot->jobs = erg_xcalloc((size_t)world.count, sizeof *snapshot->jobs);
    snapshot->jobs_capacity = (size_t)world.count;
    for (long i = 0; i < world.count; i++) {
        if (world.jobs[i].forgotten)
            continue;
        struct erg_live_job *job = &snapshot->jobs[snapshot->jobs_count++];
        *job = (struct erg_live_job){.id = (uint32_t)i + 1,
                                     .uid = geteuid(),
                                     .user = "anna",
                                     .account = "vision",
                                     .name = "job",
                                     .state = world.jobs[i].state,
                                     .state_text = "",
                                     .reason = "",
                                     .held_by_administrator = world.jobs[i].by_administrator,
                                     .single = true,
                                     .in_partition = true,
                                     .restarts = world.jobs[i].restarts,
                                     .exit_status = -1};
        token_of(job->token, i);
        if (job->state == ERG_LIVE_RUNNING)
            erg_placement_assign(&job->placement, &world.jobs[i].has);
    }
    world.snapshot_s = now_s(engine) - snapshot->at_s;
    return ERG_ENGINE_DONE;
}

static void take(long job, bool give)
{
    const struct erg_placement *has = &world.jobs[job].has;
    for (int s = 0; s < has->count; s++) {
        uint64_t *taken = &world.taken[has->slices[s].node];
        assert_int_equal(*taken & has->slices[s].gpus, give ? has->slices[s].gpus : 0);
        *taken ^= has->slices[s].gpus;
    }
}

static void report(long job, const char *state, double iteration)
{
    char line[300], name[100], token[ERG_TOKEN_LENGTH + 1];
    token_of(token, job);
    snprintf(name, sizeof name, "spool/%s/reports.jsonl", token);
    snprintf(line, sizeof line,
             "{\"v\":1,\"incarnation\":%ld,\"state\":\"%s\",\"iteration\":%g,"
             "\"iteration_s\":1.5,\"checkpoint\":0,\"mono_s\":%g",
             world.calls, state, iteration, world.mono_s);
    FILE *file = fopen(in_folder(name), "a");
    assert_non_null(file);
    fputs(line, file);
    if (world.jobs[job].follows)
        fprintf(file, ",\"plan\":%ld", world.jobs[job].follows);
    fputs("}\n", file);
    fclose(file);
}

static enum erg_engine_answer place(struct erg_live_engine *engine, uint32_t id, const char *token,
                                    const struct erg_placement *placement, struct erg_error *err)
{
    (void)engine, (void)token, (void)err;
    world.calls++;
    assert_int_equal(world.jobs[id - 1].state, ERG_LIVE_HELD);
    if (world.jobs[id - 1].queued) {
        world.jobs[id - 1].state = ERG_LIVE_PENDING;
        return ERG_ENGINE_DONE;
    }
    erg_placement_assign(&world.jobs[id - 1].has, placement);
    take(id - 1, false);
    world.jobs[id - 1].state = ERG_LIVE_RUNNING;
    if (!world.jobs[id - 1].silent)
        report(id - 1, "training", 1);
    return ERG_ENGINE_DONE;
}

static enum erg_engine_answer hold(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   struct erg_error *err)
{
    (void)engine, (void)token, (void)err;
    world.jobs[id - 1].by_administrator = true;
    if (world.jobs[id - 1].state == ERG_LIVE_PENDING)
        world.jobs[id - 1].state = ERG_LIVE_HELD;
    return ERG_ENGINE_DONE;
}

/* By itself, or because it was asked to. */
static void end_run(long job, enum erg_live_state state)
{
    take(job, true);
    world.jobs[job].state = state;
    world.jobs[job].restarts++;
}

static enum erg_engine_answer leave(struct erg_live_engine *engine, uint32_t id, const char *token,
                                    struct erg_error *err)
{
    if (world.jobs[id - 1].stays)
        return ERG_ENGINE_DONE;
    end_run(id - 1, ERG_LIVE_HELD);
    return hold(engine, id, token, err);
}

static enum erg_engine_answer put_to_sleep(struct erg_live_engine *engine, int node,
                                           struct erg_error *err)
{
    (void)engine;
    assert_int_equal(world.taken[node], 0);
    if (world.keeps_on) {
        erg_fail(err, ERG_FAILED, "it may not");
        return ERG_ENGINE_REFUSED;
    }
    world.off[node] = true;
    return ERG_ENGINE_DONE;
}

static enum erg_engine_answer wake(struct erg_live_engine *engine, int node, struct erg_error *err)
{
    (void)engine, (void)err;
    world.off[node] = false;
    return ERG_ENGINE_DONE;
}

static void write_request(long job, int gpus)
{
    char token[ERG_TOKEN_LENGTH + 1], name[100];
    struct erg_error err;
    token_of(token, job);
    snprintf(name, sizeof name, "spool/%s", token);
    const struct erg_live_request request = {
        .name = "job",
        .family = "Llama-3.2-1B",
        .size = "1.24B",
        .batch = 128,
        .iterations = 1000 + (double)job,
        .submitted_unix_s = world.ahead_s != 0 ? erg_unix_s() + world.ahead_s : 1.7e9 + (double)job,
        .deadline_unix_s = INFINITY,
        .weight = 1,
        .gpus = gpus,
        .gpus_most = 16,
        .uid = geteuid()};
    assert_ok(erg_job_folder_write_request(in_folder(name), &request, &err), &err);
}

/* A job that waits, submitted as the next one. */
static void submit_job(int gpus)
{
    const long job = world.count++;
    char token[ERG_TOKEN_LENGTH + 1], *path;
    struct erg_error err;
    assert_true(world.count <= MOST_JOBS);
    token_of(token, job);
    assert_ok(erg_job_folder_make(&path, in_folder("spool"), token, &err), &err);
    free(path);
    write_request(job, gpus);
    world.jobs[job].state = ERG_LIVE_HELD;
}

/* Makes the spool and reads a live file of so many nodes; to be freed. */
static struct erg_live_file *open_world(long nodes)
{
    static const struct erg_live_engine_calls calls = {.now_s = now_s,
                                                       .snapshot = snapshot,
                                                       .place = place,
                                                       .hold = hold,
                                                       .stop = leave,
                                                       .kill = leave,
                                                       .wake = wake,
                                                       .sleep = put_to_sleep};
    char text[1000];
    struct erg_error err;
    struct erg_live_file *file;
    world.base.calls = &calls;
    world.nodes = nodes;
    mkdir(in_folder("spool"), 0777);
    snprintf(text, sizeof text,
             "slurm: {partition: ergon, spool: %s/spool, poll_s: 1, settle_s: 0.01}\n"
             "profiles: " ERGON_TEST_SOURCE_DIR "/examples/cluster/profiles\n"
             "reconfiguration: {fixed_s: 90}\n%stypes:\n"
             "  - {name: H800-SXM-80GB, nodes: \"h[001-%03ld]\", gpus_per_node: %d,"
             " memory_gb: 85.9, idle_power_w: 70}\n",
             folder, world.saving ? world.saving : "", nodes, GPUS);
    write_text("live.yaml", text);
    assert_ok(erg_live_file_load(&file, in_folder("live.yaml"), &err), &err);
    return file;
}

static void close_world(struct erg_live_file *file)
{
    erg_live_file_free(file);
    for (long i = 0; i < world.count; i++)
        erg_placement_release(&world.jobs[i].has);
    memset(&world, 0, sizeof world);
}

#endif
