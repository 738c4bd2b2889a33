/*
 * Run memory: checks that the memory of each rank fits into the free memory of its device, before
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
 * World call. *most: the bytes of each item on the rank with the most. ERG_INFEASIBLE if a rank, or
 * on the host the ranks of a machine together, need more than is free: the message names the
 * largest items, and the smallest change that would make it fit.
 */
int erg_run_memory_check(const struct erg_run_memory_request *request, size_t most[ERG_RANK_ITEMS],
                         struct erg_error *err);

/* The most bytes of a rank for the job with another layout; 0: the job cannot have this layout. */
size_t erg_run_memory_of(const struct erg_job *job, struct erg_backend *backend,
                         const struct erg_layout *layout);

#endif
