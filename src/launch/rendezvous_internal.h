/*
 * The rendezvous from inside: state shared by the calling thread (rendezvous.c) and the thread that
 * keeps the connections (keeper.c).
 */
#ifndef ERG_LAUNCH_RENDEZVOUS_INTERNAL_H
#define ERG_LAUNCH_RENDEZVOUS_INTERNAL_H

#include "launch/rendezvous.h"
#include "launch/wire_internal.h"

#include <pthread.h>

enum erg_call_kind { ERG_CALL_BARRIER, ERG_CALL_BROADCAST, ERG_CALL_ALL_GATHER };
const char *erg_call_name(uint32_t kind);

/* Another rank as this one sees it. */
struct erg_member {
    struct erg_link link;
    bool left;              /* in peace */
    uint64_t progress;      /* its latest report */
    bool offered;           /* rank 0 only: has come to the call under way, with */
    struct erg_frame offer; /* its request */
    struct erg_text bytes;  /* and its data */
};

struct erg_rendezvous {
    int rank, world;
    /* Rank 0: by rank, the first one being itself. Others: rank 0 only. */
    struct erg_member *members;
    int member_count;
    int wake; /* eventfd: something to do for the keeper */
    pthread_t keeper;
    bool kept; /* whether the keeper runs */

    pthread_mutex_t lock; /* of all that follows and of members */
    pthread_cond_t changed;
    bool closing, failed;
    bool orphaned;     /* rank 0 was lost, not this rank's fault */
    uint64_t progress; /* of this rank */
    struct erg_error failure;
    uint64_t call; /* number of the latest call of this rank */
    bool waiting;
    int64_t deadline_ns; /* of the call under way, at rank 0 that of the first who came */
    struct erg_text result;
};

/* Both with the lock held. */

/* Keeps the first failure and reports it to the others. */
void erg_rendezvous_fail(struct erg_rendezvous *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* At rank 0: a rank, perhaps itself, has come to a call. */
void erg_rendezvous_take_offer(struct erg_rendezvous *r, int rank, const struct erg_frame *frame,
                               const void *payload);

/* The thread; its argument is the rendezvous. Ends when `closing` is set. */
void *erg_rendezvous_keep(void *argument);

#endif
