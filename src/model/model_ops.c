/* Operations of a layer: FLOPs, bytes, parameters and saved activations of each. */
#include "model/lora.h"
#include "model/model_internal.h"

#include <assert.h>
#include <math.h>

static struct erg_op_sizes sizes_of(const struct erg_model *model,
                                    const struct erg_model_shape *shape)
{
    double t = (double)shape->tensor, c = (double)shape->context, d = (double)model->head_dim;
    double tokens = (double)shape->sequences * (double)shape->sequence;
    double heads = (double)model->heads;
    double groups = t * (double)erg_model_local_kv_heads(model, shape->tensor);
    bool parts = shape->sequence_parallel && shape->tensor > 1;
    struct erg_op_sizes sizes = {
        .model = model,
        .t = t,
        .c = c,
        .T = tokens / c,
        .rows = parts ? tokens / c / t : tokens / c,
        .S = (double)shape->sequence,
        .kv_tokens = tokens,
        .h = (double)model->hidden,
        .Q = (heads + 2 * groups) * d / t,
        .R = (heads + groups) * d / t,
        .O = heads * d / t,
        .F = (double)model->ffn / t,
        .V = (double)model->vocab / t,
        .heads = heads / t,
        .kv = groups * d / t,
        .tile_m = shape->tile_m ? (double)shape->tile_m : 128,
        .tile_n = shape->tile_n ? (double)shape->tile_n : 128,
        .head_factor = shape->head_gemm_factor > 0 ? shape->head_gemm_factor : 1,
        .parts = parts,
        .fused = shape->fused_kernels,
        .norms_again = shape->norms_again,
        .activation_again = shape->activation_again,
        .e = shape->expert > 1 ? (double)shape->expert : 1,
        .grouped = shape->grouped,
    };
    if (model->latent.keys) {
        const struct erg_latent *latent = &model->latent;
        sizes.R = 2 * heads * d / t;
        sizes.O = heads * (double)latent->values / t;
        sizes.Q = sizes.R + sizes.O;
        sizes.kv = sizes.Q / 2 - heads * d / t / 2;
    }
    if (model->experts.count) {
        sizes.experts = erg_model_expert_rows(model, shape);
        sizes.F = (double)model->experts.shared_ffn / t;
    }
    return sizes;
}

static struct erg_op memory(double bytes, int kernels)
{
    return (struct erg_op){.kind = ERG_OP_MEMORY, .kernels = kernels, .bytes = bytes};
}

struct erg_op erg_ops_gemm(const struct erg_op_sizes *s, double m, double n, double k)
{
    return (struct erg_op){
        .kind = ERG_OP_GEMM,
        .kernels = 1,
        .flops = 2 * m * n * k,
        .bytes = 2 * (m * k + k * n + m * n),
        .k = k,
        .tiles = ceil(m / s->tile_m) * ceil(n / s->tile_n),
    };
}

struct erg_model_op *erg_ops_add(struct erg_model_ops *ops, enum erg_model_op_id id,
                                 const char *name, enum erg_model_group group)
{
    assert(ops->count < ERG_MODEL_MAX_OPS);
    struct erg_model_op *op = &ops->items[ops->count++];
    *op = (struct erg_model_op){.id = id, .name = name, .group = group};
    return op;
}

void erg_ops_add_memory(struct erg_model_ops *ops, enum erg_model_op_id id, const char *name,
                        enum erg_model_group group, double bytes, int kernels)
{
    struct erg_model_op *op = erg_ops_add(ops, id, name, group);
    op->work[op->work_count++] = memory(bytes, kernels);
}

void erg_ops_add_linear(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                        enum erg_model_op_id id, const char *name, double in, double out,
                        bool backward, bool gathered)
{
    struct erg_model_op *op = erg_ops_add(ops, id, name, ERG_GROUP_LINEAR);
    if (!backward) {
        op->work[op->work_count++] = erg_ops_gemm(s, s->T, out, in);
    } else {
        const int weights = !(s->parts && gathered);
        op->work_count = 2;
        op->work[1 - weights] = erg_ops_gemm(s, s->T, in, out);
        op->work[weights] = erg_ops_gemm(s, out, in, s->T);
        op->work[weights].bytes += 8 * in * out; /* accumulated in fp32: read and write */
        op->work[weights].code.weights = true;
    }
}

/* The head's product, whose FLOPs are multiplied by its factor. */
static void add_head_linear(struct erg_model_ops *ops, const struct erg_op_sizes *s, bool backward)
{
    erg_ops_add_linear(ops, s, ERG_MODEL_HEAD, "head", s->h, s->V, backward, false);
    struct erg_model_op *op = &ops->items[ops->count - 1];
    assert(op->id == ERG_MODEL_HEAD);
    for (int i = 0; i < op->work_count; i++)
        op->work[i].flops *= s->head_factor;
}

/* A ring moves 2 (n-1)/n of the message per GPU and direction, to scatter sums or to gather half of
 * that. */
static void add_reduce(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                       enum erg_model_op_id id)
{
    if (s->t < 2)
        return;
    struct erg_model_op *op = erg_ops_add(ops, id, s->parts ? "rs" : "ar", ERG_GROUP_COMM);
    op->comm = true;
    op->communication = (struct erg_comm){
        .kind = s->parts ? ERG_COMM_REDUCESCATTER_HIDDEN : ERG_COMM_ALLREDUCE,
        .wire_bytes = (s->parts ? 1 : 2) * (2 * s->T * s->h) * (s->t - 1) / s->t,
        .group = (int)s->t,
    };
}

/* Rows of all tensor ranks, of the given number of tensors. */
static void add_gather(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                       enum erg_model_op_id id, int tensors)
{
    if (!s->parts)
        return;
    struct erg_model_op *op = erg_ops_add(ops, id, "ag", ERG_GROUP_COMM);
    op->comm = true;
    op->communication = (struct erg_comm){
        .kind = ERG_COMM_ALLGATHER_HIDDEN,
        .wire_bytes = tensors * (2 * s->T * s->h) * (s->t - 1) / s->t,
        .group = (int)s->t,
    };
}

static void add_exchange(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                         enum erg_model_op_id id)
{
    if (s->c < 2)
        return;
    bool gather = id == ERG_MODEL_GATHER_KV;
    struct erg_model_op *op = erg_ops_add(ops, id, gather ? "ag_kv" : "rs_kv", ERG_GROUP_COMM);
    op->comm = true;
    op->communication = (struct erg_comm){
        .kind = gather ? ERG_COMM_ALLGATHER_KV : ERG_COMM_REDUCESCATTER_KV,
        .wire_bytes = 2 * (2 * s->kv_tokens * s->kv) * (s->c - 1) / s->c,
        .group = (int)s->c,
    };
}

/* Two products forward; backward those of queries and keys three times, those of values twice. */
static double attention_flops(const struct erg_op_sizes *s, bool backward)
{
    if (!s->model->latent.keys)
        return (backward ? 2.5 : 1) * 2 * s->S * (s->T * s->O);
    const double scored = s->T * s->R / 2, valued = s->T * s->O;
    return s->S * (backward ? 3 * scored + 2 * valued : scored + valued);
}

/* Backward: queries, the output, its gradient and that of queries, and fp32 sums of the latter. */
static double attention_bytes(const struct erg_op_sizes *s, bool backward)
{
    const double tokens = s->T * s->O, gathered = s->kv_tokens * s->kv;
    if (!s->model->latent.keys)
        return backward ? 10 * tokens + 8 * gathered : 4 * tokens + 4 * gathered;
    const double queries = s->T * s->R / 2;
    return backward ? 6 * queries + 4 * tokens + 8 * gathered
                    : 2 * queries + 2 * tokens + 4 * gathered;
}

/* Queries, keys and values. */
static void add_projections(struct erg_model_ops *ops, const struct erg_op_sizes *s, bool backward)
{
    if (s->model->latent.keys)
        erg_ops_add_latent(ops, s, backward);
    else
        erg_ops_add_linear(ops, s, ERG_MODEL_QKV, "qkv", s->h, s->Q, backward, true);
}

/*
 * Causal flash attention: half of the dense product. With context parallelism it runs in two
 * passes (one per local chunk of the sequence), which makes twice the kernels, and reorders keys
 * and values, which makes four times as many; fused, the exchange leaves them in order.
 */
static void add_attention(struct erg_model_ops *ops, const struct erg_op_sizes *s, bool backward)
{
    int chunks = s->c > 1 ? 2 * (int)s->c : 1;
    int passes = s->fused ? 2 : 4;
    struct erg_model_op *op = erg_ops_add(ops, ERG_MODEL_ATTENTION, "attn", ERG_GROUP_ATTENTION);
    op->work[op->work_count++] = (struct erg_op){
        .kind = backward ? ERG_OP_ATTENTION_BACKWARD : ERG_OP_ATTENTION_FORWARD,
        .kernels = (backward ? 2 : 1) * (chunks > 1 ? passes : 1),
        .flops = attention_flops(s, backward),
        .bytes = attention_bytes(s, backward),
        .k = s->S,
        .heads = s->kv_tokens / s->S * s->heads,
        .chunks = chunks,
        .head_dim = (int)s->model->head_dim,
    };
}

/* Fused, it belongs to the rotary embedding's kernel; backward that reads what was normalised. */
static void add_qkv_post(struct erg_model_ops *ops, const struct erg_op_sizes *s, double factor)
{
    bool norm = s->model->qk_norm;
    if (s->fused) {
        bool reads = norm && factor > 1;
        erg_ops_add_memory(ops, ERG_MODEL_QKV_POST, "qkv_post", ERG_GROUP_ROPE,
                           reads ? 2 * s->T * s->R : 0, reads);
        return;
    }
    double bytes = 4 * s->T * s->Q + (norm ? 4 * s->T * s->R : 0);
    erg_ops_add_memory(ops, ERG_MODEL_QKV_POST, "qkv_post", ERG_GROUP_ROPE, factor * bytes,
                       norm ? 3 : 1);
}

static void add_rope(struct erg_model_ops *ops, const struct erg_op_sizes *s, double factor)
{
    if (!s->model->learned_positions)
        erg_ops_add_memory(ops, ERG_MODEL_ROPE, "rope", ERG_GROUP_ROPE,
                           (s->fused ? 1 : factor) * 4 * s->T * s->R, s->fused ? 1 : 2);
}

/*
 * The residual add around a half of the layer, its norm and the fork before that. Fused, the add of
 * one half and the norm of the next are one kernel: two tensors in and two out; backward three in
 * and one out, and a second kernel that sums the weight's gradient.
 */
static void add_residual(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                         enum erg_model_op_id id, const char *name, bool backward)
{
    double bytes = backward ? 5 : 7;
    if (s->fused)
        bytes = backward ? 0 : 4;
    erg_ops_add_memory(ops, id, name, ERG_GROUP_NORM, bytes * s->rows * s->h, s->fused ? 0 : 1);
}

static void add_norm(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                     enum erg_model_op_id id, const char *name, bool backward)
{
    double bytes = backward ? 6 : 4;
    erg_ops_add_memory(ops, id, name, ERG_GROUP_NORM, bytes * s->rows * s->h,
                       s->fused && backward ? 2 : 1);
}

static void add_fork(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                     enum erg_model_op_id id, const char *name)
{
    erg_ops_add_memory(ops, id, name, ERG_GROUP_NORM, (s->fused ? 2 : 6) * s->rows * s->h,
                       s->fused ? 0 : 1);
}

/* Fused: backward, a second kernel sums the weight's gradient. */
static void add_final_norm(struct erg_model_ops *ops, const struct erg_op_sizes *s, bool backward)
{
    double fused = backward ? 6 : 4;
    int kernels = backward ? 2 : 1;
    erg_ops_add_memory(ops, ERG_MODEL_NORM_FINAL, "norm_final", ERG_GROUP_NORM,
                       (s->fused ? fused : 12) * s->rows * s->h, s->fused ? kernels : 3);
}

static void add_activation(struct erg_model_ops *ops, const struct erg_op_sizes *s, bool backward)
{
    bool gated = s->model->gated;
    double per_token = backward ? (gated ? 10 : 6) : (gated ? 6 : 4);
    erg_ops_add_memory(ops, ERG_MODEL_ACTIVATION, gated ? "swiglu" : "gelu", ERG_GROUP_ACTIVATION,
                       per_token * s->T * s->F, 1);
}

/*
 * The tensors of each operation that the backward pass needs (bf16 tensors 2 bytes, the dropout
 * mask 1, the attention's log-sum-exp 4), and the operation's parameters. A tensor that two
 * operations need is counted once, where it is made.
 */
static void fill_state(struct erg_model_ops *ops, const struct erg_op_sizes *s)
{
    const struct erg_model *model = s->model;
    double width = model->gated ? 2 * s->F : s->F;
    double norm_params = model->layer_norm ? 2 * s->h : s->h;
    double head_dims = (double)model->head_dim;
    for (size_t i = 0; i < ops->count; i++) {
        struct erg_model_op *op = &ops->items[i];
        switch (op->id) {
        case ERG_MODEL_NORM_A:
        case ERG_MODEL_NORM_M:
        case ERG_MODEL_NORM_FINAL:
            op->saved_bytes = 2 * s->rows * s->h; /* its input */
            op->params = norm_params;
            break;
        case ERG_MODEL_QKV:
            op->saved_bytes = 2 * s->rows * s->h;
            op->params = s->h * s->Q + (model->qkv_bias ? s->Q : 0);
            break;
        case ERG_MODEL_QKV_POST:
            op->saved_bytes = model->qk_norm ? 2 * s->T * s->R : 0;
            op->params = model->qk_norm ? 2 * head_dims : 0;
            break;
        case ERG_MODEL_ATTENTION: /* queries, local keys and values, output, log-sum-exp */
            op->saved_bytes =
                2 * s->T * s->Q + 2 * s->T * s->O +
                (model->latent.keys ? 4 * s->T * s->heads : 4 * s->T * s->O / head_dims);
            break;
        case ERG_MODEL_PROJ: /* its input is the attention's output */
            op->params = s->O * s->h + (model->projection_bias ? s->h : 0);
            break;
        case ERG_MODEL_BDA_A:
        case ERG_MODEL_BDA_M:
            op->saved_bytes = s->rows * s->h;
            break;
        case ERG_MODEL_FC1:
            op->saved_bytes = 2 * s->rows * s->h;
            op->params = s->h * width + (model->mlp_bias ? width : 0);
            break;
        case ERG_MODEL_ACTIVATION:
            op->saved_bytes = 2 * s->T * width;
            break;
        case ERG_MODEL_FC2:
            op->saved_bytes = 2 * s->T * s->F;
            op->params = s->F * s->h + (model->mlp_bias ? s->h : 0);
            break;
        case ERG_MODEL_EMBEDDING:
            op->saved_bytes = 8 * s->T; /* the token ids */
            op->params =
                s->V * s->h + (model->learned_positions ? (double)model->max_positions * s->h : 0);
            break;
        case ERG_MODEL_HEAD:
            op->saved_bytes = 2 * s->rows * s->h;
            op->params = s->V * s->h;
            break;
        case ERG_MODEL_LOSS:
            op->saved_bytes = 2 * s->T * s->V; /* the probabilities */
            break;
        default:
            erg_ops_fill_experts(op, s);
            erg_ops_fill_latent(op, s);
            break;
        }
    }
}

/* Sets the kind of every piece of work. */
static void tag_work(struct erg_model_ops *ops, const struct erg_model_shape *shape, bool backward)
{
    for (size_t i = 0; i < ops->count; i++) {
        struct erg_model_op *op = &ops->items[i];
        op->communication.part = (int)op->id;
        op->communication.sequences = (int)shape->sequences;
        for (int k = 0; k < op->work_count; k++)
            op->work[k].code = (struct erg_op_code){
                .parts = op->id < 32 ? 1u << op->id : 0,
                .backward = backward,
                .weights = op->work[k].code.weights,
                .sequences = (int)shape->sequences,
            };
    }
}

/* The input of a linear that is made again: its forward kernel alone, which adds no residual. */
static void add_again(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                      enum erg_model_op_id id, const char *name)
{
    if (id == ERG_MODEL_ACTIVATION && s->activation_again)
        add_activation(ops, s, false);
    else if (id != ERG_MODEL_ACTIVATION && s->norms_again)
        add_norm(ops, s, id, name, false);
}

/* The begin of a half's backward pass under sequence parallelism: the rows of the norm's output are
 * recomputed before they are gathered. */
static void add_start(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                      enum erg_model_op_id norm, const char *name, enum erg_model_op_id gather)
{
    if (s->parts)
        add_again(ops, s, norm, name);
    add_gather(ops, s, gather, 2);
}

/* The first of each in a backward list is the forward operation, and holds no parameters of its
 * own. */
static void tag_again(struct erg_model_ops *ops, const struct erg_op_sizes *s)
{
    const struct {
        enum erg_model_op_id id;
        bool again;
    } kinds[] = {
        {ERG_MODEL_ACTIVATION, s->activation_again},
        {ERG_MODEL_ACTIVATION_E, s->activation_again},
        {ERG_MODEL_NORM_M, s->norms_again},
        {ERG_MODEL_NORM_A, s->norms_again},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct erg_model_op *op = ops->items, *end = ops->items + ops->count;
        if (!kinds[k].again)
            continue;
        while (op < end && op->id != kinds[k].id)
            op++;
        if (op == end)
            continue;
        assert(op->work_count > 0);
        op->params = 0;
        op->work[0].code.backward = false;
    }
}

static void no_saved_bytes(struct erg_model_ops *ops)
{
    for (size_t i = 0; i < ops->count; i++)
        ops->items[i].saved_bytes = 0;
}

/* Whether layers have a plain FFN, if only as their shared experts. */
static bool has_ffn(const struct erg_model *model)
{
    return model->experts.count == 0 || model->experts.shared_ffn > 0;
}

static void add_ffn_forward(struct erg_model_ops *ops, const struct erg_op_sizes *s)
{
    const double width = s->model->gated ? 2 * s->F : s->F;
    add_gather(ops, s, ERG_MODEL_GATHER_M, 1);
    erg_ops_add_linear(ops, s, ERG_MODEL_FC1, "fc1", s->h, width, false, true);
    add_activation(ops, s, false);
    erg_ops_add_linear(ops, s, ERG_MODEL_FC2, "fc2", s->F, s->h, false, false);
    add_reduce(ops, s, ERG_MODEL_REDUCE_M);
}

static void add_ffn_backward(struct erg_model_ops *ops, const struct erg_op_sizes *s)
{
    const double width = s->model->gated ? 2 * s->F : s->F;
    add_start(ops, s, ERG_MODEL_NORM_M, "norm_m", ERG_MODEL_GATHER_M);
    add_again(ops, s, ERG_MODEL_ACTIVATION, NULL);
    erg_ops_add_linear(ops, s, ERG_MODEL_FC2, "fc2", s->F, s->h, true, false);
    add_activation(ops, s, true);
    if (!s->parts)
        add_again(ops, s, ERG_MODEL_NORM_M, "norm_m");
    erg_ops_add_linear(ops, s, ERG_MODEL_FC1, "fc1", s->h, width, true, true);
    add_reduce(ops, s, ERG_MODEL_REDUCE_M);
}

void erg_model_layer_forward(struct erg_model_ops *ops, const struct erg_model *model,
                             const struct erg_model_shape *shape)
{
    const struct erg_op_sizes s = sizes_of(model, shape);
    ops->count = 0;
    erg_ops_add(ops, ERG_MODEL_FORK_A, "fork_a", ERG_GROUP_NORM);
    add_norm(ops, &s, ERG_MODEL_NORM_A, "norm_a", false);
    add_gather(ops, &s, ERG_MODEL_GATHER_A, 1);
    add_projections(ops, &s, false);
    add_qkv_post(ops, &s, 1);
    add_rope(ops, &s, 1);
    add_exchange(ops, &s, ERG_MODEL_GATHER_KV);
    add_attention(ops, &s, false);
    erg_ops_add_linear(ops, &s, ERG_MODEL_PROJ, "proj", s.O, s.h, false, false);
    add_reduce(ops, &s, ERG_MODEL_REDUCE_A);
    add_residual(ops, &s, ERG_MODEL_BDA_A, "bda_a", false);
    erg_ops_add(ops, ERG_MODEL_FORK_M, "fork_m", ERG_GROUP_NORM);
    add_norm(ops, &s, ERG_MODEL_NORM_M, "norm_m", false);
    if (model->experts.count)
        erg_ops_add_experts(ops, &s, false);
    if (has_ffn(model))
        add_ffn_forward(ops, &s);
    add_residual(ops, &s, ERG_MODEL_BDA_M, "bda_m", false);
    fill_state(ops, &s);
    erg_lora_apply(ops, model, shape, true, false);
    tag_work(ops, shape, false);
}

void erg_model_layer_backward(struct erg_model_ops *ops, const struct erg_model *model,
                              const struct erg_model_shape *shape)
{
    const struct erg_op_sizes s = sizes_of(model, shape);
    ops->count = 0;
    add_residual(ops, &s, ERG_MODEL_BDA_M, "bda_m", true);
    if (has_ffn(model))
        add_ffn_backward(ops, &s);
    else
        add_again(ops, &s, ERG_MODEL_NORM_M, "norm_m");
    if (model->experts.count)
        erg_ops_add_experts(ops, &s, true);
    add_norm(ops, &s, ERG_MODEL_NORM_M, "norm_m", true);
    add_fork(ops, &s, ERG_MODEL_FORK_M, "fork_m");
    add_residual(ops, &s, ERG_MODEL_BDA_A, "bda_a", true);
    add_start(ops, &s, ERG_MODEL_NORM_A, "norm_a", ERG_MODEL_GATHER_A);
    erg_ops_add_linear(ops, &s, ERG_MODEL_PROJ, "proj", s.O, s.h, true, false);
    add_exchange(ops, &s, ERG_MODEL_GATHER_KV);
    add_attention(ops, &s, true);
    add_exchange(ops, &s, ERG_MODEL_SCATTER_KV);
    add_rope(ops, &s, 1.25);
    add_qkv_post(ops, &s, 1.25);
    if (!s.parts)
        add_again(ops, &s, ERG_MODEL_NORM_A, "norm_a");
    add_projections(ops, &s, true);
    add_reduce(ops, &s, ERG_MODEL_REDUCE_A);
    add_norm(ops, &s, ERG_MODEL_NORM_A, "norm_a", true);
    add_fork(ops, &s, ERG_MODEL_FORK_A, "fork_a");
    fill_state(ops, &s);
    erg_lora_apply(ops, model, shape, true, true);
    tag_work(ops, shape, true);
    tag_again(ops, &s);
    no_saved_bytes(ops);
}

void erg_model_embedding_forward(struct erg_model_ops *ops, const struct erg_model *model,
                                 const struct erg_model_shape *shape)
{
    const struct erg_op_sizes s = sizes_of(model, shape);
    double added = model->learned_positions ? 4 : 0; /* adding positions: read and write */
    ops->count = 0;
    erg_ops_add_memory(ops, ERG_MODEL_EMBEDDING, "embedding", ERG_GROUP_EMBEDDING,
                       (4 * s.T + added * s.rows) * s.h, model->learned_positions ? 3 : 2);
    add_reduce(ops, &s, ERG_MODEL_REDUCE_EMBEDDING);
    fill_state(ops, &s);
    tag_work(ops, shape, false);
}

void erg_model_embedding_backward(struct erg_model_ops *ops, const struct erg_model *model,
                                  const struct erg_model_shape *shape)
{
    const struct erg_op_sizes s = sizes_of(model, shape);
    /* Fused: a gradient is read and added to a float row by the rank whose word it is. Every rank
     * looks at all tokens for it, which on 1, 2 and 4 H200 took as long as 2.5 of the 10 bytes. */
    double bytes = s.fused ? 2.5 + 7.5 / s.t : 6;
    ops->count = 0;
    add_gather(ops, &s, ERG_MODEL_GATHER_EMBEDDING, 1);
    erg_ops_add_memory(ops, ERG_MODEL_EMBEDDING, "embedding", ERG_GROUP_EMBEDDING,
                       bytes * s.T * s.h, s.fused ? 1 : 2);
    fill_state(ops, &s);
    erg_lora_apply(ops, model, shape, false, true);
    tag_work(ops, shape, true);
    no_saved_bytes(ops);
}

void erg_model_head_forward(struct erg_model_ops *ops, const struct erg_model *model,
                            const struct erg_model_shape *shape)
{
    const struct erg_op_sizes s = sizes_of(model, shape);
    ops->count = 0;
    add_final_norm(ops, &s, false);
    add_gather(ops, &s, ERG_MODEL_GATHER_HEAD, 1);
    add_head_linear(ops, &s, false);
    /* Fused: the logits once, then their statistics to all ranks and together. */
    erg_ops_add_memory(ops, ERG_MODEL_LOSS, "loss", ERG_GROUP_EMBEDDING,
                       (s.fused ? 2 : 10) * s.T * s.V, 3);
    fill_state(ops, &s);
    erg_lora_apply(ops, model, shape, false, false);
    tag_work(ops, shape, false);
}

void erg_model_head_backward(struct erg_model_ops *ops, const struct erg_model *model,
                             const struct erg_model_shape *shape)
{
    const struct erg_op_sizes s = sizes_of(model, shape);
    ops->count = 0;
    erg_ops_add_memory(ops, ERG_MODEL_LOSS, "loss", ERG_GROUP_EMBEDDING,
                       (s.fused ? 4 : 6) * s.T * s.V, s.fused ? 1 : 2);
    add_gather(ops, &s, ERG_MODEL_GATHER_HEAD, 1);
    add_head_linear(ops, &s, true);
    add_reduce(ops, &s, ERG_MODEL_REDUCE_HEAD);
    add_final_norm(ops, &s, true);
    fill_state(ops, &s);
    erg_lora_apply(ops, model, shape, false, true);
    tag_work(ops, shape, true);
    no_saved_bytes(ops);
}

const char *erg_model_group_name(enum erg_model_group group)
{
    static const char *const names[] = {
        [ERG_GROUP_NORM] = "norm",
        [ERG_GROUP_ROPE] = "rope",
        [ERG_GROUP_ACTIVATION] = "activation",
        [ERG_GROUP_LINEAR] = "linear",
        [ERG_GROUP_ATTENTION] = "attn",
        [ERG_GROUP_COMM] = "comm",
        [ERG_GROUP_EMBEDDING] = "embedding",
        [ERG_GROUP_ROWS] = "rows",
    };
    assert((size_t)group < sizeof names / sizeof *names);
    return names[group];
}
