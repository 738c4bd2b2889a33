/*
 * What every test program includes: cmocka with the headers it needs before it, comparison of
 * doubles, and the place of measured data that is not part of the project.
 */
#ifndef ERGON_TESTS_CHECK_H
#define ERGON_TESTS_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ergon/error.h"

/* A shell starts its background jobs with SIGINT and SIGQUIT ignored, nohup adds SIGHUP, and ergon
 * leaves an ignored signal alone: tests that send one would wait for ever. */
__attribute__((constructor)) static void hear_signals(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
}

/* |actual - expected| <= tolerance, with all numbers in the failure message. */
#define assert_near(actual, expected, tolerance)                                                   \
    do {                                                                                           \
        double near_actual = (actual), near_expected = (expected), near_tolerance = (tolerance);   \
        if (!(fabs(near_actual - near_expected) <= near_tolerance))                                \
            fail_msg("%s = %.12g, expected %.12g +- %.3g", #actual, near_actual, near_expected,    \
                     near_tolerance);                                                              \
    } while (0)

/* Relative comparison. */
#define assert_close(actual, expected, relative)                                                   \
    assert_near((actual), (expected), (relative)*fabs((double)(expected)))

/* A call that must succeed; shows the error's sentence when it does not. */
#define assert_ok(call, err)                                                                       \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            fail_msg("%s: %s", #call, (err)->message);                                             \
    } while (0)

/* A call that must fail, with a message that contains `part`. */
#define assert_fails(call, err, part)                                                              \
    do {                                                                                           \
        if ((call) == 0)                                                                           \
            fail_msg("%s succeeded, expected an error with \"%s\"", #call, (part));                \
        if (!strstr((err)->message, (part)))                                                       \
            fail_msg("%s said \"%s\", expected \"%s\" in it", #call, (err)->message, (part));      \
    } while (0)

/*
 * The path of a measured data file outside the project, for example
 * "perseus_cases/toys.json", or NULL where it is absent (then skip the test, saying so).
 * The result stays valid until the next call.
 */
static inline const char *shared_data(const char *name)
{
    static char path[4096];
    const char *root = getenv("ERGON_SHARED_DATA");
    snprintf(path, sizeof path, "%s/%s", root ? root : ERGON_TEST_SHARED_DATA, name);
    return access(path, R_OK) == 0 ? path : NULL;
}

#define skip_without(path, name)                                                                   \
    do {                                                                                           \
        if (!(path)) {                                                                             \
            print_message("[  NOTE  ] skipped: measured data %s is not here\n", name);             \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

#endif
