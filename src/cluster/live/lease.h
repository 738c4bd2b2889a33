/*
 * The lease of a spool: at most one controller drives its jobs, whatever host it runs on and
 * whatever journal it has.
 *
 * A lease is a file FOLDER/lease.N on what may be a shared file system. It is taken by link(2),
 * which fails where the name is there: of all who try for N one gets it. Who takes a lease of
 * somebody else's, because it is over, takes N + 1; the file of the highest N never goes away, so
 * no number comes twice. A holder that was late, and may have lost it unknowingly, takes the next
 * number as anybody else would.
 *
 * Whether a lease is over is told by the file system's clock alone, by which its file was written
 * and by which the one who asks has just written another: clocks of hosts are not compared. On one
 * host (the same boot and the same space of process ids) it is over when its process is.
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
 * Takes the lease in a folder, which is there, or renews it, for `seconds` from now; to be called
 * more often than twice in that time.  0: it is held.  -1: it is another controller's.  1: nobody
 * else has it, and it cannot be written.
 */
int erg_lease_renew(struct erg_lease *lease, const char *folder, double seconds,
                    struct erg_error *err);

/* Others may take it at once. */
void erg_lease_give_back(struct erg_lease *lease, const char *folder);

#endif
