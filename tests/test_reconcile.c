/* The reconciler of live jobs: each of its rules, on a small snapshot. */
#include "reconcile_scene.h"

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

static void a_missing_job_was_done_or_is_lost(void **state)
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

static void an_unseen_incarnation_is_another(void **state)
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

static void an_obsolete_placement_is_withdrawn(void **state)
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

static void a_found_incarnation_waits_for_its_report(void **state)
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

static void returned_jobs_are_held_and_user_holds_taken_over(void **state)
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
    assert_non_null(strstr(scene->jobs[0].reason, "exit status was 7"));
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

static void failed_calls_are_retried_with_growing_delays(void **state)
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
    /* Job 1 rises by what job 0 gives, once that one says that it obeys: time frees nothing. */
    const long plan = scene->jobs[0].plan;
    scene->jobs[0].intended_w = 1500;
    scene->jobs[0].point = 1;
    scene->jobs[1].intended_w = 2000;
    scene->jobs[1].point = 1;
    assert_string_equal(next(scene), "pace 0");
    answer_all(scene, ERG_ENGINE_DONE);
    scene->now_s += 1000;
    report(scene, 0, 1, ERG_JOB_TRAINING, 1);
    assert_string_equal(next(scene), "");
    follow(scene, 0, plan);
    assert_string_equal(next(scene), "");
    follow(scene, 0, plan + 1);
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

/* A controller that finds jobs of which it knows less than their plan files say. */
static void unknown_plans_leave_no_power(void **state)
{
    (void)state;
    struct scene *scene = scene_of(3);
    scene->limits.cap_w = 4000;
    for (int job = 0; job < 2; job++) {
        intend(scene, job, job, 4);
        show(scene, job, ERG_LIVE_RUNNING, job, 4);
        erg_reconcile_found_plan(&scene->jobs[job], 7, 3, 1500, 3000);
        see(scene);
        report(scene, job, 2, ERG_JOB_TRAINING, 1);
        scene->jobs[job].point = 3;
        scene->jobs[job].intended_w = 1500;
    }
    intend(scene, 2, 2, 4);
    scene->jobs[2].intended_w = 500;
    assert_string_equal(next(scene), "");
    /* The one is to leave, the other to have more than it is told, though it may have more yet. */
    intend(scene, 1, 0, 0);
    scene->jobs[0].point = 1;
    scene->jobs[0].intended_w = 2000;
    assert_string_equal(next(scene), "stop 1");
    answer_all(scene, ERG_ENGINE_DONE);
    assert_string_equal(next(scene), "");
    follow(scene, 0, 7); /* 1500 + at most 3000 W: no room for 500 more */
    assert_string_equal(next(scene), "");
    follow(scene, 1, 7); /* 1500 + 1500 W */
    assert_string_equal(next(scene), "pace 0, place 2");
    /* Where a plan cannot be read, the job may draw anything, and any plan may be more. */
    scene = scene_of(1);
    scene->limits.cap_w = 4000;
    intend(scene, 0, 0, 4);
    show(scene, 0, ERG_LIVE_RUNNING, 0, 4);
    erg_reconcile_found_plan(&scene->jobs[0], 0, 0, 0, ERG_UNKNOWN_W);
    see(scene);
    report(scene, 0, 2, ERG_JOB_TRAINING, 1);
    scene->jobs[0].intended_w = 100;
    assert_string_equal(next(scene), "pace 0"); /* it is alone */
    answer_all(scene, ERG_ENGINE_DONE);
    assert_true(scene->jobs[0].before_w == ERG_UNKNOWN_W);
    follow(scene, 0, scene->jobs[0].plan);
    assert_true(scene->jobs[0].before_w == 0);
}

/* A controller that dies may have written a plan that its journal does not have. */
static void a_plan_unknown_to_the_journal_is_found(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    struct erg_managed_job *job = &scene->jobs[0];
    job->intended_w = 1000;
    make_run(scene, 0, 0, 4);
    const long plan = job->plan;
    assert_true(plan == 1 && job->told_w == 1000 && job->before_w == 0);
    erg_reconcile_found_plan(job, plan, 0, 1000, 3000); /* nothing new */
    assert_true(job->before_w == 0);
    const struct erg_action pace = {.verb = ERG_ACTION_PACE, .node = -1};
    erg_reconcile_found_plan(job, plan + 1, 2, 700, 0);
    erg_reconcile_doubt(job, &pace, &scene->limits, scene->now_s);
    assert_true(job->plan == plan + 1 && job->told_w == 700 && job->before_w == 1000);
    assert_int_equal(job->told_point, 2);
    follow(scene, 0, plan + 1);
    assert_true(job->before_w == 0);
    /* A plan that could not be written is none to follow. */
    erg_reconcile_answer(job, &pace, ERG_ENGINE_BROKEN, &scene->limits, scene->now_s);
    assert_true(job->told_w == 700 && job->before_w == 1000);
    follow(scene, 0, job->plan);
    assert_true(job->before_w == 1000);
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

/* The manager forgot it, or its number is another job's, between the look and the call. */
static void a_placement_of_a_lost_job_leaves_nothing(void **state)
{
    (void)state;
    struct scene *scene = scene_of(2);
    scene->limits.cap_w = 1000;
    intend(scene, 0, 1, 4);
    intend(scene, 1, 1, 4);
    scene->jobs[0].intended_w = scene->jobs[1].intended_w = 800;
    assert_string_equal(next(scene), "place 0");
    answer_all(scene, ERG_ENGINE_GONE);
    assert_true(isnan(scene->jobs[0].released_s));
    assert_int_equal(scene->jobs[0].asked.count, 0);
    assert_false(scene->jobs[0].unsure);
    assert_int_equal(scene->jobs[0].failed_starts, 0);
    /* It is in no snapshot any more: what was meant for it is the next one's, watts and all. */
    memcpy(scene->shown[0].token, token_of(3), ERG_TOKEN_LENGTH + 1);
    assert_string_equal(next(scene), "place 1");
    assert_int_equal(scene->jobs[0].phase, ERG_PHASE_GONE);
    assert_true(scene->jobs[0].needs_attention);
    assert_non_null(strstr(scene->jobs[0].reason, "no longer lists job 1"));
}

/* Whoever says again and again that it is done keeps its GPUs no longer than one that is silent. */
static void endless_reports_of_an_end_do_not_keep_gpus(void **state)
{
    (void)state;
    struct scene *scene = scene_of(1);
    make_run(scene, 0, 1, 4);
    const double patience_s = 3 * scene->limits.silence_s, began_s = scene->now_s;
    report(scene, 0, 1, ERG_JOB_DONE, 9);
    assert_string_equal(next(scene), "");
    assert_int_equal(scene->jobs[0].phase, ERG_PHASE_ENDING);
    while (scene->now_s + 10 < began_s + patience_s) {
        scene->now_s += 10;
        report(scene, 0, 1, ERG_JOB_DONE, 9);
        assert_string_equal(next(scene), "");
    }
    scene->now_s += 20;
    report(scene, 0, 1, ERG_JOB_DONE, 9);
    assert_string_equal(next(scene), "kill 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_follow_from_the_snapshot),
        cmocka_unit_test(a_missing_job_was_done_or_is_lost),
        cmocka_unit_test(an_id_of_another_token_is_another_job),
        cmocka_unit_test(only_reported_incarnations_are_signalled),
        cmocka_unit_test(a_new_incarnation_is_known_by_its_start),
        cmocka_unit_test(an_unseen_incarnation_is_another),
        cmocka_unit_test(a_kill_without_an_answer_is_no_kill_if_it_runs_on),
        cmocka_unit_test(an_obsolete_placement_is_withdrawn),
        cmocka_unit_test(a_found_incarnation_waits_for_its_report),
        cmocka_unit_test(a_signal_is_sent_once_then_it_is_killed),
        cmocka_unit_test(jobs_that_exchange_gpus_stop_first),
        cmocka_unit_test(only_free_gpus_are_promised_and_once),
        cmocka_unit_test(nothing_is_placed_on_nodes_that_drain_or_are_down),
        cmocka_unit_test(sleeping_nodes_are_woken_once_then_jobs_placed),
        cmocka_unit_test(returned_jobs_are_held_and_user_holds_taken_over),
        cmocka_unit_test(three_placements_without_a_start_need_attention),
        cmocka_unit_test(a_launch_that_failed_waits_and_avoids_the_node),
        cmocka_unit_test(a_failed_job_is_taken_back_twice_then_given_up),
        cmocka_unit_test(a_new_checkpoint_makes_a_failure_the_first),
        cmocka_unit_test(the_cancelled_the_unknown_and_the_done_are_left_alone),
        cmocka_unit_test(a_placement_without_an_answer_may_have_happened),
        cmocka_unit_test(failed_calls_are_retried_with_growing_delays),
        cmocka_unit_test(points_change_by_the_plan_alone),
        cmocka_unit_test(the_cap_is_kept_by_lowering_first),
        cmocka_unit_test(unknown_plans_leave_no_power),
        cmocka_unit_test(a_plan_unknown_to_the_journal_is_found),
        cmocka_unit_test(a_job_that_returns_may_draw_power),
        cmocka_unit_test(a_placement_of_a_lost_job_leaves_nothing),
        cmocka_unit_test(endless_reports_of_an_end_do_not_keep_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
