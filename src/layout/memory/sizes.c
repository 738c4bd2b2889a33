/* What one layer's tensors weigh: the table from which all sums and all events follow. */
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
 * Products and attention are never computed again but with the whole layer; outputs of norms and
 * of the activation cost no product. Statistics of norms (4 or 8 bytes a token) are left out: a
 * backward pass computes them again from the norm's input, which it reads anyway.
 */
static void list_tensors(struct erg_memory_sizes *sizes, const struct erg_model *model,
                         int64_t tokens, bool split)
{
    int64_t own = split ? tokens / sizes->tensor : tokens; /* of the residual stream on this rank */
    int64_t hidden = sizes->hidden, shared = sizes->context > 1 ? sizes->kv : 0;
    int64_t local = sizes->kv - shared;
    set(sizes, ERG_MEMORY_INPUT, hidden, own, ALL);
    const unsigned qkv = erg_lora_needs_input(model, ERG_LORA_QKV) ? UNLESS_NORMS : 0;
    const unsigned fc1 = erg_lora_needs_input(model, ERG_LORA_FC1) ? UNLESS_NORMS : 0;
    const unsigned fc2 = erg_lora_needs_input(model, ERG_LORA_FC2) ? UNLESS_ACTIVATION : 0;
    set(sizes, ERG_MEMORY_ATTENTION_NORM, hidden, own, qkv);
    set(sizes, ERG_MEMORY_QK_INPUT, sizes->qk, tokens, MOST);
    set(sizes, ERG_MEMORY_QUERIES, sizes->query, tokens, MOST);
    set(sizes, ERG_MEMORY_KEYS, local / 2, tokens, MOST);
    set(sizes, ERG_MEMORY_VALUES, local / 2, tokens, MOST);
    set(sizes, ERG_MEMORY_KV_SHARE, shared, tokens, MOST);
    set(sizes, ERG_MEMORY_LOG_SUM_EXP, sizes->log_sum_exp, tokens, MOST);
    set(sizes, ERG_MEMORY_ATTENTION_OUTPUT, sizes->query, tokens, MOST);
    set(sizes, ERG_MEMORY_FFN_INPUT, hidden, own, MOST);
    set(sizes, ERG_MEMORY_FFN_NORM, hidden, own, fc1);
    set(sizes, ERG_MEMORY_FC1_OUTPUT, sizes->fc1, tokens, MOST);
    set(sizes, ERG_MEMORY_GATE, sizes->gated ? sizes->ffn : 0, tokens, UNLESS_ACTIVATION);
    set(sizes, ERG_MEMORY_ACTIVATED, sizes->ffn, tokens, fc2);
    if (sizes->gated)
        sizes->tensors[ERG_MEMORY_FC1_OUTPUT].views = 2;
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

static void add_weight(struct erg_memory_sizes *sizes, double parameters)
{
    sizes->weights[sizes->weight_count++] = (int64_t)parameters;
}

/* Parameters of the ops, each linear's and norm's in tensors as they are registered. */
static void list_weights(struct erg_memory_sizes *sizes, const struct erg_model *model,
                         const struct erg_model_shape *shape)
{
    struct erg_model_ops ops;
    double h = (double)model->hidden;
    erg_model_layer_forward(&ops, model, shape);
    for (size_t i = 0; i < ops.count; i++) {
        double parameters = ops.items[i].params, bias = 0;
        sizes->layer_parameters += parameters;
        if (parameters == 0)
            continue;
        if (ops.items[i].adapter) {
            sizes->adapter_weights[sizes->adapter_count++] = (int64_t)parameters;
            continue;
        }
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
        add_weight(sizes, parameters - bias);
        if (bias > 0)
            add_weight(sizes, bias);
    }
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

/* `split`: the residual stream is, over the tensor group. */
static void fill(struct erg_memory_sizes *sizes, const struct erg_model *model, long tensor,
                 long context, long microbatch, long sequence, bool split)
{
    struct erg_model padded = *model;
    padded.vocab = erg_layout_vocabulary(model, tensor);
    int64_t tokens = microbatch * sequence / context;
    int64_t heads = model->heads / tensor, groups = erg_model_local_kv_heads(model, tensor);
    const struct erg_model_shape shape = {
        .tensor = tensor, .context = 1, .sequences = 1, .sequence = 1};
    *sizes = (struct erg_memory_sizes){
        .hidden = 2 * tokens * model->hidden / (split ? tensor : 1),
        .full_hidden = split ? 2 * tokens * model->hidden : 0,
        .query = 2 * tokens * heads * model->head_dim,
        .kv = 4 * tokens * groups * model->head_dim,
        .gathered_kv = context > 1 ? 4 * tokens * context * groups * model->head_dim : 0,
        .ffn = 2 * tokens * (model->ffn / tensor),
        .fc1 = (model->gated ? 4 : 2) * tokens * (model->ffn / tensor),
        .qk = model->qk_norm ? 2 * tokens * (heads + groups) * model->head_dim : 0,
        .log_sum_exp = 4 * tokens * heads,
        .logits = 2 * tokens * (padded.vocab / tensor),
        .rope = model->learned_positions ? 0 : 4 * (sequence / context) * model->head_dim,
        .gated = model->gated,
        .rotary = !model->learned_positions,
        .tensor = tensor,
        .context = context,
    };
    list_tensors(sizes, model, tokens, split);
    add_up(sizes);
    list_weights(sizes, &padded, &shape);
    erg_static_tensors_init(&sizes->static_tensors, model, tensor);
}

void erg_memory_sizes_init(struct erg_memory_sizes *sizes, const struct erg_model *model,
                           long tensor, long context, long microbatch, long sequence)
{
    fill(sizes, model, tensor, context, microbatch, sequence, true);
}

void erg_memory_sizes_of(struct erg_memory_sizes *sizes, const struct erg_model *model,
                         const struct erg_layout *layout)
{
    fill(sizes, model, layout->tensor, layout->context, layout->microbatch, layout->sequence,
         !erg_layout_is_sharded(layout));
}
