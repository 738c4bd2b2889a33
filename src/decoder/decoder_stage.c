/* Stage: its sizes, its weights, its exchanges. */
#include "decoder/stage_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- properties ---- */

int erg_stage_check(const struct erg_model *model, struct erg_error *err)
{
    const struct erg_rope *rope = &model->rope;
    /* A window is at least as long as the job's sequence (erg_model_check_sequence()). */
    const char *lack = model->own_scores
                           ? "scores of attention that are scaled in a way of their own"
                       : model->experts.count            ? "a mixture of experts"
                       : model->latent.keys              ? "keys and values from short rows (MLA)"
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
        "training %s: it has %s, which is not trained here; expected dense layers, causal "
        "attention whose scores are scaled by the root of a head's width, and learned positions or "
        "rotary ones, unscaled, scaled linearly or as in Llama 3",
        model->name, lack);
}

/* ---- sizes ---- */

static void copy_chunks(struct erg_stage *stage)
{
    struct erg_weights_request *request = &stage->options.weights;
    stage->chunks = erg_xcalloc(request->chunk_count, sizeof *stage->chunks);
    stage->chunk_first = erg_xcalloc(request->chunk_count, sizeof *stage->chunk_first);
    for (size_t i = 0; i < request->chunk_count; i++) {
        stage->chunks[i] = request->chunks[i];
        stage->chunk_first[i] = stage->layers;
        stage->layers += (size_t)request->chunks[i].count;
    }
    request->chunks = stage->chunks;
}

static void take_widths(struct erg_stage *stage, const struct erg_stage_options *options)
{
    const struct erg_weights_request *request = &options->weights;
    const struct erg_static_shape shape = {.model = request->model,
                                           .tensor = request->tensor,
                                           .context = options->context,
                                           .sequences = options->sequences,
                                           .sequence = options->sequence,
                                           .sequence_parallel = options->sequence_parallel};
    const struct erg_stage_widths widths = erg_stage_widths_of(&shape);
    stage->sequence = widths.sequence;
    stage->tokens = widths.tokens;
    stage->rows = widths.rows;
    stage->hidden = widths.hidden;
    stage->ffn = widths.ffn;
    stage->fc1_width = widths.fc1;
    stage->heads = widths.heads;
    stage->kv_heads = widths.kv_heads;
    stage->head_dim = widths.head_dim;
    stage->qkv_row = widths.qkv;
    stage->values_at = (widths.heads + widths.kv_heads) * widths.head_dim;
    stage->attn_row = widths.attention;
    stage->words = widths.words;
    stage->positions_count = widths.positions;
    /* Rows of both halves have the same positions. */
    if (options->sequence_parallel && options->halves && widths.rows / 2 < widths.positions)
        stage->positions_count = widths.rows / 2;
}

static void measure(struct erg_stage *stage, const struct erg_stage_options *options)
{
    const struct erg_model *model = options->weights.model;
    stage->options = *options;
    copy_chunks(stage);
    stage->model = model;
    stage->element = options->backend->element_bytes;
    stage->ranks = (size_t)options->weights.tensor;
    stage->context = (size_t)options->context;
    take_widths(stage, options);
    stage->first_word = (size_t)options->weights.place * stage->words;
    size_t vocabulary = (size_t)erg_model_words(model);
    size_t rest = stage->first_word < vocabulary ? vocabulary - stage->first_word : 0;
    stage->valid_words = rest < stage->words ? rest : stage->words;
    erg_weights_init(&stage->weights, &stage->options.weights);
    stage->layer = erg_xcalloc(stage->layers, sizeof *stage->layer);
    const struct erg_stage_room *room = &options->room;
    stage->sets = erg_xcalloc(room->passes + room->layers, sizeof *stage->sets);
    stage->head_sets = erg_xcalloc(room->heads + 1, sizeof *stage->head_sets);
    stage->passes = erg_xcalloc(room->inputs, sizeof *stage->passes);
    for (size_t i = 0; i < room->inputs; i++)
        stage->passes[i].layers = erg_xcalloc(stage->layers, sizeof *stage->passes[i].layers);
}

/* ---- weights ---- */

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
    struct erg_stage_layer *layer = stage->layer;
    for (size_t c = 0; c < stage->options.weights.chunk_count; c++)
        for (long i = 0; i < stage->chunks[c].count; i++, layer++)
            for (int tensor = 0; tensor < ERG_LAYER_TENSORS; tensor++)
                find_weight(stage, stage->chunks[c].first + i, (enum erg_tensor)tensor,
                            &layer->values[tensor], &layer->gradients[tensor]);
    find_weight(stage, -1, ERG_TENSOR_EMBEDDING, &stage->embedding, &stage->d_embedding);
    find_weight(stage, -1, ERG_TENSOR_POSITIONS, &stage->positions, &stage->d_positions);
    find_weight(stage, -1, ERG_TENSOR_NORM_FINAL, &stage->norm_final, &stage->d_norm_final);
    find_weight(stage, -1, ERG_TENSOR_NORM_FINAL_BIAS, &stage->norm_final_bias,
                &stage->d_norm_final_bias);
    find_weight(stage, -1, ERG_TENSOR_HEAD, &stage->head, &stage->d_head);
}

static int open_streams(struct erg_stage *stage, struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    return backend->table->stream_new(backend, &stage->comm, true, err) ||
                   backend->table->event_new(backend, &stage->launched, false, err) ||
                   backend->table->event_new(backend, &stage->exchanged, false, err)
               ? -1
               : 0;
}

static void close_streams(struct erg_stage *stage)
{
    struct erg_backend *backend = stage->options.backend;
    if (stage->launched)
        backend->table->event_free(backend, stage->launched);
    if (stage->exchanged)
        backend->table->event_free(backend, stage->exchanged);
    backend->table->stream_free(backend, stage->comm);
}

static void stage_free(struct erg_stage *stage)
{
    close_streams(stage);
    for (size_t i = 0; i < stage->options.room.inputs; i++)
        free(stage->passes[i].layers);
    free(stage->passes);
    free(stage->slots);
    free(stage->head_sets);
    free(stage->sets);
    free(stage->layer);
    free(stage->chunk_first);
    free(stage->chunks);
    free(stage->chosen.items);
    erg_weights_release(&stage->weights);
    free(stage);
}

/* With its sizes, and no memory yet. */
static struct erg_stage *stage_new(const struct erg_stage_options *options)
{
    struct erg_stage *stage = erg_xcalloc(1, sizeof *stage);
    measure(stage, options);
    return stage;
}

/* Has its passes ask the device of their kernels, in a mode that queues nothing. */
static int ask_device(struct erg_stage *stage, enum erg_stage_mode mode, struct erg_error *err)
{
    static const int32_t any = 0; /* there are targets */
    struct erg_stage_tokens tokens = {.targets = &any};
    /* Their results are not used; kernels for weights that a model lacks are left out. */
    stage->values = stage->all_gradients = (void *)(uintptr_t)ERG_STATIC_ALIGNMENT;
    find_weights(stage);
    return erg_stage_run_ends(stage, mode, &tokens, NULL, err);
}

int erg_stage_scratch(size_t *bytes, const struct erg_stage_options *options, struct erg_error *err)
{
    struct erg_stage *stage = stage_new(options);
    int result = ask_device(stage, ERG_STAGE_MEASURES, err);
    *bytes = stage->scratch_bytes;
    stage_free(stage);
    return result;
}

int erg_stage_choose(const struct erg_stage_options *options, struct erg_error *err)
{
    if (!options->backend->table->choose)
        return 0;
    struct erg_stage *stage = stage_new(options);
    int result = ask_device(stage, ERG_STAGE_CHOOSES, err);
    stage_free(stage);
    return result;
}

/* ---- passes ---- */

int erg_stage_tell(const struct erg_stage *stage, const struct erg_stage_listener *listener,
                   enum erg_bucket_kind kind, long layer, struct erg_error *err)
{
    for (size_t i = 0; listener && i < stage->weights.buckets.count; i++) {
        const struct erg_weight_bucket *bucket = &stage->weights.buckets.items[i];
        if (bucket->kind == kind && (kind != ERG_BUCKET_LAYER || bucket->layer == layer) &&
            listener->call(listener->context, i, err))
            return -1;
    }
    return 0;
}

size_t erg_stage_message(const struct erg_stage *stage)
{
    return stage->rows * stage->hidden;
}

struct erg_stage_place erg_stage_place_of(const struct erg_stage *stage,
                                          const struct erg_stage_pass *pass, size_t index,
                                          const struct erg_stage_ends *ends)
{
    const size_t count = (size_t)stage->chunks[pass->chunk].count, above = count - 1 - index;
    assert(index < count);
    struct erg_stage_layer *layers = &stage->layer[stage->chunk_first[pass->chunk]];
    return (struct erg_stage_place){
        .layer = &layers[index],
        .before = index ? &layers[index - 1] : NULL,
        .act = pass->layers[index],
        .x_m_before = index ? pass->layers[index - 1]->x_m : NULL,
        .output = above ? NULL : ends->output,
        /* Two buffers by turns: a layer reads one and writes the other. */
        .d_out = above ? stage->d_stream[above % 2] : ends->d_output,
        .d_in = index || !ends->d_input ? stage->d_stream[(above + 1) % 2] : ends->d_input,
    };
}

/* ---- opening ---- */

/* Copies the host's values, and waits. */
static int copy_in(struct erg_stage *stage, void *to, const void *from, size_t bytes,
                   struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    struct erg_stream *stream;
    if (backend->table->stream_new(backend, &stream, false, err) != 0)
        return -1;
    int result = erg_backend_copy_now(backend, to, from, bytes, stream, err);
    backend->table->stream_free(backend, stream);
    return result;
}

/* Where positions are learned, which one each row of the stream has: `all` of a sequence's tokens
 * repeat, and under sequence parallelism the rank's rows begin somewhere in there. */
static int fill_places(struct erg_stage *stage, const int32_t *all, struct erg_error *err)
{
    const size_t count = stage->positions_count;
    const size_t shares = stage->options.halves ? 2 : 1;
    size_t first = 0;
    if (stage->options.sequence_parallel)
        first = (size_t)stage->options.weights.place * stage->rows / shares;
    int32_t *places = erg_xcalloc(count, sizeof *places);
    for (size_t i = 0; i < count; i++)
        places[i] = all[(first + i) % stage->sequence];
    int result = copy_in(stage, stage->place_of, places, count * sizeof *places, err);
    free(places);
    return result;
}

/* Angles and positions. */
static int fill_positions(struct erg_stage *stage, struct erg_error *err)
{
    size_t bytes = stage->sequence * stage->head_dim * sizeof(float);
    int32_t *positions = erg_xcalloc(stage->sequence, sizeof *positions);
    if (stage->context > 1)
        erg_context_positions((size_t)stage->options.sequence, stage->context,
                              (size_t)stage->options.context_place, positions);
    else
        for (size_t i = 0; i < stage->sequence; i++)
            positions[i] = (int32_t)i;
    int result = 0;
    if (stage->rope_table) {
        float *table = erg_xmalloc(bytes);
        erg_ops_rope_table(stage->sequence, positions, stage->head_dim, stage->model->rope_theta,
                           &stage->model->rope, table);
        result = copy_in(stage, stage->rope_table, table, bytes, err);
        free(table);
    }
    if (result == 0 && stage->place_of)
        result = fill_places(stage, positions, err);
    free(positions);
    return result;
}

int erg_stage_open(struct erg_stage **out, const struct erg_stage_options *options,
                   const struct erg_static_memory *buffers, void *memory, struct erg_error *err)
{
    assert(options->room.passes >= 1 && options->room.inputs >= options->room.passes);
    if (erg_stage_check(options->weights.model, err) != 0)
        return -1;
    struct erg_stage *stage = stage_new(options);
    int result = ask_device(stage, ERG_STAGE_MEASURES, err);
    if (result == 0) {
        stage->buffers = buffers;
        stage->memory = memory;
        erg_stage_place_all(stage);
        find_weights(stage);
        result = open_streams(stage, err) || fill_positions(stage, err) ? -1 : 0;
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
    if (stage)
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

/* Whether a pass writes a weight's gradient before another one adds to it. */
static bool is_written(const struct erg_stage *stage, const struct erg_weight *weight)
{
    switch (weight->tensor) {
    case ERG_TENSOR_QKV:
    case ERG_TENSOR_PROJ:
    case ERG_TENSOR_FC1:
    case ERG_TENSOR_FC2:
        return true;
    default: /* a tied head writes the embedding's */
        return stage->options.weights.head &&
               stage->all_gradients + weight->offset == stage->d_head;
    }
}

int erg_stage_clear_gradients(struct erg_stage *stage, struct erg_stream *stream,
                              struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    int result = 0;
    for (size_t i = 0; i < stage->layers; i++)
        memset(stage->layer[i].written, 0, sizeof stage->layer[i].written);
    stage->head_written = false;
    for (size_t i = 0; i < stage->weights.count && result == 0; i++) {
        const struct erg_weight *weight = &stage->weights.items[i];
        if (!is_written(stage, weight))
            result =
                backend->table->fill(backend, stage->all_gradients + weight->offset, 0,
                                     weight->rows * weight->columns * sizeof(float), stream, err);
    }
    return result;
}

int erg_stage_tell_layer(const struct erg_stage *stage, size_t pass, size_t layer, bool done,
                         struct erg_error *err)
{
    const struct erg_stage_mover *mover = &stage->mover;
    return mover->call && stage->mode == ERG_STAGE_RUNS
               ? mover->call(mover->context, pass, layer, done, err)
               : 0;
}

void erg_stage_set_mover(struct erg_stage *stage, const struct erg_stage_mover *mover)
{
    stage->mover = *mover;
}

size_t erg_stage_query_rows(const struct erg_stage *stage)
{
    return stage->attn_row;
}
