/* Linear and integer programs whose solutions are found by hand. */
#include "check.h"
#include "cluster/policies/program.h"

/* Columns of two entries: rows 0 and 1. */
static void column(struct erg_program *program, double value, double upper, double a, double b)
{
    erg_program_column(program, value, upper);
    erg_program_entry(program, 0, a);
    erg_program_entry(program, 1, b);
}

/* Maximize 3 x + 2 y, x + y <= 4, x + 3 y <= 6, x <= 3: x = 3, y = 1. */
static void test_linear(void **state)
{
    (void)state;
    struct erg_program program = {0};
    struct erg_error err;
    double solution[2];
    for (int again = 0; again < 2; again++) {
        erg_program_reset(&program);
        erg_program_row(&program, -INFINITY, 4);
        erg_program_row(&program, -INFINITY, 6);
        column(&program, 3, 3, 1, 1);
        column(&program, 2, INFINITY, 1, 3);
        assert_ok(erg_program_solve(&program, false, 0, solution, &err), &err);
        assert_near(solution[0], 3, 1e-9);
        assert_near(solution[1], 1, 1e-9);
    }
    erg_program_release(&program);
}

/* Maximize 5 x + 4 y, 6 x + 4 y <= 24, x + 2 y <= 6: 21 at (3, 1.5), in whole numbers 20 at (4, 0).
 */
static void test_integer(void **state)
{
    (void)state;
    struct erg_program program = {0};
    struct erg_error err;
    double solution[2];
    erg_program_row(&program, 0, 24);
    erg_program_row(&program, 0, 6);
    column(&program, 5, INFINITY, 6, 1);
    column(&program, 4, INFINITY, 4, 2);
    assert_ok(erg_program_solve(&program, false, 0, solution, &err), &err);
    assert_near(5 * solution[0] + 4 * solution[1], 21, 1e-9);
    assert_ok(erg_program_solve(&program, true, 0, solution, &err), &err);
    assert_near(solution[0], 4, 0);
    assert_near(solution[1], 0, 0);
    erg_program_release(&program);
}

static void test_without_solution(void **state)
{
    (void)state;
    struct erg_program program = {0};
    struct erg_error err;
    double solution[2];
    assert_ok(erg_program_solve(&program, true, 0, solution, &err), &err);
    erg_program_row(&program, 5, 6);
    erg_program_row(&program, 0, 6);
    column(&program, 1, 2, 1, 1);
    column(&program, 1, 2, 1, 1);
    assert_fails(erg_program_solve(&program, false, 0, solution, &err), &err, "no feasible");
    assert_fails(erg_program_solve(&program, true, 0, solution, &err), &err, "no solution");
    erg_program_release(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_integer),
        cmocka_unit_test(test_without_solution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
