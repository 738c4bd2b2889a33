#include "device/cuda/decoder_internal.h"

#include "base/memory.h"
#include "device/cuda/kernels.h"
#include "device/cuda/random.h"

#include <stdlib.h>

/* ---- memory ---- */

int decoder_take(struct erg_decoder *decoder, void *pointer, size_t bytes, struct erg_error *err)
{
    void *memory;
    if (erg_cuda_alloc(&memory, bytes, err))
        return -1;
    *(void **)pointer = memory;
    ERG_PUSH(&decoder->memory, items, memory);
    return 0;
}

static int take_rows(struct erg_decoder *decoder, erg_bf16 **tensor, size_t row,
                     struct erg_error *err)
{
    return decoder_take(decoder, tensor, decoder->tokens * row * sizeof **tensor, err);
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

static size_t rounded_up(size_t count) /* so that every tensor is aligned to 16 bytes and more */
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
    if (decoder_take(decoder, &weights, total * sizeof *weights, err) ||
        decoder_take(decoder, &gradients, decoder->gradient_bytes, err) ||
        erg_cuda_fill(gradients, 0, decoder->gradient_bytes, NULL, err))
        return -1;
    for (int i = 0; i < ERG_WEIGHTS; i++) {
        size_t count = decoder->weight_counts[i];
        if (!count)
            continue; /* NULL says so */
        layer->weights[i] = weights;
        layer->gradients[i] = gradients;
        weights += rounded_up(count);
        gradients += rounded_up(count);
        bool vector = is_vector((enum erg_decoder_weight)i);
        /* The ranks' shares are different parts of one matrix, the vectors are the same. */
        uint64_t seed = decoder->options.seed + 1000 * index + 10 * (uint64_t)i;
        if (!vector)
            seed += (uint64_t)decoder->options.rank << 32;
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
        decoder_take(decoder, &act->inv_a, floats, err) ||
        decoder_take(decoder, &act->inv_m, floats, err) ||
        decoder_take(decoder, &act->stats, floats * decoder->heads, err))
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
        act->x_a = decoder->input;
        if ((i > 0 && take_rows(decoder, &act->x_a, decoder->hidden, err)) ||
            make_weights(decoder, i, err))
            return -1;
    }
    return 0;
}

static int make_reduces(struct erg_decoder *decoder, struct erg_error *err)
{
    for (int i = 0; i < DECODER_REDUCES; i++) {
        if (decoder->options.tensor == 1) {
            if (take_rows(decoder, &decoder->reduce[i], decoder->hidden, err))
                return -1;
            continue;
        }
        struct erg_collective_buffer *buffer = &decoder->buffers[i];
        if (erg_collective_buffer_init(buffer, decoder->options.group,
                                       decoder->tokens * decoder->hidden * sizeof(erg_bf16), err))
            return -1;
        decoder->reduce[i] = buffer->memory;
    }
    decoder->input = decoder->reduce[DECODER_INPUT];
    return 0;
}

static int make_shared(struct erg_decoder *decoder, struct erg_error *err)
{
    size_t h = decoder->hidden, f = decoder->ffn;
    struct erg_ops_qkv shape = {decoder->tokens, (size_t)decoder->options.sequence, decoder->heads,
                                decoder->kv_heads, decoder->head_dim};
    size_t scratch = erg_cuda_norm_backward_scratch(decoder->tokens, h);
    size_t rope_scratch = erg_cuda_rope_backward_scratch(&shape);
    if (rope_scratch > scratch)
        scratch = rope_scratch;
    size_t table_bytes = shape.sequence * shape.head_dim * sizeof(float);
    if (take_rows(decoder, &decoder->output, h, err) ||
        take_rows(decoder, &decoder->d_output, h, err) ||
        (decoder->options.layers > 1 && take_rows(decoder, &decoder->d_out[0], h, err)) ||
        take_rows(decoder, &decoder->d_out[1], h, err) ||
        take_rows(decoder, &decoder->d_mid, h, err) ||
        take_rows(decoder, &decoder->d_act, f, err) ||
        take_rows(decoder, &decoder->d_gate_up, 2 * f, err) ||
        take_rows(decoder, &decoder->d_attn, decoder->attn_row, err) ||
        take_rows(decoder, &decoder->d_qkv, decoder->qkv_row, err) ||
        decoder_take(decoder, &decoder->scratch, scratch, err) ||
        decoder_take(decoder, &decoder->gemm_workspace, ERG_GEMM_WORKSPACE_BYTES, err) ||
        decoder_take(decoder, &decoder->rope_table, table_bytes, err))
        return -1;
    float *table = erg_xmalloc(table_bytes);
    erg_ops_rope_table(shape.sequence, NULL, shape.head_dim, decoder->options.model->rope_theta,
                       table);
    int status = erg_cuda_copy(decoder->rope_table, table, table_bytes, NULL, err);
    free(table);
    return status;
}

static int make_attention(struct erg_decoder *decoder, struct erg_error *err)
{
    size_t bytes = 0;
    for (int half = 0; half < 2; half++) {
        if (half && decoder->options.sequences % 2)
            break;
        struct erg_attention_shape shape = erg_attention_packed(
            decoder->options.sequences >> half, (int64_t)decoder->heads, (int64_t)decoder->kv_heads,
            (int64_t)decoder->head_dim, decoder->options.sequence);
        if (erg_attention_new(&decoder->attention[half], decoder->options.cudnn, &shape, err))
            return -1;
        size_t forward = erg_attention_forward_bytes(decoder->attention[half]);
        size_t backward = erg_attention_backward_bytes(decoder->attention[half]);
        if (forward > bytes)
            bytes = forward;
        if (backward > bytes)
            bytes = backward;
    }
    return decoder_take(decoder, &decoder->workspace, bytes, err);
}

/* So that gradients are those of something before a first forward pass has been run, too. */
static int fill(struct erg_decoder *decoder, struct erg_error *err)
{
    size_t count = decoder->tokens * decoder->hidden;
    uint64_t seed = decoder->options.seed;
    return erg_cuda_random_normal(count, 0, 1, seed + 1, decoder->input, NULL, err) ||
                   erg_cuda_random_normal(count, 0, 1e-3F, seed + 2, decoder->d_output, NULL,
                                          err) ||
                   erg_cuda_random_normal(count, 0, 1e-3F, seed + 4, decoder->d_out[1], NULL,
                                          err) ||
                   erg_cuda_random_normal(count, 0, 1e-3F, seed + 3, decoder->d_mid, NULL, err)
               ? -1
               : 0;
}

/* ---- the door ---- */

static int check_model(const struct erg_model *model, struct erg_error *err)
{
    const char *lack = model->layer_norm          ? "LayerNorm"
                       : !model->gated            ? "GELU"
                       : model->learned_positions ? "learned positions"
                       : model->qkv_bias || model->projection_bias || model->mlp_bias
                           ? "biases of linears"
                       : model->window ? "a sliding window of attention"
                                       : NULL;
    if (!lack)
        return 0;
    return erg_fail(err, ERG_INFEASIBLE,
                    "preparing %s for the GPU: it has %s, for which there is no kernel yet; "
                    "expected RMSNorm, rotary positions and SwiGLU without biases",
                    model->name, lack);
}

int erg_decoder_open(struct erg_decoder **out, const struct erg_decoder_options *options,
                     struct erg_error *err)
{
    const struct erg_model *model = options->model;
    if (check_model(model, err))
        return -1;
    struct erg_decoder *decoder = erg_xcalloc(1, sizeof *decoder);
    size_t tensor = (size_t)options->tensor;
    decoder->options = *options;
    decoder->tokens = (size_t)options->sequences * (size_t)options->sequence;
    decoder->hidden = (size_t)model->hidden;
    decoder->ffn = (size_t)model->ffn / tensor;
    decoder->heads = (size_t)model->heads / tensor;
    decoder->kv_heads = (size_t)model->kv_heads / tensor;
    decoder->head_dim = (size_t)model->head_dim;
    decoder->qkv_row = (decoder->heads + 2 * decoder->kv_heads) * decoder->head_dim;
    decoder->attn_row = decoder->heads * decoder->head_dim;
    count_weights(decoder);
    if (make_shared(decoder, err) || make_reduces(decoder, err) || make_layers(decoder, err) ||
        decoder_make_vocabulary(decoder, err) || make_attention(decoder, err) ||
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
    int status = decoder_release_vocabulary(decoder, err);
    for (int i = 0; i < DECODER_REDUCES; i++)
        if (decoder->buffers[i].memory &&
            erg_collective_buffer_release(&decoder->buffers[i], decoder->options.group, err))
            status = -1;
    for (int i = 0; i < 2; i++)
        erg_attention_free(decoder->attention[i]);
    for (size_t i = 0; i < decoder->memory.count; i++)
        erg_cuda_free(decoder->memory.items[i]);
    free(decoder->memory.items);
    free(decoder->layers);
    free(decoder);
    return status;
}

int erg_decoder_op(struct erg_decoder *decoder, size_t layer, const struct erg_op_code *code,
                   int first, const struct erg_decoder_launch *launch, struct erg_error *err)
{
    size_t sequence = (size_t)decoder->options.sequence;
    struct decoder_rows rows = {(size_t)first * sequence, (size_t)code->sequences * sequence};
    bool known = false;
    if (decoder_vocabulary_op(decoder, code, rows, launch, &known, err))
        return -1;
    if (known)
        return 0;
    return code->backward ? decoder_backward(decoder, layer, code, rows, launch, err)
                          : decoder_forward(decoder, layer, code->parts, rows, launch, err);
}

int erg_decoder_comm(struct erg_decoder *decoder, const struct erg_comm *comm, int first, int sms,
                     struct CUstream_st *stream, struct erg_error *err)
{
    if (comm->kind != ERG_COMM_ALLREDUCE)
        return erg_fail(err, ERG_INFEASIBLE,
                        "running a communication on the GPU: only the AllReduce of tensor "
                        "parallelism is done there yet");
    size_t row = (size_t)decoder->options.sequence * decoder->hidden;
    int which = comm->part == ERG_MODEL_REDUCE_EMBEDDING ? DECODER_INPUT
                : comm->part == ERG_MODEL_REDUCE_M       ? DECODER_REDUCE_M
                                                         : DECODER_REDUCE_A;
    struct erg_collective_part part = {
        .buffer = &decoder->buffers[which],
        .offset = (size_t)first * row,
        .count = (size_t)comm->sequences * row,
    };
    struct erg_collective *who = comm->library ? decoder->options.library : decoder->options.group;
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
