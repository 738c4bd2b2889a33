/*
 * Live tensors while a layer runs, in closed form, without the groups and the pipeline's tensors.
 * layer.c simulates the same tensors in order.
 */
#include "layout/memory/memory_internal.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* In the forward pass of the FFN, in addition to its kept tensors. */
static double ffn_output(const struct erg_memory_sizes *sizes)
{
    double full = sizes->tensor > 1 ? (double)sizes->full_hidden : 0;
    return (double)sizes->gathered_kv + 2 * (double)sizes->hidden + full;
}

/* The FFN's tensors that it does not keep, without the outputs of the norm and of the activation's
 * gate, which are freed before its output exists. */
static double unkept_of_ffn(const struct erg_memory_sizes *sizes, enum erg_recompute recompute)
{
    if (recompute == ERG_RECOMPUTE_FULL)
        return (double)(sizes->hidden + sizes->fc1 + sizes->ffn);
    return erg_memory_keeps(sizes, ERG_MEMORY_ACTIVATED, recompute) ? 0 : (double)sizes->ffn;
}

/*
 * The FFN's peak is at the creation of its output or, if that is small, while the gate still
 * exists: before the layer's output, which counts in the pipeline, and the share of keys and
 * values, which counts as kept.
 */
static double forward(const struct erg_memory_sizes *sizes, enum erg_recompute recompute)
{
    const double unkept = unkept_of_ffn(sizes, recompute);
    const bool gate = sizes->gated && !erg_memory_keeps(sizes, ERG_MEMORY_GATE, recompute);
    const double share =
        sizes->context > 1 && recompute != ERG_RECOMPUTE_FULL ? (double)sizes->kv : 0;
    double attention = (double)sizes->kv * (double)sizes->context + 3 * (double)sizes->query;
    if (sizes->arrived)
        return larger(attention, erg_memory_experts_forward(sizes, recompute));
    double gated = (double)sizes->gathered_kv + unkept + (gate ? (double)sizes->ffn : 0) - share;
    return larger(larger(attention, ffn_output(sizes) + unkept), gated);
}

/*
 * The activated tensor, if it is kept, and the gate: they are freed before the gradient of both
 * widths is joined.
 */
static double used_first(const struct erg_memory_sizes *sizes)
{
    const bool kept = erg_memory_keeps(sizes, ERG_MEMORY_ACTIVATED, ERG_RECOMPUTE_NONE);
    return (double)(kept + sizes->gated) * (double)sizes->ffn;
}

/*
 * The bytes that the FFN's backward pass needs beyond the kept tensors: the same number and, if the
 * activated tensor is not kept, its gradient.
 */
static double ffn_gradients(const struct erg_memory_sizes *sizes)
{
    const bool kept = erg_memory_keeps(sizes, ERG_MEMORY_ACTIVATED, ERG_RECOMPUTE_NONE);
    return (double)((kept ? 1 : 2) + sizes->gated) * (double)sizes->ffn;
}

/* The tensors of a layer that full recomputation restores before its backward pass. */
static double made_again(const struct erg_memory_sizes *sizes)
{
    return (double)(sizes->kept[ERG_RECOMPUTE_NONE] - sizes->kept[ERG_RECOMPUTE_FULL]);
}

/* The end of a recomputed layer, whose output also exists but is not needed. */
static double output_again(const struct erg_memory_sizes *sizes)
{
    double share = sizes->context > 1 ? (double)sizes->kv : 0;
    double unkept =
        erg_memory_keeps(sizes, ERG_MEMORY_ACTIVATED, ERG_RECOMPUTE_NONE) ? 0 : (double)sizes->ffn;
    return larger(ffn_output(sizes) + unkept - share,
                  (double)sizes->gathered_kv + 3 * (double)sizes->hidden);
}

static double ffn(const struct erg_memory_sizes *sizes, enum erg_recompute recompute)
{
    double keys = (double)sizes->gathered_kv;
    if (sizes->arrived && recompute != ERG_RECOMPUTE_FULL)
        return erg_memory_experts_backward(sizes, recompute);
    if (sizes->arrived) /* recomputed, then backward */
        return larger(made_again(sizes) + erg_memory_experts_backward(sizes, recompute),
                      made_again(sizes) + 2 * (double)sizes->hidden + (double)sizes->arrived);
    if (recompute == ERG_RECOMPUTE_FULL)
        return made_again(sizes) + larger(keys + ffn_gradients(sizes), output_again(sizes));
    if (erg_recompute_activation(recompute))
        return keys + (double)((sizes->gated ? 5 : 2) +
                               erg_memory_remakes(sizes, ERG_MEMORY_ACTIVATED, recompute)) *
                          (double)sizes->ffn;
    return keys + ffn_gradients(sizes);
}

/*
 * The attention's sums for the queries' gradient are in fp32; with context ranks it has the
 * gradients of all keys and values, and those of half of them again. `norm_stays`: the bytes kept
 * for the norm before the FFN.
 */
static double attention(const struct erg_memory_sizes *sizes, enum erg_recompute recompute,
                        double norm_stays)
{
    double full = sizes->tensor > 1 ? (double)sizes->full_hidden : 0;
    double hidden = (double)sizes->hidden, keys = (double)sizes->gathered_kv;
    /* The sum of the norm's gradient over the tensor group, followed by that of its input. */
    double norm = larger((double)sizes->fc1 + full, hidden) + keys +
                  (erg_memory_remakes(sizes, ERG_MEMORY_FFN_NORM, recompute) ? 2 : 1) * hidden;
    double sums = 4 * (double)sizes->query + (sizes->context > 1 ? 2.5 * keys : (double)sizes->kv);
    if (sizes->arrived) /* the experts' backward pass includes the norm */
        return sums;
    return larger(norm + norm_stays, sums);
}

void erg_memory_transients(double transient[ERG_MEMORY_MOMENTS],
                           const struct erg_memory_sizes *sizes, enum erg_recompute recompute,
                           double stays)
{
    bool full = recompute == ERG_RECOMPUTE_FULL;
    enum erg_recompute made = full ? ERG_RECOMPUTE_NONE : recompute;
    double norm_stays =
        (erg_memory_keeps(sizes, ERG_MEMORY_FFN_NORM, made) ? 2 : 1) * (double)sizes->hidden;
    transient[ERG_MEMORY_FORWARD] = forward(sizes, recompute);
    transient[ERG_MEMORY_FFN] = transient[ERG_MEMORY_FFN_MOVED] = ffn(sizes, recompute);
    if (!full && !erg_recompute_activation(recompute))
        transient[ERG_MEMORY_FFN_MOVED] += used_first(sizes) - stays;
    transient[ERG_MEMORY_ATTENTION] = attention(sizes, recompute, norm_stays) -
                                      (double)sizes->kept_of_ffn[made] +
                                      (full ? made_again(sizes) : 0);
    transient[ERG_MEMORY_ATTENTION_MOVED] =
        full ? transient[ERG_MEMORY_ATTENTION] : attention(sizes, recompute, 0) - stays;
    transient[ERG_MEMORY_AT_HEAD] = 0;
}
