/*
 * The lease of a spool: at most one controller manages its jobs, on any host and with any journal.
 *
 * A lease is a file FOLDER/lease.N, possibly on a shared file system. It is taken by link(2), which
 * fails if the name exists: of all controllers that try N, one succeeds. A controller that takes
 * over an expired lease takes N + 1. The file of the highest N is never removed, so no number is
 * used twice. A holder that was late, and may have lost the lease without notice, takes the next
 * number like any other.
 *
 * Only the file system's clock decides whether a lease has expired: the dates of the lease's file
 * and of a file that the asking controller has just written are compared. Clocks of hosts are not.
 * On one host (the same boot and the same namespace of process ids) the lease also ends with its
 * process.
 */
#ifndef ERG_CLUSTER_LIVE_LEASE_H
#define ERG_CLUSTER_LIVE_LEASE_H

#include "ergon/error.h"

/* Zeros: not held. */
struct erg_lease {
    long number;    /* of the file; 0: not held */
    char owner[17]; /* random, to tell the holder from others */
};

/*
 * Takes or renews the lease in an existing folder for `seconds` from now; call it more than twice
 * in that time. Returns 0: held; -1: another controller holds it; 1: no other controller holds it,
 * but it cannot be written.
 */
int erg_lease_renew(struct erg_lease *lease, const char *folder, double seconds,
                    struct erg_error *err);

/* Releases the lease; others may take it at once. */
void erg_lease_give_back(struct erg_lease *lease, const char *folder);

#endif
