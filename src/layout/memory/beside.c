/* What lives beside the groups while a layer runs, without the tensors of the pipeline, in closed
 * form. In which order layer.c follows it. */
#include "layout/memory/memory_internal.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* In the forward pass of the FFN, beside what it keeps. */
static double ffn_transient(const struct erg_memory_sizes *sizes)
{
    double full = sizes->tensor > 1 ? (double)sizes->full_hidden : 0;
    return (double)sizes->gathered_kv + 2 * (double)sizes->hidden + full;
}

/* Of the FFN what it makes and does not keep, but the outputs of the norm and of the activation's
 * gate, which are gone before its output is there. */
static double unkept_of_ffn(const struct erg_memory_sizes *sizes, enum erg_recompute recompute)
{
    if (recompute == ERG_RECOMPUTE_FULL)
        return (double)(sizes->hidden + sizes->fc1 + sizes->ffn);
    return erg_recompute_activation(recompute) ? (double)sizes->ffn : 0;
}

/*
 * In the FFN the worst is where its output is made or, where that is small, where the gate still
 * is: before the layer's output, which is counted in the pipeline, and the share of keys and
 * values, which is counted as kept.
 */
double erg_memory_beside_forward(const struct erg_memory_sizes *sizes, enum erg_recompute recompute,
                                 bool published)
{
    const double hidden = (double)sizes->hidden, unkept = unkept_of_ffn(sizes, recompute);
    const bool gate =
        sizes->gated && (recompute == ERG_RECOMPUTE_FULL || erg_recompute_activation(recompute));
    const double share =
        sizes->context > 1 && recompute != ERG_RECOMPUTE_FULL ? (double)sizes->kv : 0;
    double attention = (double)sizes->kv * (double)sizes->context + 3 * (double)sizes->query;
    double gated = (double)sizes->gathered_kv + unkept + (gate ? (double)sizes->ffn : 0) - share -
                   (published ? hidden : 0);
    return larger(larger(attention, ffn_transient(sizes) + unkept), gated);
}

/* The activated tensor and the gate, which go before the gradient of both widths is joined. */
static double used_first(const struct erg_memory_sizes *sizes)
{
    return (sizes->gated ? 2 : 1) * (double)sizes->ffn;
}

/*
 * As published it does not count that they go, and the share of keys and values does, which is
 * among what is kept. Recomputing everything makes all of a layer again first.
 */
double erg_memory_beside_ffn(const struct erg_memory_sizes *sizes, enum erg_recompute recompute,
                             bool published)
{
    double ffn = (double)sizes->ffn, keys = (double)sizes->gathered_kv;
    double share = sizes->context > 1 ? (double)sizes->kv : 0;
    if (recompute == ERG_RECOMPUTE_FULL) {
        double made = (double)(sizes->kept[ERG_RECOMPUTE_NONE] - sizes->kept[ERG_RECOMPUTE_FULL]);
        double backward = keys + used_first(sizes);
        return made + larger(backward, ffn_transient(sizes) - share);
    }
    if (erg_recompute_activation(recompute))
        return keys + (sizes->gated ? 6 : 3) * ffn + (published ? share : 0);
    if (published)
        return keys + (sizes->gated ? 3 : 2) * ffn + share;
    return keys + used_first(sizes);
}

double erg_memory_beside_ffn_moved(const struct erg_memory_sizes *sizes,
                                   enum erg_recompute recompute, double stays, bool published)
{
    double beside = erg_memory_beside_ffn(sizes, recompute, published);
    bool kept = recompute != ERG_RECOMPUTE_FULL && !erg_recompute_activation(recompute);
    return kept && !published ? beside + used_first(sizes) - stays : beside;
}

/* The attention's sums for the queries' gradient are in fp32; with context ranks it has the
 * gradients of all keys and values, and of half of them once more. Of the norm before the FFN
 * `norm_stays` is what is kept for it. */
static double largest_beside(const struct erg_memory_sizes *sizes, enum erg_recompute recompute,
                             double norm_stays)
{
    double full = sizes->tensor > 1 ? (double)sizes->full_hidden : 0;
    double hidden = (double)sizes->hidden, keys = (double)sizes->gathered_kv;
    double norm =
        (double)sizes->fc1 + keys + full + (erg_recompute_norms(recompute) ? 2 : 1) * hidden;
    double attention =
        4 * (double)sizes->query + (sizes->context > 1 ? 2.5 * keys : (double)sizes->kv);
    return larger(norm + norm_stays, attention);
}

double erg_memory_beside_attention(const struct erg_memory_sizes *sizes,
                                   enum erg_recompute recompute)
{
    enum erg_recompute made = recompute == ERG_RECOMPUTE_FULL ? ERG_RECOMPUTE_NONE : recompute;
    double norm_stays = (erg_recompute_norms(made) ? 1 : 2) * (double)sizes->hidden;
    double least = largest_beside(sizes, recompute, norm_stays) - (double)sizes->kept_of_ffn[made];
    return least + (double)(sizes->kept[made] - sizes->kept[recompute]);
}

double erg_memory_beside_attention_moved(const struct erg_memory_sizes *sizes,
                                         enum erg_recompute recompute, double stays)
{
    return recompute == ERG_RECOMPUTE_FULL ? erg_memory_beside_attention(sizes, recompute)
                                           : largest_beside(sizes, recompute, 0) - stays;
}
