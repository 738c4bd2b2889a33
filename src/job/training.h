/*
 * Training: the key `train` of a job file: a run's data, optimizer, learning rate and log.
 * examples/train/ explains every key.
 */
#ifndef ERG_JOB_TRAINING_H
#define ERG_JOB_TRAINING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The type of tokens in a plain file; ERG_TOKENS_OF_FILE: the file gives its type. */
enum erg_token_type { ERG_TOKENS_OF_FILE, ERG_TOKENS_UINT16, ERG_TOKENS_UINT32, ERG_TOKENS_INT32 };

/* Files of tokens, one behind the other in the order of their names. */
struct erg_training_set {
    char *file; /* may have wildcards; a relative path is from the job's folder */
    enum erg_token_type type;
    double weight; /* of its samples among those of all sets; together they are 1 */
};

enum erg_training_mask {
    ERG_MASK_NOTHING,
    ERG_MASK_EOD, /* what comes after the token that ends a document does not count */
};

/* How the learning rate goes on after the warm-up (train/rate.h). */
enum erg_rate_schedule {
    ERG_RATE_COSINE,
    ERG_RATE_LINEAR,
    ERG_RATE_CONSTANT,
    ERG_RATE_WSD_LINEAR,
    ERG_RATE_WSD_SQRT,
};

struct erg_training {
    struct erg_training_set *data;
    unsigned data_count;
    bool shuffle;
    enum erg_training_mask mask;
    int eod; /* the token that ends a document; -1: not given */
    uint64_t seed;
    char *init; /* a folder, relative to the job's; NULL: random weights */

    uint64_t updates; /* of weights, in all */
    int batch;        /* sequences of a step; 0: as many as the layout has */
    enum erg_rate_schedule schedule;
    double learning_rate, lowest;
    uint64_t warmup, decay_steps;
    bool warmup_from_zero;
    double beta1, beta2, eps, weight_decay;
    bool deterministic;      /* the same bits from run to run on GPUs, too */
    bool sequence_parallel;  /* norms and the stream on each tensor rank's share of the tokens */
    int offload_least_bytes; /* where activations are offloaded, smaller tensors of them stay */
    double clip;             /* the norm that gradients are clipped to; 0: they are not */
    int log_every;
    int trace_every;    /* steps whose timeline is kept; 0: none */
    bool trace_kernels; /* and the kernels of each rank's GPU */
    struct erg_training_checkpoint {
        int every;      /* steps; 0: at the end alone */
        double minutes; /* since the one before; 0: it does not matter */
        int keep;       /* the newest; 0: the run writes none */
    } checkpoint;
    struct erg_training_validation {
        struct erg_training_set *data; /* NULL: there is none */
        unsigned data_count;
        int every;   /* steps; 0: at the end alone */
        int batches; /* of a step's size each; 0: all whole ones that the files have */
    } validation;
};

#endif
