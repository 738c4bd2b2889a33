/*
 * Rendezvous: how the ranks of a job find each other over TCP and agree on small things (addresses
 * of GPU memory, a seed, "ready"). No MPI; across nodes, IPv4 and IPv6.
 *
 * Rank 0 listens, every other rank keeps one connection to it, and a thread of its own in every
 * process keeps them alive. So the death of a rank is noticed while all others compute: at once
 * where its connection closes (the process died), after ERG_RENDEZVOUS_SILENCE_S without a sign
 * of life where it does not (its machine died, or it is stopped).
 *
 * The first failure is everybody's: each rank gets the same sentence, from the call that it waits
 * in or from the next one, and only erg_rendezvous_close() makes sense after that.
 *
 * One thread at a time makes collective calls and world calls, and closes the rendezvous when no
 * other one uses it. All other calls may be made from any thread.
 */
#ifndef ERG_LAUNCH_RENDEZVOUS_H
#define ERG_LAUNCH_RENDEZVOUS_H

#include "launch/launch.h"

#include <stddef.h>
#include <stdint.h>

enum {
    ERG_RENDEZVOUS_SILENCE_S = 6,
    /* For calls that come when a rank is done with something: it may have much to do, and a dead
     * one is noticed anyhow. */
    ERG_RENDEZVOUS_PATIENCE_S = 3600,
    ERG_RENDEZVOUS_MOST_BYTES = 16 << 20, /* of one rank in one call */
};

struct erg_rendezvous;

/*
 * Meets all other ranks, for at most `timeout_s`; the error names those that did not come. A rank
 * of another job, or one with another world size, is refused. Where the host is a loopback address
 * rank 0 listens there only, else at all addresses. A world of one opens no socket.
 */
int erg_rendezvous_open(struct erg_rendezvous **rendezvous,
                        const struct erg_launch_environment *env, double timeout_s,
                        struct erg_error *err);

/*
 * Leaves in peace: other ranks see a failure only when they make a call that needs this one. NULL
 * is fine. A process that ends without this call counts as lost.
 */
void erg_rendezvous_close(struct erg_rendezvous *rendezvous);

int erg_rendezvous_rank(const struct erg_rendezvous *rendezvous);
int erg_rendezvous_world(const struct erg_rendezvous *rendezvous);

/*
 * Collective calls: all ranks make the same calls in the same order, with the same sizes and root;
 * rank 0 checks that. They fail when not all ranks have come `timeout_s` after the first one. NULL:
 * a world of one rank.
 */
int erg_rendezvous_barrier(struct erg_rendezvous *rendezvous, double timeout_s,
                           struct erg_error *err);
/* `count` bytes of rank `root` to all. */
int erg_rendezvous_broadcast(struct erg_rendezvous *rendezvous, int root, void *bytes, size_t count,
                             double timeout_s, struct erg_error *err);
/* `count` bytes of each rank into all[world * count], in the order of ranks. */
int erg_rendezvous_all_gather(struct erg_rendezvous *rendezvous, const void *mine, size_t count,
                              void *all, double timeout_s, struct erg_error *err);

/*
 * World call: fails on all ranks if `result`, of each rank's own work, is a failure on any rank.
 * Waits up to an hour for ranks that are busy. It fails with the status of the first such rank, and
 * at rank 0 with its sentence, which rank 0 reports for all. NULL: the result of the only rank.
 */
int erg_rendezvous_agree(struct erg_rendezvous *rendezvous, int result, struct erg_error *err);

/* 0 while all is well, else the failure: for those who wait for something else, such as a GPU. */
int erg_rendezvous_check(struct erg_rendezvous *rendezvous, struct erg_error *err);

/* Fails the job, with one sentence for all ranks. */
void erg_rendezvous_abort(struct erg_rendezvous *rendezvous, const char *sentence);
/* How far this rank has come, which rank 0 hears with the next sign of life. */
void erg_rendezvous_tell(struct erg_rendezvous *rendezvous, uint64_t progress);
/* At rank 0: the latest reports of the ranks, progress[world]. */
void erg_rendezvous_heard(struct erg_rendezvous *rendezvous, uint64_t *progress);

/*
 * The message of this rank at the end of a failed job: the first failure, which becomes that of all
 * ranks, on the reporting rank: rank 0, or rank 1 if rank 0 is lost. The message is empty on other
 * ranks and after a failure on which all ranks have agreed. NULL is allowed.
 */
void erg_rendezvous_explain(struct erg_rendezvous *rendezvous, struct erg_error *err);

#endif
