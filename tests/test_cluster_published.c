/* The published comparison under its own accounting: golden rounds and jobs. */
#include "cluster_golden.h"

static void run_policy(struct published *published, struct erg_simulated *result,
                       const char *policy)
{
    if (!published_load(published, "simulate_trace_philly.csv"))
        skip_without(NULL, "arena");
    published_run(result, published, policy);
}

static void check_policy(const char *policy, const char *golden)
{
    struct published published;
    struct erg_simulated result;
    run_policy(&published, &result, policy);
    check_golden_rounds(&result, golden, GOLDEN_ROUNDS);
    check_golden_jobs(&result, golden);
    erg_simulated_release(&result);
    published_release(&published);
}

static void test_fcfs(void **state)
{
    (void)state;
    check_policy("fcfs", "fcfs");
}

static void test_elasticflow(void **state)
{
    (void)state;
    check_policy("elasticflow-ls", "elasticflow-l");
}

/*
 * Rounds agree exactly until the cluster is full and a choice among plans differs; what all 2,000
 * come to is near the published 828 jobs, 41,648 s, 6,771 and 10,994 samples/s.
 */
static void test_arena(void **state)
{
    (void)state;
    struct published published;
    struct erg_simulated result;
    run_policy(&published, &result, "arena");
    const struct erg_summary *summary = &result.summary;
    check_golden_rounds(&result, "crius", 432);
    assert_close(summary->finished_jobs, 828, 0.01);
    assert_close(summary->mean_throughput, 6771, 0.01);
    assert_close(summary->mean_time_in_system_s, 61366, 0.02);
    assert_close(summary->mean_jct_s, 41648, 0.015);
    assert_close(summary->peak_throughput, 10994, 0.025);
    erg_simulated_release(&result);
    published_release(&published);
}

/*
 * Exact until the published solver accepts tables that are not the best ones; what all rounds come
 * to is within 2 % of its 585 jobs, 55,998 s, 5,022 and 8,523 samples/s.
 */
static void test_gavel(void **state)
{
    (void)state;
    struct published published;
    struct erg_simulated result;
    run_policy(&published, &result, "gavel");
    const struct erg_summary *summary = &result.summary;
    check_golden_rounds(&result, "gavel", 431);
    assert_close(summary->finished_jobs, 585, 0.02);
    assert_close(summary->mean_jct_s, 55998, 0.02);
    assert_close(summary->mean_time_in_system_s, 140277, 0.02);
    assert_close(summary->mean_throughput, 5022, 0.02);
    assert_close(summary->peak_throughput, 8523, 0.02);
    erg_simulated_release(&result);
    published_release(&published);
}

/* 608 jobs, 52,727 s, 4,868 and 9,346 samples/s; which of equal or nearly equal tables the
 * published solver took is not known. */
static void test_sia(void **state)
{
    (void)state;
    struct published published;
    struct erg_simulated result;
    run_policy(&published, &result, "sia");
    const struct erg_summary *summary = &result.summary;
    check_golden_rounds(&result, "sia", 168);
    assert_close(summary->finished_jobs, 608, 0.03);
    assert_close(summary->mean_jct_s, 52727, 0.03);
    assert_close(summary->mean_time_in_system_s, 111826, 0.03);
    assert_close(summary->mean_throughput, 4868, 0.03);
    assert_close(summary->peak_throughput, 9346, 0.03);
    erg_simulated_release(&result);
    published_release(&published);
}

/* Each part that a variant leaves out costs throughput, changes of type most. */
static void test_arena_variants(void **state)
{
    (void)state;
    static const char *const names[] = {"arena", "arena-ns", "arena-nh", "fcfs"};
    double before = INFINITY;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct published published;
        struct erg_simulated result;
        run_policy(&published, &result, names[i]);
        assert_true(result.summary.mean_throughput < before);
        before = result.summary.mean_throughput;
        erg_simulated_release(&result);
        published_release(&published);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fcfs),  cmocka_unit_test(test_elasticflow),
        cmocka_unit_test(test_gavel), cmocka_unit_test(test_sia),
        cmocka_unit_test(test_arena), cmocka_unit_test(test_arena_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
