/*
 * Stage: its tensors; private to stage*.c.
 *
 * T tokens of a microbatch, h the hidden size, Q = (H + 2G) e the width of queries, keys and
 * values, O = H e, F the width of the FFN, W the words with padding.
 */
#ifndef ERG_DECODER_STAGE_INTERNAL_H
#define ERG_DECODER_STAGE_INTERNAL_H

#include "decoder/decoder_stage.h"

/* What the forward pass of a layer keeps. */
struct erg_stage_activations {
    void *x_a;                /* [T, h] the stream before attention: the layer's input */
    void *n_a;                /* [T, h] */
    void *qkv;                /* [T, Q]; rotated in place unless heads are normalised */
    void *rotated;            /* [T, Q] queries and keys where heads are normalised; else qkv */
    void *attn;               /* [T, O] */
    void *x_m;                /* [T, h] the stream before the MLP */
    void *n_m;                /* [T, h] */
    void *fc1;                /* [T, 2F] gate and up, or [T, F] */
    void *act;                /* [T, F] */
    float *stats_a, *stats_m; /* [T], of LayerNorm [T, 2] */
    float *stats;             /* [T, H] of attention */
};

struct erg_stage_layer {
    void *values[ERG_LAYER_TENSORS]; /* NULL: the model has none */
    float *gradients[ERG_LAYER_TENSORS];
};

struct erg_stage {
    struct erg_stage_options options;
    const struct erg_model *model;
    struct erg_weights weights;
    void *memory;

    size_t tokens, sequence, hidden, ffn, fc1_width, heads, kv_heads, head_dim;
    size_t qkv_row, attn_row, values_at;   /* where values begin in a row of qkv */
    size_t words, valid_words, first_word; /* of this rank */
    size_t layers, element;

    void *values;
    float *all_gradients;
    struct erg_stage_layer *layer;
    struct erg_stage_activations *activations; /* [slots][layers] */
    void *embedding, *positions, *norm_final, *norm_final_bias, *head;
    float *d_embedding, *d_positions, *d_norm_final, *d_norm_final_bias, *d_head;

    /* Shared by all microbatches. */
    void *reduce;                    /* [T, h] what a half of a layer adds */
    void *output, *n_final, *logits; /* [T, h], [T, h], [T, W] */
    void *d_stream[2], *d_mid, *d_act, *d_fc1, *d_attn, *d_qkv; /* gradients of one layer */
    float *stats_final, *log_sum, *loss_stats, *rope_table;
    void *scratch;
    size_t scratch_bytes;
    bool measures; /* passes launch nothing, but find how much scratch their kernels need */
};

static inline void *erg_stage_at(const struct erg_stage *stage, void *tensor, size_t element)
{
    return (char *)tensor + element * stage->element;
}

static inline struct erg_ops_qkv erg_stage_qkv_shape(const struct erg_stage *stage)
{
    return (struct erg_ops_qkv){stage->tokens, stage->sequence, stage->heads, stage->kv_heads,
                                stage->head_dim};
}

static inline struct erg_ops_attention erg_stage_attention_shape(const struct erg_stage *stage)
{
    return (struct erg_ops_attention){(size_t)stage->options.sequences,
                                      stage->sequence,
                                      stage->sequence,
                                      stage->heads,
                                      stage->kv_heads,
                                      stage->head_dim,
                                      stage->qkv_row,
                                      stage->qkv_row,
                                      stage->qkv_row,
                                      stage->attn_row,
                                      true};
}

/* Queues a kernel. */
int erg_stage_launch(struct erg_stage *stage, const struct erg_kernel *kernel,
                     struct erg_stream *stream, struct erg_error *err);

#endif
