/*
 * Memory of a layout: the bytes that each stage's GPU needs, item by item, in closed form and by
 * simulating every allocation of two iterations.
 *
 * Placement: weights in bf16 (2 bytes a parameter), gradients in fp32 (4), fp32 master weights and
 * two moments of Adam (12) sharded over data x context ranks; the residual stream is split over the
 * tensor group along the sequence (sequence parallelism), queries, keys, values and FFN along heads
 * and channels. Keys and values are gathered over the context group for attention, and only the
 * rank's own share of them is kept. Attention is a fused kernel that keeps its output and the
 * log-sum-exp of its scores.
 *
 * An activation group is the set of tensors that one microbatch keeps of one chunk for its backward
 * pass. Offloading moves the first part of each group to host memory: copied out during the next
 * forward, copied back during the backward before its own, into one of two receive buffers. The
 * chunk of the head is never moved, nor are tensors of less than 1 MiB.
 *
 * A mixture of experts (expert_memory.c): a GPU holds the experts of its rank, and a share of their
 * optimizer state over the data ranks that hold the same ones. Its FFN keeps the norm's output, the
 * router's scores, the rows that arrived for the experts, the outputs of their first product and
 * activation, and the returned rows of the second product. None of these is offloaded.
 *
 * There are three accountings. In the arena every tensor takes its bytes and a split tensor is read
 * as two row ranges. In the framework a caching allocator serves requests from cached blocks, and a
 * split tensor is reassembled in new memory. The static accounting is for ergon's own training,
 * which allocates all buffers at its start (static_memory.h): without sequence parallelism the
 * residual stream is whole, and whole tensors are offloaded, layer by layer (static_copies.c), also
 * from the head's chunk and with one stage. All sizes are bytes on one GPU.
 *
 * With FSDP (fsdp.c) a GPU keeps its share of all per-parameter data, the bf16 weights of the
 * running layer and the next one, and the gradient of the running layer. Embedding and head are
 * such layers, too. The residual stream is whole.
 *
 * With LoRA frozen weights have no gradients and no optimizer state, and inputs of frozen linears
 * that nothing else needs are not kept (model/lora.h).
 *
 * Source: Megatron-Kwai (pipeline-aware offloading, balanced recomputation); PyTorch's caching
 * allocator (c10/cuda/CUDACachingAllocator.cpp); Megatron-LM's distributed optimizer.
 */
#ifndef ERG_LAYOUT_STAGE_MEMORY_H
#define ERG_LAYOUT_STAGE_MEMORY_H

#include "hardware/engine.h"
#include "job/layout.h"
#include "layout/memory/static_weights.h"

#include <stdint.h>

enum erg_memory_accounting { ERG_MEMORY_ARENA, ERG_MEMORY_FRAMEWORK, ERG_MEMORY_STATIC };
extern const char *const erg_memory_accounting_names[]; /* by enum erg_memory_accounting, ends
                                                         * with NULL */

/* After "also": further buffers that the static accounting counts in the item. */
enum erg_memory_item {
    ERG_MEMORY_WEIGHTS,
    ERG_MEMORY_GRADIENTS,
    ERG_MEMORY_OPTIMIZER,
    ERG_MEMORY_ACTIVATIONS, /* of all microbatches in flight, without offloaded tensors */
    ERG_MEMORY_OFFLOAD,     /* receive buffers, and tensors reassembled from them */
    ERG_MEMORY_ROPE,        /* tables of sines and cosines; also positions */
    ERG_MEMORY_WORKSPACE,   /* of matrix products; also of attention and the optimizer */
    ERG_MEMORY_GATHER,      /* gathered hidden tensors; also terms of sums, and keys and values */
    ERG_MEMORY_HEAD,        /* logits and loss */
    ERG_MEMORY_PIPELINE,    /* hidden tensors and gradients between stages; also tokens of a step */
    ERG_MEMORY_TRANSIENT,   /* memory within one layer */
    ERG_MEMORY_ROUNDING,    /* bytes allocated beyond the request; also gaps */
    ERG_MEMORY_ITEMS,
};
const char *erg_memory_item_name(enum erg_memory_item item); /* "weights", … */
struct erg_memory_stage;
enum erg_memory_item erg_memory_largest(const struct erg_memory_stage *stage);
/*
 * A hint for an item that is too large and that other software would shard over data ranks;
 * otherwise "".
 */
const char *erg_memory_unsharded(enum erg_memory_item item);

/* ---- sizes ---- */

/* The tensors that one layer keeps for its backward pass, in order of creation. */
enum erg_memory_role {
    ERG_MEMORY_INPUT,
    ERG_MEMORY_ATTENTION_NORM,
    ERG_MEMORY_QK_INPUT, /* queries and keys before their norm; short rows of a latent attention */
    ERG_MEMORY_QUERIES,
    ERG_MEMORY_KEYS,
    ERG_MEMORY_VALUES,
    ERG_MEMORY_KV_SHARE, /* with context parallelism, instead of keys and values */
    ERG_MEMORY_LOG_SUM_EXP,
    ERG_MEMORY_ATTENTION_OUTPUT,
    ERG_MEMORY_FFN_INPUT,
    ERG_MEMORY_FFN_NORM,
    /* For a mixture of experts; the roles after them are then those of the routed experts. */
    ERG_MEMORY_SCORES,
    ERG_MEMORY_SHARED_FC1, /* of the shared experts, which process all tokens */
    ERG_MEMORY_SHARED_ACTIVATED,
    ERG_MEMORY_EXPERT_INPUT,
    ERG_MEMORY_EXPERT_OUTPUT,
    ERG_MEMORY_FC1_OUTPUT,
    ERG_MEMORY_GATE, /* activated, of a gated FFN */
    ERG_MEMORY_ACTIVATED,
    ERG_MEMORY_ROLES,
};

/* One of these tensors for one microbatch; bytes 0: this model has none. */
struct erg_memory_tensor {
    int64_t bytes;
    int64_t rows;   /* it can be split between any two rows */
    unsigned saved; /* bits 1 << enum erg_recompute: the modes */
    /*
     * Framework, unless the activation is recomputed: the number of strided views of one allocation
     * that are kept instead of it.
     */
    int views;
};

/* Bytes, or parameters, of one model under a tensor and context degree and a microbatch. */
struct erg_memory_sizes {
    int64_t hidden;      /* a hidden tensor, split over the tensor group (U) */
    int64_t full_hidden; /* the same of all its ranks (t U) */
    int64_t query;       /* queries of this rank; U if heads x head_dim is the hidden size */
    int64_t kv;          /* local keys and values (K) */
    int64_t gathered_kv; /* those of all context ranks (K c); 0 without context parallelism */
    int64_t ffn;         /* one width of the FFN (F) */
    int64_t fc1;         /* the first linear's output: two widths when gated */
    int64_t qk;          /* queries and keys before the per-head norm; 0 without */
    int64_t output;      /* of the attention */
    /* For a mixture of experts: rows that leave a rank, and rows that arrive from all tensor ranks.
     * 0 without experts. */
    int64_t sent, arrived;
    long expert; /* degree */
    int64_t log_sum_exp;
    int64_t logits; /* in bf16, vocabulary padded */
    int64_t rope;   /* tables of one chunk */
    bool gated, rotary;
    long tensor, context;
    double layer_parameters, embedding_parameters, head_parameters; /* on this GPU */
    double expert_parameters;  /* of a layer, in addition to layer_parameters */
    int64_t expert_weights[2]; /* of one expert: its first and its second product */
    long experts_held;
    /*
     * The first layers of a model, which have the dense FFN; otherwise 0. They are assumed to keep
     * as much for their backward pass as the others.
     */
    long dense_layers;
    double dense_parameters; /* of one, instead of layer_parameters */
    int64_t dense_weights[16];
    size_t dense_weight_count;
    /* Parameters of the tensors of a layer, in order of registration. */
    int64_t weights[16];
    size_t weight_count;
    int64_t embedding[2], head[3];
    /* Trained parameters (with LoRA only adapters); those of a layer also by tensor. */
    double trained_layer, trained_embedding, trained_head;
    bool adapters;
    int64_t adapter_weights[2 * ERG_LORA_TARGETS];
    size_t adapter_count;
    struct erg_memory_tensor tensors[ERG_MEMORY_ROLES];
    /* Bytes that a layer keeps for its backward pass in each mode: all tensors, and those large
     * enough to be moved to host memory. */
    int64_t kept[ERG_RECOMPUTES], movable[ERG_RECOMPUTES];
    int64_t kept_of_ffn[ERG_RECOMPUTES];      /* of kept tensors: from the FFN's norm on */
    struct erg_static_tensors static_tensors; /* of the static accounting */
};

/* The sizes for a layout's degrees, microbatch and sequence. */
void erg_memory_sizes_of(struct erg_memory_sizes *sizes, const struct erg_model *model,
                         const struct erg_layout *layout);

/* Whether a layer keeps a tensor under a mode, and whether it recomputes it from kept tensors. */
static inline bool erg_memory_keeps(const struct erg_memory_sizes *sizes, enum erg_memory_role role,
                                    enum erg_recompute recompute)
{
    return sizes->tensors[role].saved & 1u << recompute;
}

static inline bool erg_memory_remakes(const struct erg_memory_sizes *sizes,
                                      enum erg_memory_role role, enum erg_recompute recompute)
{
    return recompute != ERG_RECOMPUTE_FULL && erg_memory_keeps(sizes, role, ERG_RECOMPUTE_NONE) &&
           !erg_memory_keeps(sizes, role, recompute);
}

/*
 * The sizes for a layout. With FSDP the residual stream is whole, so `full_hidden` is `hidden` and
 * no hidden tensor is gathered.
 */
void erg_memory_sizes_of(struct erg_memory_sizes *sizes, const struct erg_model *model,
                         const struct erg_layout *layout);

/* ---- needs of a stage ---- */

/* The backend that trains, for the static accounting. */
struct erg_memory_kernels {
    size_t element_bytes;
    size_t scratch_bytes;           /* the most for a kernel of the passes */
    size_t optimizer_scratch_bytes; /* the same for the optimizer's kernels */
};

struct erg_memory_request {
    const struct erg_model *model;
    const struct erg_layout *layout; /* checked: erg_layout_check() */
    enum erg_memory_accounting accounting;
    /*
     * Copy layer by layer instead of group by group: out while the next layer runs, in while the
     * layer above it runs, through a ring of two slots, each for the moved tensors of one layer.
     */
    bool layer_copies;
    /* Only the static accounting uses these: the others always have sequence parallelism, and never
     * move tensors smaller than ERG_OFFLOAD_LEAST_BYTES. */
    bool sequence_parallel;
    int64_t least_moved;
    const struct erg_memory_kernels *kernels; /* NULL: upper bounds for a GPU (static_memory.h) */
    double fsdp_bytes; /* as in an engine (hardware/engine.h); 0: ERG_FSDP_BYTES */
};

/* The accounting of a layout that an engine trains; NULL, no engine: the arena. */
struct erg_memory_request erg_memory_request_of(const struct erg_model *model,
                                                const struct erg_layout *layout,
                                                const struct erg_engine *engine);

/*
 * Whether its stages can offload. Except in the static accounting, copies hide behind the passes of
 * other stages; copies of a mixture of experts are not modelled.
 */
static inline bool erg_memory_can_offload(const struct erg_memory_request *request)
{
    return request->accounting == ERG_MEMORY_STATIC ||
           (request->layout->pipeline >= 3 && !request->model->experts.count);
}

/*
 * Fails if stages offload that cannot, if weights are sharded that cannot be, or if ergon's own
 * training does not support the work.
 */
int erg_memory_check(const struct erg_memory_request *request, struct erg_error *err);

/* One stage at its worst moment. */
struct erg_memory_stage {
    double items[ERG_MEMORY_ITEMS];
    double peak_bytes;    /* their sum */
    const char *moment;   /* "forward", "backward" or "head" */
    long groups;          /* in flight at once */
    double offload_bytes; /* moved bytes of one group; 0: the stage moves nothing */
    double host_bytes;    /* of all groups at once */
    double offload;       /* moved share of movable bytes; static accounting: of whole tensors */
};

/* Forwards before the first backward, and groups in flight at once. */
long erg_memory_warmup(const struct erg_layout *layout, long stage);
long erg_memory_groups(const struct erg_layout *layout, long stage);

/*
 * Closed form. `sizes` are for the layout's degrees. With equal chunks at most 1.8 % above the
 * simulated peak of the worst stage, and below it only by rows that are not split, or by groups
 * that return to the last stage after its head (0.005 %). With other chunks at most 0.03 % below
 * it, but far above it if chunks of a stage are very unequal.
 */
void erg_memory_closed(struct erg_memory_stage *stage, const struct erg_memory_request *request,
                       const struct erg_memory_sizes *sizes, long index);

/*
 * The peak of a stage in the arena as a function of its ratio of offloading: the largest of six
 * lines, least + slope x ratio: in a forward pass, in the FFN and in the attention of a backward
 * pass (each once with used tensors freed and once with them in a buffer), and in the head. Slopes
 * may be positive: with few groups in flight, offloading saves less than its receive buffers take.
 * With equal chunks it takes some hundred nanoseconds, so a search can evaluate the first and the
 * last stage of every candidate.
 */
enum { ERG_MEMORY_MOMENTS = 6, ERG_MEMORY_RATIOS = 16 };
struct erg_memory_lines {
    double least[ERG_MEMORY_MOMENTS], slope[ERG_MEMORY_MOMENTS];
    double host_bytes; /* of all groups, with everything offloaded */
    /*
     * In the static accounting whole tensors move, so steps replace the lines: the ratios, from 0
     * on, at which one more tensor moves, and the bytes needed from there on. Otherwise the count
     * is 0.
     */
    struct erg_memory_ratio {
        double offload, bytes, host_bytes;
    } ratios[ERG_MEMORY_RATIOS];
    size_t ratio_count;
};
void erg_memory_lines_init(struct erg_memory_lines *lines, const struct erg_memory_request *request,
                           const struct erg_memory_sizes *sizes, long index);

/*
 * The least that a stage needs in the arena for its layers, for any chunks and any ratio of
 * offloading: fixed_bytes, layer_bytes for each layer, and for each layer in flight its kept
 * tensors, of which all movable ones may be in host memory. With n layers, at least flying n +
 * beyond are in flight at once, counted with their microbatches: that is the case in which all
 * chunks but the last have one layer. Takes some ten nanoseconds.
 */
struct erg_memory_floor {
    double fixed_bytes, layer_bytes;
    double kept_bytes, movable_bytes;
    double flying, beyond;
};
void erg_memory_floor_init(struct erg_memory_floor *floor, const struct erg_memory_request *request,
                           const struct erg_memory_sizes *sizes, long index);

/* ---- event by event ---- */

/* The worst moment of one pass of one microbatch through one chunk. */
struct erg_memory_step {
    bool backward;
    long chunk, microbatch;
    float items[ERG_MEMORY_ITEMS];
};

struct erg_memory_result {
    struct erg_memory_stage *stages; /* [count] */
    struct erg_memory_course {       /* [count]: an iteration of each stage, in order */
        struct erg_memory_step *steps;
        size_t count, capacity;
    } * courses;
    long count, worst; /* worst: the stage with the highest peak */
    /* Microbatches in each stage's course: repeated passes are not all simulated. */
    long microbatches;
};

/*
 * Follows every allocation of every stage. In the framework it follows the data ranks whose parts
 * of the optimizer's state fit worst into the blocks of activations, and uses the worst of them.
 * Fails only when interrupted.
 */
int erg_memory_simulate(struct erg_memory_result *result, const struct erg_memory_request *request,
                        struct erg_error *err);
void erg_memory_result_release(struct erg_memory_result *result);

/*
 * The share of a GPU's memory that tensors can use. The published runs fitted 72.8e9 B on an 80 GiB
 * card and failed with 77.4e9 B: contexts, collectives and gaps between blocks took the rest.
 */
#define ERG_MEMORY_USABLE_SHARE 0.9

/* ---- how much to offload ---- */

/* Smaller tensors are never moved, except by a key in jobs of ergon's own training. */
enum { ERG_OFFLOAD_LEAST_BYTES = 1 << 20 };

/*
 * The model's own error, relative. A budget from the user, like the 64 GiB of the published runs,
 * may be exceeded by this share if all possible tensors are offloaded, since one of those runs
 * exceeds it; a GPU's memory may not.
 */
#define ERG_MEMORY_ERROR 0.004

struct erg_memory_solution {
    /* The smallest ratio with which all stages fit; NAN: only separate ratios fit. */
    double offload;
    double excess_bytes; /* shortage at the ratio that needs the least, within the slack */
    /*
     * The smallest ratio of each stage alone, with the recomputation up to the layout's that moves
     * the fewest bytes: [count].
     */
    double *stage_offload;
    enum erg_recompute *stage_recompute;
    long count;
    /*
     * The bytes that all stages of a pipeline copy out in an iteration (and in again), one GPU of
     * each; offload_bytes is NAN if `offload` is.
     */
    double offload_bytes, stage_offload_bytes;
};

/*
 * The least offloading with which every stage fits into its budget, budgets[pipeline] in bytes of a
 * GPU, instead of the layout's own ratio. A stage that fits with no ratio may exceed its budget by
 * the share `slack`. ERG_INFEASIBLE if nothing fits; the message names the stage and the bytes that
 * it needs.
 */
int erg_memory_solve(struct erg_memory_solution *solution, const struct erg_memory_request *request,
                     const double *budgets, double slack, struct erg_error *err);
void erg_memory_solution_release(struct erg_memory_solution *solution);

/*
 * Only `offload` of that solution: the smallest ratio with which all stages fit with the layout's
 * recomputation; NAN: none. Fails only when interrupted.
 */
int erg_memory_least_ratio(double *ratio, const struct erg_memory_request *request,
                           const double *budgets, struct erg_error *err);

#endif
