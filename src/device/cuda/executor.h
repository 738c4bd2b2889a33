/*
 * Executor: runs partitions on one GPU. Compute and communication each have a stream. A step's
 * communication starts when the compute before its launch slot is done, and both streams join at
 * the end of the step. While our own communication runs, the persistent kernels of matrix products
 * and attention leave the SMs of its budget free.
 *
 * A sequence of steps is captured into a CUDA graph once and launched any number of times, so the
 * host does nothing per kernel. The same runs measure a partition and train a model.
 *
 * Source of the launch protocol: Kareus, implementation.
 */
#ifndef ERG_CUDA_EXECUTOR_H
#define ERG_CUDA_EXECUTOR_H

#include "device/cuda/decoder.h"

struct erg_executor;

/* The decoder outlives the executor; the calling thread's GPU is the decoder's. */
int erg_executor_open(struct erg_executor **executor, struct erg_decoder *decoder,
                      const struct erg_cuda *cuda, struct erg_error *err);
void erg_executor_close(struct erg_executor *executor);

/* The stream that runs are launched on. */
struct CUstream_st *erg_executor_stream(const struct erg_executor *executor);

enum { ERG_WHOLE_MICROBATCH = -1 };

struct erg_run_step {
    struct erg_step step;
    int nanobatch; /* which computes, 0 or 1, while the other communicates; or all */
};

/* The layer of a run's ops. */
enum erg_run_mode {
    /*
     * All ops belong to the last layer: for repeated measurements. Nanobatches alternate from one
     * launch to the next, so that the operands of a sum are computed again before the next sum.
     */
    ERG_RUN_STEADY,
    ERG_RUN_FORWARD,  /* an instruction, from the first layer to the last */
    ERG_RUN_BACKWARD, /* an instruction, from the last layer to the first */
};

struct erg_graph_run;

/*
 * Captures steps as a run. `steps` is not referenced afterwards. ERG_FAILED if the decoder lacks a
 * kernel for an op.
 */
int erg_graph_run_new(struct erg_graph_run **run, struct erg_executor *executor,
                      const struct erg_run_step *steps, size_t count, enum erg_run_mode mode,
                      struct erg_error *err);
void erg_graph_run_free(struct erg_graph_run *run);

/* Queues the run once. With several ranks, all must launch equal runs in the same order. */
int erg_graph_run_launch(struct erg_graph_run *run, struct erg_error *err);

#endif
