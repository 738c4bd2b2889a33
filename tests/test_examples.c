/* What a newcomer runs first: the commands of the README and of examples/, end to end. */
#include "folder.h"
#include "program.h"

#include "io/csv.h"
#include "io/json.h"

static void test_quickstart_leaves_a_profile_that_frontier_reads(void **state)
{
    (void)state;
    struct erg_text text = {0};
    erg_text_printf(&text, "optimize --quiet '%s/examples/quickstart.yaml' -o '%s' 2>&1",
                    ERGON_TEST_SOURCE_DIR, folder);
    check_program(text.data, 0, "plan");

    text.count = 0;
    erg_text_printf(&text, "%s/profile.csv", folder);
    struct erg_csv *profile;
    struct erg_error err;
    assert_ok(erg_csv_load(&profile, text.data, &err), &err);
    assert_int_equal(erg_csv_rows(profile), 2 * 2 * 18); /* stages, directions, clocks */
    erg_csv_free(profile);

    text.count = 0;
    erg_text_printf(&text, "frontier '%s/profile.csv' -m 8 -p 85 2>&1", folder);
    check_program(text.data, 0, "planned_energy_j");
    erg_text_release(&text);
}

/* 8 microbatches at the highest clock take 5.1 s; plans save energy without taking longer. */
static void test_frontier_of_the_shipped_profile(void **state)
{
    (void)state;
    struct erg_text text = {0};
    erg_text_printf(&text,
                    "frontier '%s/examples/frontier/llama3.2-3b_tp8_a100.csv' --microbatches 8 "
                    "--blocking-power 85 --deadline 5.3 --format csv",
                    ERGON_TEST_SOURCE_DIR);
    struct program_result result = run_program(text.data);
    assert_int_equal(result.exit_code, 0);
    struct erg_csv *csv;
    struct erg_error err;
    assert_ok(erg_csv_parse(&csv, "output", result.out.data, result.out.count, &err), &err);
    assert_int_equal(erg_csv_rows(csv), 1);
    double time_s, energy_j;
    assert_ok(erg_csv_double(csv, 0, 0, &time_s, &err), &err);
    assert_ok(erg_csv_double(csv, 0, 1, &energy_j, &err), &err);
    assert_true(time_s > 5.12 && time_s <= 5.3);
    assert_true(energy_j > 2000 && energy_j < 2540);
    erg_csv_free(csv);
    erg_text_release(&result.out);
    erg_text_release(&text);
}

#define CLUSTER ERGON_TEST_SOURCE_DIR "/examples/cluster/"

/* As make-profiles.sh calls it. A model of 65 billion parameters needs more than a node; on two, a
 * frontier that ergon simulate takes as it is, in steps of 3 %. */
static void test_profiles_of_the_cluster(void **state)
{
    (void)state;
    struct program_result result =
        run_program("layout '" CLUSTER "jobs/llama-65b.yaml' --cluster '" CLUSTER
                    "nodes/h800.yaml' --gpus 8,16 --export profile");
    struct erg_csv *csv;
    struct erg_error err;
    assert_int_equal(result.exit_code, 0);
    assert_ok(erg_csv_parse(&csv, "output", result.out.data, result.out.count, &err), &err);
    assert_in_range(erg_csv_rows(csv), 10, 30);
    double before_s = 0, before_w = INFINITY;
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        double nodes, time_s, power_w;
        assert_string_equal(erg_csv_text(csv, row, 1), "65.3B");
        assert_ok(erg_csv_double(csv, row, 4, &nodes, &err), &err);
        assert_ok(erg_csv_double(csv, row, 6, &time_s, &err), &err);
        if (row == 0) {
            assert_true(nodes == 1 && time_s == -1);
            assert_string_equal(erg_csv_text(csv, row, 7), "");
            continue;
        }
        assert_ok(erg_csv_double(csv, row, 7, &power_w, &err), &err);
        assert_true(nodes == 2 && time_s > before_s && power_w < before_w);
        assert_true(row == 1 || time_s < 1.0301 * before_s);
        assert_true(time_s > 10 && time_s < 40 && power_w > 200 && power_w < 700);
        before_s = time_s;
        before_w = power_w;
    }
    erg_csv_free(csv);
    erg_text_release(&result.out);
}

/* What a policy does to the trace on a cluster of the folder. Release it. */
static json_t *simulate(const char *cluster, const char *policy)
{
    struct erg_text text = {0};
    json_error_t error;
    erg_text_printf(&text,
                    "simulate '" CLUSTER "%s' '" CLUSTER "trace.csv' --profiles '" CLUSTER
                    "profiles' --policy %s --json",
                    cluster, policy);
    struct program_result result = run_program(text.data);
    assert_int_equal(result.exit_code, 0);
    json_t *document = json_loads(result.out.data, 0, &error);
    assert_int_equal(json_integer_value(json_object_get(document, "finished_jobs")), 400);
    erg_text_release(&result.out);
    erg_text_release(&text);
    return document;
}

static double number(const json_t *document, const char *key)
{
    return json_number_value(json_object_get(document, key));
}

/* The README's comparison: every job ends under every policy, and waits least under ours. */
static void test_cluster(void **state)
{
    (void)state;
    static const char *const policies[] = {"fcfs", "arena", "ergon"};
    double before_s = INFINITY;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        json_t *document = simulate("cluster.yaml", policies[i]);
        assert_true(number(document, "mean_jct_s") < before_s);
        before_s = number(document, "mean_jct_s");
        json_decref(document);
    }
}

/* Nodes that are switched off save energy; jobs that wake one wait two minutes for it. */
static void test_cluster_with_power_saving(void **state)
{
    (void)state;
    json_t *always_on = simulate("cluster.yaml", "fcfs");
    json_t *saving = simulate("cluster-saving.yaml", "fcfs");
    assert_true(number(saving, "energy_j") < 0.97 * number(always_on, "energy_j"));
    assert_true(number(saving, "mean_jct_s") < number(always_on, "mean_jct_s") + 600);
    json_decref(always_on);
    json_decref(saving);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quickstart_leaves_a_profile_that_frontier_reads),
        cmocka_unit_test(test_frontier_of_the_shipped_profile),
        cmocka_unit_test(test_profiles_of_the_cluster),
        cmocka_unit_test(test_cluster),
        cmocka_unit_test(test_cluster_with_power_saving),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
