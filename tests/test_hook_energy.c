/*
 * The power of passes from a counter slower than they are: simulated pipelines of known power.
 */
#include "fake_clocks.h"
#include "fake_nvml.h"

#include "base/clock.h"
#include "base/random.h"
#include "ergon/ergon.h"
#include "hooks/deconvolution.h"

#include <dlfcn.h>

enum { FORWARD, BACKWARD, WAITING, CLASSES };

static const double true_w[CLASSES] = {310, 380, 90};

struct simulation {
    double forward_s, backward_s, jitter; /* of a pass, as a share */
    double wait_s;                        /* before each step's passes */
    double period_s, period_jitter_s;     /* of the counter */
    double noise;                         /* of an increment, as a share */
    int microbatches, steps;
};

/* The time now, and what the increment that runs has. */
struct course {
    struct erg_deconvolution sums;
    struct erg_rng random;
    const struct simulation *of;
    double now_s, edge_s;
    double seconds[CLASSES];
};

static void end_increment(struct course *course)
{
    double energy_j = 0;
    for (int c = 0; c < CLASSES; c++)
        energy_j += true_w[c] * course->seconds[c];
    energy_j *= 1 + course->of->noise * erg_rng_normal(&course->random);
    erg_deconvolution_add(&course->sums, course->seconds, energy_j);
    for (int c = 0; c < CLASSES; c++)
        course->seconds[c] = 0;
    course->edge_s += course->of->period_s +
                      course->of->period_jitter_s * (erg_rng_uniform(&course->random) - 0.5);
}

static void work(struct course *course, int class, double time_s)
{
    while (course->now_s + time_s > course->edge_s) {
        course->seconds[class] += course->edge_s - course->now_s;
        time_s -= course->edge_s - course->now_s;
        course->now_s = course->edge_s;
        end_increment(course);
    }
    course->seconds[class] += time_s;
    course->now_s += time_s;
}

static double jittered(struct course *course, double time_s)
{
    return time_s * (1 + course->of->jitter * erg_rng_normal(&course->random));
}

/* The condition number. */
static double simulate(const struct simulation *of, uint64_t seed, struct erg_class_power *powers)
{
    struct course course = {.sums = {.classes = CLASSES}, .of = of, .edge_s = of->period_s};
    erg_rng_seed(&course.random, seed);
    for (int step = 0; step < of->steps; step++) {
        work(&course, WAITING, jittered(&course, of->wait_s));
        for (int m = 0; m < of->microbatches; m++) {
            work(&course, FORWARD, jittered(&course, of->forward_s));
            work(&course, BACKWARD, jittered(&course, of->backward_s));
        }
    }
    return erg_deconvolution_solve(&course.sums, 0, powers);
}

static void powers_are_found(void **state)
{
    (void)state;
    static const struct simulation of = {.forward_s = 0.048,
                                         .backward_s = 0.142,
                                         .jitter = 0.02,
                                         .wait_s = 0.35,
                                         .period_s = 0.092,
                                         .period_jitter_s = 0.004,
                                         .noise = 0.02,
                                         .microbatches = 16,
                                         .steps = 20};
    int covered[CLASSES] = {0};
    double worst = 0, worst_condition = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct erg_class_power powers[CLASSES];
        worst_condition = fmax(worst_condition, simulate(&of, seed, powers));
        for (int c = 0; c < CLASSES; c++) {
            double off_w = fabs(powers[c].power_w - true_w[c]);
            assert_true(powers[c].measured);
            covered[c] += off_w <= powers[c].uncertainty_w;
            if (c != WAITING)
                worst = fmax(worst, off_w / true_w[c]);
        }
    }
    print_message("within %.2f %%; condition %.1f; covered %d, %d, %d of 100\n", 100 * worst,
                  worst_condition, covered[0], covered[1], covered[2]);
    assert_true(worst < 0.015);
    for (int c = 0; c < CLASSES; c++)
        assert_true(covered[c] >= 93);
}

/* Passes as long as the counter's period: told apart by the waits alone, or flagged. */
static void passes_in_step_with_the_counter_are_right_or_flagged(void **state)
{
    (void)state;
    struct simulation of = {.forward_s = 0.050,
                            .backward_s = 0.150,
                            .wait_s = 0.35,
                            .period_s = 0.100,
                            .microbatches = 16,
                            .steps = 20};
    for (int with_noise = 0; with_noise < 2; with_noise++) {
        struct erg_class_power powers[CLASSES];
        of.noise = 0.02 * with_noise;
        of.jitter = 0.001 * with_noise;
        simulate(&of, 5, powers);
        for (int c = 0; c < CLASSES; c++)
            assert_true(!powers[c].measured || fabs(powers[c].power_w - true_w[c]) <=
                                                   fmax(powers[c].uncertainty_w, 0.01 * true_w[c]));
    }
    /* Nothing but whole passes of both kinds, always in the same share. */
    struct erg_class_power powers[CLASSES];
    struct erg_deconvolution same = {.classes = CLASSES};
    for (int i = 0; i < 50; i++)
        erg_deconvolution_add(&same, (double[]){0.05, 0.15, 0}, 0.05 * 310 + 0.15 * 380);
    assert_true(erg_deconvolution_solve(&same, 0, powers) > 100);
    for (int c = 0; c < CLASSES; c++)
        assert_false(powers[c].measured);
}

static void little_is_not_measured(void **state)
{
    (void)state;
    struct erg_class_power powers[CLASSES];
    struct erg_deconvolution sums = {.classes = CLASSES};
    assert_true(isinf(erg_deconvolution_solve(&sums, 0, powers)) && isnan(powers[0].power_w));
    erg_deconvolution_add(&sums, (double[]){0.1, 0, 0}, 31);
    erg_deconvolution_add(&sums, (double[]){0.05, 0.05, 0}, 34.5);
    erg_deconvolution_solve(&sums, 0, powers);
    assert_false(powers[0].measured || powers[1].measured);
    assert_true(isnan(powers[WAITING].power_w));
    for (int i = 0; i < 20; i++)
        erg_deconvolution_add(&sums, (double[]){0.1 - 0.004 * i, 0.004 * i, 0},
                              31 + 0.004 * i * 70);
    double condition = erg_deconvolution_solve(&sums, 0.01, powers);
    assert_true(condition < 10 && powers[0].measured && powers[1].measured);
    assert_near(powers[0].power_w, 310, 0.01);
    assert_near(powers[1].power_w, 380, 0.01);
    assert_true(powers[1].uncertainty_w >= 3.79 && powers[1].uncertainty_w < 4);
}

/* ---- a hook ---- */

static void sleep_until(int64_t until_ns)
{
    for (int64_t now_ns; (now_ns = erg_now_ns()) < until_ns;)
        erg_sleep_ns(until_ns - now_ns);
}

static const double waiting_w = 100, pass_w[] = {300, 400};
static const int64_t pass_ns[] = {30000000, 70000000};

/* Sets the power of the fake GPU; the library is the one that ergon has opened. */
static void (*draw)(unsigned gpu, double power_w);

static void *find_draw(void)
{
    void *library = dlopen(ERGON_TEST_FAKE_NVML, RTLD_NOW), *symbol;
    assert_non_null(library);
    symbol = dlsym(library, "fake_nvml_draw");
    assert_non_null(symbol);
    memcpy(&draw, &symbol, sizeof symbol);
    return library;
}

/* Eight passes of both kinds, 30 ms at 300 W and 70 ms at 400 W if nothing disturbs, and a wait of
 * 100 ms at 100 W. The power follows the passes, so that it is theirs on a busy machine, too. Adds
 * the seconds that they took. */
static void run_step(struct erg_hook *hook, double taken_s[2], struct erg_error *err)
{
    int64_t end_ns = erg_now_ns();
    assert_ok(erg_hook_step_begin(hook, err), err);
    for (int pass = 0; pass < 16; pass++) {
        const int kind = pass % 2;
        end_ns += pass_ns[kind];
        const int64_t begin_ns = erg_now_ns();
        assert_ok(erg_hook_begin(hook, kind ? ERG_BACKWARD : ERG_FORWARD, 0, pass / 2, NULL, err),
                  err);
        draw(1, pass_w[kind]);
        sleep_until(end_ns);
        draw(1, waiting_w);
        assert_ok(erg_hook_end(hook, NULL, err), err);
        taken_s[kind] += 1e-9 * (double)(erg_now_ns() - begin_ns);
    }
    sleep_until(end_ns + 95000000);
    assert_ok(erg_hook_step_end(hook, err), err);
}

/* False: this machine is so busy that the powers are too uncertain. */
static bool measures_passes(void)
{
    enum { STEPS = 6 };
    struct world world = world_begin("gpu 1 follow limit 0=100\ngpu 1 counter 0.043 0.01\n");
    struct erg_hook_options options;
    struct erg_hook *hook;
    struct erg_error err = {0};
    erg_hook_defaults(&options);
    options.mode = ERG_HOOK_OBSERVE;
    options.gpu = "1";
    options.energy = 1;
    assert_ok(erg_hook_open(&hook, &options, &err), &err);
    void *library = find_draw();
    double taken_s[2] = {0};
    bool sure = true;
    for (int step = 0; step < STEPS; step++)
        run_step(hook, taken_s, &err);
    pause_s(0.1);
    for (int i = 0; i < 2; i++) {
        struct erg_hook_class about = {.size = sizeof about};
        const double mean_s = taken_s[i] / (8 * STEPS);
        assert_int_equal(erg_hook_class(hook, i, &about), 0);
        print_message("%s: %.1f W, %.2f +- %.2f J\n", i ? "backward" : "forward", about.power_w,
                      about.energy_j, about.uncertainty_j);
        assert_int_equal(about.kind, i);
        sure = sure && about.quality == ERG_ENERGY_MEASURED &&
               about.uncertainty_j < 0.2 * about.energy_j;
        if (sure)
            assert_near(about.energy_j, pass_w[i] * mean_s,
                        0.05 * pass_w[i] * mean_s + 2 * about.uncertainty_j);
    }
    struct erg_hook_stats stats = {.size = sizeof stats};
    assert_int_equal(erg_hook_stats(hook, &stats), 0);
    print_message("waiting: %.1f W\n", stats.waiting_w);
    if (sure)
        assert_near(stats.waiting_w, waiting_w, 40);
    assert_ok(erg_hook_close(hook, &err), &err);
    dlclose(library);
    assert_int_equal(access(world.log, F_OK), -1);
    unlink(world.script);
    rmdir(world.folder);
    return sure;
}

static void a_hook_measures_passes(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        if (measures_passes())
            return;
    fail_msg("the energy of passes was too uncertain in each of 10 runs");
}

static void no_counter_is_no_device(void **state)
{
    (void)state;
    struct world world = world_begin("gpu 1 fail TotalEnergyConsumption 3 0 1000\n"
                                     "gpu 1 fail field83 3 0 1000\n"
                                     "gpu 1 fail field186 3 0 1000\n"
                                     "gpu 1 fail GetTotalEnergyConsumption 3 0 1000\n");
    struct erg_hook_options options;
    struct erg_hook *hook;
    struct erg_error err = {0};
    erg_hook_defaults(&options);
    options.mode = ERG_HOOK_OBSERVE;
    options.gpu = "1";
    options.energy = 1;
    assert_fails(erg_hook_open(&hook, &options, &err), &err, "no energy counter");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    unlink(world.script);
    rmdir(world.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_are_found),
        cmocka_unit_test(passes_in_step_with_the_counter_are_right_or_flagged),
        cmocka_unit_test(little_is_not_measured),
        cmocka_unit_test(a_hook_measures_passes),
        cmocka_unit_test(no_counter_is_no_device),
    };
    return cmocka_run_group_tests_name("hook_energy", tests, NULL, NULL);
}
