/*
 * Queues of jobs for first come, first served.
 *
 * A job waits while an earlier one waits for the same type of GPU. A job without a type takes,
 * among the types that have room and no older waiting job, the one on which it is fastest; while it
 * waits, it waits for all types on which it can run. A job whose node failed gets its old place
 * back.
 */
#ifndef ERG_CLUSTER_POLICIES_QUEUES_H
#define ERG_CLUSTER_POLICIES_QUEUES_H

#include "cluster/schedule/policy.h"

/* Jobs that can take the same types of GPU, in the order of their arrival. */
struct erg_queue {
    int *types; /* the fastest first */
    int types_count;
    int *items;
    size_t first, count, capacity; /* those before `first` have left */
};

struct erg_queues {
    struct erg_queue *items;
    size_t count, capacity;
    int *types;    /* scratch */
    bool *blocked; /* by type, during service: a job waits for it */
};

/* Places a job with its requested number on GPUs of a type; false if it does not fit. */
typedef bool erg_queues_fit(void *policy, struct erg_scheduler *scheduler, int job, int type);

/* Reported waiting jobs are in their queues. */
void erg_queues_init(struct erg_queues *queues, const struct erg_scheduler *scheduler);
void erg_queues_release(struct erg_queues *queues);

/* Queues new jobs and jobs that lost a node, rejects jobs that cannot run with their request, and
 * places jobs that fit when it is their turn. */
void erg_queues_serve(struct erg_queues *queues, struct erg_scheduler *scheduler,
                      const struct erg_occasion *occasion, erg_queues_fit *fit, void *policy);

/* Returns true if a waiting job could take GPUs of this type. */
bool erg_queues_wait_for(const struct erg_queues *queues, int type);

#endif
