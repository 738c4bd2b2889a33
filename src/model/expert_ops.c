/* Operations of a mixture of experts: their FLOPs, memory traffic and communication. */
#include "model/model_internal.h"

#include <math.h>

/*
 * With a capacity every source rank sends every expert as many rows, filled up with empty ones.
 * Without it each expert gets its even share, which need not be a whole number.
 */
struct erg_model_rows erg_model_expert_rows(const struct erg_model *model,
                                            const struct erg_model_shape *shape)
{
    const struct erg_experts *experts = &model->experts;
    const double t = (double)shape->tensor, e = shape->expert > 1 ? (double)shape->expert : 1;
    const double count = (double)experts->count;
    const double own =
        (double)shape->sequences * (double)shape->sequence / (double)shape->context / t;
    double each = own * (double)experts->chosen / count; /* rows of a rank for an expert */
    if (shape->capacity > 0)
        each = ceil(each * shape->capacity);
    return (struct erg_model_rows){
        .own = own,
        .sent = count * each,
        .expert = e * t * each,
        .held = count / e,
    };
}

/* The products of all experts of a rank, one after the other or in one kernel. */
static struct erg_op products(const struct erg_op_sizes *s, double m, double n, double k)
{
    const struct erg_model_rows *rows = &s->experts;
    struct erg_op op = erg_ops_gemm(s, m, n, k);
    op.flops *= rows->held;
    op.bytes *= rows->held;
    op.tiles *= rows->held;
    op.kernels = s->grouped ? 1 : (int)rows->held;
    return op;
}

static void add_products(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                         enum erg_model_op_id id, const char *name, double in, double out,
                         bool backward)
{
    const double rows = s->experts.expert;
    struct erg_model_op *op = erg_ops_add(ops, id, name, ERG_GROUP_LINEAR);
    op->of_experts = true;
    if (!backward) {
        op->work[op->work_count++] = products(s, rows, out, in);
        return;
    }
    op->work[op->work_count++] = products(s, rows, in, out);
    op->work[op->work_count] = products(s, out, in, rows);
    op->work[op->work_count].bytes += 8 * in * out * s->experts.held; /* sums in fp32 */
    op->work[op->work_count++].code.weights = true;
}

static void add_activation(struct erg_model_ops *ops, const struct erg_op_sizes *s, double width,
                           bool backward)
{
    const bool gated = s->model->gated;
    const double per_row = backward ? (gated ? 10 : 6) : (gated ? 6 : 4);
    const int kernels = s->grouped ? 1 : (int)s->experts.held;
    erg_ops_add_memory(ops, ERG_MODEL_ACTIVATION_E, gated ? "swiglu_e" : "gelu_e",
                       ERG_GROUP_ACTIVATION, per_row * s->experts.held * s->experts.expert * width,
                       kernels);
}

/* Rows to other ranks, or from them: of `sent` rows those that stay are not among the bytes. */
static void add_all_to_all(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                           enum erg_model_op_id id)
{
    if (s->e < 2)
        return;
    struct erg_model_op *op = erg_ops_add(ops, id, "a2a", ERG_GROUP_COMM);
    op->comm = true;
    op->communication = (struct erg_comm){
        .kind = ERG_COMM_ALLTOALL,
        .wire_bytes = s->experts.sent * s->h * 2 * (s->e - 1) / s->e,
        .group = (int)s->e,
    };
}

/* The rows of all tensor ranks, since each has a share of the width of the experts. */
static void add_tensor(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                       enum erg_model_op_id id)
{
    const bool gather = id == ERG_MODEL_GATHER_E;
    if (s->t < 2)
        return;
    struct erg_model_op *op = erg_ops_add(ops, id, gather ? "ag_e" : "rs_e", ERG_GROUP_COMM);
    op->comm = true;
    op->communication = (struct erg_comm){
        .kind = gather ? ERG_COMM_ALLGATHER_HIDDEN : ERG_COMM_REDUCESCATTER_HIDDEN,
        .wire_bytes = (s->t - 1) * s->experts.sent * s->h * 2,
        .group = (int)s->t,
    };
}

/* The product of few columns, then softmax, choice, counts of rows and the loss that evens them. */
static void add_router(struct erg_model_ops *ops, const struct erg_op_sizes *s, bool backward)
{
    const double own = s->experts.own, count = (double)s->model->experts.count;
    struct erg_model_op *op = erg_ops_add(ops, ERG_MODEL_ROUTER, "router", ERG_GROUP_LINEAR);
    for (int i = 0; i <= backward; i++) {
        struct erg_op *work = &op->work[op->work_count++];
        *work = i ? erg_ops_gemm(s, count, s->h, own) : erg_ops_gemm(s, own, count, s->h);
        work->bytes = 2 * own * s->h + 10 * own * count;
        work->kernels = 5;
        work->code.weights = i;
    }
}

static void add_rows(struct erg_model_ops *ops, const struct erg_op_sizes *s,
                     enum erg_model_op_id id)
{
    const struct erg_model_rows *rows = &s->experts;
    const bool permute = id == ERG_MODEL_PERMUTE;
    const double weights = permute ? 0 : 4 * rows->sent;
    erg_ops_add_memory(ops, id, permute ? "permute" : "unpermute", ERG_GROUP_ROWS,
                       2 * (rows->own + rows->sent) * s->h + weights, 2);
}

void erg_ops_add_experts(struct erg_model_ops *ops, const struct erg_op_sizes *s, bool backward)
{
    const double width = (double)s->model->experts.ffn / s->t;
    const double fc1 = s->model->gated ? 2 * width : width;
    if (!backward) {
        add_router(ops, s, false);
        add_rows(ops, s, ERG_MODEL_PERMUTE);
        add_all_to_all(ops, s, ERG_MODEL_DISPATCH);
        add_tensor(ops, s, ERG_MODEL_GATHER_E);
        add_products(ops, s, ERG_MODEL_FC1_E, "fc1_e", s->h, fc1, false);
        add_activation(ops, s, width, false);
        add_products(ops, s, ERG_MODEL_FC2_E, "fc2_e", width, s->h, false);
        add_tensor(ops, s, ERG_MODEL_SCATTER_E);
        add_all_to_all(ops, s, ERG_MODEL_COMBINE);
        add_rows(ops, s, ERG_MODEL_UNPERMUTE);
        return;
    }
    add_rows(ops, s, ERG_MODEL_UNPERMUTE);
    add_all_to_all(ops, s, ERG_MODEL_COMBINE);
    add_tensor(ops, s, ERG_MODEL_GATHER_E); /* the backward pass of a scatter */
    if (s->activation_again)
        add_activation(ops, s, width, false);
    add_products(ops, s, ERG_MODEL_FC2_E, "fc2_e", width, s->h, true);
    add_activation(ops, s, width, true);
    add_products(ops, s, ERG_MODEL_FC1_E, "fc1_e", s->h, fc1, true);
    add_tensor(ops, s, ERG_MODEL_SCATTER_E);
    add_all_to_all(ops, s, ERG_MODEL_DISPATCH);
    add_rows(ops, s, ERG_MODEL_PERMUTE);
    add_router(ops, s, true);
}

void erg_ops_fill_experts(struct erg_model_op *op, const struct erg_op_sizes *s)
{
    const struct erg_model_rows *rows = &s->experts;
    const struct erg_experts *experts = &s->model->experts;
    const double count = (double)experts->count, width = (double)experts->ffn / s->t;
    const double fc1 = s->model->gated ? 2 * width : width;
    const double arrived = rows->held * rows->expert;
    switch (op->id) {
    case ERG_MODEL_ROUTER:
        op->saved_bytes = 5 * rows->own * count; /* scores, and who was chosen */
        op->params = s->h * count + (experts->router_bias ? count : 0);
        break;
    case ERG_MODEL_PERMUTE:
        op->saved_bytes = 2 * rows->own * s->h; /* the norm's output */
        break;
    case ERG_MODEL_FC1_E:
        op->saved_bytes = 2 * arrived * s->h;
        op->params = rows->held * s->h * fc1;
        break;
    case ERG_MODEL_ACTIVATION_E:
        op->saved_bytes = 2 * arrived * fc1;
        break;
    case ERG_MODEL_FC2_E:
        op->saved_bytes = 2 * arrived * width;
        op->params = rows->held * width * s->h;
        break;
    case ERG_MODEL_UNPERMUTE:
        op->saved_bytes = 2 * rows->sent * s->h; /* for the gradients of the weights */
        break;
    default:
        break;
    }
}
