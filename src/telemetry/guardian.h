/*
 * Guardian: a process that unlocks GPUs when the process that locked them, its owner, ends.
 *
 * It is a program of its own (libexec/ergon/ergon-guardian, or what $ERGON_GUARDIAN names), not a
 * fork of the owner: the owner may have threads, after which a forked child may call next to
 * nothing, least of all a driver's library; and it would keep the owner's memory and GPU contexts
 * alive. The guardian lives in a session of its own with all signals blocked, so that what ends
 * the owner (Ctrl-C, a hangup, the death of its process group) does not end it first.
 *
 * Both are joined by a socket of packets. Its end of file means that the owner has ended; because a
 * child that the owner forked may hold the socket open, the guardian also looks every 0.2 s whether
 * the owner still is its parent.
 *
 * A GPU is named to the guardian before it is first locked. The guardian claims it
 * (telemetry/claim.h), so that no two programs of ergon lock one GPU, and unlocks it at once: that
 * does no harm yet, and a guardian without the permission is found out before it is needed. A power
 * limit is registered likewise: the guardian records its value and restores it.
 */
#ifndef ERG_TELEMETRY_GUARDIAN_H
#define ERG_TELEMETRY_GUARDIAN_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- the owner's side (used by telemetry/clocks.c) ---- */

struct erg_guardian;

/* Starts the process and waits until it sees the GPUs. */
int erg_guardian_start(struct erg_guardian **guardian, struct erg_error *err);

/*
 * Answers 0 when the GPU is unlocked as soon as the owner ends. Naming a GPU again only asks
 * whether the guardian is still there. `refused` is set where it was the driver that refused.
 */
int erg_guardian_watch(struct erg_guardian *guardian, const char *uuid, bool *refused,
                       struct erg_error *err);

/* The same for a GPU's power limit, which is reset to its present value. */
int erg_guardian_watch_limit(struct erg_guardian *guardian, const char *uuid, bool *refused,
                             struct erg_error *err);

/* False in a child that the owner forked. */
bool erg_guardian_is_mine(const struct erg_guardian *guardian);

/* Waits until the guardian has ended (true), or until `stop` can be read. */
bool erg_guardian_await_end(const struct erg_guardian *guardian, int stop);

/* Ends the guardian; its GPUs are as they should be. In a child of fork(): forgets it. */
void erg_guardian_dismiss(struct erg_guardian *guardian);

/*
 * Has the guardian unlock its GPUs now, and ends it. Fails when it could not; then it has printed
 * why.
 */
int erg_guardian_release(struct erg_guardian *guardian, struct erg_error *err);

/* ---- the guardian's side (used by src/cli/guardian/) ---- */

/*
 * Serves the owner until it ends, then unlocks its GPUs, all at once and each tried for up to 10 s.
 * Fails when one stays locked.
 */
int erg_guardian_serve(int socket, pid_t owner, struct erg_error *err);

/* ---- the protocol between them, in packets ---- */

/* Both are of one build: a stale guardian is found by its version. */
enum { ERG_GUARDIAN_VERSION = 3 };

enum erg_guardian_task {
    ERG_GUARDIAN_WATCH, /* answered, as the next */
    ERG_GUARDIAN_LIMIT,
    ERG_GUARDIAN_END, /* not answered: the guardian ends */
};

struct erg_guardian_request {
    int32_t task; /* enum erg_guardian_task */
    char uuid[96];
};

/* Also sent once at the start, before any request. */
struct erg_guardian_answer {
    int32_t version;
    int32_t failed;
    int32_t refused; /* by the driver */
    struct erg_error error;
};

#endif
