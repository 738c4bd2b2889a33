/* The metrics of the published evaluation. */
#include "check.h"

#include "plan/plan.h"

/* Kareus, evaluation (Qwen 1.7B, PP2 CP2 TP4, microbatch 16, 4K): one point per system. */
static void the_published_evaluation(void **state)
{
    (void)state;
    const struct erg_point m = {5.60, 26745, 0};
    struct erg_point mp = {5.60, 24905, 0}, n = {5.31, 26541, 0}, np = {5.37, 24889, 0};
    struct erg_frontier clocks = {&mp, 1, 1};
    struct erg_versus v = erg_compare(&clocks, m, &clocks);
    assert_near(v.max_throughput_energy, 6.9, 0.05);
    assert_near(v.max_throughput_time, 0, 1e-12);
    assert_near(v.iso_time_energy, 0, 1e-12);
    assert_near(v.iso_energy_time, 0, 1e-12);
    v = erg_compare(&(struct erg_frontier){&n, 1, 1}, m, &clocks);
    assert_near(v.max_throughput_time, 5.2, 0.05);
    assert_true(isnan(v.iso_energy_time)); /* it never gets as cheap as the clocks' frontier */
    v = erg_compare(&(struct erg_frontier){&np, 1, 1}, m, &clocks);
    assert_near(v.max_throughput_time, 4.1, 0.05);
    assert_near(v.max_throughput_energy, 6.9, 0.05);
    assert_near(v.iso_energy_time, 4.1, 0.05);
}

static void undefined_and_negative_cases(void **state)
{
    (void)state;
    const struct erg_point m = {10, 100, 0};
    struct erg_point clock_points[] = {{10, 90, 0}, {12, 70, 1}};
    struct erg_frontier clocks = {clock_points, 2, 2};
    struct erg_point slow[] = {{11, 60, 0}, {13, 50, 1}};
    struct erg_versus v = erg_compare(&(struct erg_frontier){slow, 2, 2}, m, &clocks);
    assert_near(v.max_throughput_time, -10, 1e-9);
    assert_true(isnan(v.iso_time_energy)); /* nothing is as fast as 10 s */
    assert_near(v.iso_energy_time, 100.0 / 12, 1e-9);
    v = erg_compare(&(struct erg_frontier){0}, m, &clocks);
    assert_true(isnan(v.max_throughput_time) && isnan(v.iso_time_energy));
    v = erg_compare(&clocks, m, &(struct erg_frontier){0});
    assert_near(v.max_throughput_energy, 10, 1e-9);
    assert_true(isnan(v.iso_time_energy));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_evaluation),
        cmocka_unit_test(undefined_and_negative_cases),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
