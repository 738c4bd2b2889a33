/*
 * Heat of a node: chassis files, steady states against tables computed apart, clocks under cap and
 * heat, and what must hold for any powers: energy is conserved, hotter air makes hotter dies, front
 * GPUs know nothing of rear ones, lanes are alike, and time leads to the steady state.
 */
#include "check.h"
#include "folder.h"

#include "base/random.h"
#include "base/text.h"
#include "io/file.h"
#include "thermal/thermal.h"

static struct erg_chassis *load(const char *name)
{
    struct erg_chassis *chassis;
    struct erg_error err;
    assert_ok(erg_chassis_load(&chassis, name, &err), &err);
    return chassis;
}

/* ---- published-like tables ---- */

/* A front and a rear GPU of one lane, as hgx-8-air has four. */
static struct erg_chassis_slot pair_slots[] = {
    {ERG_SLOT_FRONT, 0, 0, 0.0196, 0.0294, 0},
    {ERG_SLOT_REAR, 0, 1, 0.0196, 0.0294, 0},
};

static struct erg_chassis pair(double inlet_c)
{
    return (struct erg_chassis){
        .slots = pair_slots,
        .gpus = 2,
        .inlet_c = inlet_c,
        .air_k_per_w = 0.0245,
        .die_time_s = 2,
        .sink_time_s = 60,
        .limit = {.law = ERG_HEAT_HOLD, .hold_c = 87, .slowdown_k = 5},
    };
}

/* Clocks, powers and temperatures of all GPUs that agree with each other. */
static void settle_node(const struct erg_chassis *chassis, const struct erg_thermal_load *loads,
                        struct erg_thermal_point *points)
{
    const unsigned n = chassis->gpus;
    double k_per_w[ERG_CHASSIS_GPUS * ERG_CHASSIS_GPUS], moved = INFINITY;
    erg_thermal_matrix(chassis, 1, k_per_w);
    memset(points, 0, n * sizeof *points);
    for (int round = 0; round < 200 && moved > 1e-7; round++) {
        moved = 0;
        for (unsigned g = 0; g < n; g++) {
            double base_c = chassis->inlet_c + chassis->slots[g].preheat_k;
            for (unsigned j = 0; j < n; j++)
                base_c += j == g ? 0 : k_per_w[g * n + j] * points[j].mean_w;
            const double before_w = points[g].mean_w;
            erg_thermal_limit(&chassis->limit, &loads[g], base_c, k_per_w[g * n + g], &points[g]);
            moved = fmax(moved, fabs(points[g].mean_w - before_w));
        }
    }
}

/* A pipeline of stages that alternate between front and rear GPUs. */
struct pipeline {
    int stages, microbatches;
    int layers[2];
    double clock_mhz[2]; /* so far */
};

struct stage_class {
    const struct pipeline *pipeline;
    int index;
};

static double stage_time(const struct pipeline *at, int index, double clock_mhz)
{
    return at->layers[index] * (0.88 * 1600 / clock_mhz + 0.12);
}

static double voltage(double ghz)
{
    return 1 + 0.42879 * fmax(0, ghz - 1.2);
}

static void stage_power(const void *context, double clock_mhz, double temperature_c, double *busy_w,
                        double *mean_w)
{
    const struct stage_class *at = context;
    const struct pipeline *pipeline = at->pipeline;
    const double ghz = 1e-3 * clock_mhz, v = voltage(ghz) / voltage(1.6);
    const double own = stage_time(pipeline, at->index, clock_mhz);
    const double other = stage_time(pipeline, 1 - at->index, pipeline->clock_mhz[1 - at->index]);
    const double share = pipeline->microbatches * own /
                         ((pipeline->microbatches + pipeline->stages - 1) * fmax(own, other));
    const double leak = 0.012 * (temperature_c - 64);
    *busy_w = 120 * (1 + leak) + 520 * ghz / 1.6 * v * v + 54;
    *mean_w = share * *busy_w + (1 - share) * (125 + 120 * leak);
}

/* Returns the iteration's time; points of front and rear. */
static double settle_pipeline(const struct erg_chassis *chassis, struct pipeline *at,
                              struct erg_thermal_point points[2])
{
    const struct stage_class classes[] = {{at, 0}, {at, 1}};
    struct erg_thermal_load loads[2];
    for (int i = 0; i < 2; i++) {
        loads[i] = (struct erg_thermal_load){stage_power, &classes[i], 1980, 300, 1980, 0, 693.75};
        at->clock_mhz[i] = 1500;
    }
    for (int round = 0; round < 100; round++) {
        settle_node(chassis, loads, points);
        for (int i = 0; i < 2; i++)
            at->clock_mhz[i] = 0.5 * (at->clock_mhz[i] + points[i].clock_mhz);
    }
    return (at->microbatches + at->stages - 1) *
           fmax(stage_time(at, 0, points[0].clock_mhz), stage_time(at, 1, points[1].clock_mhz));
}

static void one_layer_moved_to_the_front(void **state)
{
    (void)state;
    /* f, T, P of front and rear: before, after; then changes of time and of 1 / (time^2 power). */
    static const struct {
        int layers, stages, microbatches;
        double inlet_c;
        double before[3][2], after[3][2], time, efficiency, gap[2];
    } cases[] = {
        {20,
         4,
         64,
         29,
         {{1.6053, 1.5709}, {61.23, 77.91}, {657.8, 669.2}},
         {{1.6043, 1.5747}, {61.74, 76.08}, {668.1, 626.8}},
         3.07,
         -3.55,
         {16.67, 14.34}},
        {12,
         8,
         128,
         29,
         {{1.6057, 1.5715}, {61.04, 77.62}, {653.8, 665.3}},
         {{1.6047, 1.5786}, {61.54, 74.21}, {664.1, 590.7}},
         6.36,
         -7.06,
         {16.58, 12.67}},
        {20,
         4,
         64,
         41,
         {{1.5829, 1.4731}, {72.17, 87.00}, {636.0, 620.8}},
         {{1.5795, 1.4763}, {73.78, 87.00}, {668.9, 604.3}},
         -1.28,
         1.29,
         {14.83, 13.22}},
        {12,
         8,
         128,
         41,
         {{1.5830, 1.4802}, {72.09, 87.00}, {634.4, 621.6}},
         {{1.5799, 1.5530}, {73.58, 86.41}, {665.0, 594.3}},
         2.26,
         -4.62,
         {14.91, 12.83}},
        {20,
         4,
         64,
         42,
         {{1.5816, 1.4454}, {72.78, 87.00}, {628.1, 604.3}},
         {{1.5774, 1.4107}, {74.78, 87.00}, {669.0, 583.9}},
         -2.82,
         4.17,
         {14.22, 12.22}},
        {12,
         8,
         128,
         42,
         {{1.5817, 1.4524}, {72.70, 87.00}, {626.5, 605.1}},
         {{1.5778, 1.5237}, {74.59, 87.00}, {665.0, 585.8}},
         0.67,
         -2.85,
         {14.30, 12.41}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct erg_chassis chassis = pair(cases[c].inlet_c);
        double time[2], power[2];
        for (int moved = 0; moved < 2; moved++) {
            struct pipeline at = {cases[c].stages,
                                  cases[c].microbatches,
                                  {cases[c].layers + moved, cases[c].layers - moved},
                                  {0}};
            struct erg_thermal_point points[2];
            const double(*expected)[2] = moved ? cases[c].after : cases[c].before;
            time[moved] = settle_pipeline(&chassis, &at, points);
            power[moved] = points[0].mean_w + points[1].mean_w;
            for (int i = 0; i < 2; i++) {
                assert_near(1e-3 * points[i].clock_mhz, expected[0][i], 0.0003);
                assert_near(points[i].temperature_c, expected[1][i], 0.02);
                assert_near(points[i].mean_w, expected[2][i], 0.6);
            }
            assert_near(points[1].temperature_c - points[0].temperature_c, cases[c].gap[moved],
                        0.02);
        }
        assert_near(100 * (time[1] / time[0] - 1), cases[c].time, 0.03);
        assert_near(100 * (time[0] * time[0] * power[0] / (time[1] * time[1] * power[1]) - 1),
                    cases[c].efficiency, 0.03);
    }
}

/* Another power model, with exponential leakage, under the proportional law. */
static void leaking_power(const void *context, double clock_mhz, double temperature_c,
                          double *busy_w, double *mean_w)
{
    const double ghz = 1e-3 * clock_mhz, v = 0.72 + 0.33 * fmax(0, ghz - 1.2) / 0.78;
    const double activity = *(const double *)context;
    *busy_w = 45 + 80 * exp(0.012 * (temperature_c - 60)) + activity * 330 * ghz * v * v;
    *mean_w = *busy_w;
}

static void activity_under_the_proportional_law(void **state)
{
    (void)state;
    static const struct {
        double inlet_c, activity, c[2], ghz[2], w[2];
    } rows[] = {
        {29, 0.60, {56.1, 70.4}, {1.980, 1.980}, {554, 568}},
        {29, 0.70, {59.8, 75.6}, {1.980, 1.967}, {629, 637}},
        {29, 0.80, {63.0, 78.7}, {1.965, 1.906}, {693, 668}},
        {29, 0.90, {62.9, 80.2}, {1.875, 1.860}, {691, 698}},
        {33, 0.75, {65.9, 79.9}, {1.980, 1.883}, {671, 621}},
        {33, 0.80, {67.2, 81.2}, {1.965, 1.856}, {697, 635}},
        {27, 0.90, {60.8, 78.0}, {1.875, 1.860}, {689, 696}},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct erg_chassis chassis = pair(rows[r].inlet_c);
        struct erg_thermal_load loads[2];
        struct erg_thermal_point points[2];
        chassis.limit = (struct erg_heat_limit){ERG_HEAT_PROPORTIONAL, 87, 5, 75, 20};
        for (int i = 0; i < 2; i++)
            loads[i] = (struct erg_thermal_load){
                leaking_power, &rows[r].activity, 1980, 300, 1980, 15, 700};
        settle_node(&chassis, loads, points);
        for (int i = 0; i < 2; i++) {
            assert_near(points[i].temperature_c, rows[r].c[i], 0.4);
            assert_near(1e-3 * points[i].clock_mhz, rows[r].ghz[i], 0.015);
            assert_close(points[i].mean_w, rows[r].w[i], 0.015);
        }
    }
}

/* ---- what holds for any powers ---- */

static void draw_powers(double *power_w, unsigned gpus, uint64_t key)
{
    for (unsigned g = 0; g < gpus; g++)
        power_w[g] = 70 + 630 * erg_hash_uniform(erg_hash_at(key, g));
}

static const char *const shipped[] = {"hgx-8-air", "mi250-4-air"};

/* A chassis of the catalogue with everything that couples slots, and a fan. */
static struct erg_chassis *load_coupled(void)
{
    struct erg_chassis *chassis = load("hgx-8-air");
    chassis->lane_mix = 0.15;
    for (unsigned g = 0; g < chassis->gpus; g++)
        chassis->slots[g].preheat_k = 3;
    chassis->fan = (struct erg_fan){70, 0.02, 20, 1, 0.05, 0.4, 2};
    return chassis;
}

/* Heat in dies and sinks, counted from the air's temperature. */
static double stored_j(const struct erg_thermal_state *state)
{
    const struct erg_chassis *chassis = state->chassis;
    double stored = 0;
    for (unsigned g = 0; g < chassis->gpus; g++) {
        const struct erg_chassis_slot *slot = &chassis->slots[g];
        const double air_c = chassis->inlet_c + slot->preheat_k;
        stored += chassis->die_time_s / slot->die_k_per_w * (state->die_c[g] - air_c);
        if (slot->sink == (int)g)
            stored += chassis->sink_time_s / slot->sink_k_per_w * (state->sink_c[g] - air_c);
    }
    return stored;
}

static void energy_is_stored_or_removed(void **unused)
{
    (void)unused;
    struct erg_chassis *all[] = {load(shipped[0]), load(shipped[1]), load_coupled()};
    for (size_t c = 0; c < 3; c++) {
        struct erg_thermal_state state;
        double power_w[ERG_CHASSIS_GPUS];
        erg_thermal_begin(&state, all[c], NULL);
        assert_near(stored_j(&state), 0, 1e-9);
        double taken_j = 0;
        for (uint64_t i = 0; i < 400; i++) {
            const double dt_s = 3 * erg_hash_uniform(1000 + i);
            draw_powers(power_w, all[c]->gpus, i);
            for (unsigned g = 0; g < all[c]->gpus; g++)
                taken_j += power_w[g] * dt_s;
            erg_thermal_step(&state, power_w, dt_s);
        }
        assert_close(state.taken_j, taken_j, 1e-12);
        assert_close(stored_j(&state) + state.removed_j, taken_j, 1e-9);
        assert_true(state.removed_j > 0.5 * taken_j && state.removed_j < taken_j);
        erg_chassis_free(all[c]);
    }
}

static void hotter_air_and_more_load_make_hotter_dies(void **unused)
{
    (void)unused;
    for (size_t c = 0; c < 2; c++) {
        struct erg_chassis *chassis = load(shipped[c]);
        const unsigned n = chassis->gpus;
        double power_w[ERG_CHASSIS_GPUS], cool[ERG_CHASSIS_GPUS], warm[ERG_CHASSIS_GPUS];
        draw_powers(power_w, n, 7);
        erg_thermal_steady(chassis, power_w, cool);
        chassis->inlet_c += 4;
        erg_thermal_steady(chassis, power_w, warm);
        for (unsigned g = 0; g < n; g++)
            assert_near(warm[g] - cool[g], 4, 1e-9);
        for (unsigned j = 0; j < n; j++) {
            const bool front = chassis->slots[j].position == ERG_SLOT_FRONT;
            power_w[j] += 50;
            erg_thermal_steady(chassis, power_w, cool);
            for (unsigned g = 0; g < n; g++) {
                assert_true(cool[g] >= warm[g]);
                if (!front && chassis->slots[g].position == ERG_SLOT_FRONT)
                    assert_near(cool[g], warm[g], 0);
            }
            assert_near(cool[j] - warm[j],
                        50 * (chassis->slots[j].die_k_per_w + chassis->slots[j].sink_k_per_w),
                        1e-9);
            power_w[j] -= 50;
        }
        erg_chassis_free(chassis);
    }
}

/* Powers of two lanes change places, and so do their temperatures, at every moment. */
static void lanes_are_alike(void **unused)
{
    (void)unused;
    static const unsigned swapped[] = {2, 1, 0, 3, 6, 5, 4, 7};
    struct erg_chassis *chassis = load_coupled();
    struct erg_thermal_state state, other;
    double power_w[8], other_w[8];
    erg_thermal_begin(&state, chassis, NULL);
    erg_thermal_begin(&other, chassis, NULL);
    for (uint64_t i = 0; i < 50; i++) {
        draw_powers(power_w, 8, i);
        for (unsigned g = 0; g < 8; g++)
            other_w[swapped[g]] = power_w[g];
        erg_thermal_step(&state, power_w, 5);
        erg_thermal_step(&other, other_w, 5);
        for (unsigned g = 0; g < 8; g++)
            assert_near(other.die_c[swapped[g]], state.die_c[g], 1e-9);
    }
    erg_chassis_free(chassis);
}

static void time_leads_to_the_steady_state(void **unused)
{
    (void)unused;
    struct erg_chassis *all[] = {load(shipped[0]), load(shipped[1]), load_coupled()};
    for (size_t c = 0; c < 3; c++) {
        struct erg_thermal_state state;
        double power_w[ERG_CHASSIS_GPUS], steady_c[ERG_CHASSIS_GPUS];
        draw_powers(power_w, all[c]->gpus, 3);
        const double speed = erg_thermal_steady(all[c], power_w, steady_c);
        erg_thermal_begin(&state, all[c], NULL);
        erg_thermal_step(&state, power_w, 3000);
        assert_close(state.fan_speed, speed, 1e-6);
        for (unsigned g = 0; g < all[c]->gpus; g++)
            assert_close(state.die_c[g], steady_c[g], 1e-6);
        erg_thermal_begin(&state, all[c], power_w); /* and stays there */
        erg_thermal_step(&state, power_w, 100);
        for (unsigned g = 0; g < all[c]->gpus; g++)
            assert_close(state.die_c[g], steady_c[g], 1e-6);
        erg_chassis_free(all[c]);
    }
}

/* One front GPU alone, against the solution of its two equations. */
static void a_step_of_power_warms_as_two_exponentials(void **unused)
{
    (void)unused;
    const struct erg_chassis chassis = pair(29);
    const double r1 = 0.0196, r2 = 0.0294, c1 = 2 / r1, c2 = 60 / r2, power[] = {500, 0};
    const double a = 1 / (r1 * c1), b = 1 / (r1 * c2) + 1 / (r2 * c2);
    const double root = sqrt((a - b) * (a - b) + 4 * a / (r1 * c2));
    const double fast = 0.5 * (a + b + root), slow = 0.5 * (a + b - root);
    const double all = 500 * (r1 + r2); /* T1 - inlet at the end; its slope is 500 / C1 at first */
    const double share = (500 / c1 - slow * all) / (fast - slow);
    struct erg_thermal_state state;
    erg_thermal_begin(&state, &chassis, NULL);
    for (int i = 1; i <= 300; i++) {
        erg_thermal_step(&state, power, 0.5);
        const double expected = 29 + all - share * exp(-fast * state.time_s) -
                                (all - share) * exp(-slow * state.time_s);
        assert_near(state.die_c[0], expected, 1e-3);
    }
    assert_true(state.die_c[1] > 29 + 0.9 * 500 * 0.0245 * (1 - exp(-1.0))); /* by the air alone */
}

/* The regulator keeps the cap of a front GPU, and the heat of a rear one in hot air. */
static void the_governor_keeps_cap_and_heat(void **unused)
{
    (void)unused;
    const struct pipeline alone = {1, 1, {1, 1}, {1600, 1600}};
    const struct stage_class classes[] = {{&alone, 0}, {&alone, 1}};
    struct erg_chassis chassis = pair(43);
    struct erg_thermal_load loads[2];
    struct erg_thermal_point points[2];
    struct erg_thermal_governor governors[2] = {{.clock_mhz = 1980}, {.clock_mhz = 1980}};
    struct erg_thermal_state state;
    double power_w[2], clock[2] = {0}, hottest = 0;
    for (int i = 0; i < 2; i++)
        loads[i] = (struct erg_thermal_load){stage_power, &classes[i], 1980, 300, 1980, 0, 693.75};
    settle_node(&chassis, loads, points);
    assert_int_equal(points[0].cause, ERG_CLOCK_CAP);
    assert_int_equal(points[1].cause, ERG_CLOCK_HEAT);
    erg_thermal_begin(&state, &chassis, NULL);
    const int ticks = 60000, last = 10000;
    for (int tick = 0; tick < ticks; tick++) {
        for (int i = 0; i < 2; i++) {
            double mean_w;
            stage_power(&classes[i], governors[i].clock_mhz, state.die_c[i], &power_w[i], &mean_w);
        }
        erg_thermal_step(&state, power_w, 1e-3 * ERG_GOVERNOR_TICK_MS);
        for (int i = 0; i < 2; i++) {
            erg_governor_tick(&governors[i], &chassis.limit, &loads[i], power_w[i], state.die_c[i]);
            clock[i] += tick >= ticks - last ? governors[i].clock_mhz / last : 0;
        }
        hottest = fmax(hottest, state.die_c[1]);
    }
    assert_near(clock[0], points[0].clock_mhz, 20);
    assert_near(clock[1], points[1].clock_mhz, 20);
    assert_near(state.die_c[1], 87, 0.3);
    assert_true(hottest < 88);
    assert_int_equal(governors[0].cause, ERG_CLOCK_CAP);
    assert_int_equal(governors[1].cause, ERG_CLOCK_HEAT);
}

static void a_die_too_hot_runs_at_half_its_clock(void **unused)
{
    (void)unused;
    const struct erg_heat_limit limit = {ERG_HEAT_PROPORTIONAL, 87, 5, 75, 20};
    const struct erg_thermal_load load = {NULL, NULL, 1980, 300, 1980, 0, 700};
    struct erg_thermal_governor governor = {.clock_mhz = 1980};
    for (int i = 0; i < 20; i++)
        erg_governor_tick(&governor, &limit, &load, 500, 80);
    assert_near(governor.clock_mhz, 1880, 0);
    for (int i = 0; i < 20; i++)
        erg_governor_tick(&governor, &limit, &load, 500, 93);
    assert_near(governor.clock_mhz, 990, 0);
    for (int i = 0; i < 20; i++)
        erg_governor_tick(&governor, &limit, &load, 300, 89); /* not yet cool enough */
    assert_near(governor.clock_mhz, 990, 0);
    for (int i = 0; i < 50; i++)
        erg_governor_tick(&governor, &limit, &load, 300, 70);
    assert_near(governor.clock_mhz, 1980, 15);
    assert_int_equal(governor.cause, ERG_CLOCK_REQUEST);
}

/* ---- files ---- */

static void shipped_chassis_load(void **unused)
{
    (void)unused;
    struct erg_chassis *hgx = load("hgx-8-air"), *mi250 = load("mi250-4-air");
    double power_w[8], temperature_c[8];
    assert_int_equal(hgx->gpus, 8);
    assert_int_equal(mi250->gpus, 8);
    assert_true(erg_chassis_fingerprint(hgx) != erg_chassis_fingerprint(mi250));
    for (int g = 0; g < 8; g++)
        power_w[g] = 630;
    erg_thermal_steady(hgx, power_w, temperature_c);
    for (int g = 0; g < 8; g++)
        assert_near(temperature_c[g], 29 + 0.049 * 630 + (g < 4 ? 0 : 0.0245 * 630), 1e-9);
    for (int g = 0; g < 8; g++)
        power_w[g] = 200;
    erg_thermal_steady(mi250, power_w, temperature_c);
    for (int g = 0; g < 8; g += 2)
        assert_near(temperature_c[g + 1] - temperature_c[g], 7, 1e-9);
    erg_chassis_free(hgx);
    erg_chassis_free(mi250);
}

static void a_written_chassis_is_the_same(void **state)
{
    struct erg_error err;
    const char *path = in_folder("again.yaml");
    (void)state;
    for (int c = 0; c < 3; c++) {
        struct erg_chassis *chassis = c < 2 ? load(shipped[c]) : load_coupled();
        if (c == 2) {
            chassis->slots[2].preheat_k = 4;
            chassis->slots[3].die_k_per_w = 0.03;
            chassis->limit = (struct erg_heat_limit){ERG_HEAT_PROPORTIONAL, 87, 4, 75, 20};
        }
        assert_ok(erg_chassis_write(chassis, path, "Measured.", &err), &err);
        struct erg_chassis *again = load(path);
        assert_true(erg_chassis_fingerprint(again) == erg_chassis_fingerprint(chassis));
        again->slots[1].die_k_per_w *= 1.01;
        assert_true(erg_chassis_fingerprint(again) != erg_chassis_fingerprint(chassis));
        erg_chassis_free(again);
        erg_chassis_free(chassis);
    }
}

static const char correct[] = "name: x\nconfidence: none\n"
                              "slots:\n"
                              "  - {position: front, lane: 0}\n"
                              "  - {position: rear, lane: 0}\n"
                              "heat:\n  inlet_c: 29\n  die_k_per_w: 0.02\n  sink_k_per_w: 0.03\n"
                              "  die_time_s: 2\n  sink_time_s: 60\n"
                              "limit:\n  hold_c: 87\n";

static void wrong_files_are_explained(void **state)
{
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"position: rear", "position: back", "slots[1].position"},
        {"lane: 0}\n  - {position: rear, lane: 0}", "lane: 0}\n  - {position: rear, lane: 99}",
         ":5: key 'slots[1].lane': expected a number from 0 to 31"},
        {"rear, lane: 0", "rear, lane: 0, sink: 0",
         ":5: key 'slots[1].sink': expected a slot of "
         "the same position and lane"},
        {"rear, lane: 0", "rear, lane: 0, sink: 2", "expected a number from 0 to 1, got 2"},
        {"die_k_per_w: 0.02", "die_k_per_w: 0", ":8: key 'heat.die_k_per_w': expected a number"},
        {"hold_c: 87", "hold_c: 20",
         "expected more than 29 C, the temperature of the cooling air, got 20"},
        {"limit:\n", "limit:\n  law: proportional\n", "needs the key 'limit.soft_c'"},
        {"limit:\n", "fan:\n  target_c: 75\nlimit:\n", "gain_per_k"},
        {"inlet_c", "inlet", "inlet_c"},
    };
    struct erg_error err;
    struct erg_chassis *chassis;
    const char *path = in_folder("wrong.yaml");
    char text[1024];
    (void)state;
    assert_ok(erg_file_write(path, correct, strlen(correct), &err), &err);
    erg_chassis_free(load(path));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const char *at = strstr(correct, cases[c].from);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - correct), correct, cases[c].to,
                 at + strlen(cases[c].from));
        assert_ok(erg_file_write(path, text, strlen(text), &err), &err);
        assert_fails(erg_chassis_load(&chassis, path, &err), &err, cases[c].message);
    }
    assert_fails(erg_chassis_load(&chassis, "hgx-8-ear", &err), &err, "did you mean 'hgx-8-air'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_layer_moved_to_the_front),
        cmocka_unit_test(activity_under_the_proportional_law),
        cmocka_unit_test(energy_is_stored_or_removed),
        cmocka_unit_test(hotter_air_and_more_load_make_hotter_dies),
        cmocka_unit_test(lanes_are_alike),
        cmocka_unit_test(time_leads_to_the_steady_state),
        cmocka_unit_test(a_step_of_power_warms_as_two_exponentials),
        cmocka_unit_test(the_governor_keeps_cap_and_heat),
        cmocka_unit_test(a_die_too_hot_runs_at_half_its_clock),
        cmocka_unit_test(shipped_chassis_load),
        cmocka_unit_test(a_written_chassis_is_the_same),
        cmocka_unit_test(wrong_files_are_explained),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
