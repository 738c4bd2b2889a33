/*
 * The lease of a spool: at most one controller drives its jobs, on any host and with any journal.
 *
 * A lease is a file FOLDER/lease.N, possibly on a shared file system. It is taken by link(2), which
 * fails where the name is there: of all controllers that try for N one gets it. A controller that
 * takes over an expired lease takes N + 1; the file of the highest N is never removed, so no number
 * comes twice. A holder that was late, and may have lost the lease without knowing it, takes the
 * next number like any other.
 *
 * Only the file system's clock decides whether a lease has expired: it dates the lease's file and a
 * file that the asking controller has just written. Clocks of hosts are not compared. On one host
 * (the same boot and the same space of process ids) it is over when its process is.
 */
#ifndef ERG_CLUSTER_LIVE_LEASE_H
#define ERG_CLUSTER_LIVE_LEASE_H

#include "ergon/error.h"

/* All-zero: none is held. */
struct erg_lease {
    long number;    /* of the file; 0: none is held */
    char owner[17]; /* random, so that no other's is taken for this one */
};

/*
 * Takes the lease in a folder, which is there, or renews it, for `seconds` from now; call it more
 * than twice in that time.  0: it is held.  -1: it is another controller's.  1: no other controller
 * has it, and it cannot be written.
 */
int erg_lease_renew(struct erg_lease *lease, const char *folder, double seconds,
                    struct erg_error *err);

/* Others may take it at once. */
void erg_lease_give_back(struct erg_lease *lease, const char *folder);

#endif
