/* A program in the foreground: its end, the signals that reach it; and the spread of repeats. */
#include "check.h"

#include "base/statistics.h"
#include "observe/child.h"

static struct erg_child_signals signals;

static int block_signals(void **state)
{
    (void)state;
    erg_child_block(&signals);
    return 0;
}

static void check_end(const char *script, int status, int signal)
{
    const char *command[] = {"sh", "-c", script, NULL};
    struct erg_child_end end;
    struct erg_error err;
    assert_ok(erg_child_run(&signals, command, &end, &err), &err);
    assert_int_equal(end.status, status);
    assert_int_equal(end.signal, signal);
    assert_false(end.interrupted);
    assert_int_equal(erg_child_check(&end, command, &err), status ? -1 : 0);
    if (status)
        assert_int_equal(err.status, status);
}

static void test_ends(void **state)
{
    (void)state;
    check_end("exit 0", 0, 0);
    check_end("exit 3", 3, 0);
    check_end("exit 200", 200, 0);
    check_end("kill -9 $$", 137, 9);
    /* Signals are not blocked in the child. */
    check_end("kill -TERM $$; exit 5", 143, 15);
}

static void test_commands_that_cannot_start(void **state)
{
    (void)state;
    struct erg_child_end end;
    struct erg_error err = {0};
    assert_fails(
        erg_child_run(&signals, (const char *[]){"ergon-no-such-program", NULL}, &end, &err), &err,
        "starting 'ergon-no-such-program'");
    assert_int_equal(err.status, 127);
    assert_fails(erg_child_run(&signals, (const char *[]){"/dev/null", NULL}, &end, &err), &err,
                 "Permission denied");
    assert_int_equal(err.status, 126);
}

/* The commands send this process a signal when they are ready for it, and get it back. */
static void test_signals_are_passed_on(void **state)
{
    (void)state;
    const char *traps[] = {
        "sh", "-c", "trap 'exit 7' USR1; kill -USR1 $PPID; while :; do sleep 0.1; done", NULL};
    const char *sleeps[] = {"sh", "-c", "kill -TERM $PPID; exec sleep 60", NULL};
    struct erg_child_end end;
    struct erg_error err;
    assert_ok(erg_child_run(&signals, traps, &end, &err), &err);
    assert_int_equal(end.status, 7);
    assert_false(end.interrupted);
    assert_ok(erg_child_run(&signals, sleeps, &end, &err), &err);
    assert_int_equal(end.status, 143);
    assert_true(end.interrupted);
}

static void test_a_signal_before_the_start(void **state)
{
    (void)state;
    struct erg_child_end end;
    struct erg_error err = {0};
    raise(SIGINT);
    assert_fails(erg_child_run(&signals, (const char *[]){"true", NULL}, &end, &err), &err,
                 "interrupted");
    assert_int_equal(err.status, ERG_INTERRUPTED);
}

static void test_spread(void **state)
{
    (void)state;
    struct erg_spread spread = {0};
    assert_true(isnan(erg_spread_mean(&spread)));
    const double values[] = {1e9 + 4, 1e9 + 7, NAN, 1e9 + 13, 1e9 + 16};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(isnan(erg_spread_sd(&spread)), i < 2);
        erg_spread_add(&spread, values[i]);
    }
    assert_int_equal(spread.count, 4);
    assert_near(erg_spread_mean(&spread), 1e9 + 10, 0);
    assert_near(erg_spread_sd(&spread), sqrt(30), 1e-9);
    assert_near(spread.least, 1e9 + 4, 0);
    assert_near(spread.most, 1e9 + 16, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_commands_that_cannot_start),
        cmocka_unit_test(test_signals_are_passed_on),
        cmocka_unit_test(test_a_signal_before_the_start),
        cmocka_unit_test(test_spread),
    };
    return cmocka_run_group_tests(tests, block_signals, NULL);
}
