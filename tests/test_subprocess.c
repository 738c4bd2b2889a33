/* Programs that are run for their answer (io/subprocess.h). */
#include "io/subprocess.h"

#include <errno.h>
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

static struct erg_subprocess run(const char *line, const char *const *environment, double limit_s)
{
    const char *const words[] = {"/bin/sh", "-c", line, NULL};
    struct erg_subprocess process;
    assert_int_equal(erg_subprocess_run(&process, words, environment, limit_s, NULL), 0);
    return process;
}

static void a_given_environment_is_used_alone(void **state)
{
    (void)state;
    static const char *const given[] = {"A=1", "B=two words", NULL};
    setenv("C", "3", 1);
    struct erg_subprocess process = run("echo \"$A,$B,$C\"", given, 30);
    assert_string_equal(process.out.data, "1,two words,\n");
    erg_subprocess_release(&process);
    process = run("echo \"$C\"", NULL, 30);
    assert_string_equal(process.out.data, "3\n");
    erg_subprocess_release(&process);
}

/* What this process does with its signals is not handed down. */
static void signals_are_as_at_a_shell(void **state)
{
    (void)state;
    sigset_t all;
    sigfillset(&all);
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &all, NULL);
    struct erg_subprocess process = run("grep -E '^Sig(Blk|Ign)' /proc/self/status", NULL, 30);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    signal(SIGPIPE, before);
    const uint64_t pipe_bit = UINT64_C(1) << (SIGPIPE - 1);
    const char *blocked = strstr(process.out.data, "SigBlk:"),
               *ignored = strstr(process.out.data, "SigIgn:");
    assert_non_null(blocked);
    assert_non_null(ignored);
    assert_int_equal(strtoull(blocked + 7, NULL, 16), 0);
    assert_int_equal(strtoull(ignored + 7, NULL, 16) & pipe_bit, 0);
    erg_subprocess_release(&process);
}

static void ends_are_told_apart(void **state)
{
    (void)state;
    struct erg_subprocess process = run("exit 228", NULL, 30);
    assert_int_equal(process.status, 228);
    assert_int_equal(process.signal, 0);
    erg_subprocess_release(&process);
    process = run("kill -TERM $$", NULL, 30);
    assert_int_equal(process.status, 128 + SIGTERM);
    assert_int_equal(process.signal, SIGTERM);
    erg_subprocess_release(&process);
    process = run("echo said; exec sleep 97", NULL, 0.5);
    assert_true(process.late);
    assert_int_equal(process.signal, SIGKILL);
    assert_string_equal(process.out.data, "said\n");
    erg_subprocess_release(&process);

    /* Nobody keeps the status of a child where SIGCHLD is ignored. */
    void (*before)(int) = signal(SIGCHLD, SIG_IGN);
    process = run("exit 3", NULL, 30);
    signal(SIGCHLD, before);
    assert_false(process.late);
    assert_int_equal(process.signal, -1);
    assert_int_equal(process.status, 255);
    erg_subprocess_release(&process);
}

static void failed_starts_are_reported(void **state)
{
    (void)state;
    struct erg_subprocess process;
    struct erg_error err;
    static const char *const missing[] = {"no-such-program-anywhere", NULL}, *const folder[] = {
                                                                                 "/", NULL};
    assert_int_equal(erg_subprocess_run(&process, missing, NULL, 30, &err), -1);
    assert_int_equal(err.status, 127);
    erg_subprocess_release(&process);
    assert_int_equal(erg_subprocess_run(&process, folder, NULL, 30, &err), -1);
    assert_int_equal(err.status, 126);
    assert_non_null(strstr(err.message, "starting '/': Permission denied, expected a program"));
    erg_subprocess_release(&process);
}

static void long_answers_end_at_the_limit(void **state)
{
    (void)state;
    char line[96];
    snprintf(line, sizeof line, "head -c %ld /dev/zero", (long)ERG_SUBPROCESS_MOST_BYTES + 1);
    struct erg_subprocess process = run(line, NULL, 120);
    assert_true(process.full);
    assert_int_equal(process.out.count, ERG_SUBPROCESS_MOST_BYTES);
    erg_subprocess_release(&process);
    process = run("head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2", NULL, 60);
    assert_false(process.full);
    assert_int_equal(process.out.count, 300000);
    assert_int_equal(process.err.count, 200000);
    erg_subprocess_release(&process);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_given_environment_is_used_alone),
        cmocka_unit_test(signals_are_as_at_a_shell),
        cmocka_unit_test(ends_are_told_apart),
        cmocka_unit_test(failed_starts_are_reported),
        cmocka_unit_test(long_answers_end_at_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
