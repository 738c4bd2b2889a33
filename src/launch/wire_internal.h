/*
 * Wire: the frames of the rendezvous and one TCP connection that carries them, without ever
 * blocking: what cannot be sent waits in a buffer.
 */
#ifndef ERG_LAUNCH_WIRE_INTERNAL_H
#define ERG_LAUNCH_WIRE_INTERNAL_H

#include "base/text.h"
#include "launch/launch.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum erg_frame_type {
    ERG_FRAME_HELLO = 1, /* a rank comes: rank, count = its world, payload = its nonce */
    ERG_FRAME_CHALLENGE, /* rank 0: payload = its nonce and its proof (meet.c) */
    ERG_FRAME_PROOF,     /* the rank: payload = its proof; answered by a beat */
    ERG_FRAME_WELCOME,   /* rank 0: all are here */
    ERG_FRAME_BEAT,      /* still alive */
    ERG_FRAME_OFFER,     /* a rank calls: the fields below, payload = its bytes */
    ERG_FRAME_RESULT,    /* rank 0: payload = the bytes of all */
    ERG_FRAME_ABORT,     /* a failure; payload = the sentence */
    ERG_FRAME_BYE,       /* leaves in peace */
};

/* As sent, in the byte order of the machine; another order fails the check of `magic`. */
struct erg_frame {
    uint32_t magic, type;
    uint32_t rank;
    uint32_t kind, root; /* of a call */
    uint32_t timeout_ms;
    uint64_t call;  /* its number */
    uint64_t count; /* bytes that each rank contributes to it */
    uint64_t payload_bytes;
};

struct erg_link {
    int fd; /* -1 = none */
    int64_t heard_ns;
    size_t most; /* bytes of a payload that the other side may send */
    struct erg_text in, out;
    size_t taken, sent; /* bytes of `in` and `out` that are done with */
};

/* The most bytes that a peer may send before the proof, regardless of the frame's length. */
enum { ERG_LINK_STRANGER_BYTES = 64 };

/* Takes over a connected socket; the other side is a stranger until `most` is raised. */
void erg_link_init(struct erg_link *link, int fd);
void erg_link_release(struct erg_link *link);

/* Queues a frame; magic and payload_bytes are filled in. */
void erg_link_send(struct erg_link *link, struct erg_frame frame, const void *payload,
                   size_t bytes);
/* Sends as much as the socket accepts. False when the connection is broken. */
bool erg_link_flush(struct erg_link *link);
bool erg_link_unsent(const struct erg_link *link);

/* Reads available data, at most a frame with the largest payload. False at its end; frames that
 * came before it can still be taken. */
bool erg_link_fill(struct erg_link *link);
/* 1 and the next frame (payload valid until the next fill), 0 when none is complete, -1 when the
 * other side does not speak this protocol. */
int erg_link_next(struct erg_link *link, struct erg_frame *frame, const char **payload);

/* A socket that is connected to an address and does not block, or -1 with errno; gives up at the
 * deadline, or when the program is interrupted. */
int erg_link_connect(const struct sockaddr *address, socklen_t size, int64_t deadline_ns);

/* Sends the rest for at most a second and waits for the other side to see it. */
void erg_link_finish(struct erg_link *link);

/*
 * The two ways to meet, both done by `deadline_ns`. Rank 0 fills links[1 … world - 1]; every other
 * rank fills links[0]. After a failure the open connections have been notified.
 */
int erg_meet_listen(struct erg_link *links, const struct erg_launch_environment *env,
                    int64_t deadline_ns, struct erg_error *err);
int erg_meet_connect(struct erg_link *link, const struct erg_launch_environment *env,
                     int64_t deadline_ns, struct erg_error *err);

#endif
