/*
 * Attention of a decoder: for whole sequences, or for this rank's two chunks of each with the keys
 * and values that context ranks exchange.
 */
#include "device/cuda/decoder_internal.h"

#include "device/cuda/kernels.h"
#include "ops/context.h"

/* ---- one call for each chunk ---- */

static size_t passes(const struct erg_decoder *decoder)
{
    return decoder_degree(decoder, ERG_MESH_CONTEXT) > 1 ? 2 : 1;
}

static struct erg_context_chunk chunk_of(const struct erg_decoder *decoder, size_t half)
{
    return erg_context_chunk((size_t)decoder->options.sequence,
                             decoder_degree(decoder, ERG_MESH_CONTEXT),
                             decoder_place(decoder, ERG_MESH_CONTEXT), (enum erg_context_half)half);
}

static struct erg_attention_shape shape_of(const struct erg_decoder *decoder, int64_t sequences,
                                           size_t half)
{
    struct erg_attention_shape shape =
        erg_attention_packed(sequences, (int64_t)decoder->heads, (int64_t)decoder->kv_heads,
                             (int64_t)decoder->head_dim, (int64_t)decoder->sequence);
    if (passes(decoder) == 1)
        return shape;
    struct erg_context_chunk chunk = chunk_of(decoder, half);
    int64_t row = (int64_t)decoder->exchange.row;
    shape.queries = (int64_t)chunk.count;
    shape.keys = (int64_t)chunk.keys;
    if (shape.keys > shape.queries)
        shape.mask = ERG_MASK_CAUSAL_LAST;
    shape.kv = (struct erg_attention_strides){decoder->options.sequence * row, row,
                                              (int64_t)decoder->head_dim};
    return shape;
}

/* Rows of one chunk; without context ranks, of all tokens. */
static struct erg_attention_buffers buffers_of(const struct erg_decoder *decoder,
                                               const struct decoder_activations *act,
                                               struct decoder_rows rows, size_t half)
{
    size_t row = decoder->qkv_row, k = decoder->heads * decoder->head_dim;
    size_t v = k + decoder->kv_heads * decoder->head_dim;
    size_t first = rows.first + half * decoder->sequence / 2;
    size_t stats = (half * decoder->tokens + rows.first) / passes(decoder);
    erg_bf16 *d_rotated = decoder->d_rotated + first * row;
    struct erg_attention_buffers buffers = {
        .q = act->rotated + first * row,
        .k = act->rotated + first * row + k,
        .v = act->qkv + first * row + v,
        .o = act->attn + first * decoder->attn_row,
        .stats = act->stats + stats * decoder->heads,
        .d_o = decoder->d_attn + first * decoder->attn_row,
        .dq = d_rotated,
        .dk = d_rotated + k,
        .dv = decoder->d_qkv + first * row + v,
    };
    if (passes(decoder) == 1)
        return buffers;
    const struct decoder_exchange *exchange = &decoder->exchange;
    size_t whole = (size_t)decoder->options.sequence;
    size_t at = rows.first / decoder->sequence * whole * exchange->row;
    erg_bf16 *kv = exchange->kv.memory, *d_kv = exchange->d_kv.memory, *d_low = exchange->d_low;
    buffers.k = kv + at;
    buffers.v = kv + exchange->values + at;
    buffers.dk = half == ERG_CONTEXT_HIGH ? d_kv + at : d_low + at;
    buffers.dv = half == ERG_CONTEXT_HIGH ? d_kv + exchange->values + at
                                          : d_low + at + whole / 2 * exchange->row;
    return buffers;
}

/* The high chunk sees all keys that the low one sees. */
static int add_low(struct erg_decoder *decoder, struct decoder_rows rows,
                   struct CUstream_st *stream, struct erg_error *err)
{
    const struct decoder_exchange *exchange = &decoder->exchange;
    size_t whole = (size_t)decoder->options.sequence * exchange->row;
    size_t sequences = rows.count / decoder->sequence;
    size_t at = rows.first / decoder->sequence * whole;
    size_t count = chunk_of(decoder, ERG_CONTEXT_LOW).keys * exchange->row;
    erg_bf16 *d_kv = exchange->d_kv.memory, *d_low = exchange->d_low;
    return erg_cuda_add_runs(sequences, count, d_low + at, whole, d_kv + at, whole, stream, err) ||
                   erg_cuda_add_runs(sequences, count, d_low + at + whole / 2, whole,
                                     d_kv + exchange->values + at, whole, stream, err)
               ? -1
               : 0;
}

int erg_decoder_attention(struct erg_decoder *decoder, const struct decoder_activations *act,
                          bool backward, struct decoder_rows rows,
                          const struct erg_decoder_launch *launch, struct erg_error *err)
{
    bool repeats = backward && decoder->repeats;
    const struct decoder_attention *made = repeats ? &decoder->repeatable : &decoder->attention;
    for (size_t half = 0; half < passes(decoder); half++) {
        struct erg_attention *attention = made->calls[rows.count != decoder->tokens][half];
        struct erg_attention_buffers buffers = buffers_of(decoder, act, rows, half);
        if ((backward ? erg_attention_backward
                      : erg_attention_forward)(attention, &buffers, made->workspace,
                                               repeats ? 0 : launch->sms, launch->stream, err))
            return -1;
    }
    return backward && passes(decoder) > 1 ? add_low(decoder, rows, launch->stream, err) : 0;
}

int erg_decoder_verify(struct erg_decoder *decoder, struct CUstream_st *stream,
                       struct erg_error *err)
{
    const struct decoder_activations *act = &decoder->layers[0].act;
    for (int batch = 0; batch < 2; batch++)
        for (size_t half = 0; half < passes(decoder); half++) {
            struct decoder_rows rows = {0, decoder->tokens >> batch};
            struct erg_attention *attention = decoder->attention.calls[batch][half];
            struct erg_attention_buffers buffers = buffers_of(decoder, act, rows, half);
            if (attention && erg_attention_verify(attention, &buffers, decoder->attention.workspace,
                                                  stream, err))
                return -1;
        }
    return 0;
}

/* ---- the exchange ---- */

/* This rank's keys (0) or values (1) of a chunk, as rows of the packed tensors. */
static erg_bf16 *own_rows(const struct erg_decoder *decoder, const struct decoder_activations *act,
                          bool gather, int which, size_t first_row)
{
    size_t column = (decoder->heads + (size_t)which * decoder->kv_heads) * decoder->head_dim;
    erg_bf16 *keys = gather ? act->rotated : decoder->d_rotated;
    erg_bf16 *values = gather ? act->qkv : decoder->d_qkv;
    return (which ? values : keys) + first_row * decoder->qkv_row + column;
}

int erg_decoder_exchange(struct erg_decoder *decoder, size_t layer, const struct erg_comm *comm,
                         struct decoder_rows rows, int sms, struct CUstream_st *stream,
                         struct erg_error *err)
{
    const struct erg_mesh *mesh = decoder->options.mesh;
    const struct decoder_activations *act = &decoder->layers[layer].act;
    const struct decoder_exchange *exchange = &decoder->exchange;
    bool gather = comm->kind == ERG_COMM_ALLGATHER_KV;
    size_t whole = (size_t)decoder->options.sequence * exchange->row;
    size_t chunk = decoder->sequence / 2;
    struct erg_collective_shards parts[4];
    for (int i = 0; i < 4; i++) {
        int which = i / 2, half = i % 2;
        parts[i] = (struct erg_collective_shards){
            .buffer = gather ? &exchange->kv : &exchange->d_kv,
            .offset = (size_t)which * exchange->values + rows.first / decoder->sequence * whole +
                      (size_t)half * whole / 2,
            .count = chunk * exchange->row,
            .pieces = rows.count / decoder->sequence,
            .stride = whole,
            .descending = half == ERG_CONTEXT_HIGH,
            .local = {own_rows(decoder, act, gather, which, rows.first + (size_t)half * chunk),
                      exchange->row, decoder->qkv_row},
            .local_rows = decoder->sequence,
        };
    }
    struct erg_collective *who = (comm->library ? mesh->libraries : mesh->groups)[ERG_MESH_CONTEXT];
    return (gather ? erg_collective_all_gather : erg_collective_reduce_scatter)(
        who, ERG_COLLECTIVE_BF16, parts, 4, comm->library ? 0 : sms, stream, err);
}

/* ---- making ---- */

static void release_attention(struct decoder_attention *made)
{
    for (int batch = 0; batch < 2; batch++)
        for (int half = 0; half < 2; half++) {
            erg_attention_free(made->calls[batch][half]);
            made->calls[batch][half] = NULL;
        }
}

static int make_exchange(struct erg_decoder *decoder, struct erg_error *err)
{
    struct decoder_exchange *exchange = &decoder->exchange;
    struct erg_collective *group = decoder->options.mesh->groups[ERG_MESH_CONTEXT];
    exchange->row = decoder->kv_heads * decoder->head_dim;
    exchange->values =
        (size_t)decoder->options.sequences * (size_t)decoder->options.sequence * exchange->row;
    size_t bytes = exchange->values * sizeof(erg_bf16);
    if (erg_collective_buffer_init(&exchange->kv, group, 2 * bytes, err) ||
        erg_collective_buffer_init(&exchange->d_kv, group, 2 * bytes, err))
        return -1;
    /* Gradients of keys that no query of this rank sees are never written, and stay zero. */
    return erg_cuda_fill(exchange->d_kv.memory, 0, 2 * bytes, NULL, err) ||
                   erg_decoder_take(decoder, &exchange->d_low, bytes, err)
               ? -1
               : 0;
}

/* Makes attention for the microbatch and half of it, with one workspace for all. */
static int make_attention(struct erg_decoder *decoder, struct decoder_attention *made,
                          bool repeatable, struct erg_error *err)
{
    size_t bytes = 0;
    for (int batch = 0; batch < 2; batch++) {
        if (batch && decoder->options.sequences % 2)
            break;
        for (size_t half = 0; half < passes(decoder); half++) {
            struct erg_attention **attention = &made->calls[batch][half];
            struct erg_attention_shape shape =
                shape_of(decoder, decoder->options.sequences >> batch, half);
            shape.repeatable = repeatable;
            if (erg_attention_new(attention, decoder->options.cudnn, &shape, err))
                return -1;
            size_t forward = erg_attention_forward_bytes(*attention);
            size_t backward = erg_attention_backward_bytes(*attention);
            if (forward > bytes)
                bytes = forward;
            if (backward > bytes)
                bytes = backward;
        }
    }
    return erg_decoder_take(decoder, &made->workspace, bytes, err);
}

int erg_decoder_make_attention(struct erg_decoder *decoder, struct erg_error *err)
{
    return (passes(decoder) > 1 && make_exchange(decoder, err)) ||
                   make_attention(decoder, &decoder->attention, false, err)
               ? -1
               : 0;
}

int erg_decoder_repeat(struct erg_decoder *decoder, bool repeatable, struct erg_error *err)
{
    struct decoder_attention *made = &decoder->repeatable;
    if (repeatable && !made->workspace && make_attention(decoder, made, true, err)) {
        release_attention(made);
        return -1;
    }
    decoder->repeats = repeatable;
    return 0;
}

int erg_decoder_release_attention(struct erg_decoder *decoder, struct erg_error *err)
{
    struct erg_collective *group = decoder->options.mesh->groups[ERG_MESH_CONTEXT];
    struct erg_collective_buffer *buffers[] = {&decoder->exchange.kv, &decoder->exchange.d_kv};
    int status = 0;
    for (int i = 0; i < 2; i++)
        if (buffers[i]->memory && erg_collective_buffer_release(buffers[i], group, err))
            status = -1;
    release_attention(&decoder->attention);
    release_attention(&decoder->repeatable);
    return status;
}
