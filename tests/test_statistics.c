/* Student's t and intervals of means against published tables and cases worked by hand. */
#include "base/statistics.h"
#include "check.h"

static void test_student(void **state)
{
    (void)state;
    /* Abramowitz & Stegun, table 26.10. */
    static const struct {
        size_t degrees;
        double confidence, t;
    } cases[] = {
        {1, 0.95, 12.706}, {2, 0.95, 4.303},  {3, 0.95, 3.182},  {4, 0.95, 2.776},
        {9, 0.95, 2.262},  {10, 0.95, 2.228}, {30, 0.95, 2.042}, {120, 0.95, 1.980},
        {1, 0.5, 1.000},   {5, 0.99, 4.032},  {8, 0.9, 1.860},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_near(erg_student_critical(cases[i].degrees, cases[i].confidence), cases[i].t, 6e-4);
    assert_near(erg_student_critical(100000, 0.95), 1.95999, 1e-4); /* the normal distribution */
}

static void test_interval(void **state)
{
    (void)state;
    /* sqrt(20/3) / 2 = 1.29099 times t(3) = 3.18245. */
    const double values[] = {2, NAN, 4, 6, 8};
    struct erg_interval interval = erg_interval_of_mean(values, 5, 0.95);
    assert_int_equal(interval.count, 4);
    assert_near(interval.mean, 5, 1e-15);
    assert_near(interval.half_width, 4.10852, 1e-5);
    interval = erg_interval_of_mean(values, 2, 0.95);
    assert_int_equal(interval.count, 1);
    assert_near(interval.mean, 2, 0);
    assert_true(isnan(interval.half_width));
    interval = erg_interval_of_mean(values + 1, 1, 0.95);
    assert_int_equal(interval.count, 0);
    assert_true(isnan(interval.mean) && isnan(interval.half_width));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_student),
                                       cmocka_unit_test(test_interval)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
