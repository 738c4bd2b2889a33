/*
 * Runs the command line as a user would: its exit code and what it printed.
 */
#ifndef ERGON_TESTS_PROGRAM_H
#define ERGON_TESTS_PROGRAM_H

#include "base/text.h"
#include "check.h"

#include <sys/wait.h>

struct program_result {
    int exit_code;
    struct erg_text out; /* standard output, and standard error with "2>&1" in the arguments */
};

/* `arguments` is shell text after the program's path. Release `out`. */
static inline struct program_result run_program(const char *arguments)
{
    struct program_result result = {0};
    struct erg_text command = {0};
    erg_text_printf(&command, "'%s' %s", ERGON_TEST_PROGRAM, arguments);
    FILE *pipe = popen(command.data, "r");
    assert_non_null(pipe);
    char block[4096];
    size_t count;
    erg_text_add(&result.out, "");
    while ((count = fread(block, 1, sizeof block, pipe)) > 0)
        erg_text_add_bytes(&result.out, block, count);
    int status = pclose(pipe);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    erg_text_release(&command);
    return result;
}

/* Runs and checks the exit code and one part of the output. */
static inline void check_program(const char *arguments, int exit_code, const char *part)
{
    struct program_result result = run_program(arguments);
    if (result.exit_code != exit_code || !strstr(result.out.data, part))
        fail_msg("ergon %s: exit code %d, expected %d with \"%s\" in:\n%s", arguments,
                 result.exit_code, exit_code, part, result.out.data);
    erg_text_release(&result.out);
}

/* How often a part is in the output of two ranks that run the program with these arguments. */
static inline size_t count_of_two_ranks(const char *arguments, const char *part)
{
    struct erg_text line = {0};
    size_t times = 0;
    erg_text_printf(&line, "run -n 2 --plain -- '%s' %s 2>&1", ERGON_TEST_PROGRAM, arguments);
    struct program_result result = run_program(line.data);
    if (result.exit_code)
        fail_msg("ergon %s: exit code %d with:\n%s", line.data, result.exit_code, result.out.data);
    for (const char *at = result.out.data; (at = strstr(at, part)); at++)
        times++;
    erg_text_release(&result.out);
    erg_text_release(&line);
    return times;
}

#endif
