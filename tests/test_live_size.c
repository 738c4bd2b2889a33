/*
 * Many jobs and nodes under one controller, on an engine of the test's own that does at once what
 * it is asked to. LIVE_JOBS=2000 LIVE_NODES=200 measure; times are printed, none is judged.
 */
#define _GNU_SOURCE

#include "base/clock.h"
#include "check.h"
#include "cluster/live/controller.h"
#include "cluster/policies/policies.h"
#include "folder.h"

#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_JOBS = 4000, GPUS = 8 };

static long count = 200, nodes = 20;

static struct {
    struct erg_live_engine base;
    struct {
        enum erg_live_state state;
        bool by_administrator;
        struct erg_placement has;
    } jobs[MOST_JOBS];
    uint64_t taken[MOST_JOBS];
    double snapshot_s;
    long calls;
} world;

static double now_s(struct erg_live_engine *engine)
{
    (void)engine;
    return 1e-9 * (double)erg_now_ns();
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
    snapshot->nodes = erg_xcalloc((size_t)nodes, sizeof *snapshot->nodes);
    snapshot->nodes_count = (size_t)nodes;
    snapshot->jobs = erg_xcalloc((size_t)count, sizeof *snapshot->jobs);
    snapshot->jobs_count = snapshot->jobs_capacity = (size_t)count;
    for (long i = 0; i < count; i++) {
        struct erg_live_job *job = &snapshot->jobs[i];
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

static enum erg_engine_answer place(struct erg_live_engine *engine, uint32_t id, const char *token,
                                    const struct erg_placement *placement, struct erg_error *err)
{
    (void)engine, (void)err;
    char line[300], name[100];
    world.calls++;
    assert_int_equal(world.jobs[id - 1].state, ERG_LIVE_HELD);
    erg_placement_assign(&world.jobs[id - 1].has, placement);
    take(id - 1, false);
    world.jobs[id - 1].state = ERG_LIVE_RUNNING;
    snprintf(name, sizeof name, "spool/%s/reports.jsonl", token);
    snprintf(line, sizeof line,
             "{\"v\":1,\"incarnation\":%ld,\"state\":\"training\",\"iteration\":1,"
             "\"iteration_s\":1.5,\"checkpoint\":0}\n",
             world.calls);
    FILE *file = fopen(in_folder(name), "a");
    assert_non_null(file);
    fputs(line, file);
    fclose(file);
    return ERG_ENGINE_DONE;
}

static enum erg_engine_answer hold(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   struct erg_error *err)
{
    (void)engine, (void)token, (void)err;
    world.jobs[id - 1].by_administrator = true;
    return ERG_ENGINE_DONE;
}

static enum erg_engine_answer leave(struct erg_live_engine *engine, uint32_t id, const char *token,
                                    struct erg_error *err)
{
    take(id - 1, true);
    world.jobs[id - 1].state = ERG_LIVE_HELD;
    return hold(engine, id, token, err);
}

static void make_jobs(void)
{
    mkdir(in_folder("spool"), 0777);
    for (long i = 0; i < count; i++) {
        char token[ERG_TOKEN_LENGTH + 1], *path;
        struct erg_error err;
        token_of(token, i);
        assert_ok(erg_job_folder_make(&path, in_folder("spool"), token, &err), &err);
        const struct erg_live_request request = {.name = "job",
                                                 .family = "Llama-3.2-1B",
                                                 .size = "1.24B",
                                                 .batch = 128,
                                                 .iterations = 1000 + (double)i,
                                                 .submitted_unix_s = 1.7e9 + (double)i,
                                                 .deadline_unix_s = INFINITY,
                                                 .weight = 1,
                                                 .gpus = 1 << i % 4,
                                                 .gpus_most = 16,
                                                 .uid = geteuid()};
        assert_ok(erg_job_folder_write_request(path, &request, &err), &err);
        free(path);
        world.jobs[i].state = ERG_LIVE_HELD;
    }
}

static void test_many(void **state)
{
    (void)state;
    static const struct erg_live_engine_calls calls = {.now_s = now_s,
                                                       .snapshot = snapshot,
                                                       .place = place,
                                                       .hold = hold,
                                                       .stop = leave,
                                                       .kill = leave};
    char text[1000];
    struct erg_error err;
    struct erg_live_file *file;
    struct erg_controller *controller;
    world.base.calls = &calls;
    make_jobs();
    snprintf(text, sizeof text,
             "slurm: {partition: ergon, spool: %s/spool, poll_s: 1, settle_s: 0.01}\n"
             "profiles: " ERGON_TEST_SOURCE_DIR "/examples/cluster/profiles\n"
             "reconfiguration: {fixed_s: 90}\ntypes:\n"
             "  - {name: H800-SXM-80GB, nodes: \"h[001-%03ld]\", gpus_per_node: %d,"
             " memory_gb: 85.9, idle_power_w: 70}\n",
             folder, nodes, GPUS);
    write_text("live.yaml", text);
    assert_ok(erg_live_file_load(&file, in_folder("live.yaml"), &err), &err);
    struct erg_controller_setup setup = {.file = file,
                                         .engine = &world.base,
                                         .journal = in_folder("journal"),
                                         .policy = file->policy,
                                         .compress = 1};
    const char *policy = getenv("LIVE_POLICY");
    assert_ok(erg_policy_find(&setup.policy, policy ? policy : "ergon", &err), &err);
    assert_ok(erg_controller_new(&controller, &setup, &err), &err);
    for (int pass = 0; pass < 5; pass++) {
        double wait_s;
        const double began_s = now_s(NULL);
        const long before = world.calls;
        assert_ok(erg_controller_pass(controller, &wait_s, &err), &err);
        printf("pass %d: %.3f s, of which the snapshot %.3f; %ld placements\n", pass,
               now_s(NULL) - began_s, world.snapshot_s, world.calls - before);
    }
    long busy = 0;
    for (long n = 0; n < nodes; n++)
        busy += __builtin_popcountll(world.taken[n]);
    assert_int_equal(busy, nodes * GPUS);
    erg_controller_free(controller);
    erg_live_file_free(file);
    for (long i = 0; i < count; i++)
        erg_placement_release(&world.jobs[i].has);
}

int main(void)
{
    const char *jobs = getenv("LIVE_JOBS"), *wide = getenv("LIVE_NODES");
    count = jobs ? atol(jobs) : count;
    nodes = wide ? atol(wide) : nodes;
    if (count < 1 || count > MOST_JOBS || nodes < 1 || nodes > 999)
        return 2;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
