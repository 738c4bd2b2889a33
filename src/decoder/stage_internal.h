/*
 * Stage: its tensors; private to stage*.c.
 *
 * T tokens of a microbatch on this rank, R of them in the stream between the products (T, or under
 * sequence parallelism T/t), h the hidden size, Q = (H + 2G) e the width of queries, keys and
 * values, O = H e, F the width of the FFN, W the words with padding, K = 2 G e; S tokens of a whole
 * sequence, b sequences.
 */
#ifndef ERG_DECODER_STAGE_INTERNAL_H
#define ERG_DECODER_STAGE_INTERNAL_H

#include "decoder/decoder_stage.h"
#include "ops/context.h"

#include <assert.h>

#define ERG_STAGE_NO_SLOT SIZE_MAX

/* The use of kernels and exchanges by passes. */
enum erg_stage_mode {
    ERG_STAGE_RUNS,     /* queue both */
    ERG_STAGE_ALONE,    /* queue kernels, and exchange nothing */
    ERG_STAGE_MEASURES, /* queue nothing, but find how much scratch the kernels need */
    ERG_STAGE_CHOOSES,  /* queue nothing, but have the device choose how it runs products */
};

/* Tensors kept by the forward pass of a layer, or shared by all layers where they are
 * recomputed. */
struct erg_stage_activations {
    bool taken;
    size_t slot;              /* of moved tensors; ERG_STAGE_NO_SLOT: it lies elsewhere */
    void *x_a;                /* [R, h] the stream before attention: the layer's input; of the first
                               * layer of a pass that is the pass's */
    void *n_a;                /* [R, h] */
    void *qkv;                /* [T, Q]; rotated in place unless heads are normalised */
    void *rotated;            /* [T, Q] queries and keys where heads are normalised; else qkv */
    void *attn;               /* [T, O] */
    void *x_m;                /* [R, h] the stream before the MLP */
    void *n_m;                /* [R, h] */
    void *fc1;                /* [T, 2F] gate and up, or [T, F] */
    void *act;                /* [T, F] */
    float *stats_a, *stats_m; /* [R], of LayerNorm [R, 2] */
    float *stats;             /* [T, H] of attention */
};

/* Tensors kept by the end of the last chunk. */
struct erg_stage_head {
    bool taken;
    void *output, *n_final;      /* [R, h] */
    void *logits;                /* [T, W] */
    float *stats_final;          /* as of a layer */
    float *log_sum, *loss_stats; /* [T]; [t, T, 3] */
};

struct erg_stage_pass {
    bool open;
    size_t chunk;
    void *input;                           /* [R, h] */
    size_t slot;                           /* of the input, until its forward begins */
    struct erg_stage_activations **layers; /* [layers of the chunk], from its forward on */
    struct erg_stage_head *head;
};

struct erg_stage_layer {
    void *values[ERG_LAYER_TENSORS]; /* NULL: the model has none */
    float *gradients[ERG_LAYER_TENSORS];
    bool written[ERG_LAYER_TENSORS]; /* gradients of products, since they were cleared */
};

struct erg_stage {
    struct erg_stage_options options;
    struct erg_layer_range *chunks; /* as in the options */
    const struct erg_model *model;
    struct erg_weights weights;
    const struct erg_static_memory *buffers; /* while it is opened */
    char *memory;

    size_t tokens, rows, sequence, hidden, ffn, fc1_width, heads, kv_heads, head_dim;
    size_t qkv_row, attn_row, values_at;    /* where values begin in a row of qkv */
    size_t words, valid_words, first_word;  /* of this rank */
    size_t layers, element, context, ranks; /* ranks: tensor */

    void *values;
    float *all_gradients;
    struct erg_stage_layer *layer;      /* [layers], those of a chunk follow each other */
    size_t *chunk_first;                /* [chunks]: its first layer in there */
    struct erg_stage_activations *sets; /* [room.passes] of first layers, [room.layers] of others */
    struct erg_stage_head *head_sets;   /* [room.heads] */
    char *moved;                        /* the begin of the slots of moved tensors ... … */
    bool *slots;                        /* … and which are taken */
    struct erg_stage_mover mover;
    struct erg_stage_pass *passes; /* [room.inputs] */
    void *embedding, *positions, *norm_final, *norm_final_bias, *head;
    float *d_embedding, *d_positions, *d_norm_final, *d_norm_final_bias, *d_head;
    bool head_written; /* the gradient of the head, since gradients were cleared */

    /* Shared by all passes. */
    void *reduce;   /* [R, h] the output that a half of a layer adds */
    void *partial;  /* [T, h] this rank's term of that; `reduce` but under sequence parallelism */
    void *gathered; /* [T, h] the stream of all tensor ranks, under sequence parallelism; in the
                     * backward pass gradients; gradients of weights use `partial`, too */
    void *d_stream[2], *d_mid, *d_act, *d_fc1, *d_attn, *d_qkv; /* gradients of one layer */
    /* Under context parallelism: keys and values of this rank [T, K], of all ranks [c, T, K], in
     * the order of sequences [b, S, K]; gradients in the same order, and those of the low chunk. */
    void *kv_own, *kv_ranks, *kv, *d_kv, *d_kv_low;
    int32_t *place_of; /* [positions_count] positions of rows of the stream; NULL: 0, 1, 2, … */
    size_t positions_count;
    float *rope_table;
    void *scratch;
    size_t scratch_bytes;
    enum erg_stage_mode mode;
    struct {
        struct erg_kernel *items;
        size_t count, capacity;
    } chosen; /* products, one of each size */

    /* For programs: the stream of exchanges, and the events before and after each one. */
    struct erg_stream *comm;
    struct erg_event *launched, *exchanged;
    int exchange_sms; /* that the current exchange may use and concurrent compute leaves free */
    void *beside;     /* scratch of computation within an exchange; NULL: nothing does */
    size_t beside_bytes;
};

/* The range of an operation: consecutive sequences of the microbatch, all of them or a nanobatch,
 * and their rows. */
struct erg_stage_rows {
    size_t first_sequence, sequences;
    size_t first, tokens;   /* rows of tokens */
    size_t first_row, rows; /* rows of the stream */
};

/* A layer within a pass: the tensors that its operations use and that passes do not share. */
struct erg_stage_place {
    struct erg_stage_layer *layer, *before; /* before: in the chunk; NULL: none */
    const struct erg_stage_activations *act;
    void *x_m_before;   /* the stream before the MLP of the layer before */
    void *output;       /* of the chunk, where the layer is its last; else NULL */
    void *d_out, *d_in; /* gradients of the layer's output and of its input */
};

/* The begin and the end of a pass. */
struct erg_stage_ends {
    void *output, *d_output, *d_input; /* NULL: as in erg_stage_forward(), erg_stage_backward() */
};

static inline void *erg_stage_at(const struct erg_stage *stage, void *tensor, size_t element)
{
    return (char *)tensor + element * stage->element;
}

static inline bool erg_stage_queues(const struct erg_stage *stage)
{
    return stage->mode == ERG_STAGE_RUNS || stage->mode == ERG_STAGE_ALONE;
}

/* Where rows begin in a tensor of elements `width` wide that has a row for each token; NULL stays
 * NULL. */
static inline void *erg_stage_row(const struct erg_stage *stage, void *tensor, size_t width,
                                  const struct erg_stage_rows *rows)
{
    return tensor ? erg_stage_at(stage, tensor, rows->first * width) : NULL;
}

static inline float *erg_stage_float_row(float *tensor, size_t width,
                                         const struct erg_stage_rows *rows)
{
    return tensor ? tensor + rows->first * width : NULL;
}

/* The same in a tensor of the stream. */
static inline void *erg_stage_stream_row(const struct erg_stage *stage, void *tensor,
                                         const struct erg_stage_rows *rows)
{
    return tensor ? erg_stage_at(stage, tensor, rows->first_row * stage->hidden) : NULL;
}

/* The same in statistics of a norm. */
static inline float *erg_stage_stats_row(const struct erg_stage *stage, float *stats,
                                         const struct erg_stage_rows *rows)
{
    return stats ? stats + rows->first_row * (stage->model->layer_norm ? 2 : 1) : NULL;
}

/* Sequences [first, first + count) of the microbatch: all, or a nanobatch. */
static inline struct erg_stage_rows erg_stage_rows_of(const struct erg_stage *stage, size_t first,
                                                      size_t count)
{
    const size_t sequences = (size_t)stage->options.sequences;
    assert(count == sequences || !stage->options.sequence_parallel || stage->options.halves);
    return (struct erg_stage_rows){first,
                                   count,
                                   first * stage->sequence,
                                   count * stage->sequence,
                                   first * stage->rows / sequences,
                                   count * stage->rows / sequences};
}

static inline struct erg_stage_rows erg_stage_all_rows(const struct erg_stage *stage)
{
    return erg_stage_rows_of(stage, 0, (size_t)stage->options.sequences);
}

static inline struct erg_ops_qkv erg_stage_qkv_shape(const struct erg_stage *stage,
                                                     const struct erg_stage_rows *rows)
{
    return (struct erg_ops_qkv){rows->tokens, stage->sequence, stage->heads, stage->kv_heads,
                                stage->head_dim};
}

/* Queues a kernel, or acts by the mode. */
int erg_stage_launch(struct erg_stage *stage, const struct erg_kernel *kernel,
                     struct erg_stream *stream, struct erg_error *err);

/* Finds where everything lies. */
void erg_stage_place_all(struct erg_stage *stage);

/* A pass's forward begins: it gets room for its activations. */
struct erg_stage_pass *erg_stage_enter(struct erg_stage *stage, size_t pass);
/* A layer's forward begins: it gets a slot for its moved tensors. */
void erg_stage_take_moved(struct erg_stage *stage, size_t pass, size_t layer);
/* Tells the mover. */
int erg_stage_tell_layer(const struct erg_stage *stage, size_t pass, size_t layer, bool done,
                         struct erg_error *err);

/* Tells of the buckets of a kind, or of a layer's; a listener of NULL is fine. */
int erg_stage_tell(const struct erg_stage *stage, const struct erg_stage_listener *listener,
                   enum erg_bucket_kind kind, long layer, struct erg_error *err);

/* Both passes of the first chunk and of the last, in a mode: except at the ends, chunks differ only
 * in the number of layers. */
int erg_stage_run_ends(struct erg_stage *stage, enum erg_stage_mode mode,
                       const struct erg_stage_tokens *tokens, struct erg_stream *stream,
                       struct erg_error *err);

/* Queues an exchange of `count` elements, or of floats; in modes but the first none. */
int erg_stage_exchange(struct erg_stage *stage, struct erg_group *group,
                       enum erg_exchange_kind kind, bool floats, size_t count, const void *from,
                       void *to, struct erg_stream *stream, struct erg_error *err);

/* `partial` of all tensor ranks, summed into `to` [R, h]. */
int erg_stage_sum(struct erg_stage *stage, void *to, const struct erg_stage_rows *rows,
                  struct erg_stream *stream, struct erg_error *err);
/* Rows of the stream, `own` [R, h], of all tensor ranks into `all` [T, h]; nothing but under
 * sequence parallelism. */
int erg_stage_gather(struct erg_stage *stage, void *own, void *all,
                     const struct erg_stage_rows *rows, struct erg_stream *stream,
                     struct erg_error *err);
/* The input of products after a gather: `all`, or the tensor itself where each rank has all of
 * it. */
static inline void *erg_stage_gathered(const struct erg_stage *stage, void *own, void *all)
{
    return stage->options.sequence_parallel ? all : own;
}

/* ---- operations ---- */

/* The layer at `index` of a pass whose forward has begun. */
struct erg_stage_place erg_stage_place_of(const struct erg_stage *stage,
                                          const struct erg_stage_pass *pass, size_t index,
                                          const struct erg_stage_ends *ends);

/*
 * Queue one operation of a layer on rows. `parts`: bits 1 << enum erg_model_op_id, as in
 * struct erg_op_code, `weights` likewise; ERG_FAILED where no kernel does these parts together.
 */
int erg_stage_forward_op(struct erg_stage *stage, const struct erg_stage_place *place,
                         uint32_t parts, const struct erg_stage_rows *rows,
                         struct erg_stream *stream, struct erg_error *err);
int erg_stage_backward_op(struct erg_stage *stage, const struct erg_stage_place *place,
                          uint32_t parts, bool weights, const struct erg_stage_rows *rows,
                          struct erg_stream *stream, struct erg_error *err);

/* Recomputes tensors that were not kept, and the input of the gradient of the next weight: `part`
 * is one of ERG_MODEL_NORM_A, NORM_M and ACTIVATION. Nothing where it is kept. */
int erg_stage_again_op(struct erg_stage *stage, const struct erg_stage_place *place,
                       enum erg_model_op_id part, const struct erg_stage_rows *rows,
                       struct erg_stream *stream, struct erg_error *err);
/* Recomputes all tensors of a layer except its output from its input, where only the input is
 * kept. */
int erg_stage_layer_again(struct erg_stage *stage, const struct erg_stage_place *place,
                          struct erg_stream *stream, struct erg_error *err);

/* Queues a layer's exchange after such an operation: `part` is one of ERG_MODEL_REDUCE_A,
 * REDUCE_M, GATHER_A, GATHER_M, GATHER_KV and SCATTER_KV. Nothing where the ranks have nothing
 * to exchange. */
int erg_stage_exchange_op(struct erg_stage *stage, const struct erg_stage_place *place,
                          enum erg_model_op_id part, bool backward,
                          const struct erg_stage_rows *rows, struct erg_stream *stream,
                          struct erg_error *err);

/* The layers of a pass by a program. */
int erg_stage_run_program(struct erg_stage *stage, const struct erg_stage_pass *pass,
                          const struct erg_stage_program *program, bool backward,
                          const struct erg_stage_ends *ends,
                          const struct erg_stage_listener *listener, struct erg_stream *stream,
                          struct erg_error *err);

/* Attention of a layer whose keys and values have been gathered; backward from d_attn to d_qkv,
 * before the rotation. */
int erg_stage_attention(struct erg_stage *stage, const struct erg_stage_activations *act,
                        const struct erg_stage_rows *rows, struct erg_stream *stream,
                        struct erg_error *err);
int erg_stage_attention_gradient(struct erg_stage *stage, const struct erg_stage_activations *act,
                                 const struct erg_stage_rows *rows, struct erg_stream *stream,
                                 struct erg_error *err);

/* Context ranks: gather keys and values, and sum the gradients of all onto their owners. */
int erg_stage_gather_kv(struct erg_stage *stage, const struct erg_stage_activations *act,
                        const struct erg_stage_rows *rows, struct erg_stream *stream,
                        struct erg_error *err);
int erg_stage_scatter_kv(struct erg_stage *stage, const struct erg_stage_rows *rows,
                         struct erg_stream *stream, struct erg_error *err);

#endif
