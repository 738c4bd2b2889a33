/*
 * What the engine sees of nodes and of Slurm's daemons that go and come, on a real Slurm, and ids
 * that are given again.
 */
#include "mini_cluster.h"
#include "side_by_side.h"

static enum erg_live_node_state await_node(int node, enum erg_live_node_state state)
{
    struct erg_error err;
    for (int i = 0; i < 250; i++) {
        if (engine->calls->snapshot(engine, &seen, &err) == ERG_ENGINE_DONE &&
            seen.nodes[node].state == state)
            break;
        erg_sleep_ns(100000000);
    }
    return seen.nodes[node].state;
}

static void test_nodes(void **state)
{
    (void)state;
    struct mini_job job = submit("stays", "", TRAINER);
    assert_int_equal(await_node(A1, ERG_NODE_UP), ERG_NODE_UP);
    place(job, placed_on(A1, 1, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);
    await_text("stays.out", "begins");
    shell("scontrol update NodeName=a1 State=DRAIN Reason='a fan State=IDLE'");
    assert_int_equal(await_node(A1, ERG_NODE_DRAINS), ERG_NODE_DRAINS);
    assert_int_equal(strncmp(seen.nodes[A1].reason, "a fan State=IDLE", 16), 0);
    assert_int_equal(look(job)->state, ERG_LIVE_RUNNING);
    shell("scontrol update NodeName=a1 State=RESUME");
    assert_int_equal(await_node(A1, ERG_NODE_UP), ERG_NODE_UP);

    /* Set down: its job comes back by itself, not held, at its old nodes, and can be held before it
     * is eligible. */
    shell("scontrol update NodeName=a1 State=DOWN Reason=gone");
    assert_int_equal(await_node(A1, ERG_NODE_DOWN), ERG_NODE_DOWN);
    const struct erg_live_job *at = await_state(job, ERG_LIVE_PENDING);
    assert_int_equal(at->restarts, 1);
    struct erg_error err;
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->hold(engine, job.id, job.token, &err));
    assert_int_equal(look(job)->state, ERG_LIVE_HELD);
    place(job, placed_on(A2, 1, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);
    shell("scontrol update NodeName=a1 State=RESUME");
    assert_int_equal(await_node(A1, ERG_NODE_UP), ERG_NODE_UP);

    /* slurmd is killed: unknown, then, after SlurmdTimeout (10 s), down. */
    mini_cluster("kill", "h1");
    assert_int_equal(await_node(H1, ERG_NODE_DOWN), ERG_NODE_DOWN);
    mini_cluster("up", "h1");
    shell("scontrol update NodeName=h1 State=RESUME"); /* it seems to have been rebooted */
    assert_int_equal(await_node(H1, ERG_NODE_UP), ERG_NODE_UP);
}

static void test_switching_nodes(void **state)
{
    (void)state;
    struct erg_error err;
    /* A scontrol that notes its calls: slurm.conf is read once after each snapshot. */
    char *path = erg_xstrdup(getenv("PATH"));
    struct erg_text line = {0};
    shell("mkdir @/bin && printf '#!/bin/sh\\necho \"$*\" >>@/calls\\nPATH=%s exec scontrol "
          "$*\\n' \"$PATH\" >@/bin/scontrol && chmod +x @/bin/scontrol");
    erg_text_printf(&line, "%s:%s", in_folder("bin"), path);
    setenv("PATH", line.data, 1);
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->wake(engine, A1, &err)); /* it is on */
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->sleep(engine, A1, &err));
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->sleep(engine, A1, &err));
    assert_answer(ERG_ENGINE_REFUSED, err, engine->calls->sleep(engine, A2, &err));
    assert_string_equal(err.message,
                        "it is in a partition of SuspendExcParts=urgent2,stays in slurm.conf");
    assert_answer(ERG_ENGINE_REFUSED, err, engine->calls->sleep(engine, H1, &err));
    shell("test $(grep -c 'show config' @/calls) = 1");
    assert_int_equal(await_node(A2, ERG_NODE_UP), ERG_NODE_UP);
    assert_answer(ERG_ENGINE_REFUSED, err, engine->calls->sleep(engine, A2, &err));
    shell("test $(grep -c 'show config' @/calls) = 2");
    setenv("PATH", path, 1);
    free(path);
    erg_text_release(&line);
    assert_int_equal(await_node(A1, ERG_NODE_OFF), ERG_NODE_OFF);
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->sleep(engine, A1, &err));
    assert_answer(ERG_ENGINE_REFUSED, err, engine->calls->sleep(engine, H1, &err));
    assert_string_equal(err.message, "it is among SuspendExcNodes=h[1-2] in slurm.conf");
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->wake(engine, A1, &err));
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->wake(engine, A1, &err));
    assert_int_equal(await_node(A1, ERG_NODE_UP), ERG_NODE_UP);
    struct mini_job job = submit("woken", "", TRAINER);
    place(job, placed_on(A1, 1, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);
    await_text("woken.out", "begins");
}

static void test_slurmctld_away(void **state)
{
    (void)state;
    struct erg_error err;
    struct mini_job job = submit("survives", "", TRAINER), waits = submit("waits", "", TRAINER);
    place(job, placed_on(A1, 1, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);
    await_text("survives.out", "begins");
    mini_cluster("down", "slurmctld");
    assert_answer(ERG_ENGINE_LATER, err, engine->calls->snapshot(engine, &seen, &err));
    assert_int_equal(seen.jobs_count, 0);
    assert_answer(ERG_ENGINE_LATER, err, engine->calls->stop(engine, job.id, job.token, &err));
    mini_cluster("up", "slurmctld");
    assert_int_equal(await_state(job, ERG_LIVE_RUNNING)->restarts, 0);
    assert_int_equal(await_state(waits, ERG_LIVE_HELD)->restarts, 0);
    place(waits, placed_on(H2, 1, -1, 0));
    await_state(waits, ERG_LIVE_RUNNING);
}

/* slurmctld is killed: nodes are not down because of that, and the job runs on. What is younger
 * than five seconds may be forgotten. */
static void test_slurmctld_killed(void **state)
{
    (void)state;
    struct mini_job job = submit("old", "", TRAINER);
    place(job, placed_on(A1, 1, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);
    await_text("old.out", "begins");
    shell("touch @/now; sleep 0.01; scontrol update JobId=$(squeue -h -n old -o %A) Name=older; "
          "for i in $(seq 300); do test @/mini/state/job_state -nt @/now && exit; sleep 0.1; done; "
          "exit 1");
    mini_cluster("kill", "slurmctld");
    mini_cluster("up", "slurmctld");
    for (int i = 0; i < 30; i++) {
        const struct erg_live_job *at = look(job);
        assert_non_null(at);
        assert_int_equal(at->state, ERG_LIVE_RUNNING);
        assert_gpus(at, A1, 1);
        for (int node = 0; node < 4; node++)
            if (seen.nodes[node].state != ERG_NODE_UP && seen.nodes[node].state != ERG_NODE_UNKNOWN)
                fail_msg("%s is in state %d", mini_nodes[node], seen.nodes[node].state);
        erg_sleep_ns(100000000);
    }
    stop(job);
    await_state(job, ERG_LIVE_HELD);
}

/* A partition of a higher tier takes the GPUs: the job comes back waiting, not held, and can be
 * held before it is eligible; the GPUs are the other's. */
static void test_preemption(void **state)
{
    (void)state;
    struct erg_error err;
    struct mini_job job =
        submit("victim", "",
               "trap \"echo saves; exit 85\" TERM; echo begins; while :; do sleep "
               "0.1; done");
    place(job, placed_on(H1, 15, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);
    await_text("victim.out", "begins");
    struct erg_text id = output_of("sbatch --parsable -p urgent -w h1 --gres=gpu:4 -o /dev/null "
                                   "--wrap='sleep 100'");
    struct mini_job urgent = {(uint32_t)strtoul(id.data, NULL, 10), ""};
    erg_text_release(&id);
    assert_gpus(await_state(urgent, ERG_LIVE_RUNNING), H1, 4);
    await_text("victim.out", "saves");
    const struct erg_live_job *at = await_state(job, ERG_LIVE_PENDING);
    assert_int_equal(at->restarts, 1);
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->hold(engine, job.id, job.token, &err));
    assert_true(look(job)->held_by_administrator);
}

/* The id of a job that is gone is given to another one, which nobody may touch for the first. */
static void test_ids_are_reused(void **state)
{
    (void)state;
    struct erg_error err;
    struct mini_job first = submit("first", "", TRAINER), other = {0};
    shell("scancel -n first");
    for (int i = 0; i < 300 && other.id != first.id; i++) {
        struct erg_text id = output_of("sbatch --parsable --hold -J other -o /dev/null "
                                       "--comment=ergon:1:00000000000000bb --wrap=true 2>/dev/null "
                                       "|| echo 0");
        other.id = (uint32_t)strtoul(id.data, NULL, 10);
        erg_text_release(&id);
        if (other.id && other.id != first.id)
            shell("scancel -n other");
        if (other.id != first.id)
            erg_sleep_ns(100000000);
    }
    assert_int_equal(other.id, first.id);
    assert_answer(
        ERG_ENGINE_GONE, err,
        engine->calls->place(engine, first.id, first.token, placed_on(A1, 1, -1, 0), &err));
    assert_answer(ERG_ENGINE_GONE, err, engine->calls->kill(engine, first.id, first.token, &err));
    assert_int_equal(look(other)->state, ERG_LIVE_HELD);
    assert_string_equal(look(other)->token, "00000000000000bb");
}

static int begin_here(void **state)
{
    (void)state;
    return begin_with("POWER=86400 'EXTRA=ReturnToService=1\\nMinJobAge=2\\nFirstJobId=10\\n"
                      "MaxJobId=15\\nPreemptType=preempt/partition_prio\\nPreemptMode=REQUEUE\\n"
                      "SuspendExcNodes=h[1-2]\\nSuspendExcParts=urgent2,stays\\n"
                      "PartitionName=urgent2 Nodes=h1\\nPartitionName=stays Nodes=a2\\n"
                      "PartitionName=urgent Nodes=ALL PriorityTier=20 State=UP'");
}

int main(void)
{
    skip_without_slurm();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes),          cmocka_unit_test(test_switching_nodes),
        cmocka_unit_test(test_slurmctld_away), cmocka_unit_test(test_slurmctld_killed),
        cmocka_unit_test(test_preemption),     cmocka_unit_test(test_ids_are_reused),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, begin_here, end_with);
}
