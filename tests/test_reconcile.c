/*
 * The reconciler of live jobs: each rule on a small snapshot, then random histories on the fake
 * resource manager, in which a policy without sense changes its mind while everything fails that
 * can. The fake judges each call by what the last snapshot allowed, and keeps the records by which
 * the invariants are checked: I1 no GPU with two jobs, I2 no incarnation commits after a newer one
 * began, I3 work goes back by one checkpoint's interval a fault and never without one, I4 every job
 * ends once, cancelled ones never run again, I5 foreign jobs are untouched.
 *
 * $ERGON_TEST_HISTORIES: how many, 400 by default; $ERGON_TEST_SEED: of the first one.
 */
#include "check.h"

#include "base/random.h"
#include "cluster/live/reconcile.h"
#include "live/fake_engine.h"

/* --- rules, on snapshots made by hand --- */

enum { JOBS = 4, NODES = 4 };

static char type_names[2][2] = {"a", "h"};
static struct erg_gpu_type gpu_types[] = {
    {.name = type_names[0], .nodes = 2, .gpus_per_node = 4, .first_node = 0},
    {.name = type_names[1], .nodes = 2, .gpus_per_node = 4, .first_node = 2},
};
static const struct erg_fleet small_fleet = {
    .types = gpu_types, .types_count = 2, .nodes = NODES, .gpus = 16};

struct scene {
    struct erg_managed_job jobs[JOBS];
    size_t count;
    struct erg_live_job shown[JOBS];
    struct erg_live_node nodes[NODES];
    struct erg_live_snapshot snapshot;
    struct erg_reconcile_limits limits;
    struct erg_actions actions;
    double now_s;
};

static const char *token_of(int job)
{
    static char tokens[64][ERG_TOKEN_LENGTH + 1];
    snprintf(tokens[job], sizeof tokens[job], "%016x", 0xabc0u + (unsigned)job);
    return tokens[job];
}

static void set_placement(struct erg_placement *placement, int node, int gpus)
{
    placement->count = 0;
    if (gpus > 0)
        erg_placement_add(placement, node, (1ull << gpus) - 1);
}

/* Jobs 0 to count - 1 with ids from 1, all held by the administrator. */
static struct scene *scene_of(size_t count)
{
    static struct scene scene;
    for (size_t i = 0; i < JOBS; i++) {
        erg_managed_job_release(&scene.jobs[i]);
        erg_placement_release(&scene.shown[i].placement);
    }
    free(scene.actions.items);
    scene = (struct scene){.count = count, .now_s = 1000};
    erg_reconcile_limits_init(&scene.limits);
    for (size_t i = 0; i < count; i++) {
        erg_managed_job_init(&scene.jobs[i], (uint32_t)i + 1, token_of((int)i));
        scene.shown[i] = (struct erg_live_job){.id = (uint32_t)i + 1,
                                               .state = ERG_LIVE_HELD,
                                               .held_by_administrator = true,
                                               .exit_status = -1,
                                               .reason = "JobHeldAdmin"};
        memcpy(scene.shown[i].token, token_of((int)i), ERG_TOKEN_LENGTH + 1);
    }
    scene.snapshot = (struct erg_live_snapshot){
        .jobs = scene.shown, .jobs_count = count, .nodes = scene.nodes, .nodes_count = NODES};
    return &scene;
}

static void show(struct scene *scene, int job, enum erg_live_state state, int node, int gpus)
{
    scene->shown[job].state = state;
    set_placement(&scene->shown[job].placement, node, gpus);
}

static void intend(struct scene *scene, int job, int node, int gpus)
{
    set_placement(&scene->jobs[job].intended, node, gpus);
}

static void report(struct scene *scene, int job, long incarnation, enum erg_job_state state,
                   double checkpoint)
{
    struct erg_report said = {.incarnation = incarnation,
                              .state = state,
                              .iteration = checkpoint,
                              .checkpoint = checkpoint,
                              .save_s = NAN};
    erg_reconcile_report(&scene->jobs[job], &said, scene->now_s);
}

static void see(struct scene *scene)
{
    erg_reconcile_see(scene->jobs, scene->count, &scene->snapshot, &scene->limits, scene->now_s);
}

/* "stop 0, place 1": sees and asks what is next. */
static const char *next(struct scene *scene)
{
    static char text[400];
    see(scene);
    erg_reconcile_next(scene->jobs, scene->count, &scene->snapshot, &small_fleet, &scene->limits,
                       scene->now_s, &scene->actions);
    text[0] = '\0';
    for (size_t i = 0; i < scene->actions.count; i++) {
        const struct erg_action *action = &scene->actions.items[i];
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %d", i ? ", " : "",
                 erg_action_verb_name(action->verb),
                 action->verb == ERG_ACTION_WAKE ? action->node : (int)action->job);
    }
    return text;
}

static void answer_all(struct scene *scene, enum erg_engine_answer answer)
{
    for (size_t i = 0; i < scene->actions.count; i++) {
        const struct erg_action *action = &scene->actions.items[i];
        erg_reconcile_answer(&scene->jobs[action->job], action, answer, &scene->limits,
                             scene->now_s);
    }
}

/* A job that was placed by us and runs, with a report. */
static void make_run(struct scene *scene, int job, int node, int gpus)
{
    intend(scene, job, node, gpus);
    next(scene);
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, job, ERG_LIVE_RUNNING, node, gpus);
    see(scene);
    report(scene, job, scene->jobs[job].incarnation + 1, ERG_JOB_TRAINING, 0);
    see(scene);
    assert_int_equal(scene->jobs[job].phase, ERG_PHASE_RUNNING);
}

#define assert_phase(scene, job, expected)                                                         \
    do {                                                                                           \
        see(scene);                                                                                \
        assert_string_equal(erg_live_phase_name((scene)->jobs[job].phase), expected);              \
    } while (0)

static void phases_follow_from_the_snapshot(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    assert_string_equal(erg_live_phase_name(scene->jobs[0].phase), "new");
    assert_phase(scene, 0, "waiting");
    intend(scene, 0, 1, 2);
    assert_string_equal(next(scene), "place 0");
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_PENDING, 0, 0);
    assert_phase(scene, 0, "starting");
    show(scene, 0, ERG_LIVE_RUNNING, 1, 2);
    assert_phase(scene, 0, "starting");
    report(scene, 0, 1, ERG_JOB_LOADING, 0);
    assert_phase(scene, 0, "running");
    intend(scene, 0, 2, 2);
    assert_string_equal(next(scene), "stop 0");
    answer_all(scene, ERG_ENGINE_DONE);
    assert_phase(scene, 0, "stopping");
    show(scene, 0, ERG_LIVE_COMPLETING, 1, 2);
    assert_phase(scene, 0, "stopping");
    show(scene, 0, ERG_LIVE_HELD, 0, 0);
    assert_phase(scene, 0, "waiting");
    show(scene, 0, ERG_LIVE_PENDING, 0, 0);
    assert_phase(scene, 0, "returned");
    show(scene, 0, ERG_LIVE_UNKNOWN, 1, 2);
    assert_phase(scene, 0, "unknown");
    show(scene, 0, ERG_LIVE_FAILED, 0, 0);
    assert_phase(scene, 0, "failed");
    show(scene, 0, ERG_LIVE_RUNNING, 1, 2);
    see(scene);
    report(scene, 0, 2, ERG_JOB_DONE, 9);
    assert_phase(scene, 0, "ending");
    show(scene, 0, ERG_LIVE_COMPLETED, 0, 0);
    assert_phase(scene, 0, "ended");
    assert_false(scene->jobs[0].needs_attention);
    scene->snapshot.jobs_count = 0; /* forgotten */
    assert_phase(scene, 0, "ended");
}

static void a_job_that_is_gone_was_done_or_is_lost(void **state)
{
    (void)state;
    struct scene *scene = scene_of(3);
    for (int job = 0; job < 2; job++)
        make_run(scene, job, job, 4);
    report(scene, 0, 1, ERG_JOB_DONE, 9);
    show(scene, 2, ERG_LIVE_CANCELLED, 0, 0);
    see(scene);
    scene->snapshot.jobs_count = 0;
    assert_phase(scene, 0, "ended");
    assert_phase(scene, 1, "gone");
    assert_true(scene->jobs[1].needs_attention);
    assert_phase(scene, 2, "cancelled");
    assert_string_equal(next(scene), "");
}

static void an_id_of_another_token_is_another_job(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    make_run(scene, 0, 1, 2);
    intend(scene, 0, 0, 0);
    memcpy(scene->shown[0].token, token_of(9), ERG_TOKEN_LENGTH + 1);
    assert_string_equal(next(scene), "");
    assert_phase(scene, 0, "gone");
    scene->shown[0].token[0] = '\0';
    assert_string_equal(next(scene), "");
}

static void only_reported_incarnations_are_signalled(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    intend(scene, 0, 1, 2);
    next(scene);
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_RUNNING, 1, 2);
    intend(scene, 0, 0, 0);
    assert_string_equal(next(scene), "kill 0"); /* there is nothing to save */
    report(scene, 0, 1, ERG_JOB_TRAINING, 0);
    assert_string_equal(next(scene), "stop 0");
    /* Another incarnation: the last report was not its. */
    scene->shown[0].restarts = 1;
    assert_string_equal(next(scene), "");
    assert_phase(scene, 0, "starting");
    report(scene, 0, 2, ERG_JOB_LOADING, 0);
    assert_string_equal(next(scene), "stop 0");
}

static void a_new_incarnation_is_known_by_its_start(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    intend(scene, 0, 1, 2);
    next(scene);
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_RUNNING, 1, 2);
    scene->shown[0].started_unix_s = 2e9;
    see(scene);
    report(scene, 0, 1, ERG_JOB_TRAINING, 0);
    assert_phase(scene, 0, "running");
    scene->shown[0].started_unix_s = 2e9 + 7; /* as many restarts: the manager has forgotten one */
    assert_phase(scene, 0, "starting");
    intend(scene, 0, 0, 0);
    assert_string_equal(next(scene), "");
    report(scene, 0, 2, ERG_JOB_LOADING, 0);
    assert_string_equal(next(scene), "stop 0");
}

static void an_incarnation_that_came_and_went_unseen_is_another(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    intend(scene, 0, 1, 2);
    next(scene);
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_PENDING, 0, 0);
    report(scene, 0, 1, ERG_JOB_LOADING, 0);
    assert_phase(scene, 0, "starting");
    show(scene, 0, ERG_LIVE_RUNNING, 1, 2);
    assert_phase(scene, 0, "starting");
    report(scene, 0, 1, ERG_JOB_TRAINING, 0); /* it had just started, after all */
    assert_phase(scene, 0, "running");
}

static void a_kill_without_an_answer_is_no_kill_if_it_runs_on(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    intend(scene, 0, 1, 2);
    next(scene);
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_RUNNING, 1, 2);
    intend(scene, 0, 0, 0);
    assert_string_equal(next(scene), "kill 0");
    answer_all(scene, ERG_ENGINE_LATER);
    assert_phase(scene, 0, "stopping");
    scene->now_s += 1;
    report(scene, 0, 1, ERG_JOB_LOADING, 0);
    assert_string_equal(next(scene), "stop 0");
}

static void a_placement_that_is_not_wanted_any_more_is_taken_back(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    for (int node = 0; node < 2; node++) {
        intend(scene, 0, 2, 2);
        assert_string_equal(next(scene), "place 0");
        answer_all(scene, ERG_ENGINE_DONE);
        show(scene, 0, ERG_LIVE_PENDING, 0, 0);
        assert_string_equal(next(scene), "");
        intend(scene, 0, node, node ? 2 : 0);
        assert_string_equal(next(scene), "hold 0");
        answer_all(scene, ERG_ENGINE_DONE);
        show(scene, 0, ERG_LIVE_HELD, 0, 0);
        see(scene);
        assert_int_equal(scene->jobs[0].failed_starts, 0);
    }
}

static void an_incarnation_that_was_found_waits_for_its_report(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    report(scene, 0, 4, ERG_JOB_TRAINING, 50); /* perhaps of the one before */
    show(scene, 0, ERG_LIVE_RUNNING, 1, 2);
    assert_string_equal(next(scene), "");
    scene->now_s += 10;
    report(scene, 0, 4, ERG_JOB_TRAINING, 50);
    assert_string_equal(next(scene), "stop 0");
    /* Or it never comes. */
    scene = scene_of(1);
    show(scene, 0, ERG_LIVE_RUNNING, 1, 2);
    assert_string_equal(next(scene), "");
    scene->now_s += 1799;
    assert_string_equal(next(scene), "");
    scene->now_s += 2;
    assert_string_equal(next(scene), "kill 0");
}

static void a_signal_is_sent_once_then_it_is_killed(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    make_run(scene, 0, 1, 2);
    struct erg_report saved = {.incarnation = 1, .state = ERG_JOB_TRAINING, .save_s = 30};
    erg_reconcile_report(&scene->jobs[0], &saved, scene->now_s);
    intend(scene, 0, 2, 2);
    assert_string_equal(next(scene), "stop 0");
    answer_all(scene, ERG_ENGINE_LATER);
    scene->now_s += 90;
    assert_string_equal(next(scene), ""); /* 3 x 30 s */
    scene->now_s += 1;
    assert_string_equal(next(scene), "kill 0");
    answer_all(scene, ERG_ENGINE_DONE);
    assert_string_equal(next(scene), "");
    assert_phase(scene, 0, "stopping");
    scene->now_s += 301;
    assert_string_equal(next(scene), "kill 0");
}

static void jobs_that_exchange_gpus_stop_first(void **state)
{
    (void)state;
    struct scene *scene = scene_of(2);
    make_run(scene, 0, 0, 4);
    make_run(scene, 1, 1, 4);
    intend(scene, 0, 1, 4);
    intend(scene, 1, 0, 4);
    assert_string_equal(next(scene), "stop 0, stop 1");
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_HELD, 0, 0);
    show(scene, 1, ERG_LIVE_COMPLETING, 1, 4);
    assert_string_equal(next(scene), "");
    assert_string_equal(scene->jobs[0].waits_for, "its GPUs are not free yet");
    show(scene, 1, ERG_LIVE_HELD, 0, 0);
    assert_string_equal(next(scene), "place 0, place 1");
}

static void only_free_gpus_are_promised_and_once(void **state)
{
    (void)state;
    struct scene *scene = scene_of(4);
    scene->shown[3].token[0] = '\0'; /* a foreign job with 2 of node 0 */
    show(scene, 3, ERG_LIVE_RUNNING, 0, 2);
    scene->count = 3;
    intend(scene, 0, 0, 2);
    intend(scene, 1, 0, 2);
    intend(scene, 2, 0, 1);
    scene->jobs[1].order = -1;
    assert_string_equal(next(scene), "place 1");
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 1, ERG_LIVE_PENDING, 0, 0);
    assert_string_equal(next(scene), ""); /* they are job 1's, which has not started */
    show(scene, 3, ERG_LIVE_COMPLETED, 0, 0);
    assert_string_equal(next(scene), "place 0");
}

static void nothing_is_placed_on_nodes_that_drain_or_are_down(void **state)
{
    (void)state;
    static const enum erg_live_node_state states[] = {ERG_NODE_DRAINS, ERG_NODE_DOWN,
                                                      ERG_NODE_UNKNOWN, ERG_NODE_CHANGES};
    struct scene *scene = scene_of(1);
    intend(scene, 0, 2, 1);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        scene->nodes[2].state = states[i];
        assert_string_equal(next(scene), "");
        assert_non_null(scene->jobs[0].waits_for);
    }
    scene->nodes[2].state = ERG_NODE_UP;
    assert_string_equal(next(scene), "place 0");
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_PENDING, 0, 0);
    assert_string_equal(next(scene), "");
    scene->nodes[2].state = ERG_NODE_DRAINS;
    assert_string_equal(next(scene), "hold 0");
}

static void sleeping_nodes_are_woken_once_then_jobs_placed(void **state)
{
    (void)state;
    struct scene *scene = scene_of(2);
    intend(scene, 0, 2, 2);
    intend(scene, 1, 2, 2);
    scene->nodes[2].state = ERG_NODE_OFF;
    assert_string_equal(next(scene), "wake 2");
    scene->nodes[2].state = ERG_NODE_CHANGES;
    assert_string_equal(next(scene), "");
    scene->nodes[2].state = ERG_NODE_UP;
    assert_string_equal(next(scene), "place 0, place 1");
}

static void what_returns_is_held_and_users_holds_are_taken_over(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    make_run(scene, 0, 1, 2);
    scene->shown[0].restarts = 1; /* preempted */
    show(scene, 0, ERG_LIVE_PENDING, 0, 0);
    assert_string_equal(next(scene), "hold 0");
    answer_all(scene, ERG_ENGINE_LATER);
    assert_string_equal(next(scene), ""); /* a second later */
    scene->now_s += 1;
    assert_string_equal(next(scene), "hold 0");
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_HELD, 0, 0);
    assert_string_equal(next(scene), "place 0");
    intend(scene, 0, 0, 0);
    assert_string_equal(next(scene), "");
    scene->shown[0].held_by_administrator = false;
    assert_string_equal(next(scene), "hold 0");
    assert_int_equal(scene->jobs[0].failures + scene->jobs[0].failed_starts, 0);
    answer_all(scene, ERG_ENGINE_DONE);
    assert_string_equal(next(scene), ""); /* though the reason that is shown stays an older one */
    scene->shown[0].held_by_administrator = true;
    assert_string_equal(next(scene), "");
    scene->shown[0].held_by_administrator = false;
    scene->jobs[0].left_alone = true;
    assert_string_equal(next(scene), "");
    scene->jobs[0].left_alone = false;
    assert_string_equal(next(scene), "hold 0");
    /* A record that can be read in two ways is of a job that is there. */
    scene->shown[0].state = ERG_LIVE_UNKNOWN;
    scene->shown[0].token[0] = '\0';
    assert_string_equal(next(scene), "");
    assert_int_equal(scene->jobs[0].phase, ERG_PHASE_UNKNOWN);
}

static void three_placements_without_a_start_need_attention(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    intend(scene, 0, 1, 2);
    for (int i = 0; i < 3; i++) {
        assert_false(scene->jobs[0].needs_attention);
        show(scene, 0, ERG_LIVE_HELD, 0, 0);
        assert_string_equal(next(scene), "place 0");
        answer_all(scene, ERG_ENGINE_DONE);
        show(scene, 0, ERG_LIVE_PENDING, 0, 0);
        scene->now_s += 60;
        assert_string_equal(next(scene), "");
        scene->now_s += 1;
        assert_string_equal(next(scene), "hold 0");
        answer_all(scene, ERG_ENGINE_DONE);
    }
    assert_true(scene->jobs[0].needs_attention);
    show(scene, 0, ERG_LIVE_HELD, 0, 0);
    scene->now_s += 599;
    assert_string_equal(next(scene), "");
    scene->now_s += 1;
    assert_string_equal(next(scene), "place 0");
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_RUNNING, 1, 2);
    see(scene);
    report(scene, 0, 1, ERG_JOB_LOADING, 0);
    assert_false(scene->jobs[0].needs_attention);
}

static void a_launch_that_failed_waits_and_avoids_the_node(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    intend(scene, 0, 1, 2);
    next(scene);
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_HELD, 0, 0); /* "launch failed requeued held" */
    scene->now_s += 1;
    assert_string_equal(next(scene), "");
    scene->now_s += 31;
    assert_string_equal(next(scene), "");
    assert_true(erg_reconcile_avoids(&scene->jobs[0], 1, scene->now_s));
    intend(scene, 0, 0, 2);
    assert_string_equal(next(scene), "place 0");
}

static void a_failed_job_is_taken_back_twice_then_given_up(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    double waits_s[] = {30, 60};
    for (int i = 0; i < 3; i++) {
        make_run(scene, 0, i, 4);
        scene->shown[0].exit_status = 7;
        show(scene, 0, ERG_LIVE_FAILED, 0, 0);
        if (i == 2)
            break;
        assert_string_equal(next(scene), "kill 0");
        answer_all(scene, ERG_ENGINE_DONE);
        scene->shown[0].restarts++;
        show(scene, 0, ERG_LIVE_HELD, 0, 0);
        assert_string_equal(next(scene), "");
        intend(scene, 0, i + 1, 4);
        scene->now_s += waits_s[i] - 1;
        assert_string_equal(next(scene), "");
        scene->now_s += 1;
        assert_true(erg_reconcile_avoids(&scene->jobs[0], i, scene->now_s));
    }
    assert_string_equal(next(scene), "");
    assert_true(scene->jobs[0].given_up);
    assert_non_null(strstr(scene->jobs[0].reason, "exit status 7"));
}

static void a_new_checkpoint_makes_a_failure_the_first(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    for (int i = 0; i < 5; i++) {
        make_run(scene, 0, i % 4, 4);
        report(scene, 0, scene->jobs[0].incarnation, ERG_JOB_TRAINING, 10 * (i + 1));
        show(scene, 0, ERG_LIVE_FAILED, 0, 0);
        assert_string_equal(next(scene), "kill 0");
        answer_all(scene, ERG_ENGINE_DONE);
        scene->shown[0].restarts++;
        show(scene, 0, ERG_LIVE_HELD, 0, 0);
        see(scene);
        scene->now_s += 30;
        assert_int_equal(scene->jobs[0].failures, 1);
    }
    /* Nor is it the job's fault when its node is down. */
    scene = scene_of(1);
    make_run(scene, 0, 1, 4);
    scene->nodes[1].state = ERG_NODE_DOWN;
    show(scene, 0, ERG_LIVE_FAILED, 0, 0);
    assert_string_equal(next(scene), "kill 0");
    assert_int_equal(scene->jobs[0].failures, 0);
}

static void the_cancelled_the_unknown_and_the_done_are_left_alone(void **state)
{
    (void)state;
    static const enum erg_live_state states[] = {ERG_LIVE_CANCELLED, ERG_LIVE_UNKNOWN,
                                                 ERG_LIVE_COMPLETED};
    struct scene *scene = scene_of(2);
    for (size_t i = 0; i < 3; i++) {
        scene = scene_of(2);
        make_run(scene, 0, 1, 4);
        intend(scene, 0, 2, 4);
        next(scene);
        answer_all(scene, ERG_ENGINE_DONE);
        show(scene, 0, states[i], 1, states[i] == ERG_LIVE_UNKNOWN ? 4 : 0);
        scene->now_s += 5000;
        assert_string_equal(next(scene), "");
        intend(scene, 1, 1, 1); /* the unknown one's GPUs are taken */
        assert_string_equal(next(scene), states[i] == ERG_LIVE_UNKNOWN ? "" : "place 1");
    }
    scene = scene_of(1);
    make_run(scene, 0, 1, 4);
    report(scene, 0, 1, ERG_JOB_DONE, 9);
    intend(scene, 0, 0, 0);
    assert_string_equal(next(scene), "");
}

static void a_placement_without_an_answer_may_have_happened(void **state)
{
    (void)state;
    struct scene *scene = scene_of(2);
    intend(scene, 0, 1, 3);
    next(scene);
    answer_all(scene, ERG_ENGINE_LATER);
    intend(scene, 1, 1, 2);
    scene->now_s += 0.5;
    assert_string_equal(next(scene), ""); /* neither again nor job 1 on its GPUs */
    scene->now_s += 0.6;
    assert_string_equal(next(scene), "place 0");
    intend(scene, 0, 0, 0);
    assert_string_equal(next(scene), "hold 0");
    answer_all(scene, ERG_ENGINE_DONE);
    assert_string_equal(next(scene), "place 1");
    /* It had happened. */
    intend(scene, 0, 1, 2);
    next(scene);
    answer_all(scene, ERG_ENGINE_LATER);
    show(scene, 0, ERG_LIVE_PENDING, 0, 0);
    assert_phase(scene, 0, "starting");
}

static void calls_that_fail_are_made_again_ever_later(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    make_run(scene, 0, 1, 3);
    intend(scene, 0, 0, 0);
    double expected_s[] = {1, 2, 4, 8, 16, 30, 30};
    for (size_t i = 0; i < 7; i++) {
        assert_string_equal(next(scene), "stop 0");
        answer_all(scene, i % 2 ? ERG_ENGINE_REFUSED : ERG_ENGINE_BROKEN);
        scene->now_s += expected_s[i] - 0.1;
        assert_string_equal(next(scene), "");
        scene->now_s += 0.2;
    }
}

static void points_change_by_the_plan_alone(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    make_run(scene, 0, 1, 4);
    scene->jobs[0].point = 2;
    assert_string_equal(next(scene), "pace 0");
    answer_all(scene, ERG_ENGINE_BROKEN);
    assert_string_equal(next(scene), "pace 0");
    answer_all(scene, ERG_ENGINE_DONE);
    assert_string_equal(next(scene), "");
    set_placement(&scene->jobs[0].intended, 1, 4); /* other GPUs of the same node */
    scene->shown[0].placement.slices[0].gpus = 0xf;
    assert_string_equal(next(scene), "");
}

static void the_cap_is_kept_by_lowering_first(void **state)
{
    (void)state;
    struct scene *scene = scene_of(3);
    scene->limits.cap_w = 5000;
    scene->limits.idle_w = 1000; /* 4000 W to share */
    scene->jobs[0].intended_w = 3000;
    scene->jobs[1].intended_w = 1000;
    make_run(scene, 0, 0, 4);
    make_run(scene, 1, 1, 4);
    /* Job 1 rises by what job 0 gives, once that one obeys. */
    scene->jobs[0].intended_w = 1500;
    scene->jobs[0].point = 1;
    scene->jobs[1].intended_w = 2000;
    scene->jobs[1].point = 1;
    assert_string_equal(next(scene), "pace 0");
    answer_all(scene, ERG_ENGINE_DONE);
    scene->now_s += 29;
    assert_string_equal(next(scene), "");
    scene->now_s += 1;
    assert_string_equal(next(scene), "pace 1");
    answer_all(scene, ERG_ENGINE_DONE);
    /* Job 2 starts when job 1 has left, not when it was signalled. */
    scene->now_s += 60;
    scene->jobs[2].intended_w = 2500;
    intend(scene, 2, 2, 4);
    intend(scene, 1, 0, 0);
    assert_string_equal(next(scene), "stop 1");
    assert_string_equal(scene->jobs[2].waits_for, "the power cap leaves no room yet");
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 1, ERG_LIVE_COMPLETING, 1, 4);
    assert_string_equal(next(scene), "");
    /* Nor while its user could start it again. */
    scene->shown[1].held_by_administrator = false;
    show(scene, 1, ERG_LIVE_HELD, 0, 0);
    assert_string_equal(next(scene), "hold 1");
    scene->shown[1].held_by_administrator = true;
    assert_string_equal(next(scene), "place 2");
    /* Job 2 may draw its watts when nobody knows whether it was placed. */
    answer_all(scene, ERG_ENGINE_LATER);
    scene->jobs[0].point = 0;
    scene->jobs[0].intended_w = 1501;
    assert_string_equal(next(scene), "");
    scene->jobs[0].intended_w = 1500;
    assert_string_equal(next(scene), "pace 0");
}

static void a_job_that_returns_may_draw_power(void **state)
{
    (void)state;
    struct scene *scene = scene_of(2);
    scene->limits.cap_w = 4000;
    scene->jobs[0].intended_w = 3000;
    make_run(scene, 0, 0, 4);
    scene->shown[0].restarts = 1;
    show(scene, 0, ERG_LIVE_PENDING, 0, 0);
    intend(scene, 0, 0, 0);
    intend(scene, 1, 1, 4);
    scene->jobs[1].intended_w = 2000;
    assert_string_equal(next(scene), "hold 0");
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, 0, ERG_LIVE_HELD, 0, 0);
    assert_string_equal(next(scene), "place 1");
}

/* --- the fake's own rules --- */

static struct fake_trainer usual_trainer(void)
{
    return (struct fake_trainer){.iterations = 1000,
                                 .iteration_s = 2,
                                 .boot_s = 1,
                                 .load_s = 4,
                                 .save_s = 3,
                                 .checkpoint_s = 100};
}

static struct fake_engine *usual_fake(struct fake_settings *settings)
{
    fake_settings_init(settings);
    settings->start_least_s = settings->start_most_s = 1;
    settings->complete_s = 0.5;
    return fake_engine_new(&small_fleet, settings);
}

static void the_fake_costs_what_its_settings_say(void **state)
{
    (void)state;
    struct fake_settings settings;
    struct erg_error err = {0};
    struct fake_engine *fake = usual_fake(&settings);
    const struct erg_live_engine_calls *calls = fake->engine.calls;
    struct fake_trainer trainer = usual_trainer();
    fake_engine_submit(fake, token_of(0), &trainer, 0, 0);
    struct fake_job *job = fake_engine_job(fake, token_of(0));
    struct erg_placement two = {0};
    erg_placement_add(&two, 1, 3);
    fake->lenient = true;
    assert_int_equal(calls->place(&fake->engine, 1, token_of(0), &two, &err), ERG_ENGINE_DONE);
    fake_engine_advance(fake, 106); /* start 1, boot 1, load 4: trains since 6 */
    assert_near(fake_engine_iteration(fake, job), 100, 1e-9);
    assert_near(job->checkpoint, 100, 1e-9);
    struct erg_report report;
    bool fresh;
    assert_true(fake_engine_report(fake, token_of(0), &report, &fresh));
    assert_true(fresh && report.state == ERG_JOB_TRAINING);
    assert_near(report.iteration, 100, 1e-9);
    fake_engine_advance(fake, 110);
    assert_int_equal(calls->stop(&fake->engine, 1, token_of(0), &err), ERG_ENGINE_DONE);
    fake_engine_advance(fake, 113.4);
    assert_int_equal(job->state, ERG_LIVE_COMPLETING);
    assert_near(job->checkpoint, 104, 1e-9);
    fake_engine_advance(fake, 113.5);
    assert_int_equal(job->state, ERG_LIVE_HELD);
    assert_false(job->held_by_administrator);
    calls->place(&fake->engine, 1, token_of(0), &two, &err);
    fake_engine_advance(fake, 113.5 + 6 + 896); /* as many iterations are left */
    fake_engine_advance(fake, 1016);
    assert_int_equal(job->state, ERG_LIVE_COMPLETED);
    assert_int_equal(job->completed, 1);
    assert_string_equal(fake->broken, "");
    erg_placement_release(&two);
    fake_engine_free(fake);
}

/* Places job 0 and lets it run until then. */
static struct fake_engine *running_fake(struct fake_settings *settings, double until_s,
                                        const struct fake_trainer *trainer)
{
    struct erg_error err = {0};
    struct fake_engine *fake = usual_fake(settings);
    fake_engine_submit(fake, token_of(0), trainer, 0, 0);
    struct erg_placement two = {0};
    erg_placement_add(&two, 1, 3);
    fake->lenient = true;
    fake->engine.calls->place(&fake->engine, 1, token_of(0), &two, &err);
    erg_placement_release(&two);
    fake_engine_advance(fake, until_s);
    return fake;
}

static void the_fake_has_the_rules_of_slurm(void **state)
{
    (void)state;
    struct fake_settings settings;
    struct erg_error err = {0};
    struct fake_trainer trainer = usual_trainer();
    struct erg_live_snapshot snapshot = {0};
    /* A signal before the trap is set kills; what failed can be taken back until it is forgotten.
     */
    struct fake_engine *fake = running_fake(&settings, 1.5, &trainer);
    const struct erg_live_engine_calls *calls = fake->engine.calls;
    struct fake_job *job = fake_engine_job(fake, token_of(0));
    calls->stop(&fake->engine, 1, token_of(0), &err);
    fake_engine_advance(fake, 3);
    assert_int_equal(job->state, ERG_LIVE_FAILED);
    assert_int_equal(fake->early_signals, 1);
    assert_int_equal(calls->kill(&fake->engine, 1, token_of(0), &err), ERG_ENGINE_DONE);
    assert_int_equal(job->state, ERG_LIVE_HELD);
    fake_engine_free(fake);
    fake = running_fake(&settings, 1.5, &trainer);
    calls->stop(&fake->engine, 1, token_of(0), &err);
    fake_engine_advance(fake, 303);
    assert_int_equal(calls->kill(&fake->engine, 1, token_of(0), &err), ERG_ENGINE_GONE);
    assert_int_equal(calls->snapshot(&fake->engine, &snapshot, &err), ERG_ENGINE_DONE);
    assert_int_equal(snapshot.jobs_count, 0);
    erg_live_snapshot_release(&snapshot);
    fake_engine_free(fake);
    /* What is preempted saves, returns, and can be held; what is cancelled stays so. */
    fake = running_fake(&settings, 20, &trainer);
    job = fake_engine_job(fake, token_of(0));
    fake_preempt(fake, 0);
    fake_engine_advance(fake, 24);
    assert_int_equal(job->state, ERG_LIVE_PENDING);
    assert_near(job->checkpoint, 14, 1e-9);
    assert_int_equal(calls->hold(&fake->engine, 1, token_of(0), &err), ERG_ENGINE_DONE);
    fake_user_release(fake, 0);
    assert_int_equal(job->state, ERG_LIVE_HELD);
    fake_user_cancel(fake, 0);
    assert_int_equal(calls->kill(&fake->engine, 1, token_of(0), &err), ERG_ENGINE_REFUSED);
    assert_int_equal(job->state, ERG_LIVE_CANCELLED);
    fake_engine_free(fake);
    /* A trainer that ignores all signals loses what it did since its checkpoint, once. */
    trainer.ignores_usr1 = trainer.ignores_term = true;
    fake = running_fake(&settings, 150, &trainer);
    job = fake_engine_job(fake, token_of(0));
    calls->kill(&fake->engine, 1, token_of(0), &err);
    fake_engine_advance(fake, 179.9);
    assert_int_equal(job->state, ERG_LIVE_COMPLETING);
    fake_engine_advance(fake, 181);
    assert_int_equal(job->state, ERG_LIVE_HELD);
    assert_near(job->checkpoint, 100, 1e-9);
    assert_near(job->best, 174, 1e-9);
    fake_engine_free(fake);
}

static void the_fake_gives_lost_ids_again(void **state)
{
    (void)state;
    struct fake_settings settings;
    struct fake_trainer trainer = usual_trainer();
    fake_settings_init(&settings);
    settings.state_s = 5;
    struct fake_engine *fake = fake_engine_new(&small_fleet, &settings);
    fake_engine_submit(fake, token_of(0), &trainer, 0, 0);
    fake_engine_advance(fake, 3);
    fake_engine_submit(fake, token_of(1), &trainer, 0, 0);
    fake_manager_stop(fake, 2, true); /* forgets all since 0 */
    fake_engine_submit(fake, NULL, &trainer, 0, 2);
    assert_true(fake->jobs[0].lost && fake->jobs[1].lost);
    assert_int_equal(fake->jobs[2].id, 1);
    fake_engine_advance(fake, 10);
    assert_int_equal(fake->jobs[2].state, ERG_LIVE_RUNNING);
    fake_engine_free(fake);
}

static void the_fake_sees_two_incarnations_commit(void **state)
{
    (void)state;
    for (int unfenced = 0; unfenced < 2; unfenced++) {
        struct fake_settings settings;
        struct erg_error err = {0};
        struct fake_trainer trainer = usual_trainer();
        trainer.unfenced = unfenced;
        struct fake_engine *fake = running_fake(&settings, 50, &trainer);
        fake_node_fail(fake, 1, true);
        fake->ghosts.items[0].commits_s = 80;
        struct erg_placement other = {0};
        erg_placement_add(&other, 0, 3);
        fake->engine.calls->hold(&fake->engine, 1, token_of(0), &err);
        fake->engine.calls->place(&fake->engine, 1, token_of(0), &other, &err);
        erg_placement_release(&other);
        fake_engine_advance(fake, 100);
        if (!unfenced)
            assert_string_equal(fake->broken, "");
        else
            assert_non_null(strstr(fake->broken, "I2"));
        assert_int_equal(fake->fenced, !unfenced);
        fake_engine_free(fake);
    }
}

/* --- random histories --- */

enum { MANAGED_MOST = 6, POINTS = 3 };
static const double point_w[POINTS] = {300, 200, 100}; /* of one GPU */

struct world {
    uint64_t seed;
    struct erg_rng rng;
    struct erg_gpu_type types[1];
    struct erg_fleet fleet;
    struct fake_engine *fake;
    struct erg_managed_job jobs[MANAGED_MOST];
    size_t count;
    struct erg_reconcile_limits limits;
    struct erg_live_snapshot snapshot;
    struct erg_actions actions;
    double chaos;    /* 0: nothing goes wrong any more */
    bool crashed;    /* the manager, uncleanly: what it forgot may draw power */
    bool fresh;      /* records are as of a controller without a journal */
    char wrong[240]; /* first thing that must not be */
    long placements, moves, kills, paces, attention;
};

static bool chance(struct world *world, double share)
{
    return erg_rng_uniform(&world->rng) < share;
}

static int below(struct world *world, int limit)
{
    return (int)erg_rng_below(&world->rng, (size_t)limit);
}

#define NOTE(world, ...)                                                                           \
    do {                                                                                           \
        if (!(world)->wrong[0])                                                                    \
            snprintf((world)->wrong, sizeof(world)->wrong, __VA_ARGS__);                           \
    } while (0)

static void watch_power(void *context, struct fake_engine *fake)
{
    struct world *world = context;
    double room_w = world->limits.cap_w - world->limits.idle_w;
    if (!world->crashed && fake_engine_watts(fake) > room_w + 1e-6)
        NOTE(world, "power: %.0f W of %.0f W at %.1f s", fake_engine_watts(fake), room_w,
             fake->now_s);
}

static struct world *world_of(uint64_t seed)
{
    static struct world world;
    world = (struct world){.seed = seed, .chaos = 1};
    erg_rng_seed(&world.rng, seed);
    world.types[0] = (struct erg_gpu_type){.name = type_names[0],
                                           .nodes = 1 + below(&world, 4),
                                           .gpus_per_node = 1 + below(&world, 4)};
    world.fleet = (struct erg_fleet){.types = world.types,
                                     .types_count = 1,
                                     .nodes = world.types[0].nodes,
                                     .gpus = world.types[0].nodes * world.types[0].gpus_per_node};
    struct fake_settings settings;
    fake_settings_init(&settings);
    settings.seed = seed ^ 0x5eed;
    settings.start_most_s = chance(&world, 0.2) ? 40 : 3;
    settings.complete_s = chance(&world, 0.2) ? 10 : 0.3;
    settings.requeue_s = chance(&world, 0.5) ? 6 : 121;
    settings.state_s = chance(&world, 0.3) ? 5 : INFINITY;
    settings.forget_s = chance(&world, 0.3) ? 20 : 300;
    settings.obey_s = chance(&world, 0.5) ? 25 : 5;
    settings.other_gpus = chance(&world, 0.5);
    settings.after = watch_power;
    settings.context = &world;
    world.fake = fake_engine_new(&world.fleet, &settings);
    erg_reconcile_limits_init(&world.limits);
    world.limits.pace_s = settings.obey_s;
    world.limits.attention_s = 100;
    if (chance(&world, 0.5))
        world.limits.silence_s = 60;
    world.limits.idle_w = 50 * world.fleet.gpus;
    if (chance(&world, 0.7))
        world.limits.cap_w = world.limits.idle_w + 100 * (1 + below(&world, 3 * world.fleet.gpus));
    world.count = 1 + (size_t)below(&world, MANAGED_MOST);
    for (size_t i = 0; i < world.count; i++) {
        struct fake_trainer trainer = {
            .iterations = 100 + below(&world, 2000),
            .iteration_s = 1,
            .boot_s = 0.5 + 5 * erg_rng_uniform(&world.rng),
            .load_s = 10 * erg_rng_uniform(&world.rng),
            .save_s = 20 * erg_rng_uniform(&world.rng),
            .checkpoint_s = 20 + below(&world, 60),
            .bad_starts = chance(&world, 0.1) ? below(&world, 4) : 0,
            .dies_at = chance(&world, 0.05) ? 1 + below(&world, 300) : 0,
        };
        fake_engine_submit(world.fake, token_of((int)i), &trainer, 0, 0);
        erg_managed_job_init(&world.jobs[i], (uint32_t)i + 1, token_of((int)i));
    }
    return &world;
}

static void end_world(struct world *world)
{
    for (size_t i = 0; i < world->count; i++)
        erg_managed_job_release(&world->jobs[i]);
    free(world->actions.items);
    erg_live_snapshot_release(&world->snapshot);
    fake_engine_free(world->fake);
}

static bool is_over(const struct erg_managed_job *job)
{
    return job->given_up || job->phase == ERG_PHASE_ENDED || job->phase == ERG_PHASE_CANCELLED ||
           job->phase == ERG_PHASE_GONE;
}

/* A policy without sense but for what no policy may do: promise GPUs or watts twice. */
static void change_intent(struct world *world, size_t index)
{
    struct erg_managed_job *job = &world->jobs[index];
    int free_gpus[4] = {0};
    double room_w = world->limits.cap_w - world->limits.idle_w;
    bool same = job->intended.count > 0 && chance(world, 0.3);
    for (int node = 0; node < world->fleet.nodes; node++)
        free_gpus[node] = world->types[0].gpus_per_node;
    for (size_t i = 0; i < world->count; i++) {
        const struct erg_managed_job *other = &world->jobs[i];
        if (i == index || is_over(other) || other->intended.count == 0)
            continue;
        room_w -= other->intended_w;
        for (int s = 0; s < other->intended.count; s++)
            free_gpus[other->intended.slices[s].node] -=
                __builtin_popcountll(other->intended.slices[s].gpus);
    }
    if (!same) {
        job->intended.count = 0;
        int gpus = 1 + below(world, world->types[0].gpus_per_node);
        int nodes = 1 + below(world, world->fleet.nodes), first = below(world, world->fleet.nodes);
        for (int i = 0; i < world->fleet.nodes && job->intended.count < nodes; i++) {
            int node = (first + i) % world->fleet.nodes;
            if (free_gpus[node] >= gpus)
                erg_placement_add(&job->intended, node, (1ull << gpus) - 1);
        }
    }
    job->order = below(world, 3);
    int gpus = erg_placement_gpus(&job->intended);
    for (int point = below(world, POINTS); point < POINTS; point++) {
        if (point_w[point] * gpus > room_w)
            continue;
        job->point = point;
        job->intended_w = point_w[point] * gpus;
        return;
    }
    job->intended.count = 0;
    job->intended_w = 0;
}

static void drop_intents(struct world *world, double share)
{
    for (size_t i = 0; i < world->count; i++)
        if (is_over(&world->jobs[i]) || chance(world, share)) {
            world->jobs[i].intended.count = 0;
            world->jobs[i].intended_w = 0;
        }
}

/* A controller that has lost its journal, and looks at what there is. */
static void forget_records(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        struct erg_managed_job *job = &world->jobs[i];
        uint32_t id = job->id;
        erg_managed_job_release(job);
        erg_managed_job_init(job, id, token_of((int)i));
        job->point = POINTS - 1;
        struct fake_job *truth = fake_engine_job(world->fake, job->token);
        job->told_w = fmax(truth->plan_w, point_w[0] * world->fleet.gpus);
        truth->unread = true;
        truth->stopped_run = -1; /* it may be signalled again, which does no harm */
    }
    world->fresh = true;
}

static void adopt(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        struct erg_managed_job *job = &world->jobs[i];
        int gpus = erg_placement_gpus(&job->actual);
        erg_placement_assign(&job->intended, &job->actual);
        job->intended_w = gpus * point_w[POINTS - 1];
        if (gpus > 0)
            job->told_w = gpus * point_w[0];
        if (is_over(job)) {
            job->intended.count = 0;
            job->intended_w = 0;
        }
    }
    world->fresh = false;
}

static void disturb(struct world *world)
{
    struct fake_engine *fake = world->fake;
    int job = below(world, (int)world->count), node = below(world, world->fleet.nodes);
    struct fake_job *of = &fake->jobs[job];
    switch (below(world, 23)) {
    case 0:
        fake_crash_trainer(fake, job);
        break;
    case 1:
        fake_preempt(fake, job);
        break;
    case 2:
        if (chance(world, 0.2))
            fake_user_cancel(fake, job);
        break;
    case 3:
        fake_user_release(fake, job);
        break;
    case 4:
        fake_user_hold(fake, job);
        break;
    case 5:
        fake_user_move(fake, job, node);
        break;
    case 6:
        fake_user_requeue(fake, job);
        break;
    case 7:
        fake_node_fail(fake, node, chance(world, 0.5));
        break;
    case 8:
        fake_node_drain(fake, node);
        break;
    case 9:
    case 10:
    case 11:
        fake_node_return(fake, node);
        break;
    case 12:
    case 13:
        fake->engine.calls->sleep(&fake->engine, node, NULL);
        break;
    case 14:
    case 15:
        fake_engine_submit(
            fake, NULL,
            &(struct fake_trainer){.iterations = 20 + below(world, 200), .iteration_s = 1}, node,
            1 + below(world, world->types[0].gpus_per_node));
        break;
    case 16:
        fake_manager_stop(fake, 20 * erg_rng_uniform(&world->rng), false);
        break;
    case 17:
        if (isinf(fake->settings.state_s) || !chance(world, 0.3))
            break;
        world->crashed = true;
        fake_manager_stop(fake, 5 * erg_rng_uniform(&world->rng), true);
        if (chance(world, 0.5)) /* an id may be given again */
            fake_engine_submit(fake, NULL,
                               &(struct fake_trainer){.iterations = 50, .iteration_s = 1}, node, 1);
        break;
    case 18:
        of->trainer.ignores_usr1 = !of->trainer.ignores_usr1;
        break;
    case 19:
        of->trainer.ignores_term = !of->trainer.ignores_term;
        break;
    case 20:
        of->trainer.dies_saving = true;
        break;
    case 22:
        fake_unknown(fake, job, 20 * erg_rng_uniform(&world->rng));
        break;
    case 21:
        if (chance(world, 0.2))
            of->trainer.silent = !of->trainer.silent;
        break;
    }
}

static void make_peace(struct world *world)
{
    world->chaos = 0;
    world->fake->faults = (struct fake_faults){0};
    for (int node = 0; node < world->fleet.nodes; node++)
        fake_node_return(world->fake, node);
    for (size_t i = 0; i < world->fake->jobs_count; i++) {
        struct fake_trainer *trainer = &world->fake->jobs[i].trainer;
        trainer->ignores_usr1 = trainer->ignores_term = trainer->silent = false;
        trainer->dies_saving = false;
        trainer->dies_at = trainer->bad_starts = 0;
        if (i >= world->count)
            fake_user_cancel(world->fake, (int)i);
    }
}

static void read_reports(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        struct erg_report report;
        bool fresh = false;
        if (fake_engine_report(world->fake, world->jobs[i].token, &report, &fresh) && fresh)
            erg_reconcile_report(&world->jobs[i], &report, world->fake->now_s);
    }
}

/* Phases must say what is true. */
static void check_phases(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        const struct fake_job *truth = &world->fake->jobs[i];
        enum erg_live_phase phase = world->jobs[i].phase;
        bool right = false;
        if (truth->lost)
            right = phase == ERG_PHASE_GONE || phase == ERG_PHASE_ENDED ||
                    phase == ERG_PHASE_CANCELLED || phase == ERG_PHASE_FAILED;
        else if (truth->seen_state == ERG_LIVE_UNKNOWN)
            right = phase == ERG_PHASE_UNKNOWN;
        else if (truth->state == ERG_LIVE_HELD)
            right = phase == ERG_PHASE_WAITING;
        else if (truth->state == ERG_LIVE_PENDING)
            right = phase == ERG_PHASE_STARTING || phase == ERG_PHASE_RETURNED;
        else if (truth->state == ERG_LIVE_RUNNING)
            right =
                phase == ERG_PHASE_STARTING || phase == ERG_PHASE_STOPPING ||
                (phase == ERG_PHASE_RUNNING && (truth->read_run == truth->runs || truth->confused));
        else if (truth->state == ERG_LIVE_COMPLETING)
            right = phase == ERG_PHASE_STOPPING || phase == ERG_PHASE_ENDING;
        else if (truth->state == ERG_LIVE_COMPLETED)
            right = phase == ERG_PHASE_ENDED;
        else if (truth->state == ERG_LIVE_FAILED)
            right = phase == ERG_PHASE_FAILED;
        else if (truth->state == ERG_LIVE_CANCELLED)
            right = phase == ERG_PHASE_CANCELLED;
        if (!right)
            NOTE(world, "job %u is %s, but its state is %d%s, run %d, of which was read %d",
                 truth->id, erg_live_phase_name(phase), (int)truth->state,
                 truth->lost ? ", lost" : "", truth->runs, truth->read_run);
    }
}

static void carry_out(struct world *world)
{
    struct erg_error err = {0};
    for (size_t i = 0; i < world->actions.count; i++) {
        const struct erg_action *action = &world->actions.items[i];
        struct erg_managed_job *job = &world->jobs[action->job];
        world->placements += action->verb == ERG_ACTION_PLACE;
        world->moves += action->verb == ERG_ACTION_STOP;
        world->kills += action->verb == ERG_ACTION_KILL;
        world->paces += action->verb == ERG_ACTION_PACE;
        enum erg_engine_answer answer = ERG_ENGINE_DONE;
        if (action->verb == ERG_ACTION_PACE || action->verb == ERG_ACTION_PLACE) {
            if (chance(world, 0.02 * world->chaos))
                answer = ERG_ENGINE_BROKEN;
            else
                fake_engine_plan(world->fake, job->token, job->point, job->intended_w);
        }
        if (answer == ERG_ENGINE_DONE)
            answer = erg_reconcile_act(&world->fake->engine, world->jobs, action, &err);
        if (chance(world, 0.01 * world->chaos)) { /* it comes twice */
            world->fake->lenient = true;
            erg_reconcile_act(&world->fake->engine, world->jobs, action, &err);
            world->fake->lenient = false;
        }
        if (chance(world, 0.002 * world->chaos)) { /* the controller dies: before the answer */
            if (chance(world, 0.5)) {
                forget_records(world);
                return;
            }
            struct fake_job *truth = fake_engine_job(world->fake, job->token);
            if (action->verb == ERG_ACTION_STOP) { /* it believes so */
                truth->stopped_run = truth->seen_run;
                truth->stopped_s = world->fake->now_s;
            }
            erg_reconcile_answer(job, action, ERG_ENGINE_LATER, &world->limits, world->fake->now_s);
            return;
        }
        erg_reconcile_answer(job, action, answer, &world->limits, world->fake->now_s);
    }
}

static bool pass(struct world *world)
{
    struct erg_error err = {0};
    struct erg_live_engine *engine = &world->fake->engine;
    if (engine->calls->snapshot(engine, &world->snapshot, &err) != ERG_ENGINE_DONE)
        return false;
    double now_s = world->fake->now_s;
    read_reports(world);
    erg_reconcile_see(world->jobs, world->count, &world->snapshot, &world->limits, now_s);
    check_phases(world);
    if (world->fresh)
        adopt(world);
    for (size_t i = 0; i < world->count; i++)
        world->attention += world->jobs[i].needs_attention;
    drop_intents(world, 0.02 * world->chaos);
    if (chance(world, 0.15 * world->chaos))
        change_intent(world, (size_t)below(world, (int)world->count));
    erg_reconcile_next(world->jobs, world->count, &world->snapshot, &world->fleet, &world->limits,
                       now_s, &world->actions);
    carry_out(world);
    if (world->fake->wrong[0])
        NOTE(world, "%s", world->fake->wrong);
    if (world->fake->broken[0])
        NOTE(world, "%s", world->fake->broken);
    return true;
}

static bool is_reached(const struct erg_managed_job *job)
{
    if (is_over(job))
        return true;
    if (job->intended.count == 0)
        return job->phase == ERG_PHASE_WAITING && job->held_by_administrator;
    return job->phase == ERG_PHASE_RUNNING && job->told_point == job->point &&
           erg_placement_gpus(&job->actual) == erg_placement_gpus(&job->intended);
}

/* Until all intents are reached, or all jobs are over. */
static void await(struct world *world, bool end, double most_s)
{
    double until_s = world->fake->now_s + most_s;
    while (!world->wrong[0]) {
        pass(world);
        size_t left = 0;
        for (size_t i = 0; i < world->count; i++)
            left += end ? !is_over(&world->jobs[i]) : !is_reached(&world->jobs[i]);
        if (left == 0)
            return;
        if (world->fake->now_s > until_s)
            for (size_t i = 0; i < world->count; i++)
                if (end ? !is_over(&world->jobs[i]) : !is_reached(&world->jobs[i]))
                    NOTE(world, "job %u is %s after %.0f s of peace: %s", world->jobs[i].id,
                         erg_live_phase_name(world->jobs[i].phase), most_s,
                         world->jobs[i].waits_for ? world->jobs[i].waits_for : "?");
        fake_engine_advance(world->fake, world->fake->now_s + 3);
        for (size_t i = 0; end && i < world->count; i++)
            if (world->jobs[i].intended.count == 0)
                change_intent(world, i);
        drop_intents(world, 0);
    }
}

static const char *run_history(uint64_t seed, long *counts)
{
    static char wrong[300];
    struct world *world = world_of(seed);
    double share = erg_rng_uniform(&world->rng) < 0.3 ? 0 : 0.1;
    world->fake->faults = (struct fake_faults){share, share / 3, share, share, share, share};
    double chaos_s = 100 + 500 * erg_rng_uniform(&world->rng);
    double disturbed = 0.2 * erg_rng_uniform(&world->rng);
    while (world->fake->now_s < chaos_s && !world->wrong[0]) {
        pass(world);
        fake_engine_advance(world->fake,
                            world->fake->now_s + 0.5 + 3.5 * erg_rng_uniform(&world->rng));
        if (chance(world, disturbed))
            disturb(world);
    }
    make_peace(world);
    await(world, false, 700 + 3 * world->limits.silence_s);
    for (size_t i = 0; i < world->count && !world->wrong[0]; i++)
        change_intent(world, i);
    await(world, false, 700 + 3 * world->limits.silence_s);
    await(world, true, 40000);
    for (size_t i = 0; i < world->count; i++) {
        const struct fake_job *job = &world->fake->jobs[i];
        /* Nobody can take a failed job back that was forgotten too soon. */
        bool crashed = job->lost && (world->crashed || (job->state == ERG_LIVE_FAILED &&
                                                        world->fake->settings.forget_s < 100));
        if (job->completed + job->cancelled != 1 && !world->jobs[i].given_up && !crashed)
            NOTE(world, "I4: job %u ended %d times", job->id, job->completed);
    }
    if (world->fake->early_signals > 0)
        NOTE(world, "a trainer was signalled before it could take it");
    counts[0] += world->placements;
    counts[1] += world->moves;
    counts[2] += world->kills;
    counts[3] += world->paces;
    snprintf(wrong, sizeof wrong, "%s", world->wrong);
    end_world(world);
    return wrong[0] ? wrong : NULL;
}

static void random_histories_keep_the_invariants(void **state)
{
    (void)state;
    const char *asked = getenv("ERGON_TEST_HISTORIES"), *from = getenv("ERGON_TEST_SEED");
    long histories = asked ? atol(asked) : 400;
    uint64_t seed = from ? strtoull(from, NULL, 10) : 1;
    long counts[4] = {0}, failed = 0;
    for (long i = 0; i < histories; i++) {
        const char *wrong = run_history(seed + (uint64_t)i, counts);
        if (wrong && failed++ < 10)
            print_message("ERGON_TEST_SEED=%llu ERGON_TEST_HISTORIES=1: %s\n",
                          (unsigned long long)seed + (unsigned long long)i, wrong);
    }
    print_message("%ld histories from seed %llu: %ld placements, %ld stops, %ld kills, %ld paces\n",
                  histories, (unsigned long long)seed, counts[0], counts[1], counts[2], counts[3]);
    assert_int_equal(failed, 0);
    if (histories >= 100)
        for (int i = 0; i < 4; i++)
            assert_true(counts[i] > histories);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_follow_from_the_snapshot),
        cmocka_unit_test(a_job_that_is_gone_was_done_or_is_lost),
        cmocka_unit_test(an_id_of_another_token_is_another_job),
        cmocka_unit_test(only_reported_incarnations_are_signalled),
        cmocka_unit_test(a_new_incarnation_is_known_by_its_start),
        cmocka_unit_test(an_incarnation_that_came_and_went_unseen_is_another),
        cmocka_unit_test(a_kill_without_an_answer_is_no_kill_if_it_runs_on),
        cmocka_unit_test(a_placement_that_is_not_wanted_any_more_is_taken_back),
        cmocka_unit_test(an_incarnation_that_was_found_waits_for_its_report),
        cmocka_unit_test(a_signal_is_sent_once_then_it_is_killed),
        cmocka_unit_test(jobs_that_exchange_gpus_stop_first),
        cmocka_unit_test(only_free_gpus_are_promised_and_once),
        cmocka_unit_test(nothing_is_placed_on_nodes_that_drain_or_are_down),
        cmocka_unit_test(sleeping_nodes_are_woken_once_then_jobs_placed),
        cmocka_unit_test(what_returns_is_held_and_users_holds_are_taken_over),
        cmocka_unit_test(three_placements_without_a_start_need_attention),
        cmocka_unit_test(a_launch_that_failed_waits_and_avoids_the_node),
        cmocka_unit_test(a_failed_job_is_taken_back_twice_then_given_up),
        cmocka_unit_test(a_new_checkpoint_makes_a_failure_the_first),
        cmocka_unit_test(the_cancelled_the_unknown_and_the_done_are_left_alone),
        cmocka_unit_test(a_placement_without_an_answer_may_have_happened),
        cmocka_unit_test(calls_that_fail_are_made_again_ever_later),
        cmocka_unit_test(points_change_by_the_plan_alone),
        cmocka_unit_test(the_cap_is_kept_by_lowering_first),
        cmocka_unit_test(a_job_that_returns_may_draw_power),
        cmocka_unit_test(the_fake_costs_what_its_settings_say),
        cmocka_unit_test(the_fake_has_the_rules_of_slurm),
        cmocka_unit_test(the_fake_gives_lost_ids_again),
        cmocka_unit_test(the_fake_sees_two_incarnations_commit),
        cmocka_unit_test(random_histories_keep_the_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
