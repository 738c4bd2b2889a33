/*
 * Guardian: a process that unlocks GPUs when the process that locked them, its owner, ends.
 *
 * It is a separate program (libexec/ergon/ergon-guardian, or $ERGON_GUARDIAN), not a fork of the
 * owner: a forked child of an owner with threads may call almost nothing, least of all a driver's
 * library, and it would keep the owner's memory and GPU contexts alive. The guardian has its own
 * session with all signals blocked, so that an event that ends the owner (Ctrl-C, a hangup, the
 * death of its process group) does not end the guardian first.
 *
 * A packet socket connects both. Its end of file means that the owner has ended. Because a child
 * that the owner forked may hold the socket open, the guardian also checks every 0.2 s whether the
 * owner is still its parent.
 *
 * The owner registers a GPU with the guardian before it first locks it. The guardian claims the GPU
 * (telemetry/claim.h), so that no two programs of ergon lock one GPU, and unlocks it at once. That
 * does no harm yet, and it detects missing permission before the guardian is needed. For a power
 * limit, the guardian records the value and restores it.
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
 * Returns 0 once the guardian will unlock the GPU at the owner's end. For a GPU that is already
 * watched, it only checks that the guardian is still alive. `refused` is set if the driver refused.
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

/* Ends the guardian without resetting its GPUs. In a child of fork(): only frees the handle. */
void erg_guardian_dismiss(struct erg_guardian *guardian);

/*
 * Makes the guardian unlock its GPUs now, and ends it. Fails if it could not; it has then printed
 * the reason.
 */
int erg_guardian_release(struct erg_guardian *guardian, struct erg_error *err);

/* ---- the guardian's side (used by src/cli/guardian/) ---- */

/*
 * Serves the owner until it ends, then unlocks its GPUs in parallel, trying each for up to 10 s.
 * Fails if one stays locked.
 */
int erg_guardian_serve(int socket, pid_t owner, struct erg_error *err);

/* ---- the protocol between them, in packets ---- */

/* Both must come from one build: the version reveals a stale guardian. */
enum { ERG_GUARDIAN_VERSION = 3 };

enum erg_guardian_task {
    ERG_GUARDIAN_WATCH, /* answered, as is the next */
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
