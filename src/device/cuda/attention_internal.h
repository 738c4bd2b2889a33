/*
 * Internals of attention: the operation graphs, the plans found for them, the grid of captured
 * kernels.
 */
#ifndef ERG_CUDA_ATTENTION_INTERNAL_H
#define ERG_CUDA_ATTENTION_INTERNAL_H

#include "device/cuda/attention.h"
#include "device/cuda/cudnn_internal.h"

enum erg_attention_pass { ERG_ATTENTION_FORWARD, ERG_ATTENTION_BACKWARD };

/* Identifiers of the tensors that are not virtual, in the graphs and for the run of a plan. */
enum erg_attention_tensor {
    ERG_TENSOR_Q = 1,
    ERG_TENSOR_K,
    ERG_TENSOR_V,
    ERG_TENSOR_O,
    ERG_TENSOR_STATS,
    ERG_TENSOR_DO,
    ERG_TENSOR_DQ,
    ERG_TENSOR_DK,
    ERG_TENSOR_DV,
    ERG_TENSOR_SOFTMAX_SUM, /* scratch: row sums of dO O, fp32 as stats */
    ERG_TENSOR_DQ_SUM,      /* scratch: dQ in fp32, contiguous */
    /* Scalars, passed by value. */
    ERG_TENSOR_SCALE,
    ERG_TENSOR_MINUS_INFINITY,
    ERG_TENSOR_ONE,
    ERG_TENSOR_QUERIES, /* int32 */
    ERG_TENSOR_KEYS,    /* int32 */
    ERG_TENSOR_VIRTUAL, /* the first of the virtual ones */
};

/* A finalized operation graph and its parts. All-zero is a valid empty one. */
struct erg_attention_graph {
    cudnnBackendDescriptor_t parts[160];
    size_t part_count;
    cudnnBackendDescriptor_t operations[32];
    size_t operation_count;
    cudnnBackendDescriptor_t graph; /* one of parts */
};

/* The graph must be released, even on failure. */
int erg_attention_graph_build(struct erg_attention_graph *graph, const struct erg_cudnn *cudnn,
                              const struct erg_attention_shape *shape, enum erg_attention_pass pass,
                              struct erg_error *err);
void erg_attention_graph_release(struct erg_attention_graph *graph, const struct erg_cudnn *cudnn);

struct erg_attention_plan {
    cudnnBackendDescriptor_t plan;
    int64_t workspace_bytes;
};

/* Reads a plan from the folder of plans, or finds one and stores it there. */
int erg_attention_plan_find(struct erg_attention_plan *plan, const struct erg_cudnn *cudnn,
                            const struct erg_attention_shape *shape, enum erg_attention_pass pass,
                            struct erg_error *err);

/* The position of a capture: the nodes that the next captured node will depend on. */
enum { ERG_GRID_MAX_NODES = 64 };
struct erg_grid_mark {
    size_t count;
    cudaGraphNode_t nodes[ERG_GRID_MAX_NODES];
};

int erg_grid_mark(struct erg_grid_mark *mark, cudaStream_t stream, struct erg_error *err);

/*
 * Lowers the grid of the one persistent kernel captured on the stream since the mark to `ctas`;
 * *full is its former value. Fails if there is no such kernel or more than one.
 */
int erg_grid_limit(const struct erg_cudnn *cudnn, const struct erg_grid_mark *mark,
                   cudaStream_t stream, int ctas, int *full, struct erg_error *err);

#endif
