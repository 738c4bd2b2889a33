/* Memory of a mixture of experts in closed form: bytes per parameter, and its live tensors. */
#include "layout/memory/memory_internal.h"

#include "base/memory.h"
#include "model/lora.h"

void erg_memory_add_experts(double items[ERG_MEMORY_ITEMS],
                            const struct erg_memory_request *request, double parameters)
{
    const struct erg_layout *layout = request->layout;
    const long groups = layout->data / erg_layout_experts(layout);
    const double replicas = (double)groups;
    const double trained = erg_lora_is_on(request->model) ? 0 : parameters;
    items[ERG_MEMORY_WEIGHTS] += 2 * parameters;
    items[ERG_MEMORY_GRADIENTS] += 4 * trained;
    items[ERG_MEMORY_OPTIMIZER] += 12 * trained / replicas;
}

void erg_memory_expert_weights(struct erg_memory_weights *weights,
                               const struct erg_memory_request *request,
                               const struct erg_memory_sizes *sizes, long stage, long chunk)
{
    const long layers =
        erg_layout_chunk_layers(request->layout, request->model->layers, stage, chunk);
    const long dense = erg_layout_dense_layers(request->layout, request->model, stage, layers);
    weights->count = 0;
    for (long i = 0; i < (layers - dense) * sizes->experts_held; i++)
        for (int product = 0; product < 2; product++)
            ERG_PUSH(weights, items, sizes->expert_weights[product]);
}

/* ---- the order of expert_layer.c, in bytes ---- */

struct expert_walk {
    const struct erg_memory_sizes *sizes;
    enum erg_recompute recompute;
    double live, most;
};

static void take(struct expert_walk *walk, double bytes)
{
    walk->live += bytes;
    walk->most = walk->live > walk->most ? walk->live : walk->most;
}

static void give(struct expert_walk *walk, double bytes)
{
    walk->live -= bytes;
}

static double bytes_of(const struct expert_walk *walk, enum erg_memory_role role)
{
    return (double)walk->sizes->tensors[role].bytes;
}

static bool is_kept(const struct expert_walk *walk, enum erg_memory_role role)
{
    return walk->sizes->tensors[role].saved & 1u << walk->recompute;
}

/*
 * Allocates the tensor of a role, unless it is among the layer's kept tensors; it is freed again.
 */
static void make(struct expert_walk *walk, enum erg_memory_role role)
{
    take(walk, bytes_of(walk, role));
}

static void drop(struct expert_walk *walk, enum erg_memory_role role)
{
    if (!is_kept(walk, role))
        give(walk, bytes_of(walk, role));
}

static double hidden_of(const struct expert_walk *walk)
{
    return (double)walk->sizes->hidden;
}

static void reduce(struct expert_walk *walk)
{
    const double full = walk->sizes->tensor > 1 ? (double)walk->sizes->full_hidden : 0;
    take(walk, full);
    take(walk, hidden_of(walk));
    give(walk, full);
}

static void forward_shared(struct expert_walk *walk)
{
    if (bytes_of(walk, ERG_MEMORY_SHARED_FC1) == 0)
        return;
    make(walk, ERG_MEMORY_SHARED_FC1);
    make(walk, ERG_MEMORY_SHARED_ACTIVATED);
    drop(walk, ERG_MEMORY_SHARED_FC1);
    reduce(walk);
    drop(walk, ERG_MEMORY_SHARED_ACTIVATED);
}

static void forward_routed(struct expert_walk *walk)
{
    const struct erg_memory_sizes *sizes = walk->sizes;
    const double sent = (double)sizes->sent, arrived = (double)sizes->arrived;
    const bool t = sizes->tensor > 1, e = sizes->expert > 1;
    make(walk, ERG_MEMORY_SCORES);
    take(walk, t || e ? sent : 0);
    take(walk, t && e ? sent : 0);
    give(walk, t && e ? sent : 0);
    make(walk, ERG_MEMORY_EXPERT_INPUT);
    give(walk, t || e ? sent : 0);
    drop(walk, ERG_MEMORY_FFN_NORM);
    make(walk, ERG_MEMORY_FC1_OUTPUT);
    drop(walk, ERG_MEMORY_EXPERT_INPUT);
    make(walk, ERG_MEMORY_ACTIVATED);
    drop(walk, ERG_MEMORY_FC1_OUTPUT);
    take(walk, t || e ? arrived : 0);
    drop(walk, ERG_MEMORY_ACTIVATED);
    take(walk, t && e ? sent : 0);
    give(walk, t && e ? arrived : 0);
    make(walk, ERG_MEMORY_EXPERT_OUTPUT);
    give(walk, t && e ? sent : t || e ? arrived : 0);
    take(walk, hidden_of(walk));
    drop(walk, ERG_MEMORY_EXPERT_OUTPUT);
    drop(walk, ERG_MEMORY_SCORES);
}

/* Kept bytes from the FFN's norm on: none of them exist when its forward pass begins. */
static double kept_of(const struct expert_walk *walk)
{
    double sum = 0;
    for (int role = ERG_MEMORY_FFN_NORM; role < ERG_MEMORY_ROLES; role++)
        if (is_kept(walk, (enum erg_memory_role)role))
            sum += bytes_of(walk, (enum erg_memory_role)role);
    return sum;
}

double erg_memory_experts_forward(const struct erg_memory_sizes *sizes,
                                  enum erg_recompute recompute)
{
    struct expert_walk walk = {.sizes = sizes, .recompute = recompute};
    walk.live = walk.most = hidden_of(&walk) - kept_of(&walk); /* the attention's output */
    if (!is_kept(&walk, ERG_MEMORY_FFN_INPUT))
        take(&walk, hidden_of(&walk));
    make(&walk, ERG_MEMORY_FFN_NORM);
    forward_shared(&walk);
    forward_routed(&walk);
    return walk.most;
}

/* ---- backward ---- */

/* Frees the kept tensor, or its recomputed copy. */
static void use(struct expert_walk *walk, enum erg_memory_role role)
{
    give(walk, bytes_of(walk, role));
}

static void activate_again(struct expert_walk *walk, enum erg_memory_role role)
{
    if (erg_recompute_activation(walk->recompute))
        take(walk, bytes_of(walk, role));
}

static void backward_shared(struct expert_walk *walk)
{
    const double activated = bytes_of(walk, ERG_MEMORY_SHARED_ACTIVATED);
    const double fc1 = bytes_of(walk, ERG_MEMORY_SHARED_FC1);
    if (fc1 == 0)
        return;
    activate_again(walk, ERG_MEMORY_SHARED_ACTIVATED);
    take(walk, activated);
    use(walk, ERG_MEMORY_SHARED_ACTIVATED);
    take(walk, fc1);
    use(walk, ERG_MEMORY_SHARED_FC1);
    give(walk, activated);
    reduce(walk);
    give(walk, fc1);
}

static void backward_routed(struct expert_walk *walk)
{
    const struct erg_memory_sizes *sizes = walk->sizes;
    const double sent = (double)sizes->sent, arrived = (double)sizes->arrived;
    const bool t = sizes->tensor > 1, e = sizes->expert > 1;
    take(walk, sent);
    use(walk, ERG_MEMORY_EXPERT_OUTPUT);
    take(walk, e ? sent : 0);
    give(walk, e ? sent : 0);
    take(walk, t ? arrived : 0);
    give(walk, t ? sent : 0);
    activate_again(walk, ERG_MEMORY_ACTIVATED);
    take(walk, (double)sizes->ffn);
    give(walk, t ? arrived : sent);
    use(walk, ERG_MEMORY_ACTIVATED);
    take(walk, (double)sizes->fc1);
    use(walk, ERG_MEMORY_FC1_OUTPUT);
    give(walk, (double)sizes->ffn);
    take(walk, arrived);
    use(walk, ERG_MEMORY_EXPERT_INPUT);
    give(walk, (double)sizes->fc1);
    take(walk, t ? sent : 0);
    give(walk, t ? arrived : 0);
    take(walk, e ? sent : 0);
    give(walk, e ? sent : 0);
    take(walk, hidden_of(walk));
    give(walk, sent);
    use(walk, ERG_MEMORY_SCORES);
}

double erg_memory_experts_backward(const struct erg_memory_sizes *sizes,
                                   enum erg_recompute recompute)
{
    const bool full = recompute == ERG_RECOMPUTE_FULL;
    struct expert_walk walk = {.sizes = sizes, .recompute = full ? ERG_RECOMPUTE_NONE : recompute};
    backward_shared(&walk);
    backward_routed(&walk);
    if (erg_recompute_norms(walk.recompute))
        take(&walk, hidden_of(&walk));
    take(&walk, hidden_of(&walk));
    return walk.most;
}
