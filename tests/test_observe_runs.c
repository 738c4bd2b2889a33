/* The table and the document of `ergon measure`, from windows made by hand. */
#include "check.h"

#include "base/memory.h"
#include "base/table.h"
#include "observe/runs.h"

static const char *const command[] = {"train", "--steps", "10", NULL};

/* Two GPUs; run i took 10 + i seconds at 100 W and 300 W. */
static struct erg_runs make_runs(size_t count)
{
    struct erg_runs runs = {.command = command, .warmups = 1, .gpu_count = 2};
    for (int g = 0; g < 2; g++) {
        runs.gpus[g].index = 2 * g;
        snprintf(runs.gpus[g].name, sizeof runs.gpus[g].name, "NVIDIA H200");
    }
    for (size_t i = 0; i < count; i++) {
        struct erg_run run = {0};
        struct erg_window_result *window = &run.window;
        window->time_s = 10 + (double)i;
        window->gpus = 2;
        window->energy_j = 400 * window->time_s;
        window->uncertainty_j = 28;
        window->energy_gpus = 2;
        window->cpu_j = NAN;
        window->cpu_uncertainty_j = NAN;
        window->dram_j = 50;
        window->dram_uncertainty_j = 2;
        for (int g = 0; g < 2; g++) {
            double power_w = g ? 300 : 100;
            window->gpu[g] = (struct erg_window_gpu){
                .energy_j = power_w * window->time_s,
                .uncertainty_j = 14,
                .power_energy_j = power_w * window->time_s,
                .ratio = g ? 1.25 : 1,
                .power_mean_w = power_w,
                .power_peak_w = 2 * power_w + (double)i,
                .temperature_begin_c = 30 + (double)i,
                .temperature_end_c = 60 + (double)i,
                .temperature_max_c = 65,
                .memory_temperature_max_c = 70,
                .throttled_power_s = g ? 1.5 : 0,
                .sm_clock_mean_mhz = 1980,
                .quality = ERG_ENERGY_MEASURED,
            };
        }
        ERG_PUSH(&runs, items, run);
    }
    return runs;
}

static void check_parts(const struct erg_runs *runs, const char *const *parts)
{
    struct erg_text text = {0};
    erg_runs_table(&text, runs);
    for (; *parts; parts++)
        if (!strstr(text.data, *parts))
            fail_msg("expected \"%s\" in\n%s", *parts, text.data);
    erg_text_release(&text);
}

static void test_table(void **state)
{
    (void)state;
    struct erg_runs runs = make_runs(3);
    check_parts(&runs,
                (const char *[]){
                    "Energy of 'train --steps 10', 3 runs after 1 of warm-up (mean ± standard "
                    "deviation):\n",
                    "  time                    11.0 s ± 1.00 s (9.1 %)\n",
                    "  energy of GPUs         4.40 kJ ± 400 J (9.1 %), each known to ± 28.0 J\n",
                    "  mean power of GPUs       400 W ± 0.000 W (0.0 %)\n",
                    "  energy of CPUs               -\n",
                    "  energy of DRAM          50.0 J ± 0.000 J (0.0 %), each known to ± 2.00 J\n",
                    "  2 NVIDIA H200  3.30 kJ ± 300 J  ± 14.0 J          1.250  300 W  602 W  "
                    "1.98 GHz  30 to 62, max 65 °C  by power 1.50 s, by heat 0.000 s\n",
                    "  0 NVIDIA H200  1.10 kJ ± 100 J  ± 14.0 J          1.000  100 W  202 W  "
                    "1.98 GHz  30 to 62, max 65 °C  no\n",
                    "  GPU 2: its two sources of energy differ by 25 %.\n", NULL});
    erg_runs_release(&runs);
}

static void test_missing_values(void **state)
{
    (void)state;
    struct erg_runs runs = make_runs(1);
    struct erg_window_gpu *gpus = runs.items[0].window.gpu;
    gpus[0] = (struct erg_window_gpu){.energy_j = NAN, .quality = ERG_ENERGY_MISSING, .lost = 1};
    gpus[0].ratio = gpus[0].temperature_begin_c = gpus[0].power_mean_w = NAN;
    gpus[0].uncertainty_j = gpus[0].power_peak_w = gpus[0].sm_clock_mean_mhz = NAN;
    gpus[0].throttled_power_s = gpus[0].throttled_thermal_s = NAN;
    gpus[1].quality = ERG_ENERGY_ESTIMATED;
    check_parts(
        &runs,
        (const char *[]){"1 run after 1 of warm-up:\n", "  time                           10.0 s\n",
                         "  energy of 1 of 2 GPUs         3.00 kJ, known to ± 14.0 J\n",
                         "  mean power of 1 of 2 GPUs       300 W\n",
                         "  0 NVIDIA H200        -         -              -      -      -",
                         "GPU 0 did not answer in time or fell off the bus.\n",
                         "GPU 0: its energy is missing in the sum.\n",
                         "GPU 2: shorter than three steps of its counter, so estimated", NULL});
    snprintf(runs.gpus[0].trouble, sizeof runs.gpus[0].trouble, "the GPU needs a reset");
    check_parts(&runs, (const char *[]){"GPU 0 does not work: the GPU needs a reset.\n", NULL});
    json_t *root = erg_runs_json(&runs);
    json_t *run = json_array_get(json_object_get(root, "runs"), 0);
    json_t *gpu = json_array_get(json_object_get(run, "gpus"), 0);
    assert_true(json_is_null(json_object_get(gpu, "energy_j")));
    assert_string_equal(json_string_value(json_object_get(gpu, "quality")), "missing");
    assert_true(json_is_true(json_object_get(gpu, "lost")));
    assert_true(json_is_null(json_object_get(run, "cpu_energy_j")));
    assert_near(json_number_value(json_object_get(run, "energy_j")), 3000, 1e-9);
    assert_int_equal(json_integer_value(json_object_get(run, "energy_gpus")), 1);
    /* One run has no spread. */
    json_t *time = json_object_get(json_object_get(root, "summary"), "time_s");
    assert_near(json_number_value(json_object_get(time, "mean")), 10, 0);
    assert_true(json_is_null(json_object_get(time, "sd")));
    json_decref(root);
    erg_runs_release(&runs);
}

/* A GPU that is known in some runs only is in no sum, so that all sums are of the same GPUs. */
static void test_sums_are_of_the_same_gpus(void **state)
{
    (void)state;
    struct erg_runs runs = make_runs(3);
    struct erg_window_gpu *gpu = &runs.items[1].window.gpu[0];
    gpu->energy_j = gpu->uncertainty_j = gpu->power_mean_w = NAN;
    gpu->quality = ERG_ENERGY_MISSING;
    check_parts(&runs, (const char *[]){
                           "  energy of 1 of 2 GPUs         3.30 kJ ± 300 J (9.1 %), each known to "
                           "± 14.0 J\n",
                           "  0 NVIDIA H200  1.10 kJ ± 141 J  ± 14.0 J",
                           "  GPU 0: its energy is missing in the sum.\n",
                           "  GPU 0: its own numbers cover 2 of the 3 runs.\n", NULL});
    json_t *root = erg_runs_json(&runs);
    json_t *summary = json_object_get(root, "summary");
    assert_int_equal(json_integer_value(json_object_get(summary, "energy_gpus")), 1);
    json_t *first = json_array_get(json_object_get(root, "gpus"), 0);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(first, "energy_j"), "count")), 2);
    json_decref(root);
    erg_runs_release(&runs);
}

/* Nothing known is no zero, and a run too short for a mean has none, and no "inf" and no "nan". */
static void test_unknown_values(void **state)
{
    (void)state;
    struct erg_runs runs = make_runs(2);
    for (size_t i = 0; i < 2; i++) {
        for (int g = 0; g < 2; g++) {
            struct erg_window_gpu *gpu = &runs.items[i].window.gpu[g];
            gpu->energy_j = gpu->uncertainty_j = gpu->power_mean_w = gpu->ratio = NAN;
            gpu->quality = ERG_ENERGY_MISSING;
        }
    }
    check_parts(&runs, (const char *[]){"  energy of GPUs               -\n",
                                        "  mean power of GPUs           -\n",
                                        "  GPU 0: its energy is unknown.\n", NULL});
    json_t *root = erg_runs_json(&runs);
    json_t *summary = json_object_get(root, "summary");
    static const char *const keys[] = {"energy_j", "uncertainty_j", "power_mean_w"};
    for (size_t k = 0; k < 3; k++)
        assert_true(json_is_null(json_object_get(json_object_get(summary, keys[k]), "mean")));
    assert_int_equal(json_integer_value(json_object_get(summary, "energy_gpus")), 0);
    json_decref(root);
    for (size_t i = 0; i < 2; i++) {
        for (int g = 0; g < 2; g++) {
            struct erg_window_gpu *gpu = &runs.items[i].window.gpu[g];
            gpu->energy_j = 0;
            gpu->uncertainty_j = 14;
            gpu->quality = ERG_ENERGY_ESTIMATED;
        }
    }
    struct erg_text text = {0};
    erg_runs_table(&text, &runs);
    if (strstr(text.data, "nan") || strstr(text.data, "inf"))
        fail_msg("%s", text.data);
    erg_text_release(&text);
    erg_runs_release(&runs);
}

static void test_why_power_was_summed(void **state)
{
    (void)state;
    static const char *const notes[] = {
        [ERG_COUNTER_MISSING] = "GPU 2 has no energy counter: power readings were summed.\n",
        [ERG_COUNTER_STILL] = "GPU 2: its counter stood still: power readings were summed.\n",
        [ERG_COUNTER_RESET] =
            "GPU 2: its counter restarted or jumped: power readings were summed.\n"};
    for (int state_of = ERG_COUNTER_MISSING; state_of <= ERG_COUNTER_RESET; state_of++) {
        struct erg_runs runs = make_runs(1);
        runs.items[0].window.gpu[1].quality = ERG_ENERGY_POWER_ONLY;
        runs.items[0].window.gpu[1].counter = state_of;
        check_parts(&runs, (const char *[]){notes[state_of], NULL});
        erg_runs_release(&runs);
    }
}

/* As many digits for all of a column, and never fewer than those before the point. */
static void test_numbers_of_a_table(void **state)
{
    (void)state;
    struct erg_table table = {.columns = 2};
    struct erg_text text = {0};
    const double values[] = {5.95, 5.9314, 12345.6, 0.07, 9.99996, 0, INFINITY};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        erg_table_add(&table, "%zu", i);
        erg_table_add_number(&table, 4, values[i]);
    }
    erg_table_text(&text, &table, "");
    assert_string_equal(text.data, "0  5.950\n1  5.931\n2  12346\n3  0.07000\n4  10.00\n"
                                   "5  0.000\n6  inf\n");
    erg_text_release(&text);
    erg_table_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_missing_values),
        cmocka_unit_test(test_sums_are_of_the_same_gpus),
        cmocka_unit_test(test_unknown_values),
        cmocka_unit_test(test_why_power_was_summed),
        cmocka_unit_test(test_numbers_of_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
