/*
 * Subprocesses: a program that is run for its answer, with a limit of time and of what it may say.
 * No shell is between; standard input is empty.
 */
#ifndef ERG_IO_SUBPROCESS_H
#define ERG_IO_SUBPROCESS_H

#include "base/text.h"
#include "ergon/error.h"

#include <stdbool.h>

enum { ERG_SUBPROCESS_MOST_BYTES = 256 << 20 };

/* To be released. Empty at first. */
struct erg_subprocess {
    struct erg_text out, err; /* what it printed, each up to the limit */
    int status;               /* as a shell says it: the exit status, or 128 + a signal's number */
    int signal; /* that ended it; 0: it ended by itself; -1: nobody can say, since this process
                 * ignores SIGCHLD, and the status is 255 */
    bool late;  /* it was killed at the end of its time */
    bool full;  /* it printed more than the limit */
};

/*
 * Runs `words` (ends with NULL; the first is looked up in PATH) for at most `limit_s` seconds, in
 * an environment ("NAME=value", ends with NULL; NULL: this process's). It is a process group of its
 * own, so signals of our terminal do not end it, and no signals are blocked in it. Fails only where
 * the program cannot be started: 127 or 126 as in a shell, ERG_FAILED where the system is out of
 * descriptors, processes or memory.
 */
int erg_subprocess_run(struct erg_subprocess *process, const char *const *words,
                       const char *const *environment, double limit_s, struct erg_error *err);
void erg_subprocess_release(struct erg_subprocess *process);

/* The first line of what it said of its failure, or how it ended; never with control characters.
 * Valid until the next call. */
const char *erg_subprocess_reason(const struct erg_subprocess *process);

#endif
