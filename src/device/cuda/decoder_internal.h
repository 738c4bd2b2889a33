/*
 * Decoder: its tensors; private to decoder*.c.
 *
 * T tokens of the microbatch on this rank, h the hidden size, Q = (heads + 2 KV groups) d / t, O =
 * heads d / t, F = FFN / t, K = KV groups d / t; c context ranks.
 */
#ifndef ERG_CUDA_DECODER_INTERNAL_H
#define ERG_CUDA_DECODER_INTERNAL_H

#include "device/cuda/decoder.h"

struct decoder_activations {
    erg_bf16 *x_a;     /* [T, h] the residual stream before the attention: the layer's input */
    erg_bf16 *n_a;     /* [T, h] normalised */
    erg_bf16 *qkv;     /* [T, Q]; rotated in place unless heads are normalised */
    erg_bf16 *rotated; /* [T, Q] queries and keys, if heads are normalised; otherwise qkv */
    erg_bf16 *attn;    /* [T, O] */
    erg_bf16 *x_m;     /* [T, h] the residual stream before the MLP */
    erg_bf16 *n_m;     /* [T, h] normalised */
    erg_bf16 *gate_up; /* [T, 2F] */
    erg_bf16 *act;     /* [T, F] */
    float *inv_a, *inv_m;
    float *stats; /* for the low chunks of all sequences, then the high ones (c > 1) */
};

struct decoder_layer {
    erg_bf16 *weights[ERG_WEIGHTS]; /* NULL: the model has none */
    float *gradients[ERG_WEIGHTS];
    struct decoder_activations act;
};

/*
 * Tensors that the ranks sum: outputs and input gradients of the two halves of a layer; embeddings.
 * The last two are only for measurements of a partition that computes none of these (executor.c).
 */
enum {
    DECODER_REDUCE_A,
    DECODER_REDUCE_M,
    DECODER_INPUT,  /* input of the layers, too, except with the option `middle` */
    DECODER_STREAM, /* the result of the sum that opens the last layer, in the steady state */
    DECODER_MID,    /* gradient of the stream between the halves of a layer */
    DECODER_REDUCES
};

/* Keys, then values [sequences, S, K] of whole sequences, and their gradients (c > 1). */
struct decoder_exchange {
    struct erg_collective_buffer kv, d_kv;
    erg_bf16 *d_low;    /* the low chunk's addend: keys, then values, each [S, K] */
    size_t row, values; /* K; offset of the values */
};

/*
 * The parts before and after the layers; vocabulary rows [first_id, first_id + ids) are this
 * rank's.
 */
struct decoder_vocabulary {
    size_t first_id, ids;
    erg_bf16 *weights[ERG_ALL_WEIGHTS - ERG_WEIGHTS];
    float *gradients[ERG_ALL_WEIGHTS - ERG_WEIGHTS];
    int32_t *tokens, *order, *targets;         /* [T] */
    erg_bf16 *n_final;                         /* [T, h] */
    erg_bf16 *logits;                          /* [T, ids], then their gradients */
    float *inv_final, *log_sum, *loss, *scale; /* scale: of the loss */
    float *stats; /* [ranks, T, 3]; with several ranks: memory of the buffer */
    struct erg_collective_buffer buffer;
};

struct decoder_attention {
    /*
     * Plans for the microbatch and for half of it (or NULL), for each chunk (c = 1: only the first
     * one).
     */
    struct erg_attention *calls[2][2];
    void *workspace;
};

struct erg_decoder {
    struct erg_decoder_options options; /* with a mesh */
    struct erg_mesh single;             /* if none was given */
    size_t tokens, sequence;            /* of this rank, per microbatch and per sequence */
    size_t hidden, ffn, heads, kv_heads, head_dim, qkv_row, attn_row;
    struct decoder_layer *layers;
    size_t weight_counts[ERG_ALL_WEIGHTS];
    size_t gradient_bytes; /* of a layer; contiguous, from the first one on */

    struct decoder_vocabulary vocabulary;
    erg_bf16 *input, *output;
    /* Gradients of one layer at a time: of the stream between its halves, … */
    erg_bf16 *d_mid, *d_act, *d_gate_up, *d_attn, *d_qkv;
    /*
     * Gradients of rotated queries and keys: d_qkv itself, except for normalised heads with context
     * ranks. There a partition rotates back data that another partition has written; repeated in
     * place, the data would grow without bounds.
     */
    erg_bf16 *d_rotated;
    erg_bf16 *d_output; /* of the last layer: repeated instructions do not change it */
    erg_bf16 *d_out[2]; /* of the others, alternately: a layer reads one and writes the other */
    erg_bf16 *reduce[DECODER_REDUCES]; /* [T, h]; with several ranks: memory of the buffers below */
    struct erg_collective_buffer buffers[DECODER_REDUCES];
    struct decoder_exchange exchange;
    float *rope_table;
    void *scratch, *gemm_workspace;                 /* of kernels; of products */
    struct decoder_attention attention, repeatable; /* repeatable: made at its first use */
    bool repeats;                                   /* the backward uses `repeatable` */

    struct {
        void **items;
        size_t count, capacity;
    } memory; /* everything allocated */
};

/* Rows of the sequences [first, first + count). */
struct decoder_rows {
    size_t first, count;
};

/* The gradients of a layer's output and of its input. A repeated measurement must not read its own
 * output, which would grow without bounds. */
static inline erg_bf16 *decoder_output_gradient(const struct erg_decoder *decoder, size_t layer)
{
    size_t above = (size_t)decoder->options.layers - 1 - layer;
    return above ? decoder->d_out[above % 2] : decoder->d_output;
}

static inline erg_bf16 *decoder_input_gradient(const struct erg_decoder *decoder, size_t layer)
{
    return decoder->d_out[((size_t)decoder->options.layers - layer) % 2];
}

int erg_decoder_forward(struct erg_decoder *decoder, size_t layer, unsigned parts,
                        struct decoder_rows rows, const struct erg_decoder_launch *launch,
                        struct erg_error *err);
int erg_decoder_backward(struct erg_decoder *decoder, size_t layer, const struct erg_op_code *code,
                         struct decoder_rows rows, const struct erg_decoder_launch *launch,
                         struct erg_error *err);
/* Runs ops of the embedding, the head and the loss; *known: whether the op was one. */
int erg_decoder_vocabulary_op(struct erg_decoder *decoder, const struct erg_op_code *code,
                              struct decoder_rows rows, const struct erg_decoder_launch *launch,
                              bool *known, struct erg_error *err);
int erg_decoder_make_vocabulary(struct erg_decoder *decoder, struct erg_error *err);
int erg_decoder_release_vocabulary(struct erg_decoder *decoder, struct erg_error *err);

/* Allocates memory that is freed with the decoder; `pointer`: the address of any pointer. */
int erg_decoder_take(struct erg_decoder *decoder, void *pointer, size_t bytes,
                     struct erg_error *err);

int erg_decoder_product(struct erg_decoder *decoder, enum erg_gemm_kind kind,
                        struct decoder_rows rows, size_t inputs, size_t outputs, const void *a,
                        const void *b, void *c, const struct erg_decoder_launch *launch,
                        struct erg_error *err);

/* decoder_attention.c */
int erg_decoder_make_attention(struct erg_decoder *decoder, struct erg_error *err);
int erg_decoder_release_attention(struct erg_decoder *decoder, struct erg_error *err);
int erg_decoder_attention(struct erg_decoder *decoder, const struct decoder_activations *act,
                          bool backward, struct decoder_rows rows,
                          const struct erg_decoder_launch *launch, struct erg_error *err);
int erg_decoder_exchange(struct erg_decoder *decoder, size_t layer, const struct erg_comm *comm,
                         struct decoder_rows rows, int sms, struct CUstream_st *stream,
                         struct erg_error *err);

static inline size_t decoder_degree(const struct erg_decoder *decoder, enum erg_mesh_axis axis)
{
    return (size_t)decoder->options.mesh->degrees[axis];
}

static inline size_t decoder_place(const struct erg_decoder *decoder, enum erg_mesh_axis axis)
{
    return (size_t)decoder->options.mesh->places[axis];
}

#endif
