/* Every buffer of a training rank, and its size. */
#include "layout/memory/static_memory.h"

#include "device/cuda/gemm.h"
#include "iteration/pass_order.h"

#include <assert.h>
#include <string.h>

/* ---- the buffers ---- */

static const struct buffer_kind {
    const char *name;
    enum erg_memory_item item;
    enum erg_static_set set;
} kinds[ERG_STATIC_BUFFERS] = {
#define ONCE(item) ERG_MEMORY_##item, ERG_STATIC_ONCE
    [ERG_STATIC_VALUES] = {"weights", ONCE(WEIGHTS)},
    [ERG_STATIC_GRADIENTS] = {"gradients", ONCE(GRADIENTS)},
    [ERG_STATIC_REDUCE] = {"output of half a layer", ONCE(TRANSIENT)},
    [ERG_STATIC_PARTIAL] = {"terms of a sum over tensor ranks", ONCE(GATHER)},
    [ERG_STATIC_GATHERED] = {"stream of all tensor ranks", ONCE(GATHER)},
    [ERG_STATIC_D_STREAM] = {"gradients of the stream", ONCE(TRANSIENT)},
    [ERG_STATIC_D_STREAM_OTHER] = {"gradients of the stream", ONCE(TRANSIENT)},
    [ERG_STATIC_D_MID] = {"gradients of the stream", ONCE(TRANSIENT)},
    [ERG_STATIC_D_ACT] = {"gradients of the MLP", ONCE(TRANSIENT)},
    [ERG_STATIC_D_FC1] = {"gradients of the MLP", ONCE(TRANSIENT)},
    [ERG_STATIC_D_ATTN] = {"gradients of attention", ONCE(TRANSIENT)},
    [ERG_STATIC_D_QKV] = {"gradients of attention", ONCE(TRANSIENT)},
    [ERG_STATIC_NORM_AGAIN] = {"recomputed norm", ONCE(TRANSIENT)},
    [ERG_STATIC_ACT_AGAIN] = {"recomputed activation", ONCE(TRANSIENT)},
    [ERG_STATIC_KV_OWN] = {"keys and values of a context rank", ONCE(GATHER)},
    [ERG_STATIC_KV_RANKS] = {"keys and values of context ranks", ONCE(GATHER)},
    [ERG_STATIC_KV] = {"keys and values of context ranks", ONCE(GATHER)},
    [ERG_STATIC_D_KV] = {"gradients of keys and values", ONCE(GATHER)},
    [ERG_STATIC_D_KV_LOW] = {"gradients of keys and values", ONCE(GATHER)},
    [ERG_STATIC_ROPE_TABLE] = {"angles of positions", ONCE(ROPE)},
    [ERG_STATIC_PLACE_OF] = {"positions", ONCE(ROPE)},
    [ERG_STATIC_SCRATCH] = {"scratch of kernels", ONCE(WORKSPACE)},
#undef ONCE
    [ERG_STATIC_INPUT] = {"layer input", ERG_MEMORY_PIPELINE, ERG_STATIC_INPUTS},
    [ERG_STATIC_X_A] = {"layer input", ERG_MEMORY_ACTIVATIONS, ERG_STATIC_LAYER_INPUTS},
#define LAYER ERG_MEMORY_ACTIVATIONS, ERG_STATIC_LAYERS
    [ERG_STATIC_N_A] = {"norm before attention", LAYER},
    [ERG_STATIC_QKV] = {"queries, keys, values", LAYER},
    [ERG_STATIC_ROTATED] = {"rotated queries and keys", LAYER},
    [ERG_STATIC_ATTN] = {"attention", LAYER},
    [ERG_STATIC_X_M] = {"MLP input", LAYER},
    [ERG_STATIC_N_M] = {"norm before MLP", LAYER},
    [ERG_STATIC_FC1] = {"MLP's first product", LAYER},
    [ERG_STATIC_ACT] = {"MLP's activation", LAYER},
    [ERG_STATIC_STATS_A] = {"statistics of norms", LAYER},
    [ERG_STATIC_STATS_M] = {"statistics of norms", LAYER},
    [ERG_STATIC_STATS] = {"statistics of attention", LAYER},
#undef LAYER
    [ERG_STATIC_RETURNED] = {"returning activations", ERG_MEMORY_OFFLOAD, ERG_STATIC_RETURNS},
#define HEAD ERG_MEMORY_HEAD, ERG_STATIC_HEADS
    [ERG_STATIC_OUTPUT] = {"output", HEAD},
    [ERG_STATIC_N_FINAL] = {"final norm", HEAD},
    [ERG_STATIC_STATS_FINAL] = {"statistics of norms", HEAD},
    [ERG_STATIC_LOGITS] = {"logits", HEAD},
    [ERG_STATIC_LOG_SUM] = {"statistics of the loss", HEAD},
    [ERG_STATIC_LOSS_STATS] = {"statistics of the loss", HEAD},
#undef HEAD
    [ERG_STATIC_SENT_OUTPUT] = {"sent outputs", ERG_MEMORY_PIPELINE, ERG_STATIC_OUTPUTS},
    [ERG_STATIC_SENT_GRADIENT] = {"sent gradients", ERG_MEMORY_PIPELINE, ERG_STATIC_SENT_GRADIENTS},
    [ERG_STATIC_RECEIVED_GRADIENT] = {"received gradients", ERG_MEMORY_PIPELINE,
                                      ERG_STATIC_RECEIVED_GRADIENTS},
#define ENGINE(item) ERG_MEMORY_##item, ERG_STATIC_ENGINE
    [ERG_STATIC_STATE] = {"masters and moments", ENGINE(OPTIMIZER)},
    [ERG_STATIC_OPTIMIZER_SCALARS] = {"scalars of the optimizer", ENGINE(OPTIMIZER)},
    [ERG_STATIC_OPTIMIZER_SCRATCH] = {"scratch of the optimizer", ENGINE(WORKSPACE)},
    [ERG_STATIC_STEP_SCALARS] = {"scalars of a step", ENGINE(PIPELINE)},
    [ERG_STATIC_TOKENS] = {"tokens of a step", ENGINE(PIPELINE)},
#undef ENGINE
};

const char *erg_static_name(enum erg_static_buffer buffer)
{
    return kinds[buffer].name;
}

enum erg_memory_item erg_static_item(const struct erg_static_memory *memory,
                                     enum erg_static_buffer buffer)
{
    const bool again =
        memory->sets[buffer] == ERG_STATIC_ONCE && kinds[buffer].set != ERG_STATIC_ONCE;
    return again ? ERG_MEMORY_TRANSIENT : kinds[buffer].item;
}

static bool moves(const struct erg_static_shape *shape, int buffer)
{
    return shape->moves >> buffer & 1;
}

/* Whether every layer in flight has this buffer. */
static bool is_of_layer(int buffer)
{
    return kinds[buffer].set == ERG_STATIC_LAYERS || kinds[buffer].set == ERG_STATIC_LAYER_INPUTS;
}

/* All tensors of recomputed layers except their inputs exist once. */
static enum erg_static_set set_of(const struct erg_static_shape *shape, int buffer)
{
    return !is_of_layer(buffer)                     ? kinds[buffer].set
           : moves(shape, buffer)                   ? ERG_STATIC_MOVED
           : buffer == ERG_STATIC_X_A               ? ERG_STATIC_LAYER_INPUTS
           : shape->recompute == ERG_RECOMPUTE_FULL ? ERG_STATIC_ONCE
                                                    : ERG_STATIC_LAYERS;
}

/* ---- sizes ---- */

struct erg_stage_widths erg_stage_widths_of(const struct erg_static_shape *shape)
{
    const struct erg_model *model = shape->model;
    const size_t t = (size_t)shape->tensor;
    struct erg_stage_widths w = {
        .sequence = (size_t)shape->sequence / (size_t)shape->context,
        .hidden = (size_t)model->hidden,
        .ffn = (size_t)model->ffn / t,
        .heads = (size_t)model->heads / t,
        .kv_heads = (size_t)erg_model_local_kv_heads(model, shape->tensor),
        .head_dim = (size_t)model->head_dim,
        .words = (size_t)erg_model_padded_vocabulary(model, shape->tensor) / t,
        .stats = model->layer_norm ? 2 : 1,
    };
    w.tokens = (size_t)shape->sequences * w.sequence;
    w.rows = shape->sequence_parallel ? w.tokens / t : w.tokens;
    w.fc1 = model->gated ? 2 * w.ffn : w.ffn;
    w.qkv = (w.heads + 2 * w.kv_heads) * w.head_dim;
    w.attention = w.heads * w.head_dim;
    w.positions = w.rows < w.sequence ? w.rows : w.sequence;
    return w;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/*
 * An upper bound of the bytes that a kernel of the passes needs on a GPU like the H100: the limit
 * of products, or attention's backward pass with the largest workspace that
 * device/cuda/attention_plan.c accepts (if several heads share keys and values, gradients of these
 * for each head) and its sums in float. The engine allocates the bytes that its kernels report, and
 * warns if these are more.
 */
static size_t scratch_bound(const struct erg_stage_widths *w, const struct erg_static_shape *shape)
{
    enum { SLACK_BYTES = (1 << 20) + 1024 }; /* slack of a workspace, and of offsets in it */
    const size_t rows = w->tokens * w->heads, all = rows * (size_t)shape->context;
    size_t attention = rows * (1 + w->head_dim) * sizeof(float) + SLACK_BYTES;
    if (w->kv_heads < w->heads)
        attention += 2 * all * w->head_dim * shape->element;
    return larger(ERG_GEMM_WORKSPACE_BYTES, attention);
}

/* Bytes of the buffers that a stage has once. */
static void fill_once(size_t *bytes, const struct erg_static_shape *shape,
                      const struct erg_stage_widths *w)
{
    const size_t tokens = w->tokens * shape->element, stream = w->rows * w->hidden * shape->element;
    bytes[ERG_STATIC_VALUES] = shape->weights.elements * shape->element;
    bytes[ERG_STATIC_GRADIENTS] = shape->weights.elements * sizeof(float);
    bytes[ERG_STATIC_REDUCE] = stream;
    if (shape->sequence_parallel)
        bytes[ERG_STATIC_PARTIAL] = bytes[ERG_STATIC_GATHERED] = tokens * w->hidden;
    bytes[ERG_STATIC_D_STREAM] = bytes[ERG_STATIC_D_STREAM_OTHER] = stream;
    bytes[ERG_STATIC_D_MID] = stream;
    bytes[ERG_STATIC_D_ACT] = tokens * w->ffn;
    bytes[ERG_STATIC_D_FC1] = tokens * w->fc1;
    bytes[ERG_STATIC_D_ATTN] = tokens * w->attention;
    bytes[ERG_STATIC_D_QKV] = tokens * w->qkv;
    if (shape->context > 1) {
        const size_t own = tokens * 2 * w->kv_heads * w->head_dim;
        bytes[ERG_STATIC_KV_OWN] = own;
        bytes[ERG_STATIC_KV_RANKS] = bytes[ERG_STATIC_KV] = own * (size_t)shape->context;
        bytes[ERG_STATIC_D_KV] = bytes[ERG_STATIC_D_KV_LOW] = own * (size_t)shape->context;
    }
    if (!shape->model->learned_positions)
        bytes[ERG_STATIC_ROPE_TABLE] = w->sequence * w->head_dim * sizeof(float);
    else if (shape->context > 1 || shape->sequence_parallel)
        bytes[ERG_STATIC_PLACE_OF] = w->positions * sizeof(int32_t);
    bytes[ERG_STATIC_SCRATCH] = shape->scratch;
}

/* The buffers of a pass. */
static void fill_passes(size_t *bytes, const struct erg_static_shape *shape,
                        const struct erg_stage_widths *w)
{
    const size_t tokens = w->tokens * shape->element, stream = w->rows * w->hidden * shape->element;
    const size_t norm = w->rows * w->stats * sizeof(float), floats = w->tokens * sizeof(float);
    bytes[ERG_STATIC_INPUT] = bytes[ERG_STATIC_X_A] = stream;
    bytes[ERG_STATIC_N_A] = stream;
    bytes[ERG_STATIC_QKV] = tokens * w->qkv;
    if (shape->model->qk_norm)
        bytes[ERG_STATIC_ROTATED] = tokens * w->qkv;
    bytes[ERG_STATIC_ATTN] = tokens * w->attention;
    bytes[ERG_STATIC_X_M] = bytes[ERG_STATIC_N_M] = stream;
    bytes[ERG_STATIC_FC1] = tokens * w->fc1;
    bytes[ERG_STATIC_ACT] = tokens * w->ffn;
    bytes[ERG_STATIC_STATS_A] = bytes[ERG_STATIC_STATS_M] = norm;
    bytes[ERG_STATIC_STATS] = floats * w->heads;
    if (erg_recompute_norms(shape->recompute)) {
        bytes[ERG_STATIC_NORM_AGAIN] = stream;
        bytes[ERG_STATIC_N_A] = bytes[ERG_STATIC_N_M] = 0;
    }
    if (erg_recompute_activation(shape->recompute)) {
        bytes[ERG_STATIC_ACT_AGAIN] = bytes[ERG_STATIC_ACT];
        bytes[ERG_STATIC_ACT] = 0;
    }
    if (moves(shape, ERG_STATIC_X_A))
        bytes[ERG_STATIC_INPUT] = 0;
    bytes[ERG_STATIC_OUTPUT] = bytes[ERG_STATIC_N_FINAL] = stream;
    bytes[ERG_STATIC_STATS_FINAL] = norm;
    bytes[ERG_STATIC_LOGITS] = tokens * w->words;
    bytes[ERG_STATIC_LOG_SUM] = floats;
    bytes[ERG_STATIC_LOSS_STATS] = 3 * floats * (size_t)shape->tensor;
}

/* The buffers outside the stage. */
static void fill_engine(size_t *bytes, const struct erg_static_shape *shape,
                        const struct erg_stage_widths *w)
{
    const size_t message = w->rows * w->hidden * shape->element;
    bytes[ERG_STATIC_SENT_OUTPUT] = bytes[ERG_STATIC_SENT_GRADIENT] = message;
    bytes[ERG_STATIC_RECEIVED_GRADIENT] = message;
    bytes[ERG_STATIC_STATE] = 3 * shape->weights.state * sizeof(float);
    bytes[ERG_STATIC_OPTIMIZER_SCALARS] = bytes[ERG_STATIC_STEP_SCALARS] = ERG_STATIC_SCALARS_BYTES;
    bytes[ERG_STATIC_OPTIMIZER_SCRATCH] = shape->optimizer_scratch;
    /* Ids, the order of the embedding's gradient, targets. */
    bytes[ERG_STATIC_TOKENS] = 3 * w->tokens * shape->microbatches * sizeof(int32_t);
}

void erg_static_memory_init(struct erg_static_memory *memory, const struct erg_static_shape *shape)
{
    const struct erg_stage_widths widths = erg_stage_widths_of(shape);
    const struct erg_stage_room *room = &shape->room;
    *memory = (struct erg_static_memory){
        .counts = {[ERG_STATIC_ONCE] = 1,
                   [ERG_STATIC_INPUTS] = room->inputs,
                   [ERG_STATIC_LAYER_INPUTS] = room->layers,
                   [ERG_STATIC_LAYERS] = room->passes + room->layers,
                   [ERG_STATIC_MOVED] = room->moved,
                   [ERG_STATIC_RETURNS] = shape->moves ? ERG_STATIC_RING : 0,
                   [ERG_STATIC_HEADS] = shape->head ? room->heads : 0,
                   [ERG_STATIC_OUTPUTS] = shape->next ? 2 : 0,
                   [ERG_STATIC_SENT_GRADIENTS] = shape->previous ? 2 : 0,
                   [ERG_STATIC_RECEIVED_GRADIENTS] = shape->next,
                   [ERG_STATIC_ENGINE] = 1},
        .offload = shape->offload,
    };
    fill_once(memory->bytes, shape, &widths);
    fill_passes(memory->bytes, shape, &widths);
    fill_engine(memory->bytes, shape, &widths);
    for (int i = 0; i < ERG_STATIC_BUFFERS; i++) {
        memory->sets[i] = set_of(shape, i);
        if (i == ERG_STATIC_RETURNED)
            memory->bytes[i] = memory->pieces[ERG_STATIC_MOVED];
        size_t *piece = &memory->pieces[memory->sets[i]];
        memory->within[i] = *piece;
        *piece += erg_static_place(memory, (enum erg_static_buffer)i);
    }
    memory->host_bytes = room->hosted * memory->pieces[ERG_STATIC_MOVED];
    for (int set = 0; set < ERG_STATIC_SETS; set++) {
        memory->begins[set] = memory->total;
        memory->total += memory->counts[set] * memory->pieces[set];
    }
    memory->stage_bytes = memory->begins[ERG_STATIC_OUTPUTS];
}

size_t erg_static_offset(const struct erg_static_memory *memory, enum erg_static_buffer buffer,
                         size_t index)
{
    const enum erg_static_set set = memory->sets[buffer];
    assert(index < memory->counts[set]);
    return memory->begins[set] + index * memory->pieces[set] + memory->within[buffer];
}

void erg_static_items(double items[ERG_MEMORY_ITEMS], const struct erg_static_memory *memory)
{
    size_t sums[ERG_MEMORY_ITEMS] = {0}, all = 0;
    for (int i = 0; i < ERG_STATIC_BUFFERS; i++) {
        size_t bytes = memory->counts[memory->sets[i]] * memory->bytes[i];
        sums[erg_static_item(memory, (enum erg_static_buffer)i)] += bytes;
        all += bytes;
    }
    sums[ERG_MEMORY_ROUNDING] = memory->total - all;
    for (int item = 0; item < ERG_MEMORY_ITEMS; item++)
        items[item] = (double)sums[item];
}

/* ---- moving tensors ---- */

size_t erg_static_find_movable(size_t bytes[ERG_STATIC_BUFFERS],
                               const struct erg_static_shape *shape, size_t least)
{
    struct erg_static_shape own = *shape;
    const struct erg_stage_widths widths = erg_stage_widths_of(shape);
    size_t sum = 0;
    own.moves = 0;
    memset(bytes, 0, ERG_STATIC_BUFFERS * sizeof *bytes);
    fill_passes(bytes, &own, &widths);
    for (int i = 0; i < ERG_STATIC_BUFFERS; i++) {
        const bool kept = set_of(&own, i) == ERG_STATIC_LAYERS || i == ERG_STATIC_X_A;
        bytes[i] = kept && bytes[i] >= least ? bytes[i] : 0;
        sum += bytes[i];
    }
    return sum;
}

static void choose(struct erg_static_shape *shape, double offload, size_t least)
{
    size_t bytes[ERG_STATIC_BUFFERS], moved = 0;
    const size_t movable = erg_static_find_movable(bytes, shape, least);
    shape->moves = 0;
    /* A decimal ratio is not exact. */
    const double most = offload * (double)movable * (1 + 1e-12);
    for (int i = 0; i < ERG_STATIC_BUFFERS && (double)(moved + bytes[i]) <= most; i++) {
        shape->moves |= bytes[i] ? UINT64_C(1) << i : 0;
        moved += bytes[i];
    }
    shape->offload = movable ? (double)moved / (double)movable : 0;
}

/* ---- a stage of a layout ---- */

/* A chunk's layers without the first. */
static size_t further_layers(const struct erg_layout *layout, long layers, long stage, size_t chunk)
{
    return (size_t)erg_layout_chunk_layers(layout, layers, stage, (long)chunk) - 1;
}

/*
 * Simulates passes if their number alone is not enough: the backward passes begin when `passes` are
 * in flight, and follow the forward passes at that distance. So memory in flight repeats after a
 * group has passed all chunks, unless the last group is smaller.
 */
static void follow(struct erg_stage_room *room, const struct erg_pass_order *order,
                   const struct erg_layout *layout, long layers, long stage)
{
    const size_t all = erg_pass_order_count(order), period = order->group * order->chunks;
    const bool repeats = order->microbatches % order->group == 0;
    size_t further = 0, heads = 0;
    room->layers = room->heads = 0;
    for (size_t k = 0; k < all && !(repeats && k >= room->passes + period); k++) {
        size_t chunk = erg_pass_order_nth(order, false, k).chunk;
        further += further_layers(layout, layers, stage, chunk);
        heads += chunk == order->chunks - 1;
        if (k >= room->passes) {
            chunk = erg_pass_order_nth(order, true, k - room->passes).chunk;
            further -= further_layers(layout, layers, stage, chunk);
            heads -= chunk == order->chunks - 1;
        }
        room->layers = larger(room->layers, further);
        room->heads = larger(room->heads, heads);
    }
}

struct erg_stage_room erg_stage_room_of(const struct erg_layout *layout, long layers, long stage)
{
    const struct erg_pass_order order = erg_pass_order_of(
        (size_t)layout->pipeline, (size_t)layout->virtual_stages, (size_t)layout->microbatches);
    const size_t all = erg_pass_order_count(&order);
    const size_t warmup = erg_pass_order_warmup(&order, (size_t)stage);
    const size_t passes = warmup < all ? warmup + 1 : all;
    const bool receives = stage > 0 || order.chunks > 1;
    struct erg_stage_room room = {
        .passes = passes,
        .layers = passes * further_layers(layout, layers, stage, 0),
        /* The next input is received while the most passes are in flight. */
        .inputs = passes + (receives && passes < all),
        .heads = order.chunks > 1 && warmup == all ? order.microbatches : 1,
    };
    if (order.chunks > 1 && (layout->chunk_layers || order.microbatches % order.group != 0))
        follow(&room, &order, layout, layers, stage);
    return room;
}

void erg_static_move(struct erg_static_shape *shape, const struct erg_memory_request *request,
                     long stage, double offload)
{
    choose(shape, offload, (size_t)request->least_moved);
    erg_stage_room_move(&shape->room, request->layout, request->model->layers, stage, shape->moves);
    if (shape->room.hosted == 0) { /* no layer has time to move */
        shape->moves = 0;
        shape->offload = 0;
    }
}

void erg_static_shape_init(struct erg_static_shape *shape, const struct erg_memory_request *request,
                           const struct erg_static_tensors *tensors, long stage)
{
    const struct erg_layout *layout = request->layout;
    const long layers = request->model->layers;
    const bool head = stage == layout->pipeline - 1;
    const bool ring = layout->virtual_stages > 1;
    *shape = (struct erg_static_shape){
        .model = request->model,
        .tensor = layout->tensor,
        .context = layout->context,
        .sequences = layout->microbatch,
        .sequence = layout->sequence,
        .sequence_parallel = request->sequence_parallel && layout->tensor > 1,
        .head = head,
        .room = erg_stage_room_of(layout, layers, stage),
        .weights =
            erg_static_weights_of(tensors, (size_t)erg_layout_stage_layers(layout, layers, stage),
                                  stage == 0, head, (size_t)(layout->context * layout->data)),
        .element = 2,
        .previous = stage > 0 || ring,
        .next = !head || ring,
        .microbatches = (size_t)layout->microbatches,
        .optimizer_scratch = ERG_STATIC_SQUARES_BYTES,
        .recompute = erg_layout_recompute(layout, stage),
    };
    const struct erg_stage_widths widths = erg_stage_widths_of(shape);
    shape->scratch = scratch_bound(&widths, shape);
    if (request->kernels) {
        shape->element = request->kernels->element_bytes;
        shape->scratch = request->kernels->scratch_bytes;
        shape->optimizer_scratch = request->kernels->optimizer_scratch_bytes;
    }
    erg_static_move(shape, request, stage, erg_layout_offload(layout, stage));
}
