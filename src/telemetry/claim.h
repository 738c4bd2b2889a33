/*
 * Claims: a lock file for each GPU whose clocks a run locks, so that a second run is refused.
 *
 * Root's are in /run/ergon. Another user's are in $XDG_RUNTIME_DIR, /run/user/UID or, if neither
 * exists, $HOME/.ergon: two users do not see each other's claims. Nor do containers, unless they
 * share that folder. Other users can neither make nor hold these files: only its user may write to
 * the folder, and only their user may open the files, since even read access to a file allows
 * locking it. The kernel releases a claim when its process ends, for any reason.
 *
 * Guardians (telemetry/guardian.h) and the daemon (daemon/daemon.h) take the same claims, so that a
 * direct lock and a lease never meet on one GPU. A user other than root uses the daemon if there is
 * one (telemetry/clocks.h).
 */
#ifndef ERG_TELEMETRY_CLAIM_H
#define ERG_TELEMETRY_CLAIM_H

#include "ergon/error.h"

#include <stddef.h>
#include <sys/types.h>

/* The folder of this user's claims. Taking a claim creates a missing folder. */
void erg_claim_folder(char *path, size_t capacity);

/*
 * Claims a GPU for the process `holder`, which a refused process is told; `index` is for messages.
 * *claim is then a descriptor to close. ERG_NO_DEVICE if another process holds the GPU, ERG_FAILED
 * if the folder or the file is not safe.
 */
int erg_claim_take(const char *folder, const char *uuid, int index, pid_t holder, int *claim,
                   struct erg_error *err);

#endif
