/*
 * Rank memory: the memory of training on a rank's device, item by item, before anything is
 * allocated. It equals the trainer's allocation (erg_trainer_bytes()), to the byte.
 */
#ifndef ERG_TRAIN_ENGINE_RANK_MEMORY_H
#define ERG_TRAIN_ENGINE_RANK_MEMORY_H

#include "device/backend.h"
#include "job/job.h"

enum erg_rank_item {
    ERG_RANK_WEIGHTS,     /* in use */
    ERG_RANK_GRADIENTS,   /* of weights, in float */
    ERG_RANK_OPTIMIZER,   /* this rank's share of masters and moments, and its scratch */
    ERG_RANK_ACTIVATIONS, /* of all passes in flight, with their gradients and scratch of kernels */
    ERG_RANK_MESSAGES,    /* to and from neighbours in the pipeline */
    ERG_RANK_INPUTS,      /* ids and targets of a step */
    ERG_RANK_ITEMS,
};
extern const char *const erg_rank_item_names[ERG_RANK_ITEMS];

struct erg_rank_memory {
    size_t items[ERG_RANK_ITEMS]; /* bytes */
    size_t bytes;                 /* their sum */
    size_t host_bytes;            /* in addition, host memory for offloading */
    /*
     * The buffers in the items, in the order of the items; buffers with the same name are together.
     */
    struct erg_rank_part {
        const char *name;
        enum erg_rank_item item;
        size_t bytes;
    } * buffers;
    size_t count, capacity;
};

/* The job has a key `train`. Uses the backend only for sizes. Release it, even after a failure. */
int erg_rank_memory_init(struct erg_rank_memory *memory, const struct erg_job *job,
                         struct erg_backend *backend, int rank, struct erg_error *err);
void erg_rank_memory_release(struct erg_rank_memory *memory);

#endif
