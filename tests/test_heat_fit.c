/*
 * Heat fitted to recordings: constants are found again, GPUs that warm others are told, and what
 * was fitted explains what was not.
 */
#include "check.h"
#include "folder.h"

#include "base/random.h"
#include "probe/heat_fit.h"

static struct erg_gpu *gpu;

static struct erg_chassis *load(const char *name)
{
    struct erg_chassis *chassis;
    struct erg_error err;
    assert_ok(erg_chassis_load(&chassis, name, &err), &err);
    return chassis;
}

/* Two front and two rear GPUs that differ from one another and from what is shipped. */
static struct erg_chassis *four(void)
{
    static const unsigned kept[] = {0, 4, 5, 1}; /* rear ones between front ones */
    struct erg_chassis *chassis = load("hgx-8-air");
    struct erg_chassis_slot slots[4];
    for (int i = 0; i < 4; i++) {
        slots[i] = chassis->slots[kept[i]];
        slots[i].sink = i;
        slots[i].die_k_per_w = 0.022 - 0.002 * i;
        slots[i].sink_k_per_w = 0.026 + 0.003 * i;
        slots[i].preheat_k = 0.5 * i;
    }
    memcpy(chassis->slots, slots, sizeof slots);
    chassis->gpus = 4;
    chassis->die_time_s = 3;
    chassis->sink_time_s = 45;
    chassis->inlet_c = 27;
    chassis->air_k_per_w = 0.02;
    return chassis;
}

static void read_tracks(struct erg_heat_tracks *tracks, const char *name)
{
    struct erg_error err;
    assert_ok(erg_heat_tracks_read(tracks, in_folder(name), &err), &err);
}

static void emulate(const char *name, const struct erg_chassis *chassis,
                    erg_heat_activity *activity, const void *context, double seconds, uint64_t seed)
{
    struct erg_error err;
    assert_ok(
        erg_heat_emulate(in_folder(name), chassis, gpu, activity, context, seconds, seed, &err),
        &err);
}

static void constants_are_found_again(void **state)
{
    (void)state;
    const struct erg_heat_turns turns = {10, 120, 120};
    struct erg_chassis *chassis = four();
    struct erg_heat_tracks tracks;
    struct erg_error err;
    struct erg_heat_fit *fit = calloc(1, sizeof *fit);
    emulate("turns.rec", chassis, erg_heat_in_turns, &turns, 960, 1);
    read_tracks(&tracks, "turns.rec");
    assert_int_equal(tracks.gpus, 4);
    assert_true(tracks.is_virtual);
    assert_near(tracks.hold_c, 87, 0);
    assert_ok(erg_heat_fit(fit, &tracks, 0, "found", &err), &err);
    assert_int_equal(fit->survey.coupling, ERG_HEAT_COUPLED);
    assert_int_equal(fit->survey.pair_count, 2);
    for (int i = 0; i < 4; i++) {
        const struct erg_chassis_slot *found = &fit->slots[i], *true_slot = &chassis->slots[i];
        assert_int_equal(found->position, true_slot->position);
        assert_near(found->die_k_per_w + found->sink_k_per_w,
                    true_slot->die_k_per_w + true_slot->sink_k_per_w, 0.0015);
        assert_near(found->die_k_per_w, true_slot->die_k_per_w, 0.003);
        assert_near(fit->chassis.inlet_c + found->preheat_k,
                    chassis->inlet_c + true_slot->preheat_k, 0.7);
    }
    assert_int_equal(fit->slots[0].lane, fit->slots[1].lane);
    assert_int_equal(fit->slots[3].lane, fit->slots[2].lane);
    assert_true(fit->slots[0].lane != fit->slots[3].lane);
    assert_close(fit->chassis.air_k_per_w, 0.02, 0.1);
    assert_close(fit->chassis.die_time_s, 3, 0.3);
    assert_close(fit->chassis.sink_time_s, 45, 0.1);
    assert_true(fit->fitted.rms_k < 0.6 && fit->held_out.rms_k < 0.6);
    assert_true(fit->held_out.count > 500 && fit->fitted.count > 2500);
    erg_heat_tracks_release(&tracks);

    /* Another run of the same machine, harder and with other draws. */
    const struct erg_heat_turns other = {5, 60, 40};
    struct erg_heat_error error;
    emulate("again.rec", chassis, erg_heat_in_turns, &other, 420, 2);
    read_tracks(&tracks, "again.rec");
    assert_ok(erg_heat_explain(&fit->chassis, &tracks, NULL, &error, &err), &err);
    assert_true(error.rms_k < 1);
    for (int i = 0; i < 4; i++) /* and a machine that is not the same */
        chassis->slots[i].sink_k_per_w *= 1.5;
    assert_ok(erg_heat_explain(chassis, &tracks, NULL, &error, &err), &err);
    assert_true(error.rms_k > 1.5);
    chassis->gpus = 3;
    assert_fails(erg_heat_explain(chassis, &tracks, NULL, &error, &err), &err, "it has 3 slots");
    erg_heat_tracks_release(&tracks);
    erg_chassis_free(chassis);
    free(fit);
}

/* An hour of training: a start, steps of changing load, two checkpoints, all GPUs at once. */
static double training(const void *context, size_t g, double at_s)
{
    (void)context;
    if (at_s < 30 || fmod(at_s, 1300) > 1250)
        return 0;
    const double step = fmod(at_s + 0.13 * (double)g, 2.1);
    return step > 1.9 ? 0.3 : 0.75 + 0.1 * erg_hash_uniform((uint64_t)(at_s / 200) + 10 * g);
}

static void ten_minutes_explain_an_hour(void **state)
{
    (void)state;
    struct erg_chassis *chassis = four();
    struct erg_heat_tracks tracks;
    struct erg_error err;
    struct erg_heat_fit *fit = calloc(1, sizeof *fit);
    emulate("hour.rec", chassis, training, NULL, 3600, 3);
    read_tracks(&tracks, "hour.rec");
    assert_ok(erg_heat_fit(fit, &tracks, 600, "hour", &err), &err);
    assert_int_equal(fit->survey.coupling, ERG_HEAT_UNKNOWN); /* all worked at once */
    assert_true(fit->held_out.count > 11000);
    assert_true(fit->held_out.worst_k < 3);
    assert_true(fit->held_out.rms_k < 1);
    erg_heat_tracks_release(&tracks);
    erg_chassis_free(chassis);
    free(fit);
}

static void gpus_apart_are_told(void **state)
{
    (void)state;
    const struct erg_heat_turns turns = {10, 120, 120};
    struct erg_chassis *chassis = four();
    struct erg_heat_tracks tracks;
    struct erg_error err;
    struct erg_heat_fit *fit = calloc(1, sizeof *fit);
    chassis->air_k_per_w = 0;
    chassis->gpus = 2;
    emulate("apart.rec", chassis, erg_heat_in_turns, &turns, 480, 4);
    read_tracks(&tracks, "apart.rec");
    assert_ok(erg_heat_fit(fit, &tracks, 0, "apart", &err), &err);
    assert_int_equal(fit->survey.coupling, ERG_HEAT_APART);
    assert_true(fit->survey.least_k_per_w < 0.008);
    assert_int_equal(fit->slots[1].position, ERG_SLOT_FRONT);
    assert_near(fit->chassis.air_k_per_w, 0, 0);
    assert_true(fit->fitted.rms_k < 0.6);
    erg_heat_tracks_release(&tracks);
    erg_chassis_free(chassis);
    free(fit);
}

static double always(const void *context, size_t g, double at_s)
{
    (void)context, (void)g, (void)at_s;
    return 0.8;
}

static void recordings_without_changes_are_refused(void **state)
{
    (void)state;
    struct erg_chassis *chassis = four();
    struct erg_heat_tracks tracks;
    struct erg_error err;
    struct erg_heat_fit *fit = calloc(1, sizeof *fit);
    emulate("steady.rec", chassis, always, NULL, 200, 5);
    read_tracks(&tracks, "steady.rec");
    assert_fails(erg_heat_fit(fit, &tracks, 0, "steady", &err), &err,
                 "expected a recording in which every GPU works and rests");
    erg_heat_tracks_release(&tracks);
    emulate("short.rec", chassis, always, NULL, 60, 5);
    assert_fails(erg_heat_tracks_read(&tracks, in_folder("short.rec"), &err), &err,
                 "expected two minutes or more");
    erg_heat_tracks_release(&tracks);
    erg_chassis_free(chassis);
    free(fit);
}

static int set_up(void **state)
{
    struct erg_error err;
    return make_folder(state) != 0 || erg_gpu_load(&gpu, "H200-SXM", &err) != 0;
}

static int tear_down(void **state)
{
    erg_gpu_free(gpu);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_are_found_again),
        cmocka_unit_test(ten_minutes_explain_an_hour),
        cmocka_unit_test(gpus_apart_are_told),
        cmocka_unit_test(recordings_without_changes_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
