/* The sizes of one layer's tensors: the source of all sums and events. */
#include "layout/memory/memory_internal.h"

#include "model/lora.h"

enum {
    ALL = ERG_RECOMPUTE_ALL,
    MOST = ALL & ~(1 << ERG_RECOMPUTE_FULL),
    UNLESS_NORMS = MOST & ~(1 << ERG_RECOMPUTE_NORMS | 1 << ERG_RECOMPUTE_BALANCED),
    UNLESS_ACTIVATION = MOST & ~(1 << ERG_RECOMPUTE_ACTIVATION | 1 << ERG_RECOMPUTE_BALANCED),
};

static void set(struct erg_memory_sizes *sizes, enum erg_memory_role role, int64_t bytes,
                int64_t rows, unsigned saved)
{
    sizes->tensors[role] =
        (struct erg_memory_tensor){.bytes = bytes, .rows = rows, .saved = saved, .views = 1};
}

/*
 * Products and attention are recomputed only with the whole layer; outputs of norms and of the
 * activation cost no product. Statistics of norms (4 or 8 bytes per token) are ignored: a backward
 * pass recomputes them from the norm's input, which it reads anyway.
 */
static void list_tensors(struct erg_memory_sizes *sizes, const struct erg_model *model,
                         int64_t tokens, bool split)
{
    int64_t own = split ? tokens / sizes->tensor : tokens; /* of the residual stream on this rank */
    int64_t hidden = sizes->hidden, shared = sizes->context > 1 ? sizes->kv : 0;
    int64_t local = sizes->kv - shared;
    set(sizes, ERG_MEMORY_INPUT, hidden, own, ALL);
    const unsigned qkv = erg_lora_needs_input(model, ERG_LORA_QKV) ? UNLESS_NORMS : 0;
    /* The kept tensors of experts do not change with LoRA. */
    const bool experts = sizes->arrived > 0;
    const unsigned fc1 = experts || erg_lora_needs_input(model, ERG_LORA_FC1) ? UNLESS_NORMS : 0;
    const unsigned fc2 =
        experts || erg_lora_needs_input(model, ERG_LORA_FC2) ? UNLESS_ACTIVATION : 0;
    set(sizes, ERG_MEMORY_ATTENTION_NORM, hidden, own, qkv);
    set(sizes, ERG_MEMORY_QK_INPUT, sizes->qk, tokens, MOST);
    set(sizes, ERG_MEMORY_QUERIES, sizes->query, tokens, MOST);
    set(sizes, ERG_MEMORY_KEYS, local / 2, tokens, MOST);
    set(sizes, ERG_MEMORY_VALUES, local / 2, tokens, MOST);
    set(sizes, ERG_MEMORY_KV_SHARE, shared, tokens, MOST);
    set(sizes, ERG_MEMORY_LOG_SUM_EXP, sizes->log_sum_exp, tokens, MOST);
    set(sizes, ERG_MEMORY_ATTENTION_OUTPUT, sizes->output, tokens, MOST);
    set(sizes, ERG_MEMORY_FFN_INPUT, hidden, own, MOST);
    set(sizes, ERG_MEMORY_FFN_NORM, hidden, own, fc1);
    set(sizes, ERG_MEMORY_FC1_OUTPUT, sizes->fc1, tokens, MOST);
    set(sizes, ERG_MEMORY_GATE, sizes->gated && !sizes->arrived ? sizes->ffn : 0, tokens,
        UNLESS_ACTIVATION);
    set(sizes, ERG_MEMORY_ACTIVATED, sizes->ffn, tokens, fc2);
    if (sizes->gated && !sizes->arrived)
        sizes->tensors[ERG_MEMORY_FC1_OUTPUT].views = 2;
}

/* Tensors that a mixture of experts keeps in addition. Its activation is one kernel, so no gate is
 * kept. */
static void list_experts(struct erg_memory_sizes *sizes, const struct erg_model *model,
                         const struct erg_model_rows *rows, int64_t tokens)
{
    const int64_t own = (int64_t)rows->own, sent = sizes->sent / (2 * model->hidden);
    const int64_t shared = 2 * tokens * (model->experts.shared_ffn / sizes->tensor);
    set(sizes, ERG_MEMORY_SCORES, 5 * own * model->experts.count, own, MOST);
    set(sizes, ERG_MEMORY_SHARED_FC1, (model->gated ? 2 : 1) * shared, tokens, MOST);
    set(sizes, ERG_MEMORY_SHARED_ACTIVATED, shared, tokens, UNLESS_ACTIVATION);
    set(sizes, ERG_MEMORY_EXPERT_INPUT, sizes->arrived, sent * sizes->tensor, MOST);
    set(sizes, ERG_MEMORY_EXPERT_OUTPUT, sizes->sent, sent, MOST);
}

/* Sums up the tensors of each mode. */
static void add_up(struct erg_memory_sizes *sizes)
{
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++)
        for (int i = 0; i < ERG_MEMORY_ROLES; i++) {
            int64_t bytes = sizes->tensors[i].saved & 1u << recompute ? sizes->tensors[i].bytes : 0;
            sizes->kept[recompute] += bytes;
            sizes->kept_of_ffn[recompute] += i >= ERG_MEMORY_FFN_INPUT ? bytes : 0;
            sizes->movable[recompute] += bytes >= ERG_OFFLOAD_LEAST_BYTES ? bytes : 0;
        }
}

/*
 * Parameters of the ops of a layer, by tensor of each linear and norm in order of registration;
 * returns the number of tensors.
 */
static size_t list_layer(int64_t *weights, double *sum, const struct erg_model *model,
                         const struct erg_model_shape *shape)
{
    struct erg_model_ops ops;
    const double h = (double)model->hidden;
    size_t count = 0;
    erg_model_layer_forward(&ops, model, shape);
    for (size_t i = 0; i < ops.count; i++) {
        double parameters = ops.items[i].params, bias = 0;
        if (ops.items[i].of_experts || parameters == 0)
            continue;
        *sum += parameters;
        if (ops.items[i].adapter)
            continue;
        switch (ops.items[i].id) {
        case ERG_MODEL_NORM_A:
        case ERG_MODEL_NORM_M:
            bias = model->layer_norm ? h : 0;
            break;
        case ERG_MODEL_QKV_POST: /* the weights of two norms */
            bias = parameters / 2;
            break;
        case ERG_MODEL_QKV:
            bias = model->qkv_bias ? parameters / (h + 1) : 0;
            break;
        case ERG_MODEL_PROJ:
            bias = model->projection_bias ? h : 0;
            break;
        case ERG_MODEL_FC1:
            bias = model->mlp_bias ? parameters / (h + 1) : 0;
            break;
        case ERG_MODEL_FC2:
            bias = model->mlp_bias ? h : 0;
            break;
        default:
            break;
        }
        weights[count++] = (int64_t)(parameters - bias);
        if (bias > 0)
            weights[count++] = (int64_t)bias;
    }
    return count;
}

/* For the experts of a GPU, and for layers without experts. */
static void list_expert_weights(struct erg_memory_sizes *sizes, const struct erg_model *model,
                                const struct erg_model_shape *shape)
{
    const struct erg_model dense = erg_model_without_experts(model);
    struct erg_model_ops ops;
    erg_model_layer_forward(&ops, model, shape);
    for (size_t i = 0; i < ops.count; i++) {
        if (!ops.items[i].of_experts)
            continue;
        sizes->expert_parameters += ops.items[i].params;
        sizes->expert_weights[ops.items[i].id == ERG_MODEL_FC2_E] =
            (int64_t)(ops.items[i].params / (double)sizes->experts_held);
    }
    sizes->dense_layers = model->experts.dense_layers;
    if (sizes->dense_layers > 0)
        sizes->dense_weight_count =
            list_layer(sizes->dense_weights, &sizes->dense_parameters, &dense, shape);
}

static void list_weights(struct erg_memory_sizes *sizes, const struct erg_model *model,
                         const struct erg_model_shape *shape)
{
    struct erg_model_ops ops;
    sizes->weight_count = list_layer(sizes->weights, &sizes->layer_parameters, model, shape);
    if (model->experts.count)
        list_expert_weights(sizes, model, shape);
    erg_model_layer_forward(&ops, model, shape);
    for (size_t i = 0; i < ops.count; i++)
        if (ops.items[i].adapter)
            sizes->adapter_weights[sizes->adapter_count++] = (int64_t)ops.items[i].params;
    sizes->adapters = erg_lora_is_on(model);
    sizes->trained_layer = erg_lora_trained(&ops, model);
    erg_model_embedding_forward(&ops, model, shape);
    sizes->trained_embedding = erg_lora_trained(&ops, model);
    for (size_t i = 0; i < ops.count; i++)
        sizes->embedding_parameters += ops.items[i].params;
    sizes->embedding[1] = model->learned_positions ? model->max_positions * model->hidden : 0;
    sizes->embedding[0] = (int64_t)sizes->embedding_parameters - sizes->embedding[1];
    erg_model_head_forward(&ops, model, shape);
    sizes->trained_head = erg_lora_trained(&ops, model);
    for (size_t i = 0; i < ops.count; i++)
        sizes->head_parameters += ops.items[i].params;
    sizes->head[0] = model->hidden;
    sizes->head[1] = model->layer_norm ? model->hidden : 0;
    sizes->head[2] = (int64_t)sizes->head_parameters - sizes->head[0] - sizes->head[1];
}

/* Bytes of the FFN's rows, or of those of the experts of a rank. */
static void fill_ffn(struct erg_memory_sizes *sizes, const struct erg_model *model,
                     const struct erg_model_rows *rows, int64_t tokens)
{
    int64_t widths = 2 * tokens * (model->ffn / sizes->tensor);
    if (model->experts.count) {
        sizes->sent = (int64_t)(2 * rows->sent * (double)model->hidden);
        sizes->arrived = sizes->sent * sizes->tensor;
        sizes->experts_held = (long)rows->held;
        const int64_t share = model->experts.ffn / sizes->tensor;
        widths = (int64_t)(2 * rows->held * rows->expert * (double)share);
    }
    sizes->ffn = widths;
    sizes->fc1 = (model->gated ? 2 : 1) * widths;
}

void erg_memory_sizes_of(struct erg_memory_sizes *sizes, const struct erg_model *model,
                         const struct erg_layout *layout)
{
    struct erg_model padded = *model;
    const long tensor = layout->tensor, context = layout->context;
    const struct erg_latent *latent = &model->latent;
    const bool split = !erg_layout_is_sharded(layout); /* the residual stream, over tensor ranks */
    padded.vocab = erg_layout_vocabulary(model, tensor);
    int64_t tokens = layout->microbatch * layout->sequence / context;
    int64_t heads = model->heads / tensor, groups = erg_model_local_kv_heads(model, tensor);
    struct erg_model_shape shape = {.tensor = tensor,
                                    .context = 1,
                                    .sequences = layout->microbatch,
                                    .sequence = layout->sequence,
                                    .expert = layout->expert,
                                    .capacity = layout->expert_capacity};
    const struct erg_model_rows rows =
        model->experts.count ? erg_model_expert_rows(model, &shape) : (struct erg_model_rows){0};
    const int64_t keys = latent->keys ? model->head_dim + latent->values : 2 * model->head_dim;
    *sizes = (struct erg_memory_sizes){
        .hidden = 2 * tokens * model->hidden / (split ? tensor : 1),
        .full_hidden = split ? 2 * tokens * model->hidden : 0,
        .query = 2 * tokens * heads * model->head_dim,
        .output = 2 * tokens * (erg_model_attention_width(model) / tensor),
        .kv = 2 * tokens * groups * keys,
        .gathered_kv = context > 1 ? 2 * tokens * context * groups * keys : 0,
        .qk = model->qk_norm ? 2 * tokens * (heads + groups) * model->head_dim : 0,
        .log_sum_exp = 4 * tokens * heads,
        .logits = 2 * tokens * (padded.vocab / tensor),
        .rope = model->learned_positions ? 0
                                         : 4 * (layout->sequence / context) *
                                               (latent->keys ? latent->rotated : model->head_dim),
        .gated = model->gated,
        .rotary = !model->learned_positions,
        .tensor = tensor,
        .context = context,
        .expert = erg_layout_experts(layout),
    };
    if (latent->keys)
        sizes->qk = 4 * tokens * (latent->queries + latent->keys); /* before and after norms */
    fill_ffn(sizes, model, &rows, tokens);
    list_tensors(sizes, model, tokens, split);
    if (model->experts.count)
        list_experts(sizes, model, &rows, tokens);
    add_up(sizes);
    shape.sequences = shape.sequence = 1;
    list_weights(sizes, &padded, &shape);
    erg_static_tensors_init(&sizes->static_tensors, model, tensor);
}
