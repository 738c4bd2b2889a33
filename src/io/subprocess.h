/*
 * Subprocesses: a program that is run for its output, with limits on its time and its output. No
 * shell is between; standard input is empty.
 */
#ifndef ERG_IO_SUBPROCESS_H
#define ERG_IO_SUBPROCESS_H

#include "base/text.h"
#include "ergon/error.h"

#include <stdbool.h>

enum { ERG_SUBPROCESS_MOST_BYTES = 256 << 20 };

/* To be released. Empty at first. */
struct erg_subprocess {
    struct erg_text out, err; /* its output, each up to the limit */
    int status;               /* as in a shell: the exit status, or 128 + a signal's number */
    int signal; /* that ended it; 0: it ended by itself; -1: not known, since this process ignores
                 * SIGCHLD; the status is then 255 */
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

/* The first line of its error output, or its exit status; never with control characters. Valid
 * until the next call. */
const char *erg_subprocess_reason(const struct erg_subprocess *process);

/* Removes a file or a folder with all that it holds, as far as it can. */
void erg_subprocess_remove(const char *path);

/* Appends a word of a shell's command line, in single quotes. */
void erg_subprocess_quote(struct erg_text *out, const char *word);

#endif
