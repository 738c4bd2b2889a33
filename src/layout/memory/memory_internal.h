/* Shared by the files of layout/memory* only. */
#ifndef ERG_LAYOUT_MEMORY_INTERNAL_H
#define ERG_LAYOUT_MEMORY_INTERNAL_H

#include "layout/memory/stage_memory.h"

/*
 * The library of matrix products requests this on Hopper, once for every host thread that launches
 * products: forward and backward, and one more for products that overlap with their tensor group.
 */
enum { ERG_MEMORY_WORKSPACE_BYTES = 32 << 20 };

/* Constants of the framework's allocator (PyTorch with max_split_size_mb:21). */
enum {
    ERG_CACHE_SMALL_BYTES = 1 << 20,     /* requests up to this share segments of 2 MiB */
    ERG_CACHE_UNSPLIT_BYTES = 21 << 20,  /* blocks from this size on are never split … */
    ERG_CACHE_OVERSIZE_BYTES = 20 << 20, /* … and serve only requests smaller by less than this */
    ERG_CACHE_ROUND_BYTES = 2 << 20,     /* new segments are a multiple of this */
    ERG_OFFLOAD_ROUND_BYTES = 1 << 20,   /* moved sizes are multiples of this */
};

/* ---- the bytes of a group that move to host memory ---- */

struct erg_memory_piece {
    int layer, tensor, view; /* view: 0, or 1 for the second half */
    int64_t bytes, moved;
};

struct erg_memory_choice {
    struct erg_memory_piece *pieces; /* in the order of consideration */
    size_t count;
    int64_t eligible, moved;
    const struct erg_memory_piece *split; /* NULL: none */
};

/* Chooses the pieces of a chunk with `layers`; release them. */
void erg_memory_choose(struct erg_memory_choice *choice, const struct erg_memory_sizes *sizes,
                       enum erg_recompute recompute, long layers, double offload,
                       enum erg_memory_accounting accounting);
void erg_memory_choice_release(struct erg_memory_choice *choice);

/*
 * The allocated bytes of a tensor of `bytes` in the framework, once blocks for all sizes of a layer
 * are in its cache.
 */
int64_t erg_memory_served_bytes(const struct erg_memory_sizes *sizes, int64_t bytes);

/* Whether a stage offloads: it needs time between forward and backward of a group. */
bool erg_memory_offloads(const struct erg_layout *layout, long stage);

/* ---- memory in use while a layer runs, in closed form (transient.c) ---- */

/*
 * The moments of possible peaks: in a forward pass, in the FFN and the attention of a backward
 * pass, each also with the tensors used until then in a buffer, and in the head between.
 */
enum {
    ERG_MEMORY_FORWARD,
    ERG_MEMORY_FFN,
    ERG_MEMORY_FFN_MOVED,
    ERG_MEMORY_ATTENTION,
    ERG_MEMORY_ATTENTION_MOVED,
    ERG_MEMORY_AT_HEAD, /* no layer runs */
};

/*
 * In a backward pass a layer's kept tensors are freed op by op, except those in a buffer: first
 * through the FFN, then, with the FFN's tensors freed, through the norm before it and the
 * attention. Tensors that are used first move last: at the _MOVED moments everything except `stays`
 * was moved, including the tensors used until then.
 */
void erg_memory_transients(double transient[ERG_MEMORY_MOMENTS],
                           const struct erg_memory_sizes *sizes, enum erg_recompute recompute,
                           double stays);

/* ---- parameters and optimizer state of a stage ---- */

struct erg_memory_weights {
    int64_t *items; /* parameters of each tensor, in order of registration */
    size_t count, capacity;
};

/* ---- a mixture of experts (expert_memory.c) ---- */

/* Adds the bytes kept for the given parameters of experts. */
void erg_memory_add_experts(double items[ERG_MEMORY_ITEMS],
                            const struct erg_memory_request *request, double parameters);

/* The experts' tensors in a chunk of a stage, in order of registration. */
void erg_memory_expert_weights(struct erg_memory_weights *weights,
                               const struct erg_memory_request *request,
                               const struct erg_memory_sizes *sizes, long stage, long chunk);

/*
 * The peak bytes in addition to a layer's kept tensors, in a forward pass through the FFN half and
 * in a backward pass up to the sum into the residual stream's gradient, in closed form. It is less
 * while the layer does not yet, or no longer, keep all its tensors.
 */
double erg_memory_experts_forward(const struct erg_memory_sizes *sizes,
                                  enum erg_recompute recompute);
double erg_memory_experts_backward(const struct erg_memory_sizes *sizes,
                                   enum erg_recompute recompute);

/* ---- FSDP (fsdp.c) ---- */

/*
 * The units that are gathered as a whole, in the order of the forward pass. A tied head is the
 * embedding.
 */
enum erg_memory_unit { ERG_MEMORY_EMBEDDING_UNIT, ERG_MEMORY_LAYER_UNIT, ERG_MEMORY_HEAD_UNIT };

/* Adds a GPU's share of the bytes kept for the given parameters, of which `trained` are trained. */
void erg_memory_shards(double items[ERG_MEMORY_ITEMS], const struct erg_memory_request *request,
                       double parameters, double trained);

/*
 * The gathered weights and the gradients at each moment. If their maximum occurs with fewer kept
 * layers or fewer logits, those are subtracted.
 */
void erg_memory_gathered(double weights[ERG_MEMORY_MOMENTS], double gradients[ERG_MEMORY_MOMENTS],
                         const struct erg_memory_request *request,
                         const struct erg_memory_sizes *sizes);

/* ---- the static accounting (static_stage.c) ---- */

void erg_memory_static_closed(struct erg_memory_stage *stage,
                              const struct erg_memory_request *request,
                              const struct erg_memory_sizes *sizes, long index);
void erg_memory_static_lines(struct erg_memory_lines *lines,
                             const struct erg_memory_request *request,
                             const struct erg_memory_sizes *sizes, long index);
/* The needs without memory in flight. */
void erg_memory_static_floor(struct erg_memory_floor *floor,
                             const struct erg_memory_request *request,
                             const struct erg_memory_sizes *sizes, long index);
/* Adds the passes of an iteration with the given number of microbatches, all with the stage's
 * needs. */
void erg_memory_static_course(struct erg_memory_course *course,
                              const struct erg_memory_request *request,
                              const struct erg_memory_stage *stage, long index, long microbatches);

/* The weights of one chunk of a stage. */
void erg_memory_chunk_weights(struct erg_memory_weights *weights,
                              const struct erg_memory_request *request,
                              const struct erg_memory_sizes *sizes, long stage, long chunk);

/* The trained weights of one chunk. */
void erg_memory_chunk_trained(struct erg_memory_weights *weights,
                              const struct erg_memory_request *request,
                              const struct erg_memory_sizes *sizes, long stage, long chunk);

/*
 * The parameters whose optimizer state `rank` of `ranks` keeps: their number in each tensor of
 * `weights`, into shard[weights->count]. Gradients lie in one buffer per chunk, the last tensor
 * first; each rank has an equal part of it.
 */
void erg_memory_shard(const struct erg_memory_weights *weights, long ranks, long rank,
                      int64_t *shard);

/*
 * Writes to rounding[] the bytes beyond their size that the moments of each data x context rank
 * take if blocks of activations serve them.
 */
void erg_memory_moments_rounding(const struct erg_memory_request *request,
                                 const struct erg_memory_sizes *sizes, long stage,
                                 int64_t *rounding);

#endif
