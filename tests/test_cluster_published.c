/* The published comparison under its own accounting: golden rounds and jobs. */
#include "cluster_golden.h"

static void check_policy(const char *policy, const char *golden)
{
    struct published published;
    struct erg_simulated result;
    if (!published_load(&published, "simulate_trace_philly.csv"))
        skip_without(NULL, "arena");
    published_run(&result, &published, policy);
    check_golden_rounds(&result, golden);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fcfs),
        cmocka_unit_test(test_elasticflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
