/*
 * Peers: messages between any two ranks of a job, over a TCP connection of each two. The rendezvous
 * goes through rank 0 and is for small things; this is for tensors.
 *
 * A thread of its own sends and receives while the rank computes, so that messages travel, and a
 * sender never waits for the receiver. Messages between two ranks on one channel arrive in the
 * order in which they were sent. Used by one thread at a time.
 */
#ifndef ERG_LAUNCH_PEERS_H
#define ERG_LAUNCH_PEERS_H

#include "launch/rendezvous.h"

#include <stdbool.h>
#include <stdint.h>

struct erg_peers;

/*
 * World call: connects each two ranks, for at most `timeout_s`. The rendezvous outlives the peers:
 * it gives their addresses and the secret with which they authenticate each other.
 */
int erg_peers_open(struct erg_peers **peers, struct erg_rendezvous *rendezvous, double timeout_s,
                   struct erg_error *err);
/* Sends remaining data for at most a second. A rank that still waits for others takes the end of
 * this connection for a loss, so ranks meet before one of them closes. NULL is fine. */
void erg_peers_close(struct erg_peers *peers);

int erg_peers_rank(const struct erg_peers *peers);

/* Queues a copy of the bytes for another rank. */
void erg_peers_send(struct erg_peers *peers, int rank, uint32_t channel, const void *bytes,
                    size_t count);

/* Whether the next message of a rank on a channel is here. */
bool erg_peers_has(struct erg_peers *peers, int rank, uint32_t channel);

/* Takes that message, which must be here; *count bytes, to be freed. */
void *erg_peers_take(struct erg_peers *peers, int rank, uint32_t channel, size_t *count);

/* Waits until another message has come than those that there were at the last call, or a moment
 * has passed. Fails where the job has failed, or a connection is lost. */
int erg_peers_wait(struct erg_peers *peers, struct erg_error *err);

#endif
