/*
 * The allocations of one layer, op by op. The lifetimes are those of a framework with automatic
 * differentiation: a tensor lives until the last op that uses it has returned. The attention runs
 * in two halves under context parallelism, one of them on a second stream. Linears with a tensor
 * group compute their whole output and then reduce and scatter it; their gathered inputs are in a
 * shared buffer.
 */
#include "layout/memory/memory_simulation.h"

#define NO_BLOCK ERG_MEMORY_NO_BLOCK

static uint32_t transient(struct erg_memory_simulation *s, int64_t bytes)
{
    return erg_memory_take(&s->memory, ERG_MEMORY_TRANSIENT, bytes, 0);
}

static uint32_t on_second_stream(struct erg_memory_simulation *s, int64_t bytes)
{
    return erg_memory_take(&s->memory, ERG_MEMORY_TRANSIENT, bytes, 1);
}

static void drop(struct erg_memory_simulation *s, uint32_t *block)
{
    erg_memory_give(&s->memory, block);
}

void erg_memory_drop(struct erg_memory_simulation *s, struct erg_memory_kept *kept)
{
    drop(s, &kept->block);
    drop(s, &kept->rest[0]);
    drop(s, &kept->rest[1]);
}

/* The output of a row-parallel linear, or the input gradient of a column-parallel one. */
static uint32_t reduced(struct erg_memory_simulation *s)
{
    uint32_t full = s->sizes->tensor > 1 ? transient(s, s->sizes->full_hidden) : NO_BLOCK;
    uint32_t shard = transient(s, s->sizes->hidden);
    drop(s, &full);
    return shard;
}

/* ---- forward ---- */

/* The tensors of a running layer: kept ones, and those freed after an op. */
struct forward {
    struct erg_memory_simulation *s;
    struct erg_memory_kept *kept; /* [role] */
    enum erg_recompute recompute;
};

/*
 * Allocates the tensor of a role. Returns it if the group does not keep it, and the caller must
 * drop it; otherwise none.
 */
static uint32_t make(struct forward *f, enum erg_memory_role role)
{
    const struct erg_memory_tensor *tensor = &f->s->sizes->tensors[role];
    if (!(tensor->saved & 1u << f->recompute))
        return transient(f->s, tensor->bytes);
    f->kept[role].block = erg_memory_take(&f->s->memory, ERG_MEMORY_ACTIVATIONS, tensor->bytes, 0);
    return NO_BLOCK;
}

/* Queries, keys and values; returns the gathered tensor of the context group, if there is one. */
static uint32_t forward_projections(struct forward *f)
{
    struct erg_memory_simulation *s = f->s;
    const struct erg_memory_sizes *sizes = s->sizes;
    uint32_t gathered = transient(s, sizes->gathered_kv);
    uint32_t norm = make(f, ERG_MEMORY_ATTENTION_NORM);
    uint32_t values = NO_BLOCK, keys, rotated = NO_BLOCK;
    if (sizes->context > 1)
        values = transient(s, sizes->kv / 2);
    else
        values = make(f, ERG_MEMORY_VALUES);
    uint32_t before = make(f, ERG_MEMORY_QK_INPUT);
    keys = sizes->rotary ? transient(s, sizes->kv / 2) : NO_BLOCK;
    if (sizes->context > 1)
        rotated = transient(s, sizes->kv / 2);
    else
        rotated = make(f, ERG_MEMORY_KEYS);
    uint32_t queries = sizes->rotary ? transient(s, sizes->query) : NO_BLOCK;
    drop(s, &norm);
    drop(s, &values);
    drop(s, &keys);
    drop(s, &rotated);
    uint32_t rotated_queries = make(f, ERG_MEMORY_QUERIES);
    drop(s, &queries);
    drop(s, &before);
    drop(s, &rotated_queries);
    return gathered;
}

static void forward_attention(struct forward *f)
{
    struct erg_memory_simulation *s = f->s;
    uint32_t statistics = make(f, ERG_MEMORY_LOG_SUM_EXP), first = NO_BLOCK, second = NO_BLOCK;
    if (s->sizes->context > 1) {
        first = transient(s, s->sizes->query / 2);
        second = on_second_stream(s, s->sizes->query / 2);
    }
    uint32_t output = make(f, ERG_MEMORY_ATTENTION_OUTPUT);
    drop(s, &first);
    drop(s, &second);
    drop(s, &statistics);
    drop(s, &output);
}

/* Up to the output of FC2, which it returns. */
static uint32_t forward_ffn(struct forward *f)
{
    struct erg_memory_simulation *s = f->s;
    uint32_t norm = make(f, ERG_MEMORY_FFN_NORM);
    uint32_t fc1 = make(f, ERG_MEMORY_FC1_OUTPUT);
    drop(s, &norm);
    uint32_t gate = make(f, ERG_MEMORY_GATE), activated = make(f, ERG_MEMORY_ACTIVATED);
    drop(s, &gate);
    uint32_t output = reduced(s);
    drop(s, &activated);
    drop(s, &fc1);
    return output;
}

uint32_t erg_memory_layer_forward(struct erg_memory_simulation *s, struct erg_memory_group *group,
                                  long layer, uint32_t input, bool replay)
{
    struct forward f = {s, &group->kept[layer * ERG_MEMORY_ROLES],
                        replay ? ERG_RECOMPUTE_NONE : s->recompute};
    f.kept[ERG_MEMORY_INPUT].block = input;
    erg_memory_relabel(&s->memory, input, ERG_MEMORY_ACTIVATIONS);
    uint32_t gathered = forward_projections(&f);
    forward_attention(&f);
    uint32_t projected = reduced(s);
    uint32_t residual = make(&f, ERG_MEMORY_FFN_INPUT);
    uint32_t ffn = s->sizes->arrived ? erg_memory_experts_layer_forward(s, f.kept, f.recompute)
                                     : forward_ffn(&f);
    uint32_t share = make(&f, ERG_MEMORY_KV_SHARE);
    uint32_t output = erg_memory_take(&s->memory, ERG_MEMORY_PIPELINE, s->sizes->hidden, 0);
    drop(s, &gathered);
    drop(s, &projected);
    drop(s, &ffn);
    drop(s, &residual);
    drop(s, &share);
    return output;
}

/* ---- backward ---- */

/* From the gradient of FC2's output to that of FC1's output. */
static uint32_t backward_ffn(struct erg_memory_simulation *s, struct erg_memory_kept *kept)
{
    const struct erg_memory_sizes *sizes = s->sizes;
    uint32_t gate = NO_BLOCK, activated = NO_BLOCK;
    if (erg_memory_remakes(sizes, ERG_MEMORY_GATE, s->recompute))
        gate = sizes->gated ? transient(s, sizes->ffn) : NO_BLOCK;
    if (erg_memory_remakes(sizes, ERG_MEMORY_ACTIVATED, s->recompute))
        activated = transient(s, sizes->ffn);
    uint32_t product = transient(s, sizes->ffn);
    uint32_t joined;
    if (!erg_recompute_activation(s->recompute))
        erg_memory_drop(s, &kept[ERG_MEMORY_ACTIVATED]);
    if (sizes->gated) {
        uint32_t of_gate = transient(s, sizes->ffn), of_up = transient(s, sizes->ffn);
        drop(s, &gate);
        erg_memory_drop(s, &kept[ERG_MEMORY_GATE]);
        if (!erg_recompute_activation(s->recompute))
            drop(s, &product);
        uint32_t before_gate = transient(s, sizes->ffn);
        drop(s, &of_gate);
        joined = transient(s, sizes->fc1);
        drop(s, &of_up);
        drop(s, &before_gate);
    } else {
        joined = transient(s, sizes->fc1);
    }
    drop(s, &activated);
    drop(s, &product);
    erg_memory_drop(s, &kept[ERG_MEMORY_FC1_OUTPUT]);
    return joined;
}

/* The gradient through a column-parallel linear and the norm before it, into the residual sum. */
static uint32_t backward_column(struct erg_memory_simulation *s, struct erg_memory_kept *kept,
                                enum erg_memory_role norm, enum erg_memory_role input,
                                uint32_t *output_gradient, uint32_t *gradient)
{
    uint32_t again = erg_memory_remakes(s->sizes, norm, s->recompute)
                         ? transient(s, s->sizes->hidden)
                         : NO_BLOCK;
    uint32_t of_norm = reduced(s);
    drop(s, output_gradient);
    uint32_t of_input = transient(s, s->sizes->hidden);
    drop(s, &again);
    drop(s, &of_norm);
    erg_memory_drop(s, &kept[norm]);
    erg_memory_drop(s, &kept[input]);
    uint32_t sum = erg_memory_take(&s->memory, ERG_MEMORY_PIPELINE, s->sizes->hidden, 0);
    drop(s, &of_input);
    drop(s, gradient);
    return sum;
}

/*
 * The larger of the two halves' partial gradients of keys and values: rank R of c sees
 * (2R + 1) / 2c of the keys with its first half and (c - R) / c with its second.
 */
static int64_t partial_kv_bytes(const struct erg_memory_simulation *s)
{
    int64_t c = s->sizes->context, rank = s->rank % c;
    int64_t first = 2 * rank + 1, second = 2 * (c - rank);
    return s->sizes->gathered_kv * (first < second ? first : second) / (2 * c);
}

/* From the gradient of the attention's output to those of queries, keys and values, joined. */
static uint32_t backward_attention(struct erg_memory_simulation *s, struct erg_memory_kept *kept,
                                   uint32_t *output_gradient, uint32_t *gathered)
{
    const struct erg_memory_sizes *sizes = s->sizes;
    bool context = sizes->context > 1;
    uint32_t of_queries = transient(s, sizes->query);
    uint32_t of_kv = transient(s, context ? sizes->gathered_kv : sizes->kv);
    uint32_t partial = context ? on_second_stream(s, partial_kv_bytes(s)) : NO_BLOCK;
    /* fp32 sums of the queries' gradient, of each half */
    uint32_t sums[2] = {transient(s, context ? sizes->query : 2 * sizes->query), NO_BLOCK};
    if (context)
        sums[1] = on_second_stream(s, sizes->query);
    drop(s, &sums[0]);
    drop(s, &sums[1]);
    drop(s, &partial);
    drop(s, output_gradient);
    drop(s, gathered);
    for (int role = ERG_MEMORY_QUERIES; role <= ERG_MEMORY_ATTENTION_OUTPUT; role++)
        erg_memory_drop(s, &kept[role]);
    if (sizes->rotary) {
        uint32_t before = transient(s, sizes->query);
        drop(s, &of_queries);
        of_queries = before;
    }
    uint32_t of_keys = context ? transient(s, sizes->kv / 2) : NO_BLOCK;
    uint32_t of_values = context ? transient(s, sizes->kv / 2) : NO_BLOCK;
    uint32_t before = sizes->rotary ? transient(s, sizes->kv / 2) : NO_BLOCK;
    uint32_t joined = transient(s, sizes->query + sizes->kv);
    drop(s, &of_queries);
    drop(s, &of_kv);
    drop(s, &of_keys);
    drop(s, &of_values);
    drop(s, &before);
    erg_memory_drop(s, &kept[ERG_MEMORY_QK_INPUT]);
    return joined;
}

uint32_t erg_memory_layer_backward(struct erg_memory_simulation *s, struct erg_memory_group *group,
                                   long layer, uint32_t gradient)
{
    struct erg_memory_kept *kept = &group->kept[layer * ERG_MEMORY_ROLES];
    if (s->recompute == ERG_RECOMPUTE_FULL) {
        uint32_t input = kept[ERG_MEMORY_INPUT].block;
        kept[ERG_MEMORY_INPUT].block = NO_BLOCK;
        uint32_t output = erg_memory_layer_forward(s, group, layer, input, true);
        drop(s, &output);
    }
    /* Keys and values are gathered again as soon as the backward pass of FC2 starts. */
    uint32_t gathered = transient(s, s->sizes->gathered_kv);
    if (s->sizes->arrived) {
        gradient = erg_memory_experts_layer_backward(s, kept, &gradient);
    } else {
        uint32_t of_fc1 = backward_ffn(s, kept);
        gradient =
            backward_column(s, kept, ERG_MEMORY_FFN_NORM, ERG_MEMORY_FFN_INPUT, &of_fc1, &gradient);
    }
    uint32_t of_attention = transient(s, s->sizes->query);
    uint32_t of_projections = backward_attention(s, kept, &of_attention, &gathered);
    return backward_column(s, kept, ERG_MEMORY_ATTENTION_NORM, ERG_MEMORY_INPUT, &of_projections,
                           &gradient);
}

/* ---- the ends of the model ---- */

uint32_t erg_memory_embedding_forward(struct erg_memory_simulation *s)
{
    uint32_t output = reduced(s);
    uint32_t own = erg_memory_take(&s->memory, ERG_MEMORY_ACTIVATIONS, s->sizes->hidden, 0);
    drop(s, &output);
    return own;
}

/* Logits in bf16, with a copy in fp32 and the softmax until the loss is computed. */
void erg_memory_head_forward(struct erg_memory_simulation *s, struct erg_memory_group *group,
                             uint32_t input)
{
    int64_t logits = s->sizes->logits;
    struct erg_memory_allocator *memory = &s->memory;
    group->head_input = input;
    erg_memory_relabel(memory, input, ERG_MEMORY_HEAD);
    group->head_norm = erg_memory_take(memory, ERG_MEMORY_HEAD, s->sizes->hidden, 0);
    uint32_t narrow = erg_memory_take(memory, ERG_MEMORY_HEAD, logits, 0);
    uint32_t wide = erg_memory_take(memory, ERG_MEMORY_HEAD, 2 * logits, 0);
    group->softmax = erg_memory_take(memory, ERG_MEMORY_HEAD, 2 * logits, 0);
    drop(s, &wide);
    drop(s, &narrow);
}

uint32_t erg_memory_head_backward(struct erg_memory_simulation *s, struct erg_memory_group *group)
{
    uint32_t narrow = erg_memory_take(&s->memory, ERG_MEMORY_HEAD, s->sizes->logits, 0);
    drop(s, &group->softmax);
    uint32_t of_norm = reduced(s);
    drop(s, &narrow);
    drop(s, &group->head_norm);
    uint32_t of_input = erg_memory_take(&s->memory, ERG_MEMORY_PIPELINE, s->sizes->hidden, 0);
    drop(s, &of_norm);
    drop(s, &group->head_input);
    return of_input;
}
