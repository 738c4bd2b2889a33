/*
 * The engine over Slurm's commands on a real Slurm (tests/live/mini-cluster.sh): every verb, and
 * what of Slurm's ways it relies on, so that a release that behaves differently is noticed. Nodes
 * and daemons are in test_slurm_faults.c.
 */
#include "mini_cluster.h"
#include "program.h"
#include "side_by_side.h"

/* ---- placing, moving, resizing ---- */

static void try_a_life(void)
{
    struct erg_error err;
    struct mini_job job = submit("life", "", TRAINER);
    const struct erg_live_job *at = await_state(job, ERG_LIVE_HELD);
    assert_string_equal(at->token, job.token);
    assert_true(at->single && at->in_partition && !at->held_by_administrator);
    assert_int_equal(at->uid, getuid());
    assert_int_equal(at->exit_status, -1);
    assert_int_equal(at->placement.count, 0);
    assert_near(at->submitted_unix_s, (double)time(NULL), 60);

    /* The user's hold becomes the administrator's. */
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->hold(engine, job.id, job.token, &err));
    assert_true(look(job)->held_by_administrator);
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->hold(engine, job.id, job.token, &err));

    /* On given nodes; the type follows from them; done twice it is done once. */
    place(job, placed_on(H1, 7, H2, 7));
    place(job, placed_on(H1, 7, H2, 7));
    at = await_state(job, ERG_LIVE_RUNNING);
    assert_int_equal(at->placement.count, 2);
    assert_gpus(at, H1, 3);
    assert_gpus(at, H2, 3);
    await_text("life.out", "begins 0 h\\[1-2\\] 0,1,2");
    place(job, placed_on(H1, 7, H2, 7));
    assert_answer(ERG_ENGINE_REFUSED, err,
                  engine->calls->place(engine, job.id, job.token, placed_on(A1, 1, -1, 0), &err));
    assert_non_null(strstr(err.message, "is RUNNING (None), expected a held job"));
    assert_answer(ERG_ENGINE_REFUSED, err, engine->calls->hold(engine, job.id, job.token, &err));

    /* Moved to other GPUs, and smaller: 85 puts it back, held. */
    stop(job);
    at = await_state(job, ERG_LIVE_HELD);
    assert_string_equal(at->state_text, "SPECIAL_EXIT");
    assert_int_equal(at->exit_status, 85);
    assert_int_equal(at->restarts, 1);
    assert_int_equal(at->placement.count, 0);
    stop(job); /* it has left */
    place(job, placed_on(A1, 3, -1, 0));
    at = await_state(job, ERG_LIVE_RUNNING);
    assert_int_equal(at->placement.count, 1);
    assert_gpus(at, A1, 2);
    await_text("life.out", "begins 1 a1 0,1");

    /* Larger, and on nodes of both types. */
    stop(job);
    await_state(job, ERG_LIVE_HELD);
    place(job, placed_on(A2, 15, H2, 15));
    at = await_state(job, ERG_LIVE_RUNNING);
    assert_gpus(at, A2, 4);
    assert_gpus(at, H2, 4);
    await_text("life.out", "begins 2 a2,h2 0,1,2,3");

    /* Its user's end of it is its end: nothing revives it. */
    shell("scancel -n life");
    at = await_state(job, ERG_LIVE_CANCELLED);
    assert_int_equal(at->placement.count, 0);
    assert_answer(ERG_ENGINE_REFUSED, err, engine->calls->kill(engine, job.id, job.token, &err));
    assert_answer(ERG_ENGINE_REFUSED, err, engine->calls->stop(engine, job.id, job.token, &err));
    assert_answer(ERG_ENGINE_REFUSED, err, engine->calls->hold(engine, job.id, job.token, &err));
    assert_answer(ERG_ENGINE_REFUSED, err,
                  engine->calls->place(engine, job.id, job.token, placed_on(A1, 1, -1, 0), &err));
    assert_int_equal(look(job)->state, ERG_LIVE_CANCELLED);
}

/* Another number of GPUs on the same node, as fast as it goes: no restart fails. */
static void try_restarts_on_the_same_node(void)
{
    struct mini_job job = submit("same", "", TRAINER);
    for (int i = 0; i < 4; i++) {
        place(job, placed_on(A1, i % 2 ? 1 : 15, -1, 0));
        await_state(job, ERG_LIVE_RUNNING);
        char begins[40];
        snprintf(begins, sizeof begins, "begins %d a1 ", i);
        await_text("same.out", begins);
        stop(job);
        assert_int_equal(await_state(job, ERG_LIVE_HELD)->restarts, i + 1);
    }
}

static void try_what_is_refused(void)
{
    struct erg_error err;
    struct mini_job job = submit("refused", "", TRAINER);
    struct mini_job foreign = {job.id, "ffffffffffffffff"},
                    none = {job.id + 1000, "0123456789abcdef"};
    assert_answer(ERG_ENGINE_GONE, err,
                  engine->calls->hold(engine, foreign.id, foreign.token, &err));
    assert_non_null(strstr(err.message, "is another job now"));
    assert_answer(ERG_ENGINE_GONE, err, engine->calls->hold(engine, none.id, none.token, &err));
    assert_answer(ERG_ENGINE_GONE, err,
                  engine->calls->place(engine, none.id, none.token, placed_on(A1, 1, -1, 0), &err));
    assert_answer(ERG_ENGINE_GONE, err, engine->calls->stop(engine, none.id, none.token, &err));
    assert_answer(ERG_ENGINE_GONE, err, engine->calls->kill(engine, none.id, none.token, &err));
    assert_answer(ERG_ENGINE_GONE, err,
                  engine->calls->hand_back(engine, none.id, none.token, 1, &err));
    /* Unequal numbers on its nodes. */
    assert_answer(ERG_ENGINE_REFUSED, err,
                  engine->calls->place(engine, job.id, job.token, placed_on(A1, 1, A2, 3), &err));
    assert_int_equal(look(job)->state, ERG_LIVE_HELD);

    /* Another user cannot release what is held by the administrator. */
    if (getuid() == 0) {
        struct mini_job others = submit("others", "--uid=65534 --gid=65534", TRAINER);
        assert_int_equal(look(others)->uid, 65534);
        assert_answer(ERG_ENGINE_DONE, err,
                      engine->calls->hold(engine, others.id, others.token, &err));
        struct erg_text release = {0};
        erg_text_printf(&release,
                        "! setpriv --reuid=65534 --regid=65534 --clear-groups scontrol release %u "
                        "2>/dev/null",
                        others.id);
        shell(release.data);
        erg_text_release(&release);
        assert_int_equal(look(others)->state, ERG_LIVE_HELD);
    }

    /* More GPUs than a node has: Slurm says no, the job stays held and can be placed better. */
    enum erg_engine_answer answer =
        engine->calls->place(engine, job.id, job.token, placed_on(A1, 31, -1, 0), &err);
    assert_true(answer == ERG_ENGINE_REFUSED || answer == ERG_ENGINE_DONE);
    assert_int_equal(await_state(job, ERG_LIVE_HELD)->placement.count, 0);
    place(job, placed_on(A1, 15, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);

    /* Arrays and heterogeneous jobs are seen, and not touched. */
    shell("sbatch -Q --hold --array=1-2 --gres=gpu:1 --comment=ergon:1:00000000000000aa -J array "
          "-o /dev/null --wrap=true");
    struct erg_text id = output_of("squeue -h -n array -o %A");
    struct mini_job array = {(uint32_t)strtoul(id.data, NULL, 10), "00000000000000aa"};
    assert_false(look(array)->single);
    assert_answer(ERG_ENGINE_REFUSED, err,
                  engine->calls->hold(engine, array.id, array.token, &err));
    erg_text_release(&id);
}

/* ---- killing, failures ---- */

/* It ignores signals: SIGKILL comes after KillWait, here 3 s. */
static void try_kill_of_a_deaf_job(void)
{
    struct erg_error err;
    struct mini_job job = submit("deaf", "", DEAF), next = submit("next", "", TRAINER);
    place(job, placed_on(H1, 1, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);
    await_text("deaf.out", "begins");
    stop(job);
    assert_int_equal(look(job)->state, ERG_LIVE_RUNNING);
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->kill(engine, job.id, job.token, &err));
    const struct erg_live_job *at = await_state(job, ERG_LIVE_COMPLETING);
    assert_gpus(at, H1, 1); /* still its own */
    /* Slurm counts these as free by now, but starts nobody else on the node. */
    place(next, placed_on(H1, 15, -1, 0));
    while ((at = look(job))->state == ERG_LIVE_COMPLETING)
        assert_int_equal(snapshot_find(&seen, next.id)->state, ERG_LIVE_PENDING);
    assert_int_equal(at->state, ERG_LIVE_HELD);
    assert_int_equal(at->restarts, 1);
    assert_int_equal(at->placement.count, 0);
    assert_gpus(await_state(next, ERG_LIVE_RUNNING), H1, 4);
    place(job, placed_on(H2, 3, -1, 0));
    assert_gpus(await_state(job, ERG_LIVE_RUNNING), H2, 2);
}

static void try_failed_and_done_jobs(void)
{
    struct erg_error err;
    struct mini_job fails = submit("fails", "", "exit 7"), done = submit("done", "", "exit 0");
    place(fails, placed_on(A1, 1, -1, 0));
    place(done, placed_on(A1, 1, -1, 0));
    const struct erg_live_job *at = await_state(fails, ERG_LIVE_FAILED);
    assert_int_equal(at->exit_status, 7);
    assert_string_equal(at->state_text, "FAILED");
    assert_int_equal(at->placement.count, 0);
    at = await_state(done, ERG_LIVE_COMPLETED);
    assert_int_equal(at->exit_status, 0);

    /* One that failed can be taken back as long as Slurm remembers it; one that is done is not. */
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->kill(engine, fails.id, fails.token, &err));
    assert_true(await_state(fails, ERG_LIVE_HELD)->placement.count == 0);
    assert_answer(ERG_ENGINE_REFUSED, err, engine->calls->kill(engine, done.id, done.token, &err));
    assert_int_equal(look(done)->state, ERG_LIVE_COMPLETED);
}

/* The user cancels while the job saves: it does not come back, though it exits with 85. */
static void try_cancel_beats_85(void)
{
    struct mini_job job = submit("both", "",
                                 "trap \"echo saves; sleep 1; exit 85\" USR1 TERM; echo begins; "
                                 "while :; do sleep 0.1; done");
    place(job, placed_on(A1, 1, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);
    await_text("both.out", "begins");
    stop(job);
    await_text("both.out", "saves");
    shell("scancel -n both");
    await_state(job, ERG_LIVE_CANCELLED);
    erg_sleep_ns(1500000000); /* its second has passed */
    assert_int_equal(look(job)->state, ERG_LIVE_CANCELLED);

    /* And one that has left by 85 and is cancelled while it is held. */
    job = submit("after", "", TRAINER);
    place(job, placed_on(A1, 1, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);
    await_text("after.out", "begins");
    stop(job);
    await_state(job, ERG_LIVE_HELD);
    shell("scancel -n after");
    await_state(job, ERG_LIVE_CANCELLED);
}

/* ---- others ---- */

static void try_foreign_jobs(void)
{
    struct erg_error err;
    /* Of another partition, with a name and a comment that look like fields. */
    shell(
        "sbatch -Q -p other -N2 -w 'a[1-2]' --gres=gpu:3 -J 'x JobState=PENDING Nodes=h1 "
        "GRES=gpu:4(IDX:0-3)' --comment='y NodeList=h2 UserId=evil(0)' -o /dev/null --wrap='sleep "
        "100'");
    struct erg_text id = output_of(
        "for i in $(seq 100); do squeue -h -t R -p other -o %A | grep . && break; sleep 0.1; done");
    struct mini_job foreign = {(uint32_t)strtoul(id.data, NULL, 10), ""};
    erg_text_release(&id);
    const struct erg_live_job *at = await_state(foreign, ERG_LIVE_RUNNING);
    assert_string_equal(at->token, "");
    assert_false(at->in_partition);
    assert_gpus(at, A1, 3);
    assert_gpus(at, A2, 3);
    assert_int_equal(at->placement.count, 2);

    /* Ours cannot have its GPUs: it waits as pending, and a hold takes it back. */
    struct mini_job job = submit("late", "", TRAINER);
    place(job, placed_on(A1, 3, -1, 0));
    erg_sleep_ns(2500000000);
    assert_int_equal(look(job)->state, ERG_LIVE_PENDING);
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->hold(engine, job.id, job.token, &err));
    assert_true(look(job)->state == ERG_LIVE_HELD && look(job)->held_by_administrator);
    place(job, placed_on(H1, 1, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);

    /* A line of another job within a comment changes nothing about that. */
    struct erg_text line = {0};
    erg_text_printf(&line,
                    "sbatch -Q --hold -J forger -o /dev/null --wrap=true --comment=\"x\n"
                    "JobId=%u JobName=x UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 "
                    "JobState=FAILED Reason=None Partition=ergon Command=x Comment=ergon:1:%s \"",
                    job.id, job.token);
    shell(line.data);
    erg_text_release(&line);
    at = look(job);
    assert_non_null(at);
    assert_int_equal(at->state, ERG_LIVE_RUNNING);
    assert_string_equal(at->token, job.token);
    assert_gpus(at, H1, 1);
    size_t times = 0;
    for (size_t i = 0; i < seen.jobs_count; i++)
        times += seen.jobs[i].id == job.id;
    assert_int_equal(times, 1);
    assert_int_equal(look(foreign)->state, ERG_LIVE_RUNNING);

    /* A name that is a whole second set of fields: hands off, but its GPUs are somebody's. */
    shell("sbatch -Q -p other -w h2 --gres=gpu:2 -o /dev/null --wrap='sleep 100' -J 'w "
          "UserId=root(0) "
          "GroupId=root(0) MCS_label=N/A Priority=1 JobState=PENDING Reason=None Partition=ergon "
          "Command=x'");
    struct mini_job twofold = {0, ""};
    for (int i = 0; i < 200 && !snapshot_find(&seen, 0); i++) {
        look(job);
        erg_sleep_ns(100000000);
    }
    at = look(twofold); /* of no id: GPUs in use that no job has */
    assert_non_null(at);
    assert_int_equal(at->state, ERG_LIVE_UNKNOWN);
    assert_int_equal(at->placement.count, 1);
    assert_gpus(at, H2, 2);
    id = output_of("squeue -h -w h2 -o %A");
    twofold.id = (uint32_t)strtoul(id.data, NULL, 10);
    erg_text_release(&id);
    at = look(twofold);
    assert_non_null(at);
    assert_int_equal(at->state, ERG_LIVE_UNKNOWN);
    assert_string_equal(at->token, "");
}

/* A job that is handed back starts where Slurm likes. */
static void try_hand_back(void)
{
    struct erg_error err;
    struct mini_job job = submit("back", "", TRAINER), large = submit("large", "", TRAINER);
    place(job, placed_on(H1, 15, -1, 0));
    await_state(job, ERG_LIVE_RUNNING);
    await_text("back.out", "begins");
    assert_answer(ERG_ENGINE_REFUSED, err,
                  engine->calls->hand_back(engine, job.id, job.token, 2, &err));
    stop(job);
    await_state(job, ERG_LIVE_HELD);
    assert_answer(ERG_ENGINE_DONE, err, engine->calls->hold(engine, job.id, job.token, &err));
    assert_answer(ERG_ENGINE_DONE, err,
                  engine->calls->hand_back(engine, job.id, job.token, 2, &err));
    assert_answer(ERG_ENGINE_DONE, err,
                  engine->calls->hand_back(engine, large.id, large.token, 8, &err));
    const struct erg_live_job *at = await_state(job, ERG_LIVE_RUNNING);
    assert_int_equal(at->placement.count, 1);
    assert_int_equal(erg_placement_gpus(&at->placement), 2);
    at = await_state(large, ERG_LIVE_RUNNING);
    assert_int_equal(at->placement.count, 2); /* of four GPUs each */
    assert_int_equal(erg_placement_gpus(&at->placement), 8);
}

/* ---- opening ---- */

static void try_opening(void)
{
    struct erg_live_engine *opened;
    struct erg_error err;
    struct erg_gpu_type types[2] = {mini_types[0], mini_types[1]};
    struct erg_fleet fleet = mini_fleet;
    static const char *const unknown[] = {"a1", "a2", "h1", "h7"};
    static const char *const swapped[] = {"a1", "h1", "a2", "h2"};
    fleet.types = types;
    assert_fails(erg_slurm_engine_open(&opened, &fleet, mini_nodes, "nope", &err), &err,
                 "Slurm has no partition 'nope'");
    assert_fails(erg_slurm_engine_open(&opened, &fleet, unknown, "ergon", &err), &err,
                 "Slurm has no node 'h7', expected all nodes of type 'h100'");
    assert_fails(erg_slurm_engine_open(&opened, &fleet, swapped, "ergon", &err), &err,
                 "node h1 has GPUs of the type 'h100' in Slurm (Gres), expected 'a40'");
    assert_fails(erg_slurm_engine_open(&opened, &fleet, mini_nodes, "small", &err), &err,
                 "node h1 is not in Slurm's partition 'small'");
    types[1].gpus_per_node = 8;
    assert_fails(erg_slurm_engine_open(&opened, &fleet, mini_nodes, "ergon", &err), &err,
                 "node h1 has 4 GPUs in Slurm (Gres), expected 8, as type 'h100' has");
    char *path = erg_xstrdup(getenv("PATH"));
    setenv("PATH", "/nonexistent", 1);
    assert_fails(erg_slurm_engine_open(&opened, &mini_fleet, mini_nodes, "ergon", &err), &err,
                 "starting 'scontrol': No such file or directory, expected a command of Slurm");
    setenv("PATH", path, 1);
    free(path);
}

/* "ergon doctor" says what of the configuration is missing; KillWait is 3 s here. */
static void try_doctor(void)
{
    check_program("doctor", 0, "ok       Slurm             RequeueExitHold is 85");
    check_program("doctor", 0, "limited  Slurm             KillWait is 3 s\n");
}

/* ---- each on a cluster of its own ---- */

static int begin_here(void **state)
{
    (void)state;
    return begin_with("'EXTRA=PartitionName=small Nodes=a[1-2] State=UP'");
}

static void test_placing(void **state)
{
    (void)state;
    try_a_life();
    try_restarts_on_the_same_node();
}

static void test_ends(void **state)
{
    (void)state;
    try_kill_of_a_deaf_job();
    clear_cluster();
    try_failed_and_done_jobs();
    try_cancel_beats_85();
}

static void test_others(void **state)
{
    (void)state;
    try_opening();
    try_doctor();
    try_foreign_jobs();
    clear_cluster();
    try_hand_back();
    clear_cluster();
    try_what_is_refused();
}

int main(void)
{
    skip_without_slurm();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placing),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_others),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, begin_here, end_with);
}
