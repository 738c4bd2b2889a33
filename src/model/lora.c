/* LoRA: two thin products added to some linears are trained, and everything else is frozen. */
#include "model/lora.h"

#include <math.h>

const char *const erg_lora_target_names[ERG_LORA_TARGETS + 1] = {
    [ERG_LORA_QKV] = "qkv",
    [ERG_LORA_PROJ] = "proj",
    [ERG_LORA_FC1] = "fc1",
    [ERG_LORA_FC2] = "fc2",
};

bool erg_lora_needs_input(const struct erg_model *model, enum erg_lora_target target)
{
    return !erg_lora_is_on(model) || model->lora.targets & 1u << target;
}

/* Widths in and out of a linear, of all tensor ranks. */
static void widths_of(double width[2], const struct erg_model *model, enum erg_lora_target target)
{
    const double h = (double)model->hidden, d = (double)model->head_dim, ffn = (double)model->ffn;
    const double queries = (double)model->heads * d, keys = (double)model->kv_heads * d;
    const double widths[ERG_LORA_TARGETS][2] = {
        [ERG_LORA_QKV] = {h, queries + 2 * keys},
        [ERG_LORA_PROJ] = {queries, h},
        [ERG_LORA_FC1] = {h, model->gated ? 2 * ffn : ffn},
        [ERG_LORA_FC2] = {ffn, h},
    };
    width[0] = widths[target][0];
    width[1] = widths[target][1];
}

/* Parameters of one adapter, over all tensor ranks; 0: there is none. */
static double adapter_parameters(const struct erg_model *model, enum erg_lora_target target)
{
    double width[2];
    if (!erg_lora_is_on(model) || !(model->lora.targets & 1u << target))
        return 0;
    widths_of(width, model, target);
    return (double)model->lora.rank * (width[0] + width[1]);
}

double erg_lora_layer_parameters(const struct erg_model *model)
{
    double sum = 0;
    for (int target = 0; target < ERG_LORA_TARGETS; target++)
        sum += adapter_parameters(model, (enum erg_lora_target)target);
    return sum;
}

/* ---- operations ---- */

static struct erg_op gemm(const struct erg_model_shape *shape, double m, double n, double k,
                          bool weights)
{
    const double tile_m = shape->tile_m ? (double)shape->tile_m : 128;
    const double tile_n = shape->tile_n ? (double)shape->tile_n : 128;
    return (struct erg_op){
        .kind = ERG_OP_GEMM,
        .kernels = 1,
        .flops = 2 * m * n * k,
        .bytes = 2 * (m * k + k * n + m * n) + (weights ? 8 * m * n : 0),
        .k = k,
        .tiles = ceil(m / tile_m) * ceil(n / tile_n),
        .code.weights = weights,
    };
}

static struct erg_model_op *add(struct erg_model_ops *ops, enum erg_lora_target target,
                                const char *name)
{
    static const enum erg_model_op_id ids[] = {
        [ERG_LORA_QKV] = ERG_MODEL_QKV,
        [ERG_LORA_PROJ] = ERG_MODEL_PROJ,
        [ERG_LORA_FC1] = ERG_MODEL_FC1,
        [ERG_LORA_FC2] = ERG_MODEL_FC2,
    };
    struct erg_model_op *op = &ops->items[ops->count++];
    *op = (struct erg_model_op){
        .id = ids[target], .name = name, .group = ERG_GROUP_LINEAR, .adapter = true};
    return op;
}

/* Both products of an adapter, shared equally by tensor ranks; each twice in the backward pass. */
static void add_adapter(struct erg_model_ops *ops, const struct erg_model *model,
                        const struct erg_model_shape *shape, enum erg_lora_target target,
                        bool backward)
{
    const double tensor = (double)shape->tensor, rank = (double)model->lora.rank;
    const double tokens =
        (double)shape->sequences * (double)shape->sequence / (double)shape->context;
    double width[2];
    widths_of(width, model, target);
    const double in = width[0] / tensor, out = width[1] / tensor;
    struct erg_model_op *down = add(ops, target, "lora_down");
    down->params = rank * in;
    down->work_count = backward ? 2 : 1;
    down->work[0] =
        backward ? gemm(shape, tokens, in, rank, false) : gemm(shape, tokens, rank, in, false);
    down->work[1] = gemm(shape, rank, in, tokens, true);
    struct erg_model_op *up = add(ops, target, "lora_up");
    up->params = rank * out;
    up->work_count = backward ? 2 : 1;
    up->work[0] =
        backward ? gemm(shape, tokens, rank, out, false) : gemm(shape, tokens, out, rank, false);
    up->work[1] = gemm(shape, out, rank, tokens, true);
}

/* Then linears do not have gradients of weights. */
static void freeze(struct erg_model_ops *ops)
{
    for (size_t i = 0; i < ops->count; i++) {
        struct erg_model_op *op = &ops->items[i];
        int kept = 0;
        for (int k = 0; k < op->work_count; k++)
            if (!op->work[k].code.weights)
                op->work[kept++] = op->work[k];
        op->work_count = kept;
    }
}

void erg_lora_apply(struct erg_model_ops *ops, const struct erg_model *model,
                    const struct erg_model_shape *shape, bool layer, bool backward)
{
    if (!erg_lora_is_on(model))
        return;
    freeze(ops);
    for (size_t i = 0; layer && i < ops->count; i++) {
        const enum erg_model_op_id id = ops->items[i].id;
        if ((id == ERG_MODEL_QKV && !erg_lora_needs_input(model, ERG_LORA_QKV)) ||
            (id == ERG_MODEL_FC1 && !erg_lora_needs_input(model, ERG_LORA_FC1)) ||
            (id == ERG_MODEL_FC2 && !erg_lora_needs_input(model, ERG_LORA_FC2)))
            ops->items[i].saved_bytes = 0;
    }
    for (int target = 0; layer && target < ERG_LORA_TARGETS; target++)
        if (model->lora.targets & 1u << target)
            add_adapter(ops, model, shape, (enum erg_lora_target)target, backward);
}

double erg_lora_trained(const struct erg_model_ops *ops, const struct erg_model *model)
{
    double sum = 0;
    for (size_t i = 0; i < ops->count; i++)
        if (!erg_lora_is_on(model) || ops->items[i].adapter)
            sum += ops->items[i].params;
    return sum;
}
