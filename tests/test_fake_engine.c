/* The fake resource manager (live/fake_engine.h): its times, and the rules that it has from Slurm.
 */
#include "reconcile_scene.h"

#include "live/fake_engine.h"

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

static void the_fake_has_its_configured_costs(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fake_has_its_configured_costs),
        cmocka_unit_test(the_fake_has_the_rules_of_slurm),
        cmocka_unit_test(the_fake_gives_lost_ids_again),
        cmocka_unit_test(the_fake_sees_two_incarnations_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
