/*
 * Claims: a lock file for each GPU whose clocks a run locks, so that a second run is refused.
 *
 * Root's are in /run/ergon. Another user's are in $XDG_RUNTIME_DIR, /run/user/UID or, where neither
 * is there, $HOME/.ergon: two users do not see each other's claims. Nor do containers, unless they
 * share that folder. Other users can neither make nor hold these files: only its user may write to
 * the folder, and only their user may open the files, since even read access to a file allows
 * locking it. The kernel gives a claim up however its process ends.
 *
 * Guardians (telemetry/guardian.h) and the daemon (daemon/daemon.h) take the same claims, so that a
 * direct lock and a lease never meet on one GPU. A user other than root goes through the daemon
 * where there is one (telemetry/clocks.h).
 */
#ifndef ERG_TELEMETRY_CLAIM_H
#define ERG_TELEMETRY_CLAIM_H

#include "ergon/error.h"

#include <stddef.h>
#include <sys/types.h>

/* The folder of this user's claims; one that is not there is made when a claim is taken. */
void erg_claim_folder(char *path, size_t capacity);

/*
 * Claims a GPU, whose index is for messages, for `holder`, which is named to those who are refused.
 * *claim is then a descriptor to be closed. ERG_NO_DEVICE when another process holds it, ERG_FAILED
 * when the folder or the file is not safe.
 */
int erg_claim_take(const char *folder, const char *uuid, int index, pid_t holder, int *claim,
                   struct erg_error *err);

#endif
