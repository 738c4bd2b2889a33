/*
 * Static memory: every buffer that ergon's training allocates on a rank's device, in one table. All
 * are allocated when a run begins, and stay. The decoder and the engine find their buffers by
 * erg_static_at(); the planner sums the same table (ERG_MEMORY_STATIC of stage_memory.h).
 *
 * Buffers with the same number of copies form a set. A set has one contiguous piece per copy, and
 * sets follow each other, those of the stage (decoder/decoder_stage.h) first. Every buffer begins
 * at a multiple of 256 bytes.
 */
#ifndef ERG_LAYOUT_STATIC_MEMORY_H
#define ERG_LAYOUT_STATIC_MEMORY_H

#include "layout/memory/stage_memory.h"

/* The most in flight at once, over all chunks. */
struct erg_stage_room {
    size_t passes; /* from the start of their forward to the end of their backward */
    size_t layers; /* layers of those passes, without the first of each */
    size_t inputs; /* open passes */
    size_t heads;  /* passes of the last chunk */
    /*
     * Bytes of parts of layers that move to host memory; 0: none move. On the device, while they
     * are written, copied out or kept; in host memory.
     */
    size_t moved, hosted;
};

/*
 * For a stage of a checked layout without offloading; `layers`: of the model. Only the last stage
 * has heads.
 */
struct erg_stage_room erg_stage_room_of(const struct erg_layout *layout, long layers, long stage);

/*
 * Adds the memory of moved tensors of layers, bits of erg_static_shape, by the copies of the layout
 * (copies.h). If a layer's input moves, that of a pass is received into such a part.
 */
void erg_stage_room_move(struct erg_stage_room *room, const struct erg_layout *layout, long layers,
                         long stage, uint64_t moves);

/* The inputs that determine the sizes of a rank's buffers. */
struct erg_static_shape {
    const struct erg_model *model;
    long tensor, context;     /* degrees */
    long sequences, sequence; /* of a microbatch; tokens of each over all context ranks */
    bool sequence_parallel;   /* with more than one tensor rank */
    bool head;                /* on this rank */
    struct erg_stage_room room;
    struct erg_static_weights weights;
    size_t element; /* bytes */
    size_t scratch; /* bytes: the most for a kernel of the passes */
    enum erg_recompute recompute;
    uint64_t moves; /* bits 1 << enum erg_static_buffer: the tensors of layers that move to host
                     * memory ... … */
    double offload; /* ... and their share of the movable bytes */
    /* The surroundings of the stage. */
    bool previous, next;      /* there is a previous and a next stage */
    size_t microbatches;      /* of a step */
    size_t optimizer_scratch; /* bytes */
};

/* Sizes of a rank's tensors in elements. */
struct erg_stage_widths {
    size_t tokens, rows; /* of a microbatch on this rank; rows of the residual stream */
    size_t sequence;     /* tokens of one sequence on this rank */
    size_t hidden, ffn, fc1;
    size_t heads, kv_heads, head_dim, qkv, attention;
    size_t words;     /* of the vocabulary, with padding */
    size_t positions; /* rows of the stream with different positions */
    size_t stats;     /* floats of a norm's row */
};
struct erg_stage_widths erg_stage_widths_of(const struct erg_static_shape *shape);

enum erg_static_buffer {
    /* Once per stage. */
    ERG_STATIC_VALUES,
    ERG_STATIC_GRADIENTS,
    ERG_STATIC_REDUCE,
    ERG_STATIC_PARTIAL,
    ERG_STATIC_GATHERED,
    ERG_STATIC_D_STREAM,
    ERG_STATIC_D_STREAM_OTHER,
    ERG_STATIC_D_MID,
    ERG_STATIC_D_ACT,
    ERG_STATIC_D_FC1,
    ERG_STATIC_D_ATTN,
    ERG_STATIC_D_QKV,
    ERG_STATIC_NORM_AGAIN, /* of every layer, if it is not kept */
    ERG_STATIC_ACT_AGAIN,
    ERG_STATIC_KV_OWN,
    ERG_STATIC_KV_RANKS,
    ERG_STATIC_KV,
    ERG_STATIC_D_KV,
    ERG_STATIC_D_KV_LOW,
    ERG_STATIC_ROPE_TABLE,
    ERG_STATIC_PLACE_OF,
    ERG_STATIC_SCRATCH,
    /* Once per open pass; once per layer in flight except the first of its pass. */
    ERG_STATIC_INPUT,
    ERG_STATIC_X_A,
    /* Once per layer in flight; with recomputation, once for all layers. */
    ERG_STATIC_N_A,
    ERG_STATIC_QKV,
    ERG_STATIC_ROTATED,
    ERG_STATIC_ATTN,
    ERG_STATIC_X_M,
    ERG_STATIC_N_M,
    ERG_STATIC_FC1,
    ERG_STATIC_ACT,
    ERG_STATIC_STATS_A,
    ERG_STATIC_STATS_M,
    ERG_STATIC_STATS,
    /* The buffer for a layer's returning offloaded tensors. */
    ERG_STATIC_RETURNED,
    /* Once per pass of the last chunk. */
    ERG_STATIC_OUTPUT,
    ERG_STATIC_N_FINAL,
    ERG_STATIC_STATS_FINAL,
    ERG_STATIC_LOGITS,
    ERG_STATIC_LOG_SUM,
    ERG_STATIC_LOSS_STATS,
    /* Outside the stage: messages, two alternating buffers each, except the last one. */
    ERG_STATIC_SENT_OUTPUT,
    ERG_STATIC_SENT_GRADIENT,
    ERG_STATIC_RECEIVED_GRADIENT,
    /* Once. */
    ERG_STATIC_STATE,
    ERG_STATIC_OPTIMIZER_SCALARS,
    ERG_STATIC_OPTIMIZER_SCRATCH,
    ERG_STATIC_STEP_SCALARS,
    ERG_STATIC_TOKENS,
    ERG_STATIC_BUFFERS,
};

enum erg_static_set {
    ERG_STATIC_ONCE,
    ERG_STATIC_INPUTS,
    ERG_STATIC_LAYER_INPUTS,
    ERG_STATIC_LAYERS,
    ERG_STATIC_MOVED, /* the moving tensors of layers */
    ERG_STATIC_RETURNS,
    ERG_STATIC_HEADS,
    ERG_STATIC_OUTPUTS, /* the first outside the stage */
    ERG_STATIC_SENT_GRADIENTS,
    ERG_STATIC_RECEIVED_GRADIENTS,
    ERG_STATIC_ENGINE,
    ERG_STATIC_SETS,
};

enum {
    ERG_STATIC_ALIGNMENT = 256,
    ERG_STATIC_RING = 2,                 /* slots for returning parts of layers, used alternately */
    ERG_STATIC_SCALARS_BYTES = 256,      /* room for values that kernels read in each step */
    ERG_STATIC_SQUARES_BYTES = 16 << 10, /* no less than the scratch of the optimizer's kernels */
};

struct erg_static_memory {
    enum erg_static_set sets[ERG_STATIC_BUFFERS];            /* set of each buffer */
    size_t bytes[ERG_STATIC_BUFFERS];                        /* of one; 0: none */
    size_t within[ERG_STATIC_BUFFERS];                       /* its offset in its set */
    size_t counts[ERG_STATIC_SETS], pieces[ERG_STATIC_SETS]; /* pieces: bytes of one copy */
    size_t begins[ERG_STATIC_SETS];
    size_t stage_bytes, total; /* of the stage alone, which comes first; of all */
    size_t host_bytes;         /* in host memory, not in total */
    double offload;            /* the moved share of a layer's movable bytes */
};

/* Computes sizes only, in about a hundred nanoseconds. */
void erg_static_memory_init(struct erg_static_memory *memory, const struct erg_static_shape *shape);

const char *erg_static_name(enum erg_static_buffer buffer); /* "MLP's activation", … */
enum erg_memory_item erg_static_item(const struct erg_static_memory *memory,
                                     enum erg_static_buffer buffer);

/* The offset of copy `index` of a buffer. */
size_t erg_static_offset(const struct erg_static_memory *memory, enum erg_static_buffer buffer,
                         size_t index);

/* Its address in memory that begins at `first`; NULL: the buffer does not exist. */
static inline void *erg_static_at(const struct erg_static_memory *memory, void *first,
                                  enum erg_static_buffer buffer, size_t index)
{
    return memory->bytes[buffer] ? (char *)first + erg_static_offset(memory, buffer, index) : NULL;
}

/* Bytes from one copy of a buffer to the next. */
static inline size_t erg_static_place(const struct erg_static_memory *memory,
                                      enum erg_static_buffer buffer)
{
    return (memory->bytes[buffer] + ERG_STATIC_ALIGNMENT - 1) / ERG_STATIC_ALIGNMENT *
           ERG_STATIC_ALIGNMENT;
}

/* Sums of the buffers by item; alignment gaps count as ERG_MEMORY_ROUNDING. */
void erg_static_items(double items[ERG_MEMORY_ITEMS], const struct erg_static_memory *memory);

/*
 * The shape of a stage of a checked layout on the request's backend; by default on a GPU: elements
 * of two bytes, and an upper bound of the scratch. `tensors`: for the model and the layout's
 * tensor degree.
 */
void erg_static_shape_init(struct erg_static_shape *shape, const struct erg_memory_request *request,
                           const struct erg_static_tensors *tensors, long stage);

/*
 * Changes the shape to that of a stage that offloads at this ratio. Tensors move as a whole, in
 * order of creation (the first would wait longest). Together they are at most that share of the
 * movable bytes: those of tensors that the shape's mode keeps and that are not smaller than the
 * request's limit.
 */
void erg_static_move(struct erg_static_shape *shape, const struct erg_memory_request *request,
                     long stage, double offload);

/* Bytes of each movable buffer of a layer, 0 for others; returns their sum. */
size_t erg_static_find_movable(size_t bytes[ERG_STATIC_BUFFERS],
                               const struct erg_static_shape *shape, size_t least);

/* The table of a stage. `sizes` are for the layout's degrees. */
void erg_static_memory_of(struct erg_static_memory *memory,
                          const struct erg_memory_request *request,
                          const struct erg_memory_sizes *sizes, long index);

#endif
