/*
 * Child: one program run in the foreground instead of this one: it gets our standard streams,
 * terminal and process group, and the signals that are sent to us.
 */
#ifndef ERG_OBSERVE_CHILD_H
#define ERG_OBSERVE_CHILD_H

#include "ergon/error.h"

#include <signal.h>
#include <stdbool.h>

/* The signal mask before erg_child_block(). */
struct erg_child_signals {
    sigset_t before;
};

struct erg_child_end {
    int status;       /* as a shell reports it: the exit status, or 128 + the number of a signal */
    int signal;       /* signal that ended it; 0: it exited */
    bool interrupted; /* a signal that ends programs was sent to us during the run */
};

/*
 * Blocks the signals to pass on, in this thread and in those that it starts later: call it before
 * you start any.
 */
void erg_child_block(struct erg_child_signals *signals);

/*
 * Runs `command` (ends with NULL; looked up in PATH) and waits for its end. Signals from the
 * terminal reach the child directly; all others are passed on. A command that cannot be started is
 * an error with the status that shells return: 127 not found, 126 not executable. A signal before
 * the start gives ERG_INTERRUPTED.
 */
int erg_child_run(const struct erg_child_signals *signals, const char *const *command,
                  struct erg_child_end *end, struct erg_error *err);

/* Fails with the child's status and a sentence unless it ended with 0. */
int erg_child_check(const struct erg_child_end *end, const char *const *command,
                    struct erg_error *err);

#endif
