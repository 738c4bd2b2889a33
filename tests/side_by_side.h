/*
 * Tests of a program side by side, each in a process of its own: for those that wait more than they
 * compute, so that the program takes as long as the longest of them.
 */
#ifndef ERGON_TESTS_SIDE_BY_SIDE_H
#define ERGON_TESTS_SIDE_BY_SIDE_H

#include "check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* Shows what a test has printed. */
static inline void show_file(FILE *file)
{
    char block[4096];
    size_t count;
    rewind(file);
    while ((count = fread(block, 1, sizeof block, file)) > 0)
        fwrite(block, 1, count, stdout);
    fclose(file);
}

/* As cmocka_run_group_tests(), whose set-up and end are each test's own here. */
static inline int run_side_by_side(const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction begin, CMFixtureFunction end)
{
    enum { MOST = 64 };
    FILE *outputs[MOST];
    pid_t children[MOST];
    int failed = 0;
    if (count > MOST)
        return -1;
    fflush(NULL);
    for (size_t i = 0; i < count; i++) {
        outputs[i] = tmpfile();
        children[i] = outputs[i] ? fork() : -1;
        if (children[i] == 0) {
            const struct CMUnitTest own[] = {tests[i]};
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            dup2(fileno(outputs[i]), STDOUT_FILENO);
            dup2(fileno(outputs[i]), STDERR_FILENO);
            exit(cmocka_run_group_tests(own, begin, end) != 0);
        }
    }
    for (size_t i = 0; i < count; i++) {
        int status = -1;
        if (children[i] > 0)
            waitpid(children[i], &status, 0);
        if (outputs[i])
            show_file(outputs[i]);
        if (status != 0)
            printf("[  FAILED  ] %s: wait status %d\n", tests[i].name, status);
        failed += status != 0;
    }
    return failed;
}

#endif
