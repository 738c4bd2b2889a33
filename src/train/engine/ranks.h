/*
 * Ranks: the part of a run that this process has, and its groups for exchanges of tensors.
 *
 *     rank = tensor + t (context + c (data + d stage))
 *
 * All ranks make all groups in one order when a run begins.
 */
#ifndef ERG_TRAIN_ENGINE_RANKS_H
#define ERG_TRAIN_ENGINE_RANKS_H

#include "device/backend.h"
#include "job/layout.h"

/* The groups of a rank; NULL: it would be alone or has no such neighbour. */
struct erg_rank_groups {
    struct erg_group *tensor; /* parts of one matrix: within the passes */
    /* The same ranks, for gradients of weights that each of them has whole. */
    struct erg_group *vectors;
    struct erg_group *keys;    /* those of them with the same keys and values */
    struct erg_group *context; /* parts of one sequence */
    struct erg_group *zero;    /* parts of one optimizer's state: context x data */
    struct erg_group *tied;    /* embedding and head of a tied model on two stages */
    /*
     * To and from the neighbours in the pipeline, in pairs. Between the last stage and the first
     * only if stages have several chunks.
     */
    struct erg_group *forward_from, *forward_to, *backward_from, *backward_to;
};

struct erg_ranks {
    int rank, world;
    long tensor, context, data, stage; /* this rank's place in each degree */
    struct erg_rank_groups groups;
};

/* Sets only the places, without groups. */
void erg_ranks_place(struct erg_ranks *ranks, const struct erg_layout *layout, int rank);

/* World call. Release it, even after a failure. */
int erg_ranks_open(struct erg_ranks *ranks, const struct erg_layout *layout,
                   const struct erg_model *model, struct erg_backend *backend, int rank,
                   struct erg_error *err);
void erg_ranks_release(struct erg_ranks *ranks, struct erg_backend *backend);

#endif
