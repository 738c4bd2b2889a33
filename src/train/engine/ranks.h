/*
 * Ranks: which part of a run this process has, and the groups that it exchanges tensors with.
 *
 *     rank = tensor + t (context + c (data + d stage))
 *
 * All groups are made when a run begins, by all ranks in one order.
 */
#ifndef ERG_TRAIN_ENGINE_RANKS_H
#define ERG_TRAIN_ENGINE_RANKS_H

#include "device/backend.h"
#include "job/layout.h"

/* The groups of a rank; NULL where it would be alone or lacks the neighbour. */
struct erg_rank_groups {
    struct erg_group *tensor;  /* parts of one matrix: within the passes */
    struct erg_group *vectors; /* the same ranks: gradients of weights that all of them have
                                * whole */
    struct erg_group *keys;    /* of those, the ones with the same keys and values */
    struct erg_group *context; /* parts of one sequence */
    struct erg_group *zero;    /* parts of one optimizer's state: context x data */
    struct erg_group *tied;    /* embedding and head of a tied model on two stages */
    /* To and from the neighbours in the pipeline, in pairs. Between the last stage and the first
     * only where stages have several chunks. */
    struct erg_group *forward_from, *forward_to, *backward_from, *backward_to;
};

struct erg_ranks {
    int rank, world;
    long tensor, context, data, stage; /* this rank's place in each degree */
    struct erg_rank_groups groups;
};

/* The places alone, without groups. */
void erg_ranks_place(struct erg_ranks *ranks, const struct erg_layout *layout, int rank);

/* World call. To be released, also after a failure. */
int erg_ranks_open(struct erg_ranks *ranks, const struct erg_layout *layout,
                   const struct erg_model *model, struct erg_backend *backend, int rank,
                   struct erg_error *err);
void erg_ranks_release(struct erg_ranks *ranks, struct erg_backend *backend);

#endif
