/*
 * The parts of a decoder before and after its layers: the embedding, the final norm, the head and
 * the loss, split over the vocabulary.
 */
#include "device/cuda/decoder_internal.h"

#include "base/memory.h"
#include "base/random.h"
#include "device/cuda/kernels.h"

#include <stdlib.h>

#define PART(id) (1u << ERG_MODEL_##id)

enum { EXCHANGE_SMS = 4 }; /* statistics of the loss are 12 bytes a token */

/* ---- making ---- */

static int make_weight(struct erg_decoder *decoder, enum erg_decoder_weight weight, size_t count,
                       struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    erg_bf16 **values = &v->weights[weight - ERG_WEIGHTS];
    float **gradients = &v->gradients[weight - ERG_WEIGHTS];
    bool vector = weight == ERG_WEIGHT_NORM_FINAL;
    uint64_t seed = decoder->options.seed + 10 * (uint64_t)weight +
                    ((uint64_t)decoder_place(decoder, ERG_MESH_TENSOR) << 32) * !vector;
    decoder->weight_counts[weight] = count;
    return erg_decoder_take(decoder, values, count * sizeof **values, err) ||
                   erg_decoder_take(decoder, gradients, count * sizeof **gradients, err) ||
                   erg_cuda_fill(*gradients, 0, count * sizeof **gradients, NULL, err) ||
                   erg_cuda_random_normal(count, vector ? 1 : 0, vector ? 0 : 0.02F, seed, *values,
                                          NULL, err)
               ? -1
               : 0;
}

static int make_stats(struct erg_decoder *decoder, struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    size_t ranks = decoder_degree(decoder, ERG_MESH_TENSOR);
    size_t bytes = ranks * decoder->tokens * 3 * sizeof *v->stats;
    if (ranks == 1)
        return erg_decoder_take(decoder, &v->stats, bytes, err);
    if (erg_collective_buffer_init(&v->buffer, decoder->options.mesh->groups[ERG_MESH_TENSOR],
                                   bytes, err))
        return -1;
    v->stats = v->buffer.memory;
    return 0;
}

static int make_embedding(struct erg_decoder *decoder, struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    size_t bytes = decoder->tokens * sizeof *v->tokens;
    return make_weight(decoder, ERG_WEIGHT_EMBEDDING, v->ids * decoder->hidden, err) ||
                   erg_decoder_take(decoder, &v->tokens, bytes, err) ||
                   erg_decoder_take(decoder, &v->order, bytes, err)
               ? -1
               : 0;
}

/* The loss is the mean over the microbatch's tokens. */
static int make_scale(struct erg_decoder *decoder, struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    float scale = 1.0F / (float)(decoder->tokens * decoder_degree(decoder, ERG_MESH_CONTEXT));
    return erg_decoder_take(decoder, &v->scale, sizeof scale, err) ||
                   erg_cuda_copy(v->scale, &scale, sizeof scale, NULL, err)
               ? -1
               : 0;
}

static int make_head(struct erg_decoder *decoder, struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    size_t tokens = decoder->tokens, h = decoder->hidden;
    if (decoder->options.model->tied && decoder->options.embedding) {
        v->weights[ERG_WEIGHT_HEAD - ERG_WEIGHTS] = v->weights[ERG_WEIGHT_EMBEDDING - ERG_WEIGHTS];
        v->gradients[ERG_WEIGHT_HEAD - ERG_WEIGHTS] =
            v->gradients[ERG_WEIGHT_EMBEDDING - ERG_WEIGHTS];
        decoder->weight_counts[ERG_WEIGHT_HEAD] = v->ids * h;
    } else if (make_weight(decoder, ERG_WEIGHT_HEAD, v->ids * h, err)) {
        return -1;
    }
    return make_weight(decoder, ERG_WEIGHT_NORM_FINAL, h, err) ||
                   erg_decoder_take(decoder, &v->targets, tokens * sizeof *v->targets, err) ||
                   erg_decoder_take(decoder, &v->n_final, tokens * h * sizeof *v->n_final, err) ||
                   erg_decoder_take(decoder, &v->logits, tokens * v->ids * sizeof *v->logits,
                                    err) ||
                   erg_decoder_take(decoder, &v->inv_final, tokens * sizeof *v->inv_final, err) ||
                   erg_decoder_take(decoder, &v->log_sum, tokens * sizeof *v->log_sum, err) ||
                   erg_decoder_take(decoder, &v->loss, sizeof *v->loss, err) ||
                   erg_cuda_fill(v->loss, 0, sizeof *v->loss, NULL, err) ||
                   make_scale(decoder, err) || make_stats(decoder, err)
               ? -1
               : 0;
}

/* Random tokens, until the caller sets others. */
static int fill_tokens(struct erg_decoder *decoder, struct erg_error *err)
{
    int32_t *ids = erg_xcalloc(decoder->tokens, sizeof *ids);
    struct erg_rng rng;
    erg_rng_seed(&rng, decoder->options.seed + decoder_place(decoder, ERG_MESH_CONTEXT));
    for (size_t i = 0; i < decoder->tokens; i++)
        ids[i] = (int32_t)erg_rng_below(&rng, (uint64_t)decoder->options.model->vocab);
    int status = erg_decoder_set_tokens(decoder, ids, ids, NULL, err);
    free(ids);
    return status;
}

int erg_decoder_make_vocabulary(struct erg_decoder *decoder, struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    v->ids = (size_t)decoder->options.model->vocab / decoder_degree(decoder, ERG_MESH_TENSOR);
    v->first_id = v->ids * decoder_place(decoder, ERG_MESH_TENSOR);
    if ((decoder->options.embedding && make_embedding(decoder, err)) ||
        (decoder->options.head && make_head(decoder, err)))
        return -1;
    return fill_tokens(decoder, err);
}

int erg_decoder_release_vocabulary(struct erg_decoder *decoder, struct erg_error *err)
{
    struct erg_collective_buffer *buffer = &decoder->vocabulary.buffer;
    struct erg_collective *group = decoder->options.mesh->groups[ERG_MESH_TENSOR];
    return buffer->memory ? erg_collective_buffer_release(buffer, group, err) : 0;
}

/* ---- tokens ---- */

int erg_decoder_set_tokens(struct erg_decoder *decoder, const int32_t *ids, const int32_t *targets,
                           struct CUstream_st *stream, struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    size_t bytes = decoder->tokens * sizeof *ids;
    int status = 0;
    if (decoder->options.embedding) {
        /* A nanobatch's gradient needs only its own tokens, so each half is sorted separately. */
        int32_t *order = erg_xcalloc(decoder->tokens, sizeof *order);
        size_t half = decoder->options.sequences % 2 ? decoder->tokens : decoder->tokens / 2;
        for (size_t first = 0; first < decoder->tokens; first += half)
            erg_ops_embedding_order(half, ids + first, order + first);
        status = erg_cuda_copy(v->tokens, ids, bytes, stream, err) ||
                         erg_cuda_copy(v->order, order, bytes, stream, err) ||
                         erg_cuda_stream_sync(stream, err)
                     ? -1
                     : 0;
        free(order);
    }
    if (!status && decoder->options.head)
        status = erg_cuda_copy(v->targets, targets, bytes, stream, err);
    return status;
}

/* ---- ops ---- */

static int embedding_gradient(struct erg_decoder *decoder, struct decoder_rows rows,
                              const struct erg_decoder_launch *launch, struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    size_t half = decoder->options.sequences % 2 ? decoder->tokens : decoder->tokens / 2;
    for (size_t first = rows.first; first < rows.first + rows.count; first += half)
        if (erg_cuda_embedding_backward(
                half, decoder->hidden, v->first_id, v->ids, v->tokens + first, v->order + first,
                decoder_input_gradient(decoder, 0) + first * decoder->hidden,
                v->gradients[ERG_WEIGHT_EMBEDDING - ERG_WEIGHTS], launch->stream, err))
            return -1;
    return 0;
}

static int loss_forward(struct erg_decoder *decoder, struct decoder_rows rows,
                        const struct erg_decoder_launch *launch, struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    size_t ranks = decoder_degree(decoder, ERG_MESH_TENSOR);
    float *own = v->stats + decoder_place(decoder, ERG_MESH_TENSOR) * rows.count * 3;
    struct erg_collective *group = decoder->options.mesh->groups[ERG_MESH_TENSOR];
    struct erg_collective_shards part = {.buffer = &v->buffer, .count = rows.count * 3};
    return erg_cuda_loss_stats(rows.count, v->ids, v->ids, v->first_id, v->targets + rows.first,
                               v->logits + rows.first * v->ids, own, launch->stream, err) ||
                   (ranks > 1 && erg_collective_all_gather(group, ERG_COLLECTIVE_FLOAT, &part, 1,
                                                           EXCHANGE_SMS, launch->stream, err)) ||
                   erg_cuda_loss_combine(rows.count, ranks, v->targets + rows.first, v->stats,
                                         v->scale, v->log_sum + rows.first, v->loss, launch->stream,
                                         err)
               ? -1
               : 0;
}

static int head(struct erg_decoder *decoder, const struct erg_op_code *code,
                struct decoder_rows rows, const struct erg_decoder_launch *launch,
                struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    size_t h = decoder->hidden;
    erg_bf16 *n = v->n_final + rows.first * h, *logits = v->logits + rows.first * v->ids;
    erg_bf16 *weight = v->weights[ERG_WEIGHT_HEAD - ERG_WEIGHTS];
    if (!code->backward)
        return erg_decoder_product(decoder, ERG_GEMM_FORWARD, rows, h, v->ids, n, weight, logits,
                                   launch, err);
    if (code->weights)
        return erg_decoder_product(decoder, ERG_GEMM_WEIGHT_GRADIENT, rows, h, v->ids, n, logits,
                                   v->gradients[ERG_WEIGHT_HEAD - ERG_WEIGHTS], launch, err);
    return erg_decoder_product(decoder, ERG_GEMM_INPUT_GRADIENT, rows, h, v->ids, logits, weight,
                               decoder->reduce[DECODER_REDUCE_A] + rows.first * h, launch, err);
}

static int final_norm(struct erg_decoder *decoder, bool backward, struct decoder_rows rows,
                      const struct erg_decoder_launch *launch, struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    size_t h = decoder->hidden, at = rows.first * h;
    erg_bf16 *weight = v->weights[ERG_WEIGHT_NORM_FINAL - ERG_WEIGHTS];
    if (!backward)
        return erg_cuda_norm_forward(
            rows.count, h, (float)decoder->options.model->norm_eps, decoder->output + at, NULL,
            NULL, weight, NULL, v->n_final + at, v->inv_final + rows.first, launch->stream, err);
    return erg_cuda_norm_backward(
        rows.count, h, decoder->output + at, weight, v->inv_final + rows.first,
        decoder->reduce[DECODER_REDUCE_A] + at, NULL, decoder->d_output + at,
        v->gradients[ERG_WEIGHT_NORM_FINAL - ERG_WEIGHTS], decoder->scratch, launch->stream, err);
}

int erg_decoder_vocabulary_op(struct erg_decoder *decoder, const struct erg_op_code *code,
                              struct decoder_rows rows, const struct erg_decoder_launch *launch,
                              bool *known, struct erg_error *err)
{
    struct decoder_vocabulary *v = &decoder->vocabulary;
    bool embedding = code->parts == PART(EMBEDDING);
    *known = embedding || code->parts == PART(NORM_FINAL) || code->parts == PART(HEAD) ||
             code->parts == PART(LOSS);
    if (!*known)
        return 0;
    if (embedding ? !decoder->options.embedding : !decoder->options.head)
        return erg_fail(err, ERG_FAILED, "running the %s on the GPU: this stage has none",
                        embedding ? "embedding" : "head");
    switch (code->parts) {
    case PART(EMBEDDING):
        return code->backward
                   ? embedding_gradient(decoder, rows, launch, err)
                   : erg_cuda_embedding_forward(
                         rows.count, decoder->hidden, v->first_id, v->ids, v->tokens + rows.first,
                         v->weights[ERG_WEIGHT_EMBEDDING - ERG_WEIGHTS],
                         decoder->reduce[DECODER_INPUT] + rows.first * decoder->hidden,
                         launch->stream, err);
    case PART(NORM_FINAL):
        return final_norm(decoder, code->backward, rows, launch, err);
    case PART(HEAD):
        return head(decoder, code, rows, launch, err);
    default:
        return code->backward
                   ? erg_cuda_loss_backward(rows.count, v->ids, v->ids, v->first_id,
                                            v->targets + rows.first, v->log_sum + rows.first,
                                            v->scale, v->logits + rows.first * v->ids,
                                            launch->stream, err)
                   : loss_forward(decoder, rows, launch, err);
    }
}
