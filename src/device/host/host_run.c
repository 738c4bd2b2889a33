/* The host as a device: maps kernels to operations of ops/. */
#include "device/host/host_internal.h"

#include <string.h>

#define RUN_OPS(name, ...)                                                                         \
    do {                                                                                           \
        if (float32)                                                                               \
            erg_ops32_##name(__VA_ARGS__);                                                         \
        else                                                                                       \
            erg_ops_##name(__VA_ARGS__);                                                           \
    } while (0)

static void run_norm(bool float32, const struct erg_kernel *kernel)
{
    const __typeof__(kernel->norm) *a = &kernel->norm;
    if (kernel->kind == ERG_KERNEL_NORM)
        RUN_OPS(norm_forward, a->tokens, a->hidden, a->eps, a->residual, a->x, a->x_bias, a->weight,
                a->sum, a->out, a->stats);
    else
        RUN_OPS(layer_norm_forward, a->tokens, a->hidden, a->eps, a->residual, a->x, a->x_bias,
                a->weight, a->bias, a->sum, a->out, a->stats);
}

static void run_norm_gradient(bool float32, const struct erg_kernel *kernel)
{
    const __typeof__(kernel->norm_gradient) *a = &kernel->norm_gradient;
    if (kernel->kind == ERG_KERNEL_NORM_GRADIENT)
        RUN_OPS(norm_backward, a->tokens, a->hidden, a->sum, a->weight, a->stats, a->d_out,
                a->d_sum, a->d_in, a->d_weight);
    else
        RUN_OPS(layer_norm_backward, a->tokens, a->hidden, a->sum, a->weight, a->stats, a->d_out,
                a->d_sum, a->d_in, a->d_weight, a->d_bias);
}

static void run_linear(bool float32, const struct erg_kernel *kernel)
{
    const __typeof__(kernel->linear) *a = &kernel->linear;
    if (kernel->kind == ERG_KERNEL_LINEAR)
        RUN_OPS(linear_forward, a->tokens, a->inputs, a->outputs, a->a, a->b, a->bias, a->c);
    else if (kernel->kind == ERG_KERNEL_LINEAR_INPUT_GRADIENT)
        RUN_OPS(linear_input_gradient, a->tokens, a->inputs, a->outputs, a->a, a->b, a->c);
    else {
        if (!a->adds)
            memset(a->c, 0, a->inputs * a->outputs * sizeof(float));
        RUN_OPS(linear_weight_gradient, a->tokens, a->inputs, a->outputs, a->a, a->b, a->c);
    }
}

static void run_attention(bool float32, const struct erg_kernel *kernel)
{
    const __typeof__(kernel->rope) *r = &kernel->rope;
    const __typeof__(kernel->attention) *a = &kernel->attention;
    switch (kernel->kind) {
    case ERG_KERNEL_ROPE:
        RUN_OPS(rope_forward, &r->shape, r->eps, r->q_weight, r->k_weight, r->table, r->qkv, r->out,
                r->out_row);
        break;
    case ERG_KERNEL_ROPE_GRADIENT:
        RUN_OPS(rope_backward, &r->shape, r->eps, r->q_weight, r->k_weight, r->table, r->qkv,
                r->d_rotated, r->out, r->d_q_weight, r->d_k_weight);
        break;
    case ERG_KERNEL_ATTENTION:
        RUN_OPS(attention_forward, &a->shape, a->q, a->k, a->v, a->out, a->stats);
        break;
    default:
        RUN_OPS(attention_backward, &a->shape, a->q, a->k, a->v, a->out, a->stats, a->d_out, a->d_q,
                a->d_k, a->d_v);
        break;
    }
}

static void run_activation(bool float32, const struct erg_kernel *kernel)
{
    const __typeof__(kernel->activation) *a = &kernel->activation;
    switch (kernel->kind) {
    case ERG_KERNEL_SWIGLU:
        RUN_OPS(swiglu_forward, a->tokens, a->width, a->in, a->out);
        break;
    case ERG_KERNEL_SWIGLU_GRADIENT:
        RUN_OPS(swiglu_backward, a->tokens, a->width, a->in, a->d_out, a->out);
        break;
    case ERG_KERNEL_GELU:
        RUN_OPS(gelu_forward, a->tokens, a->width, a->tanh_form, a->in, a->out);
        break;
    default:
        RUN_OPS(gelu_backward, a->tokens, a->width, a->tanh_form, a->in, a->d_out, a->out);
        if (a->d_bias)
            RUN_OPS(bias_gradient, a->tokens, a->width, a->out, a->d_bias);
        break;
    }
}

static void run_vocabulary(bool float32, const struct erg_kernel *kernel)
{
    const __typeof__(kernel->embedding) *e = &kernel->embedding;
    const __typeof__(kernel->position) *p = &kernel->position;
    const __typeof__(kernel->loss) *l = &kernel->loss;
    switch (kernel->kind) {
    case ERG_KERNEL_EMBEDDING:
        RUN_OPS(embedding_forward, e->tokens, e->hidden, e->first, e->rows, e->ids, e->in, e->out);
        break;
    case ERG_KERNEL_EMBEDDING_GRADIENT:
        RUN_OPS(embedding_backward, e->tokens, e->hidden, e->first, e->rows, e->ids, e->order,
                e->in, e->d_table);
        break;
    case ERG_KERNEL_POSITION:
        RUN_OPS(position_forward, p->tokens, p->sequence, p->hidden, p->positions, p->in, p->x);
        break;
    case ERG_KERNEL_POSITION_GRADIENT:
        RUN_OPS(position_backward, p->tokens, p->sequence, p->hidden, p->positions, p->in,
                p->d_table);
        break;
    case ERG_KERNEL_LOSS_STATS:
        RUN_OPS(loss_stats, l->tokens, l->columns, l->valid, l->first, l->targets, l->logits,
                l->stats);
        break;
    case ERG_KERNEL_LOSS_COMBINE:
        erg_ops_loss_combine(l->tokens, l->ranks, l->targets, l->stats, l->scale, l->log_sum,
                             l->loss);
        break;
    default:
        RUN_OPS(loss_backward, l->tokens, l->columns, l->valid, l->first, l->targets, l->log_sum,
                l->scale, l->logits);
        break;
    }
}

static void run_runs(bool float32, const struct erg_kernel *kernel)
{
    const __typeof__(kernel->runs) *r = &kernel->runs;
    size_t bytes = float32 ? sizeof(float) : sizeof(erg_bf16);
    if (kernel->kind == ERG_KERNEL_ADD_RUNS) {
        RUN_OPS(add_runs, r->runs, r->count, r->x, r->x_stride, r->to, r->to_stride);
        return;
    }
    for (size_t i = 0; i < r->runs; i++)
        memcpy((char *)r->to + i * r->to_stride * bytes,
               (const char *)r->x + i * r->x_stride * bytes, r->count * bytes);
}

void erg_host_run(bool float32, const struct erg_kernel *kernel)
{
    switch (kernel->kind) {
    case ERG_KERNEL_EMBEDDING:
    case ERG_KERNEL_EMBEDDING_GRADIENT:
    case ERG_KERNEL_POSITION:
    case ERG_KERNEL_POSITION_GRADIENT:
    case ERG_KERNEL_LOSS_STATS:
    case ERG_KERNEL_LOSS_COMBINE:
    case ERG_KERNEL_LOSS_GRADIENT:
        run_vocabulary(float32, kernel);
        break;
    case ERG_KERNEL_ADD:
        RUN_OPS(add_bias, kernel->add.tokens, kernel->add.hidden, kernel->add.a, kernel->add.b,
                kernel->add.bias, kernel->add.out);
        break;
    case ERG_KERNEL_NORM:
    case ERG_KERNEL_LAYER_NORM:
        run_norm(float32, kernel);
        break;
    case ERG_KERNEL_NORM_GRADIENT:
    case ERG_KERNEL_LAYER_NORM_GRADIENT:
        run_norm_gradient(float32, kernel);
        break;
    case ERG_KERNEL_LINEAR:
    case ERG_KERNEL_LINEAR_INPUT_GRADIENT:
    case ERG_KERNEL_LINEAR_WEIGHT_GRADIENT:
        run_linear(float32, kernel);
        break;
    case ERG_KERNEL_BIAS_GRADIENT:
        RUN_OPS(bias_gradient, kernel->bias.tokens, kernel->bias.width, kernel->bias.d_y,
                kernel->bias.d_bias);
        break;
    case ERG_KERNEL_ROPE:
    case ERG_KERNEL_ROPE_GRADIENT:
    case ERG_KERNEL_ATTENTION:
    case ERG_KERNEL_ATTENTION_GRADIENT:
        run_attention(float32, kernel);
        break;
    case ERG_KERNEL_SWIGLU:
    case ERG_KERNEL_SWIGLU_GRADIENT:
    case ERG_KERNEL_GELU:
    case ERG_KERNEL_GELU_GRADIENT:
        run_activation(float32, kernel);
        break;
    case ERG_KERNEL_SQUARES:
        erg_ops_squares(kernel->floats.count, kernel->floats.in, kernel->floats.sum);
        break;
    case ERG_KERNEL_ADAMW:
        RUN_OPS(adamw, kernel->adamw.count, kernel->adamw.decays, kernel->adamw.update,
                kernel->adamw.gradient, kernel->adamw.master, kernel->adamw.m, kernel->adamw.v,
                kernel->adamw.weight);
        break;
    case ERG_KERNEL_ROUND:
        RUN_OPS(to_element, kernel->floats.count, kernel->floats.in, kernel->floats.out);
        break;
    case ERG_KERNEL_COPY_RUNS:
    case ERG_KERNEL_ADD_RUNS:
        run_runs(float32, kernel);
        break;
    }
}
