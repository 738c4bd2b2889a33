/* Decoder: allocates and fills weights, gradients and activations of layers on one GPU. */
#include "device/cuda/decoder_internal.h"

#include "base/memory.h"
#include "device/cuda/kernels.h"
#include "ops/context.h"

#include <stdlib.h>

/* ---- memory ---- */

int erg_decoder_take(struct erg_decoder *decoder, void *pointer, size_t bytes,
                     struct erg_error *err)
{
    void *memory;
    if (erg_cuda_alloc(&memory, bytes, err))
        return -1;
    *(void **)pointer = memory;
    ERG_PUSH(&decoder->memory, items, memory);
    return 0;
}

static void release_memory(struct erg_decoder *decoder)
{
    for (size_t i = 0; i < decoder->memory.count; i++)
        erg_cuda_free(decoder->memory.items[i]);
    free(decoder->memory.items);
}

static int take_rows(struct erg_decoder *decoder, erg_bf16 **tensor, size_t row,
                     struct erg_error *err)
{
    return erg_decoder_take(decoder, tensor, decoder->tokens * row * sizeof **tensor, err);
}

static void count_weights(struct erg_decoder *decoder)
{
    size_t h = decoder->hidden, norm = decoder->options.model->qk_norm ? decoder->head_dim : 0;
    size_t *counts = decoder->weight_counts;
    counts[ERG_WEIGHT_NORM_A] = counts[ERG_WEIGHT_NORM_M] = h;
    counts[ERG_WEIGHT_Q_NORM] = counts[ERG_WEIGHT_K_NORM] = norm;
    counts[ERG_WEIGHT_QKV] = decoder->qkv_row * h;
    counts[ERG_WEIGHT_PROJ] = h * decoder->attn_row;
    counts[ERG_WEIGHT_FC1] = 2 * decoder->ffn * h;
    counts[ERG_WEIGHT_FC2] = h * decoder->ffn;
}

static size_t rounded_up(size_t count) /* so that every tensor is aligned to at least 16 bytes */
{
    return (count + 127) / 128 * 128;
}

static bool is_vector(enum erg_decoder_weight weight)
{
    return weight == ERG_WEIGHT_NORM_A || weight == ERG_WEIGHT_NORM_M ||
           weight == ERG_WEIGHT_Q_NORM || weight == ERG_WEIGHT_K_NORM;
}

static int make_weights(struct erg_decoder *decoder, size_t index, struct erg_error *err)
{
    struct decoder_layer *layer = &decoder->layers[index];
    size_t total = 0;
    for (int i = 0; i < ERG_WEIGHTS; i++)
        total += rounded_up(decoder->weight_counts[i]);
    decoder->gradient_bytes = total * sizeof(float);
    erg_bf16 *weights;
    float *gradients;
    if (erg_decoder_take(decoder, &weights, total * sizeof *weights, err) ||
        erg_decoder_take(decoder, &gradients, decoder->gradient_bytes, err) ||
        erg_cuda_fill(gradients, 0, decoder->gradient_bytes, NULL, err))
        return -1;
    for (int i = 0; i < ERG_WEIGHTS; i++) {
        size_t count = decoder->weight_counts[i];
        if (!count)
            continue; /* NULL: not in the model */
        layer->weights[i] = weights;
        layer->gradients[i] = gradients;
        weights += rounded_up(count);
        gradients += rounded_up(count);
        bool vector = is_vector((enum erg_decoder_weight)i);
        /* The ranks' shares of a matrix differ; vectors are the same on all ranks. */
        uint64_t seed = decoder->options.seed + 1000 * index + 10 * (uint64_t)i;
        if (!vector)
            seed += (uint64_t)decoder_place(decoder, ERG_MESH_TENSOR) << 32;
        if (erg_cuda_random_normal(count, vector ? 1 : 0, vector ? 0 : 0.02F, seed,
                                   layer->weights[i], NULL, err))
            return -1;
    }
    return 0;
}

static int make_activations(struct erg_decoder *decoder, struct decoder_activations *act,
                            struct erg_error *err)
{
    size_t h = decoder->hidden, floats = decoder->tokens * sizeof(float);
    if (take_rows(decoder, &act->n_a, h, err) ||
        take_rows(decoder, &act->qkv, decoder->qkv_row, err) ||
        take_rows(decoder, &act->attn, decoder->attn_row, err) ||
        take_rows(decoder, &act->x_m, h, err) || take_rows(decoder, &act->n_m, h, err) ||
        take_rows(decoder, &act->gate_up, 2 * decoder->ffn, err) ||
        take_rows(decoder, &act->act, decoder->ffn, err) ||
        erg_decoder_take(decoder, &act->inv_a, floats, err) ||
        erg_decoder_take(decoder, &act->inv_m, floats, err) ||
        erg_decoder_take(decoder, &act->stats, floats * decoder->heads, err))
        return -1;
    act->rotated = act->qkv;
    return decoder->options.model->qk_norm
               ? take_rows(decoder, &act->rotated, decoder->qkv_row, err)
               : 0;
}

static int make_layers(struct erg_decoder *decoder, struct erg_error *err)
{
    size_t count = (size_t)decoder->options.layers;
    decoder->layers = erg_xcalloc(count, sizeof *decoder->layers);
    for (size_t i = 0; i < count; i++) {
        struct decoder_activations *act = &decoder->layers[i].act;
        if (i > 0 && decoder->options.replay)
            *act = decoder->layers[0].act;
        else if (make_activations(decoder, act, err))
            return -1;
        bool last = i + 1 == count;
        act->x_a = i == 0 ? decoder->input : decoder->reduce[DECODER_STREAM];
        if ((i > 0 && !last && take_rows(decoder, &act->x_a, decoder->hidden, err)) ||
            make_weights(decoder, i, err))
            return -1;
    }
    return 0;
}

static int make_reduces(struct erg_decoder *decoder, struct erg_error *err)
{
    for (int i = 0; i < DECODER_REDUCES; i++) {
        if (decoder_degree(decoder, ERG_MESH_TENSOR) == 1) {
            if (take_rows(decoder, &decoder->reduce[i], decoder->hidden, err))
                return -1;
            continue;
        }
        struct erg_collective_buffer *buffer = &decoder->buffers[i];
        if (erg_collective_buffer_init(buffer, decoder->options.mesh->groups[ERG_MESH_TENSOR],
                                       decoder->tokens * decoder->hidden * sizeof(erg_bf16), err))
            return -1;
        decoder->reduce[i] = buffer->memory;
    }
    decoder->input = decoder->reduce[DECODER_INPUT];
    if (decoder->options.middle && take_rows(decoder, &decoder->input, decoder->hidden, err))
        return -1;
    decoder->d_mid = decoder->reduce[DECODER_MID];
    decoder->output = decoder->reduce[DECODER_STREAM];
    return decoder->options.layers > 1 ? take_rows(decoder, &decoder->output, decoder->hidden, err)
                                       : 0;
}

static int fill_rope_table(struct erg_decoder *decoder, size_t bytes, struct erg_error *err)
{
    size_t context = decoder_degree(decoder, ERG_MESH_CONTEXT);
    int32_t *positions = context > 1 ? erg_xcalloc(decoder->sequence, sizeof *positions) : NULL;
    float *table = erg_xmalloc(bytes);
    if (positions)
        erg_context_positions((size_t)decoder->options.sequence, context,
                              decoder_place(decoder, ERG_MESH_CONTEXT), positions);
    erg_ops_rope_table(decoder->sequence, positions, decoder->head_dim,
                       decoder->options.model->rope_theta, &decoder->options.model->rope, table);
    int status = erg_cuda_copy(decoder->rope_table, table, bytes, NULL, err);
    free(table);
    free(positions);
    return status;
}

static int make_shared(struct erg_decoder *decoder, struct erg_error *err)
{
    size_t h = decoder->hidden, f = decoder->ffn;
    struct erg_ops_qkv shape = {decoder->tokens, decoder->sequence, decoder->heads,
                                decoder->kv_heads, decoder->head_dim};
    size_t scratch = erg_cuda_norm_backward_scratch(decoder->tokens, h);
    size_t rope_scratch = erg_cuda_rope_backward_scratch(&shape);
    if (rope_scratch > scratch)
        scratch = rope_scratch;
    size_t table_bytes = shape.sequence * shape.head_dim * sizeof(float);
    bool apart = decoder->options.model->qk_norm && decoder_degree(decoder, ERG_MESH_CONTEXT) > 1;
    if (take_rows(decoder, &decoder->d_output, h, err) ||
        (decoder->options.layers > 1 && take_rows(decoder, &decoder->d_out[0], h, err)) ||
        take_rows(decoder, &decoder->d_out[1], h, err) ||
        take_rows(decoder, &decoder->d_act, f, err) ||
        take_rows(decoder, &decoder->d_gate_up, 2 * f, err) ||
        take_rows(decoder, &decoder->d_attn, decoder->attn_row, err) ||
        take_rows(decoder, &decoder->d_qkv, decoder->qkv_row, err) ||
        (apart && take_rows(decoder, &decoder->d_rotated, decoder->qkv_row, err)) ||
        erg_decoder_take(decoder, &decoder->scratch, scratch, err) ||
        erg_decoder_take(decoder, &decoder->gemm_workspace, ERG_GEMM_WORKSPACE_BYTES, err) ||
        erg_decoder_take(decoder, &decoder->rope_table, table_bytes, err))
        return -1;
    if (!apart)
        decoder->d_rotated = decoder->d_qkv;
    return fill_rope_table(decoder, table_bytes, err);
}

/* Fills activations, so that gradients are meaningful even before a first forward pass. */
static int fill(struct erg_decoder *decoder, struct erg_error *err)
{
    size_t count = decoder->tokens * decoder->hidden;
    /* Context ranks have different tokens. */
    uint64_t seed =
        decoder->options.seed + ((uint64_t)decoder_place(decoder, ERG_MESH_CONTEXT) << 32);
    float stream = decoder->options.middle ? 4 : 1;
    return erg_cuda_random_normal(count, 0, stream, seed + 1, decoder->input, NULL, err) ||
                   erg_cuda_random_normal(count, 0, 1e-3F, seed + 2, decoder->d_output, NULL,
                                          err) ||
                   erg_cuda_random_normal(count, 0, 1e-3F, seed + 4, decoder->d_out[1], NULL,
                                          err) ||
                   erg_cuda_random_normal(count, 0, 1e-3F, seed + 3, decoder->d_mid, NULL, err)
               ? -1
               : 0;
}

/* ---- open and close ---- */

static int check_model(const struct erg_model *model, size_t tensor, struct erg_error *err)
{
    const char *lack = model->experts.count       ? "a mixture of experts"
                       : model->latent.keys       ? "keys and values from short rows (MLA)"
                       : model->layer_norm        ? "LayerNorm"
                       : !model->gated            ? "GELU"
                       : model->learned_positions ? "learned positions"
                       : model->qkv_bias || model->projection_bias || model->mlp_bias
                           ? "biases of linears"
                       : model->window ? "a sliding window of attention"
                                       : NULL;
    if ((size_t)model->kv_heads % tensor != 0)
        return erg_fail(err, ERG_INFEASIBLE,
                        "preparing %s for the GPU: its %ld KV groups are fewer than the tensor "
                        "degree of %zu, and groups that several GPUs share are not supported; "
                        "expected a tensor degree that divides them",
                        model->name, model->kv_heads, tensor);
    if (!lack)
        return 0;
    return erg_fail(err, ERG_INFEASIBLE,
                    "preparing %s for the GPU: it has %s, which has no kernel; "
                    "expected RMSNorm, rotary positions and SwiGLU without biases",
                    model->name, lack);
}

int erg_decoder_open(struct erg_decoder **out, const struct erg_decoder_options *options,
                     struct erg_error *err)
{
    const struct erg_model *model = options->model;
    struct erg_decoder *decoder = erg_xcalloc(1, sizeof *decoder);
    decoder->options = *options;
    decoder->single = (struct erg_mesh){.degrees = {1, 1}};
    if (!decoder->options.mesh)
        decoder->options.mesh = &decoder->single;
    size_t tensor = decoder_degree(decoder, ERG_MESH_TENSOR);
    if (check_model(model, tensor, err)) {
        free(decoder);
        return -1;
    }
    size_t context = decoder_degree(decoder, ERG_MESH_CONTEXT);
    decoder->sequence = (size_t)options->sequence / context;
    decoder->tokens = (size_t)options->sequences * decoder->sequence;
    decoder->hidden = (size_t)model->hidden;
    decoder->ffn = (size_t)model->ffn / tensor;
    decoder->heads = (size_t)model->heads / tensor;
    decoder->kv_heads = (size_t)model->kv_heads / tensor;
    decoder->head_dim = (size_t)model->head_dim;
    decoder->qkv_row = (decoder->heads + 2 * decoder->kv_heads) * decoder->head_dim;
    decoder->attn_row = decoder->heads * decoder->head_dim;
    count_weights(decoder);
    if (make_shared(decoder, err) || make_reduces(decoder, err) || make_layers(decoder, err) ||
        erg_decoder_make_vocabulary(decoder, err) || erg_decoder_make_attention(decoder, err) ||
        fill(decoder, err) || erg_cuda_stream_sync(NULL, err)) {
        struct erg_error ignored;
        erg_decoder_close(decoder, &ignored);
        return erg_fail_context(err,
                                "placing %d layers of %s and a microbatch of %d x %d tokens "
                                "on the GPU",
                                options->layers, model->name, options->sequences,
                                options->sequence);
    }
    *out = decoder;
    return 0;
}

int erg_decoder_close(struct erg_decoder *decoder, struct erg_error *err)
{
    if (!decoder)
        return 0;
    int status = erg_decoder_release_vocabulary(decoder, err);
    for (int i = 0; i < DECODER_REDUCES; i++)
        if (decoder->buffers[i].memory &&
            erg_collective_buffer_release(&decoder->buffers[i],
                                          decoder->options.mesh->groups[ERG_MESH_TENSOR], err))
            status = -1;
    if (erg_decoder_release_attention(decoder, err))
        status = -1;
    release_memory(decoder);
    free(decoder->layers);
    free(decoder);
    return status;
}

static struct decoder_rows rows_of(const struct erg_decoder *decoder, int first, int sequences)
{
    return (struct decoder_rows){(size_t)first * decoder->sequence,
                                 (size_t)sequences * decoder->sequence};
}

int erg_decoder_op(struct erg_decoder *decoder, size_t layer, const struct erg_op_code *code,
                   int first, const struct erg_decoder_launch *launch, struct erg_error *err)
{
    struct decoder_rows rows = rows_of(decoder, first, code->sequences);
    bool known = false;
    if (erg_decoder_vocabulary_op(decoder, code, rows, launch, &known, err))
        return -1;
    if (known)
        return 0;
    return code->backward ? erg_decoder_backward(decoder, layer, code, rows, launch, err)
                          : erg_decoder_forward(decoder, layer, code->parts, rows, launch, err);
}

/* The buffer of the result of an op of enum erg_model_op_id. */
static int buffer_of(int part)
{
    switch (part) {
    case ERG_MODEL_REDUCE_EMBEDDING:
        return DECODER_INPUT;
    case ERG_MODEL_REDUCE_M:
        return DECODER_REDUCE_M;
    case ERG_MODEL_BDA_M:
        return DECODER_STREAM;
    case ERG_MODEL_BDA_A:
        return DECODER_MID;
    default:
        return DECODER_REDUCE_A;
    }
}

int erg_decoder_comm(struct erg_decoder *decoder, size_t layer, const struct erg_comm *comm,
                     int first, int sms, struct CUstream_st *stream, struct erg_error *err)
{
    const struct erg_mesh *mesh = decoder->options.mesh;
    struct decoder_rows rows = rows_of(decoder, first, comm->sequences);
    if (comm->kind != ERG_COMM_ALLREDUCE)
        return erg_decoder_exchange(decoder, layer, comm, rows, sms, stream, err);
    struct erg_collective_part part = {
        .buffer = &decoder->buffers[buffer_of(comm->part)],
        .offset = rows.first * decoder->hidden,
        .count = rows.count * decoder->hidden,
    };
    struct erg_collective *who = (comm->library ? mesh->libraries : mesh->groups)[ERG_MESH_TENSOR];
    return erg_collective_all_reduce(who, ERG_COLLECTIVE_BF16, &part, comm->library ? 0 : sms,
                                     stream, err);
}

struct erg_decoder_ends erg_decoder_ends(const struct erg_decoder *decoder)
{
    return (struct erg_decoder_ends){
        .input = decoder->input,
        .output = decoder->output,
        .output_gradient = decoder->d_output,
        .input_gradient = decoder_input_gradient(decoder, 0),
        .loss = decoder->vocabulary.loss,
        .tokens = decoder->tokens,
        .hidden = decoder->hidden,
    };
}

int erg_decoder_layers(const struct erg_decoder *decoder)
{
    return decoder->options.layers;
}

struct erg_decoder_tensor erg_decoder_tensor(const struct erg_decoder *decoder, size_t layer,
                                             enum erg_decoder_weight weight)
{
    static const char *const names[ERG_ALL_WEIGHTS] = {
        "norm_a", "qkv", "q_norm",    "k_norm",     "proj", "norm_m",
        "fc1",    "fc2", "embedding", "norm_final", "head",
    };
    struct erg_decoder_tensor tensor = {.name = names[weight],
                                        .count = decoder->weight_counts[weight]};
    const struct decoder_vocabulary *vocabulary = &decoder->vocabulary;
    bool own = weight < ERG_WEIGHTS;
    tensor.weight =
        own ? decoder->layers[layer].weights[weight] : vocabulary->weights[weight - ERG_WEIGHTS];
    tensor.gradient = own ? decoder->layers[layer].gradients[weight]
                          : vocabulary->gradients[weight - ERG_WEIGHTS];
    return tensor;
}

int erg_decoder_clear_gradients(struct erg_decoder *decoder, struct CUstream_st *stream,
                                struct erg_error *err)
{
    for (int i = 0; i < decoder->options.layers; i++)
        if (erg_cuda_fill(decoder->layers[i].gradients[0], 0, decoder->gradient_bytes, stream, err))
            return -1;
    for (int i = ERG_WEIGHTS; i < ERG_ALL_WEIGHTS; i++)
        if (decoder->weight_counts[i] &&
            erg_cuda_fill(decoder->vocabulary.gradients[i - ERG_WEIGHTS], 0,
                          decoder->weight_counts[i] * sizeof(float), stream, err))
            return -1;
    return 0;
}
