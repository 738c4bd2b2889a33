/* The allocations of the FFN half of a layer with a mixture of experts, op by op. */
#include "layout/memory/memory_simulation.h"

#define NO_BLOCK ERG_MEMORY_NO_BLOCK

static uint32_t transient(struct erg_memory_simulation *s, int64_t bytes)
{
    return erg_memory_take(&s->memory, ERG_MEMORY_TRANSIENT, bytes, 0);
}

static uint32_t transient_if(struct erg_memory_simulation *s, bool needed, int64_t bytes)
{
    return needed ? transient(s, bytes) : NO_BLOCK;
}

static void drop(struct erg_memory_simulation *s, uint32_t *block)
{
    erg_memory_give(&s->memory, block);
}

/* Replaces `from`, if it exists, by `to`. */
static void move_on(struct erg_memory_simulation *s, uint32_t *from, uint32_t to)
{
    if (to == NO_BLOCK)
        return;
    drop(s, from);
    *from = to;
}

static uint32_t reduced(struct erg_memory_simulation *s)
{
    uint32_t full = transient_if(s, s->sizes->tensor > 1, s->sizes->full_hidden);
    uint32_t own = transient(s, s->sizes->hidden);
    drop(s, &full);
    return own;
}

/*
 * Allocates the tensor of a role. Returns it if it is not kept, and the caller must drop it;
 * otherwise none.
 */
static uint32_t make(struct erg_memory_simulation *s, struct erg_memory_kept *kept,
                     enum erg_recompute recompute, enum erg_memory_role role)
{
    const struct erg_memory_tensor *tensor = &s->sizes->tensors[role];
    if (!(tensor->saved & 1u << recompute))
        return transient(s, tensor->bytes);
    kept[role].block = erg_memory_take(&s->memory, ERG_MEMORY_ACTIVATIONS, tensor->bytes, 0);
    return NO_BLOCK;
}

/* ---- forward ---- */

static uint32_t forward_shared(struct erg_memory_simulation *s, struct erg_memory_kept *kept,
                               enum erg_recompute recompute)
{
    if (s->sizes->tensors[ERG_MEMORY_SHARED_FC1].bytes == 0)
        return NO_BLOCK;
    uint32_t fc1 = make(s, kept, recompute, ERG_MEMORY_SHARED_FC1);
    uint32_t activated = make(s, kept, recompute, ERG_MEMORY_SHARED_ACTIVATED);
    drop(s, &fc1);
    uint32_t output = reduced(s);
    drop(s, &activated);
    return output;
}

uint32_t erg_memory_experts_layer_forward(struct erg_memory_simulation *s,
                                          struct erg_memory_kept *kept,
                                          enum erg_recompute recompute)
{
    const struct erg_memory_sizes *sizes = s->sizes;
    const bool t = sizes->tensor > 1, e = sizes->expert > 1;
    uint32_t norm = make(s, kept, recompute, ERG_MEMORY_FFN_NORM);
    uint32_t shared = forward_shared(s, kept, recompute);
    uint32_t scores = make(s, kept, recompute, ERG_MEMORY_SCORES);
    uint32_t rows = transient_if(s, t || e, sizes->sent);
    move_on(s, &rows, transient_if(s, t && e, sizes->sent)); /* from other ranks */
    uint32_t input = make(s, kept, recompute, ERG_MEMORY_EXPERT_INPUT);
    drop(s, &rows);
    drop(s, &norm);
    uint32_t fc1 = make(s, kept, recompute, ERG_MEMORY_FC1_OUTPUT);
    drop(s, &input);
    uint32_t activated = make(s, kept, recompute, ERG_MEMORY_ACTIVATED);
    drop(s, &fc1);
    rows = transient_if(s, t || e, sizes->arrived);
    drop(s, &activated);
    move_on(s, &rows, transient_if(s, t && e, sizes->sent)); /* the sum of tensor ranks */
    uint32_t output = make(s, kept, recompute, ERG_MEMORY_EXPERT_OUTPUT);
    drop(s, &rows);
    uint32_t sum = transient(s, sizes->hidden);
    drop(s, &output);
    drop(s, &scores);
    drop(s, &shared);
    return sum;
}

/* ---- backward ---- */

static uint32_t activated_again(struct erg_memory_simulation *s, enum erg_memory_role role)
{
    return transient_if(s, erg_recompute_activation(s->recompute), s->sizes->tensors[role].bytes);
}

static uint32_t backward_shared(struct erg_memory_simulation *s, struct erg_memory_kept *kept)
{
    const struct erg_memory_tensor *tensors = s->sizes->tensors;
    if (tensors[ERG_MEMORY_SHARED_FC1].bytes == 0)
        return NO_BLOCK;
    uint32_t again = activated_again(s, ERG_MEMORY_SHARED_ACTIVATED);
    uint32_t of_activated = transient(s, tensors[ERG_MEMORY_SHARED_ACTIVATED].bytes);
    drop(s, &again);
    erg_memory_drop(s, &kept[ERG_MEMORY_SHARED_ACTIVATED]);
    uint32_t of_fc1 = transient(s, tensors[ERG_MEMORY_SHARED_FC1].bytes);
    erg_memory_drop(s, &kept[ERG_MEMORY_SHARED_FC1]);
    drop(s, &of_activated);
    uint32_t of_norm = reduced(s);
    drop(s, &of_fc1);
    return of_norm;
}

/* To the gradient of the norm's output. */
static uint32_t backward_routed(struct erg_memory_simulation *s, struct erg_memory_kept *kept)
{
    const struct erg_memory_sizes *sizes = s->sizes;
    const bool t = sizes->tensor > 1, e = sizes->expert > 1;
    uint32_t rows = transient(s, sizes->sent);
    erg_memory_drop(s, &kept[ERG_MEMORY_EXPERT_OUTPUT]);
    move_on(s, &rows, transient_if(s, e, sizes->sent));
    move_on(s, &rows, transient_if(s, t, sizes->arrived));
    uint32_t again = activated_again(s, ERG_MEMORY_ACTIVATED);
    uint32_t of_activated = transient(s, sizes->ffn);
    drop(s, &rows);
    drop(s, &again);
    erg_memory_drop(s, &kept[ERG_MEMORY_ACTIVATED]);
    uint32_t of_fc1 = transient(s, sizes->fc1);
    erg_memory_drop(s, &kept[ERG_MEMORY_FC1_OUTPUT]);
    drop(s, &of_activated);
    rows = transient(s, sizes->arrived);
    erg_memory_drop(s, &kept[ERG_MEMORY_EXPERT_INPUT]);
    drop(s, &of_fc1);
    move_on(s, &rows, transient_if(s, t, sizes->sent));
    move_on(s, &rows, transient_if(s, e, sizes->sent));
    uint32_t of_norm = transient(s, sizes->hidden);
    drop(s, &rows);
    erg_memory_drop(s, &kept[ERG_MEMORY_SCORES]);
    return of_norm;
}

uint32_t erg_memory_experts_layer_backward(struct erg_memory_simulation *s,
                                           struct erg_memory_kept *kept, uint32_t *gradient)
{
    const int64_t hidden = s->sizes->hidden;
    uint32_t shared = backward_shared(s, kept);
    uint32_t of_norm = backward_routed(s, kept);
    uint32_t again = transient_if(s, erg_recompute_norms(s->recompute), hidden);
    uint32_t of_input = transient(s, hidden);
    drop(s, &again);
    drop(s, &of_norm);
    drop(s, &shared);
    erg_memory_drop(s, &kept[ERG_MEMORY_FFN_NORM]);
    erg_memory_drop(s, &kept[ERG_MEMORY_FFN_INPUT]);
    uint32_t sum = erg_memory_take(&s->memory, ERG_MEMORY_PIPELINE, hidden, 0);
    drop(s, &of_input);
    drop(s, gradient);
    return sum;
}
