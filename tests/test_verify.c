/*
 * `ergon verify` on the emulated device: stacks of layers cost what their pieces add up to, a plan
 * of another job is refused, and what is too far apart is named.
 */
#include "optimize.h"

#include "io/file.h"
#include "verify/verify.h"

static int set_up(void **state)
{
    if (make_quick_folder(state))
        return -1;
    write_job("job.yaml", "method: random, seed: 7", "method: gp, seed: 1");
    write_job("replay.yaml", "sequence: 2048\nsearch: {method: random, seed: 7",
              "sequence: 2048\nrecompute: full\nsearch: {method: gp, seed: 1");
    write_job("overlapped.yaml",
              "A100-SXM4-40GB}\ntensor: 2\npipeline: 2\nmicrobatch_size: 4\nmicrobatches: 2\n"
              "sequence: 2048\nsearch: {method: random, seed: 7",
              "H200-SXM-measured}\ntensor: 4\nmicrobatch_size: 8\nmicrobatches: 2\n"
              "sequence: 4096\nrecompute: full\nsearch: {method: gp, seed: 1");
    check_optimize("job.yaml", "out", "", 0, "selected: ergon");
    check_optimize("overlapped.yaml", "overlapped", "", 0, "selected: ergon");
    check_optimize("replay.yaml", "replay", "", 0, "selected: ergon");
    return 0;
}

/* Runs `ergon verify FOLDER/job FOLDER/out/plan.json MORE 2>&1`. */
static struct program_result verify(const char *job, const char *out, const char *more)
{
    struct erg_text arguments = {0};
    erg_text_printf(&arguments, "verify %s/%s %s/%s/plan.json %s 2>&1", folder, job, folder, out,
                    more);
    struct program_result result = run_program(arguments.data);
    erg_text_release(&arguments);
    return result;
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* The plan beats waiting for every communication, and is no worse than the library's at once. */
static void check_partitions(const json_t *partitions, size_t count)
{
    size_t i;
    json_t *row;
    assert_int_equal(json_array_size(partitions), count);
    json_array_foreach(partitions, i, row)
    {
        const json_t *sequential = json_object_get(row, "sequential");
        const json_t *plain = json_object_get(row, "nanobatching");
        const json_t *plan = json_object_get(row, "plan");
        assert_true(number(plan, "time_s") > 0 && number(plan, "energy_j") > 0);
        assert_true(number(plan, "time_s") < number(sequential, "time_s"));
        assert_true(number(plan, "time_s") < 1.02 * number(plain, "time_s"));
        assert_non_null(json_string_value(json_object_get(row, "partition")));
    }
}

/* Both directions of all ways, composed and in one go, within 3 %; partitions of those that the
 * plan overlaps, at least of the forward pass. */
static size_t check_rows(const char *job, const char *out, const char *more, size_t backward_types)
{
    struct program_result result = verify(job, out, more);
    if (result.exit_code)
        fail_msg("%s", result.out.data);
    struct erg_error err = {0};
    json_t *document = NULL, *row;
    assert_ok(erg_json_parse(&document, "verification", result.out.data, result.out.count, &err),
              &err);
    const json_t *rows = json_object_get(document, "rows");
    assert_int_equal(json_array_size(rows), 6);
    assert_int_equal(json_array_size(json_object_get(document, "numbers")), 0);
    size_t i, types[2] = {0};
    json_array_foreach(rows, i, row)
    {
        assert_close(number(row, "time_s"), number(row, "composed_time_s"), 0.03);
        assert_close(number(row, "energy_j"), number(row, "composed_energy_j"), 0.03);
        assert_true(number(row, "time_s") > 0.005 && number(row, "energy_j") > 1);
        bool backward = !strcmp(json_string_value(json_object_get(row, "direction")), "backward");
        if (!strcmp(json_string_value(json_object_get(row, "mode")), "overlap"))
            types[backward] = backward ? backward_types : 2;
    }
    assert_int_equal(types[0], 2);
    check_partitions(json_object_get(document, "partitions"), types[0] + types[1]);
    json_decref(document);
    erg_text_release(&result.out);
    return types[0] + types[1];
}

static void stacks_cost_the_sum_of_their_pieces(void **state)
{
    (void)state;
    assert_int_equal(check_rows("job.yaml", "out", "--json", 2), 2);
    assert_int_equal(check_rows("job.yaml", "out", "--json --layers 9", 2), 2);
    assert_int_equal(check_rows("replay.yaml", "replay", "--json --layers 3", 4), 2);
    assert_int_equal(check_rows("overlapped.yaml", "overlapped", "--json --layers 3", 4), 6);
    struct program_result result = verify("job.yaml", "out", "");
    assert_int_equal(result.exit_code, 0);
    assert_non_null(strstr(result.out.data, "4 layers of meta-llama/Llama-3.2-1B"));
    assert_non_null(strstr(result.out.data, "both"));
    assert_non_null(strstr(result.out.data, "one partition"));
    assert_non_null(strstr(result.out.data, "fwd_mlp"));
    assert_null(strstr(result.out.data, "gradient")); /* nothing is computed there */
    erg_text_release(&result.out);
}

static void a_plan_of_another_job_is_refused(void **state)
{
    (void)state;
    struct program_result result = verify("replay.yaml", "out", "");
    assert_int_equal(result.exit_code, 2);
    assert_non_null(
        strstr(result.out.data, "recomputation none, expected a plan of the job replay"));
    erg_text_release(&result.out);
    write_job("other.yaml", "A100-SXM4-40GB", "H200-SXM");
    result = verify("other.yaml", "out", "");
    assert_int_equal(result.exit_code, 2);
    assert_non_null(strstr(result.out.data, "one for A100-SXM4-40GB, expected one for H200-SXM"));
    erg_text_release(&result.out);
}

/* Two files of GPUs may have one name, as those that were calibrated on GPUs of one kind. */
static void a_plan_for_other_constants_is_refused(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_text changed = {0};
    size_t length;
    char *text, *at;
    assert_ok(erg_file_read(ERGON_TEST_SOURCE_DIR "/data/gpus/a100-sxm4-40gb.yaml", 0, &text,
                            &length, &err),
              &err);
    assert_non_null(at = strstr(text, "  cap_w: 394"));
    erg_text_add_bytes(&changed, text, (size_t)(at - text));
    erg_text_printf(&changed, "  cap_w: 390%s", at + strlen("  cap_w: 394"));
    assert_ok(erg_file_write(in_folder("a100.yaml"), changed.data, changed.count, &err), &err);
    erg_text_release(&changed);
    free(text);
    write_job("same-name.yaml", "gpu: A100-SXM4-40GB", "gpu: a100.yaml");
    struct program_result result = verify("same-name.yaml", "out", "");
    assert_int_equal(result.exit_code, 2);
    assert_non_null(strstr(result.out.data, "one for a A100-SXM4-40GB with other constants"));
    erg_text_release(&result.out);
}

static void a_stack_has_no_more_layers_than_the_model(void **state)
{
    (void)state;
    struct program_result result = verify("job.yaml", "out", "--layers 17");
    assert_int_equal(result.exit_code, 2);
    assert_non_null(strstr(result.out.data, "at most the 16 layers of meta-llama/Llama-3.2-1B"));
    erg_text_release(&result.out);
}

static void shared_power_caps_are_reported(void **state)
{
    (void)state;
    static const char said[] = "At the power cap all of a stack shares one clock";
    struct program_result result = verify("job.yaml", "out", "");
    assert_non_null(strstr(result.out.data, said));
    erg_text_release(&result.out);
    write_job("frugal.yaml", "sequence: 2048", "sequence: 2048\ngoal: least_energy");
    check_optimize("frugal.yaml", "frugal", "", 0, "selected: ergon");
    result = verify("frugal.yaml", "frugal", "");
    assert_null(strstr(result.out.data, said));
    erg_text_release(&result.out);
}

static void one_rank_works_on_emulated_gpus(void **state)
{
    (void)state;
    char line[512];
    snprintf(line, sizeof line, "verify %s/job.yaml %s/out/plan.json", folder, folder);
    assert_int_equal(count_of_two_ranks(line, "4 layers of meta-llama/Llama-3.2-1B"), 1);
    snprintf(line, sizeof line, "optimize %s/job.yaml -o %s/ranks", folder, folder);
    assert_int_equal(count_of_two_ranks(line, "selected: ergon"), 1);
}

/* ---- judging ---- */

static struct erg_verification sample(void)
{
    struct erg_verification verification = {
        .rows = {{.way = ERG_VERIFY_SEQUENTIAL,
                  .mode = ERG_MODE_SEQUENTIAL,
                  .composed = {1, 500},
                  .stack = {1.01, 490}},
                 {.backward = true,
                  .way = ERG_VERIFY_PLAN,
                  .mode = ERG_MODE_OVERLAP,
                  .composed = {2, 900},
                  .stack = {1.96, 926}}},
        .row_count = 2,
        .comparisons = {{"plan", "sequential", {{"output", 2, 2, 0}, {"fc1", 8, 0, 0.004}}, 2}},
        .comparison_count = 1,
    };
    return verification;
}

static void large_differences_are_named(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_verification verification = sample();
    assert_ok(erg_verify_judge(&verification, &err), &err);
    verification.rows[1].stack.time_s = 1.93;
    assert_fails(erg_verify_judge(&verification, &err), &err,
                 "plan backward takes -3.5 % of time and +2.9 % of energy");
    verification = sample();
    verification.rows[0].stack.energy_j = 520;
    assert_fails(erg_verify_judge(&verification, &err), &err, "sequential forward");
    verification = sample();
    verification.comparisons[0].tensors[1].relative = NAN;
    assert_fails(erg_verify_judge(&verification, &err), &err, "the fc1 tensor of plan is");
    verification.comparisons[0].tensors[1].relative = 0.05;
    assert_fails(erg_verify_judge(&verification, &err), &err, "0.05 from that of sequential");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks_cost_the_sum_of_their_pieces),
        cmocka_unit_test(a_plan_of_another_job_is_refused),
        cmocka_unit_test(a_plan_for_other_constants_is_refused),
        cmocka_unit_test(a_stack_has_no_more_layers_than_the_model),
        cmocka_unit_test(shared_power_caps_are_reported),
        cmocka_unit_test(one_rank_works_on_emulated_gpus),
        cmocka_unit_test(large_differences_are_named),
    };
    return cmocka_run_group_tests_name("verify", tests, set_up, remove_folder);
}
