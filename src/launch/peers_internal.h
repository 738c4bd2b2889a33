/* Peers from inside: state shared by the calling thread and the thread that moves bytes for it. */
#ifndef ERG_LAUNCH_PEERS_INTERNAL_H
#define ERG_LAUNCH_PEERS_INTERNAL_H

#include "launch/peers.h"

#include <pthread.h>

struct erg_message {
    struct erg_message *next;
    struct erg_message_head {
        uint64_t bytes;
        uint32_t channel, unused;
    } head;
    size_t moved; /* of head and bytes, so far */
    unsigned char *bytes;
};

struct erg_message_queue {
    struct erg_message *first, **end; /* end: where the next one is linked */
};

struct erg_peer {
    int fd; /* -1: this rank itself */
    bool lost;
    struct erg_message_queue out, in;
    struct erg_message *coming;
};

struct erg_peers {
    struct erg_rendezvous *rendezvous;
    int rank, world;
    struct erg_peer *peers; /* [world] */
    struct pollfd *fds;     /* [world]: of a rank that waits */
    int wake;               /* eventfd: something to send, or to close */
    pthread_t mover;
    bool runs; /* the mover does */

    pthread_mutex_t lock; /* of the queues and all that follows */
    uint64_t come, seen;  /* messages; seen: at the last wait */
    bool waits;           /* the rank does, and moves the bytes itself */
    int64_t left_ns;      /* when it last did */
    bool closing;
    unsigned char buffer[1 << 16]; /* the data just received */
};

/* World call: fills the sockets of all peers, which do not block. */
int erg_peers_connect(struct erg_peers *peers, double timeout_s, struct erg_error *err);

#endif
