/* Stage: its memory, and where everything lies in it. */
#include "decoder/stage_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>

enum { ALIGNMENT = 256 };

/* ---- what there is ---- */

int erg_stage_check(const struct erg_model *model, struct erg_error *err)
{
    const struct erg_rope *rope = &model->rope;
    const char *lack = model->window                     ? "a sliding window of attention"
                       : model->learned_positions        ? NULL
                       : rope->scaling == ERG_ROPE_YARN  ? "YaRN's scaling of positions"
                       : rope->scaling == ERG_ROPE_OTHER ? "a scaling of positions of its own"
                       : rope->queries_scaled            ? "queries scaled by their position"
                       : rope->rotated_share < 1         ? "heads that are rotated in part"
                                                         : NULL;
    if (!lack)
        return 0;
    return erg_fail(
        err, ERG_INFEASIBLE,
        "training %s: it has %s, which is not trained here; expected full causal attention "
        "and learned positions or rotary ones, unscaled, scaled linearly or as in Llama 3",
        model->name, lack);
}

static void measure(struct erg_stage *stage, const struct erg_stage_options *options)
{
    const struct erg_model *model = options->weights.model;
    size_t t = (size_t)options->weights.tensor, place = (size_t)options->weights.place;
    stage->options = *options;
    stage->model = model;
    stage->element = options->backend->element_bytes;
    stage->layers = (size_t)options->weights.layers;
    stage->sequence = (size_t)options->sequence;
    stage->tokens = (size_t)options->sequences * stage->sequence;
    stage->hidden = (size_t)model->hidden;
    stage->ffn = (size_t)model->ffn / t;
    stage->fc1_width = model->gated ? 2 * stage->ffn : stage->ffn;
    stage->heads = (size_t)model->heads / t;
    stage->kv_heads = (size_t)erg_model_local_kv_heads(model, options->weights.tensor);
    stage->head_dim = (size_t)model->head_dim;
    stage->qkv_row = (stage->heads + 2 * stage->kv_heads) * stage->head_dim;
    stage->values_at = (stage->heads + stage->kv_heads) * stage->head_dim;
    stage->attn_row = stage->heads * stage->head_dim;
    stage->words = (size_t)erg_model_padded_vocabulary(model, options->weights.tensor) / t;
    stage->first_word = place * stage->words;
    size_t vocabulary = (size_t)model->vocab;
    size_t rest = stage->first_word < vocabulary ? vocabulary - stage->first_word : 0;
    stage->valid_words = rest < stage->words ? rest : stage->words;
    erg_weights_init(&stage->weights, &options->weights);
    stage->layer = erg_xcalloc(stage->layers, sizeof *stage->layer);
    stage->activations = erg_xcalloc(options->slots * stage->layers, sizeof *stage->activations);
}

/* ---- memory ---- */

/* Takes the next bytes of the list; *pointer is where they lie, once there is memory. */
static void take(struct erg_stage *stage, struct erg_stage_memory *memory, void *pointer,
                 const char *name, size_t bytes)
{
    *(void **)pointer = stage->memory ? (char *)stage->memory + memory->bytes : NULL;
    ERG_PUSH(memory, items, (struct erg_stage_buffer){name, bytes, memory->bytes});
    memory->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void take_activations(struct erg_stage *stage, struct erg_stage_memory *memory,
                             struct erg_stage_activations *act)
{
    size_t rows = stage->tokens * stage->element, floats = stage->tokens * sizeof(float);
    size_t norm = floats * (stage->model->layer_norm ? 2 : 1), h = stage->hidden;
    take(stage, memory, &act->x_a, "layer input", rows * h);
    take(stage, memory, &act->n_a, "norm before attention", rows * h);
    take(stage, memory, &act->qkv, "queries, keys, values", rows * stage->qkv_row);
    act->rotated = act->qkv;
    if (stage->model->qk_norm)
        take(stage, memory, &act->rotated, "rotated queries and keys", rows * stage->qkv_row);
    take(stage, memory, &act->attn, "attention", rows * stage->attn_row);
    take(stage, memory, &act->x_m, "MLP input", rows * h);
    take(stage, memory, &act->n_m, "norm before MLP", rows * h);
    take(stage, memory, &act->fc1, "MLP's first product", rows * stage->fc1_width);
    take(stage, memory, &act->act, "MLP's activation", rows * stage->ffn);
    take(stage, memory, &act->stats_a, "statistics of norms", norm);
    take(stage, memory, &act->stats_m, "statistics of norms", norm);
    take(stage, memory, &act->stats, "statistics of attention", floats * stage->heads);
}

static void take_shared(struct erg_stage *stage, struct erg_stage_memory *memory)
{
    size_t rows = stage->tokens * stage->element, floats = stage->tokens * sizeof(float);
    size_t h = stage->hidden;
    take(stage, memory, &stage->reduce, "what a half of a layer adds", rows * h);
    take(stage, memory, &stage->output, "output", rows * h);
    take(stage, memory, &stage->d_stream[0], "gradients of the stream", rows * h);
    take(stage, memory, &stage->d_stream[1], "gradients of the stream", rows * h);
    take(stage, memory, &stage->d_mid, "gradients of the stream", rows * h);
    take(stage, memory, &stage->d_act, "gradients of the MLP", rows * stage->ffn);
    take(stage, memory, &stage->d_fc1, "gradients of the MLP", rows * stage->fc1_width);
    take(stage, memory, &stage->d_attn, "gradients of attention", rows * stage->attn_row);
    take(stage, memory, &stage->d_qkv, "gradients of attention", rows * stage->qkv_row);
    if (!stage->model->learned_positions)
        take(stage, memory, &stage->rope_table, "angles of positions",
             stage->sequence * stage->head_dim * sizeof(float));
    take(stage, memory, &stage->scratch, "scratch of kernels", stage->scratch_bytes);
    if (!stage->options.weights.head)
        return;
    take(stage, memory, &stage->n_final, "final norm", rows * h);
    take(stage, memory, &stage->stats_final, "statistics of norms",
         floats * (stage->model->layer_norm ? 2 : 1));
    take(stage, memory, &stage->logits, "logits", rows * stage->words);
    take(stage, memory, &stage->log_sum, "statistics of the loss", floats);
    take(stage, memory, &stage->loss_stats, "statistics of the loss",
         3 * floats * (size_t)stage->options.weights.tensor);
}

static void lay_out(struct erg_stage *stage, struct erg_stage_memory *memory)
{
    *memory = (struct erg_stage_memory){0};
    size_t elements = stage->weights.elements;
    take(stage, memory, &stage->values, "weights", elements * stage->element);
    take(stage, memory, &stage->all_gradients, "gradients", elements * sizeof(float));
    for (size_t i = 0; i < stage->options.slots * stage->layers; i++)
        take_activations(stage, memory, &stage->activations[i]);
    take_shared(stage, memory);
}

/* Where each weight lies; NULL where the model has none. */
static void find_weight(const struct erg_stage *stage, long layer, enum erg_tensor tensor,
                        void **value, float **gradient)
{
    const struct erg_weight *weight = erg_weights_find(&stage->weights, layer, tensor);
    *value = weight ? erg_stage_at(stage, stage->values, weight->offset) : NULL;
    *gradient = weight ? stage->all_gradients + weight->offset : NULL;
}

static void find_weights(struct erg_stage *stage)
{
    for (size_t i = 0; i < stage->layers; i++)
        for (int tensor = 0; tensor < ERG_LAYER_TENSORS; tensor++)
            find_weight(stage, stage->options.weights.first_layer + (long)i,
                        (enum erg_tensor)tensor, &stage->layer[i].values[tensor],
                        &stage->layer[i].gradients[tensor]);
    find_weight(stage, -1, ERG_TENSOR_EMBEDDING, &stage->embedding, &stage->d_embedding);
    find_weight(stage, -1, ERG_TENSOR_POSITIONS, &stage->positions, &stage->d_positions);
    find_weight(stage, -1, ERG_TENSOR_NORM_FINAL, &stage->norm_final, &stage->d_norm_final);
    find_weight(stage, -1, ERG_TENSOR_NORM_FINAL_BIAS, &stage->norm_final_bias,
                &stage->d_norm_final_bias);
    find_weight(stage, -1, ERG_TENSOR_HEAD, &stage->head, &stage->d_head);
}

static int measure_scratch(struct erg_stage *stage, struct erg_error *err);

static void stage_free(struct erg_stage *stage)
{
    erg_weights_release(&stage->weights);
    free(stage->layer);
    free(stage->activations);
    free(stage);
}

/* With its sizes, and no memory yet. */
static int stage_new(struct erg_stage **stage, const struct erg_stage_options *options,
                     struct erg_error *err)
{
    struct erg_stage *made = erg_xcalloc(1, sizeof *made);
    measure(made, options);
    *stage = made;
    return measure_scratch(made, err);
}

int erg_stage_memory(struct erg_stage_memory *memory, const struct erg_stage_options *options,
                     struct erg_error *err)
{
    struct erg_stage *stage;
    int result = stage_new(&stage, options, err);
    *memory = (struct erg_stage_memory){0};
    if (result == 0)
        lay_out(stage, memory);
    stage_free(stage);
    return result;
}

void erg_stage_memory_release(struct erg_stage_memory *memory)
{
    free(memory->items);
    *memory = (struct erg_stage_memory){0};
}

/* ---- scratch ---- */

int erg_stage_launch(struct erg_stage *stage, const struct erg_kernel *kernel,
                     struct erg_stream *stream, struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    size_t bytes;
    if (!stage->measures)
        return backend->table->launch(backend, kernel, stage->scratch, stream, err);
    if (backend->table->scratch_bytes(backend, kernel, &bytes, err) != 0)
        return -1;
    if (bytes > stage->scratch_bytes)
        stage->scratch_bytes = bytes;
    return 0;
}

/* How much scratch the kernels of both passes need. */
static int measure_scratch(struct erg_stage *stage, struct erg_error *err)
{
    static const int32_t any = 0; /* there are targets */
    struct erg_stage_tokens tokens = {.targets = &any};
    stage->measures = true;
    int result = erg_stage_forward(stage, 0, &tokens, NULL, err) ||
                         erg_stage_backward(stage, 0, &tokens, NULL, err)
                     ? -1
                     : 0;
    stage->measures = false;
    return result;
}

/* ---- opening ---- */

static int fill_rope_table(struct erg_stage *stage, struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    struct erg_stream *stream;
    size_t bytes = stage->sequence * stage->head_dim * sizeof(float);
    if (!stage->rope_table)
        return 0;
    float *table = erg_xmalloc(bytes);
    erg_ops_rope_table(stage->sequence, NULL, stage->head_dim, stage->model->rope_theta,
                       &stage->model->rope, table);
    int result = backend->table->stream_new(backend, &stream, err);
    if (result == 0) {
        result = backend->table->copy(backend, stage->rope_table, table, bytes, stream, err);
        if (result == 0)
            result = backend->table->stream_wait(backend, stream, err);
        backend->table->stream_free(backend, stream);
    }
    free(table);
    return result;
}

int erg_stage_open(struct erg_stage **out, const struct erg_stage_options *options,
                   struct erg_error *err)
{
    assert(options->slots >= 1 && options->weights.layers >= 1);
    if (erg_stage_check(options->weights.model, err) != 0)
        return -1;
    struct erg_stage *stage;
    struct erg_stage_memory memory;
    struct erg_backend *backend = options->backend;
    size_t bytes = 0;
    int result = stage_new(&stage, options, err);
    if (result == 0) {
        lay_out(stage, &memory);
        bytes = memory.bytes;
        erg_stage_memory_release(&memory);
        result = backend->table->alloc(backend, &stage->memory, bytes, err);
    }
    if (result == 0) {
        lay_out(stage, &memory);
        assert(memory.bytes == bytes);
        erg_stage_memory_release(&memory);
        find_weights(stage);
        result = fill_rope_table(stage, err);
    }
    if (result != 0) {
        erg_stage_close(stage);
        return -1;
    }
    *out = stage;
    return 0;
}

void erg_stage_close(struct erg_stage *stage)
{
    if (!stage)
        return;
    struct erg_backend *backend = stage->options.backend;
    if (stage->memory)
        backend->table->free(backend, stage->memory);
    stage_free(stage);
}

const struct erg_weights *erg_stage_weights(const struct erg_stage *stage)
{
    return &stage->weights;
}

void *erg_stage_values(const struct erg_stage *stage)
{
    return stage->values;
}

float *erg_stage_gradients(const struct erg_stage *stage)
{
    return stage->all_gradients;
}
