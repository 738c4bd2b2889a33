/*
 * Batches: the tokens of each microbatch of a step.
 *
 * Sample j of a step, in the order of the run, belongs to microbatch j / (d b), data rank (j / b)
 * mod d and row j mod b, for d data ranks and b sequences of a microbatch. So a step has the same
 * samples on every layout with the same batch.
 */
#ifndef ERG_TRAIN_DATA_BATCH_H
#define ERG_TRAIN_DATA_BATCH_H

#include "job/job.h"
#include "train/data/order.h"
#include "train/data/token_set.h"

struct erg_batches {
    const struct erg_job *job; /* with a key `train` */
    struct erg_token_set *sets;
    struct erg_data_order order;
    int32_t *window, *targets; /* [sequence + 1], [sequence] of one sample */
};

/* Files of a job, and the order of their samples. */
struct erg_batch_files {
    const char *key; /* the job's key with these files */
    const struct erg_training_set *sets;
    size_t count;
    bool shuffle; /* false: in the order of the files */
};

/* Release them, even after a failure. */
int erg_batches_open(struct erg_batches *batches, const struct erg_job *job,
                     const struct erg_batch_files *files, struct erg_error *err);
void erg_batches_release(struct erg_batches *batches);

/* The source and the order of samples, without the seed; the caller frees it. */
char *erg_batches_describe(const struct erg_batches *batches);

/* The part of a step's samples that a rank trains on. */
struct erg_batch_share {
    long data, context; /* its places in the layout's degrees */
};

/*
 * A rank's data of the next step, microbatch after microbatch: ids and targets [microbatches *
 * microbatch * sequence / context], of its chunks (ops/context.h) of each sequence. Targets that do
 * not count are -1. *counted: the number of targets that count, over all ranks. With ids NULL it
 * reads nothing, and *counted is 0.
 */
int erg_batches_next(struct erg_batches *batches, const struct erg_batch_share *share, int32_t *ids,
                     int32_t *targets, uint64_t *counted, struct erg_error *err);

#endif
