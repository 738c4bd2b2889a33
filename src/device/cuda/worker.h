/*
 * Worker: the work of one process for the CUDA device on its GPU. Keeps runs of steps ready as
 * graphs, feeds the GPU from a thread of its own, and records when they ran.
 *
 * Steps of a nanobatch alternate: each run of a partition computes one nanobatch and communicates
 * the other one's results of the previous run, as in training.
 */
#ifndef ERG_CUDA_WORKER_H
#define ERG_CUDA_WORKER_H

#include "device/cuda/executor.h"
#include "device/device.h"
#include "launch/rendezvous.h"

struct erg_worker;

struct erg_worker_options {
    const struct erg_launch_environment *env; /* one process per GPU of a stage */
    struct erg_rendezvous *rendezvous;
    const struct erg_model *model;
    int tensor, context;     /* degrees; their product is the number of processes */
    int layers;              /* layers of an instruction, >= 1; their forward may be ... */
    bool replay;             /* ... run again before their backward (device/cuda/decoder.h) */
    int sequences, sequence; /* of the microbatch */
    uint64_t seed;           /* of weights and data */
};

/* A world call, as are close and sync. The thread's GPU is env->local_rank. */
int erg_worker_open(struct erg_worker **worker, const struct erg_worker_options *options,
                    struct erg_error *err);
int erg_worker_close(struct erg_worker *worker, struct erg_error *err);

const struct erg_cuda *erg_worker_cuda(const struct erg_worker *worker);

/*
 * Like the device's methods of these names (device/device.h); spans are in erg_now_ns() time. The
 * work begins `delay_ns` after the previously queued work was submitted to the GPU.
 */
int erg_worker_begin(struct erg_worker *worker, struct erg_error *err);
int erg_worker_enqueue(struct erg_worker *worker, const struct erg_step *steps, size_t count,
                       size_t repeats, int64_t delay_ns, struct erg_error *err);
int erg_worker_sync(struct erg_worker *worker, struct erg_error *err);

/* The latest spans, [0] the latest; missing ones are zero. Only after a sync. */
int erg_worker_spans(struct erg_worker *worker, struct erg_device_span spans[ERG_DEVICE_SPANS],
                     struct erg_error *err);

/* Like the device's numbers (device/device.h), for this GPU. */
int erg_worker_repeat(struct erg_worker *worker, bool repeatable, struct erg_error *err);
int erg_worker_clear(struct erg_worker *worker, struct erg_error *err);
int erg_worker_note(struct erg_worker *worker, size_t pass, struct erg_error *err);
size_t erg_worker_compare(const struct erg_worker *worker, size_t pass, size_t reference,
                          struct erg_difference list[ERG_DIFFERENCES]);

#endif
