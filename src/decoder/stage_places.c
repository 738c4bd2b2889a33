/* Stage: the places of tensors in its memory, and their use by passes. */
#include "decoder/stage_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <string.h>

/* ---- where it lies ---- */

/* Where a buffer lies; NULL: there is none of it. */
static void *buffer(const struct erg_stage *stage, enum erg_static_buffer kind, size_t index)
{
    return erg_static_at(stage->buffers, stage->memory, kind, index);
}

/* The tensors of a layer, which lie in several sets. */
static const struct {
    enum erg_static_buffer buffer;
    size_t member;
} layer_tensors[] = {
#define TENSOR(buffer, member)                                                                     \
    {                                                                                              \
        buffer, offsetof(struct erg_stage_activations, member)                                     \
    }
    TENSOR(ERG_STATIC_X_A, x_a),         TENSOR(ERG_STATIC_N_A, n_a),
    TENSOR(ERG_STATIC_QKV, qkv),         TENSOR(ERG_STATIC_ROTATED, rotated),
    TENSOR(ERG_STATIC_ATTN, attn),       TENSOR(ERG_STATIC_X_M, x_m),
    TENSOR(ERG_STATIC_N_M, n_m),         TENSOR(ERG_STATIC_FC1, fc1),
    TENSOR(ERG_STATIC_ACT, act),         TENSOR(ERG_STATIC_STATS_A, stats_a),
    TENSOR(ERG_STATIC_STATS_M, stats_m), TENSOR(ERG_STATIC_STATS, stats),
#undef TENSOR
};
enum { LAYER_TENSORS = sizeof layer_tensors / sizeof *layer_tensors };

static void set_tensor(struct erg_stage_activations *act, int tensor, void *memory)
{
    memcpy((char *)act + layer_tensors[tensor].member, &memory, sizeof memory);
}

/* Tensors that several layers share, or that have no memory of their own. */
static void place_shared_tensors(const struct erg_stage *stage, struct erg_stage_activations *act)
{
    if (!stage->model->qk_norm)
        act->rotated = act->qkv;
    if (erg_recompute_norms(stage->options.recompute))
        act->n_a = act->n_m = buffer(stage, ERG_STATIC_NORM_AGAIN, 0);
    if (erg_recompute_activation(stage->options.recompute))
        act->act = buffer(stage, ERG_STATIC_ACT_AGAIN, 0);
}

/* The index-th of the layers in flight; those of `first` layers of passes come first. */
static void place_activations(const struct erg_stage *stage, struct erg_stage_activations *act,
                              size_t index)
{
    const size_t first = stage->options.room.passes;
    for (int i = 0; i < LAYER_TENSORS; i++) {
        const enum erg_static_buffer kind = layer_tensors[i].buffer;
        const enum erg_static_set set = stage->buffers->sets[kind];
        if (set == ERG_STATIC_LAYERS)
            set_tensor(act, i, buffer(stage, kind, index));
        else if (set == ERG_STATIC_ONCE)
            set_tensor(act, i, buffer(stage, kind, 0));
        else if (set == ERG_STATIC_LAYER_INPUTS && index >= first)
            set_tensor(act, i, buffer(stage, kind, index - first));
    }
    place_shared_tensors(stage, act);
}

/* The tensors of a layer that move to host memory are there. */
static void place_moved(const struct erg_stage *stage, struct erg_stage_activations *act,
                        char *memory)
{
    for (int i = 0; i < LAYER_TENSORS; i++) {
        const enum erg_static_buffer kind = layer_tensors[i].buffer;
        if (stage->buffers->sets[kind] == ERG_STATIC_MOVED && stage->buffers->bytes[kind])
            set_tensor(act, i, memory + stage->buffers->within[kind]);
    }
    place_shared_tensors(stage, act);
}

static void place_head(const struct erg_stage *stage, struct erg_stage_head *head, size_t index)
{
    head->output = buffer(stage, ERG_STATIC_OUTPUT, index);
    head->n_final = buffer(stage, ERG_STATIC_N_FINAL, index);
    head->stats_final = buffer(stage, ERG_STATIC_STATS_FINAL, index);
    head->logits = buffer(stage, ERG_STATIC_LOGITS, index);
    head->log_sum = buffer(stage, ERG_STATIC_LOG_SUM, index);
    head->loss_stats = buffer(stage, ERG_STATIC_LOSS_STATS, index);
}

static void place_passes(struct erg_stage *stage)
{
    const struct erg_stage_room *room = &stage->options.room;
    for (size_t i = 0; i < room->inputs; i++)
        stage->passes[i].input = buffer(stage, ERG_STATIC_INPUT, i);
    for (size_t i = 0; i < room->passes + room->layers; i++)
        place_activations(stage, &stage->sets[i], i);
    for (size_t i = 0; i < room->heads && stage->options.weights.head; i++)
        place_head(stage, &stage->head_sets[i], i);
}

static void place_shared(struct erg_stage *stage)
{
    bool parts = stage->options.sequence_parallel;
    stage->reduce = buffer(stage, ERG_STATIC_REDUCE, 0);
    stage->partial = parts ? buffer(stage, ERG_STATIC_PARTIAL, 0) : stage->reduce;
    stage->gathered = buffer(stage, ERG_STATIC_GATHERED, 0);
    stage->d_stream[0] = buffer(stage, ERG_STATIC_D_STREAM, 0);
    stage->d_stream[1] = buffer(stage, ERG_STATIC_D_STREAM_OTHER, 0);
    stage->d_mid = buffer(stage, ERG_STATIC_D_MID, 0);
    stage->d_act = buffer(stage, ERG_STATIC_D_ACT, 0);
    stage->d_fc1 = buffer(stage, ERG_STATIC_D_FC1, 0);
    stage->d_attn = buffer(stage, ERG_STATIC_D_ATTN, 0);
    stage->d_qkv = buffer(stage, ERG_STATIC_D_QKV, 0);
    stage->kv_own = buffer(stage, ERG_STATIC_KV_OWN, 0);
    stage->kv_ranks = buffer(stage, ERG_STATIC_KV_RANKS, 0);
    stage->kv = buffer(stage, ERG_STATIC_KV, 0);
    stage->d_kv = buffer(stage, ERG_STATIC_D_KV, 0);
    stage->d_kv_low = buffer(stage, ERG_STATIC_D_KV_LOW, 0);
    stage->rope_table = buffer(stage, ERG_STATIC_ROPE_TABLE, 0);
    stage->place_of = buffer(stage, ERG_STATIC_PLACE_OF, 0);
    stage->scratch = buffer(stage, ERG_STATIC_SCRATCH, 0);
}

void erg_stage_place_all(struct erg_stage *stage)
{
    const struct erg_static_memory *buffers = stage->buffers;
    assert(buffers->bytes[ERG_STATIC_VALUES] == stage->weights.elements * stage->element);
    assert(buffers->bytes[ERG_STATIC_X_A] == stage->rows * stage->hidden * stage->element);
    assert(buffers->bytes[ERG_STATIC_SCRATCH] >= stage->scratch_bytes);
    stage->values = buffer(stage, ERG_STATIC_VALUES, 0);
    stage->all_gradients = buffer(stage, ERG_STATIC_GRADIENTS, 0);
    stage->moved = stage->memory + buffers->begins[ERG_STATIC_MOVED];
    stage->slots = erg_xcalloc(buffers->counts[ERG_STATIC_MOVED] + 1, sizeof *stage->slots);
    place_passes(stage);
    place_shared(stage);
}

/* ---- what moves ---- */

static bool layers_move(const struct erg_stage *stage)
{
    return stage->buffers && stage->buffers->pieces[ERG_STATIC_MOVED] > 0;
}

static bool inputs_move(const struct erg_stage *stage)
{
    return layers_move(stage) && stage->buffers->sets[ERG_STATIC_X_A] == ERG_STATIC_MOVED;
}

static char *slot_memory(const struct erg_stage *stage, size_t slot)
{
    return stage->moved + slot * stage->buffers->pieces[ERG_STATIC_MOVED];
}

/* The first free slot. Passes that run to no end but to have run have one together. */
static size_t take_slot(struct erg_stage *stage)
{
    size_t slot = 0;
    if (stage->mode != ERG_STAGE_RUNS)
        return ERG_STAGE_NO_SLOT;
    while (stage->slots[slot])
        slot++;
    assert(slot < stage->buffers->counts[ERG_STATIC_MOVED]);
    stage->slots[slot] = true;
    return slot;
}

static void give_slot(struct erg_stage *stage, size_t *slot)
{
    if (*slot != ERG_STAGE_NO_SLOT)
        stage->slots[*slot] = false;
    *slot = ERG_STAGE_NO_SLOT;
}

void erg_stage_take_moved(struct erg_stage *stage, size_t index, size_t layer)
{
    struct erg_stage_pass *pass = &stage->passes[index];
    assert(pass->open && (long)layer < stage->chunks[pass->chunk].count);
    struct erg_stage_activations *act = pass->layers[layer];
    if (!layers_move(stage))
        return;
    if (layer == 0 && inputs_move(stage)) {
        act->slot = pass->slot; /* its input is there already */
        pass->slot = ERG_STAGE_NO_SLOT;
    } else {
        act->slot = take_slot(stage);
    }
    place_moved(stage, act, slot_memory(stage, act->slot == ERG_STAGE_NO_SLOT ? 0 : act->slot));
}

void *erg_stage_moved(const struct erg_stage *stage, size_t pass, size_t layer)
{
    const struct erg_stage_activations *act = stage->passes[pass].layers[layer];
    assert(act->slot != ERG_STAGE_NO_SLOT);
    return slot_memory(stage, act->slot);
}

void erg_stage_give_moved(struct erg_stage *stage, size_t pass, size_t layer)
{
    give_slot(stage, &stage->passes[pass].layers[layer]->slot);
}

void erg_stage_return_moved(struct erg_stage *stage, size_t pass, size_t layer, void *memory)
{
    assert(stage->passes[pass].layers[layer]->slot == ERG_STAGE_NO_SLOT);
    place_moved(stage, stage->passes[pass].layers[layer], memory);
}

/* ---- passes ---- */

size_t erg_stage_pass(struct erg_stage *stage, size_t chunk)
{
    size_t i = 0;
    while (stage->passes[i].open)
        i++;
    assert(i < stage->options.room.inputs);
    struct erg_stage_pass *pass = &stage->passes[i];
    assert(chunk < stage->options.weights.chunk_count);
    pass->open = true;
    pass->chunk = chunk;
    pass->slot = ERG_STAGE_NO_SLOT;
    if (inputs_move(stage)) {
        pass->slot = take_slot(stage);
        pass->input = slot_memory(stage, pass->slot == ERG_STAGE_NO_SLOT ? 0 : pass->slot) +
                      stage->buffers->within[ERG_STATIC_X_A];
    }
    return i;
}

void *erg_stage_input(struct erg_stage *stage, size_t pass)
{
    return stage->passes[pass].input;
}

/* The first of [from, to) that is free becomes taken. */
static struct erg_stage_activations *take_set(struct erg_stage *stage, size_t from, size_t to)
{
    while (stage->sets[from].taken)
        from++;
    assert(from < to);
    (void)to;
    stage->sets[from].taken = true;
    stage->sets[from].slot = ERG_STAGE_NO_SLOT;
    return &stage->sets[from];
}

struct erg_stage_pass *erg_stage_enter(struct erg_stage *stage, size_t index)
{
    struct erg_stage_pass *pass = &stage->passes[index];
    const struct erg_stage_room *room = &stage->options.room;
    size_t last = stage->options.weights.chunk_count - 1;
    for (long i = 0; i < stage->chunks[pass->chunk].count; i++)
        pass->layers[i] = i ? take_set(stage, room->passes, room->passes + room->layers)
                            : take_set(stage, 0, room->passes);
    pass->layers[0]->x_a = pass->input;
    pass->head = NULL;
    if (stage->options.weights.head && pass->chunk == last) {
        pass->head = stage->head_sets;
        while (pass->head->taken)
            pass->head++;
        assert(pass->head < stage->head_sets + room->heads);
        pass->head->taken = true;
    }
    return pass;
}

void erg_stage_leave(struct erg_stage *stage, size_t index)
{
    struct erg_stage_pass *pass = &stage->passes[index];
    for (long i = 0; i < stage->chunks[pass->chunk].count; i++) {
        give_slot(stage, &pass->layers[i]->slot);
        pass->layers[i]->taken = false;
    }
    if (pass->head)
        pass->head->taken = false;
    pass->open = false;
}
