/*
 * Run memory: whether the memory of each rank fits into the free memory of its device. Asked before
 * anything is allocated.
 */
#ifndef ERG_TRAIN_RUN_RUN_MEMORY_H
#define ERG_TRAIN_RUN_RUN_MEMORY_H

#include "train/engine/rank_memory.h"

struct erg_run_memory_request {
    const struct erg_job *job; /* with a key `train` */
    struct erg_backend *backend;
    int rank, world;
    struct erg_rendezvous *rendezvous; /* NULL: one rank */
};

/*
 * World call. *most: the bytes of each item on the rank that takes most. ERG_INFEASIBLE where a
 * rank, or on the host the ranks of a machine together, take more than is free: the message names
 * the largest items, and the smallest change with which it would fit.
 */
int erg_run_memory_check(const struct erg_run_memory_request *request, size_t most[ERG_RANK_ITEMS],
                         struct erg_error *err);

/* The largest that a rank takes of the job with another layout; 0: the job cannot be spread so. */
size_t erg_run_memory_of(const struct erg_job *job, struct erg_backend *backend,
                         const struct erg_layout *layout);

#endif
