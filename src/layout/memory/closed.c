/* Memory of a stage in closed form. */
#include "layout/memory/memory_internal.h"

#include "base/memory.h"
#include "iteration/pass_order.h"

#include <stdlib.h>

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static struct erg_pass_order order_of(const struct erg_layout *layout)
{
    return erg_pass_order_of((size_t)layout->pipeline, (size_t)layout->virtual_stages,
                             (size_t)layout->microbatches);
}

long erg_memory_warmup(const struct erg_layout *layout, long stage)
{
    const struct erg_pass_order order = order_of(layout);
    return (long)erg_pass_order_warmup(&order, (size_t)stage);
}

long erg_memory_groups(const struct erg_layout *layout, long stage)
{
    long all = layout->microbatches * layout->virtual_stages;
    long groups = erg_memory_warmup(layout, stage) + 1;
    return groups < all ? groups : all;
}

/* Whether all forward passes of a stage come before its first backward pass. */
static bool is_apart(const struct erg_layout *layout, long stage)
{
    return erg_memory_warmup(layout, stage) == layout->microbatches * layout->virtual_stages;
}

/* The parameters of a stage that holds `layers`. */
static double stage_parameters(const struct erg_memory_request *request,
                               const struct erg_memory_sizes *sizes, long stage, long layers)
{
    const struct erg_layout *layout = request->layout;
    bool first = stage == 0, last = stage == layout->pipeline - 1;
    double sum = (double)layers * sizes->layer_parameters;
    if (sizes->dense_layers > 0)
        sum += (double)erg_layout_dense_layers(request->layout, request->model, stage, layers) *
               (sizes->dense_parameters - sizes->layer_parameters);
    if (first)
        sum += sizes->embedding_parameters;
    if (last)
        sum += sizes->head_parameters;
    return first && last && request->model->tied ? sum - (double)sizes->head[2] : sum;
}

/* The trained parameters of these: all, or only the adapters. */
static double stage_trained(const struct erg_memory_request *request,
                            const struct erg_memory_sizes *sizes, long stage, long layers)
{
    return sizes->adapters ? (double)layers * sizes->trained_layer
                           : stage_parameters(request, sizes, stage, layers);
}

/* Bytes kept for the given parameters, some of which are trained. */
static void add_parameters(double *items, const struct erg_memory_request *request,
                           double parameters, double trained)
{
    const struct erg_layout *layout = request->layout;
    items[ERG_MEMORY_WEIGHTS] = 2 * parameters;
    items[ERG_MEMORY_GRADIENTS] = 4 * trained;
    items[ERG_MEMORY_OPTIMIZER] = 12 * trained / (double)(layout->data * layout->context);
    if (erg_layout_is_sharded(layout))
        erg_memory_shards(items, request, parameters, trained);
}

/* Memory that does not depend on microbatches in flight. */
static void add_static(struct erg_memory_stage *stage, const struct erg_memory_request *request,
                       const struct erg_memory_sizes *sizes, long index, long layers)
{
    const struct erg_layout *layout = request->layout;
    double parameters = stage_parameters(request, sizes, index, layers);
    add_parameters(stage->items, request, parameters, stage_trained(request, sizes, index, layers));
    if (sizes->expert_parameters > 0)
        erg_memory_add_experts(
            stage->items, request,
            (double)(layers -
                     erg_layout_dense_layers(request->layout, request->model, index, layers)) *
                sizes->expert_parameters);
    stage->items[ERG_MEMORY_WORKSPACE] =
        (double)ERG_MEMORY_WORKSPACE_BYTES * (sizes->tensor > 1 ? 3 : 2);
    stage->items[ERG_MEMORY_GATHER] = sizes->tensor > 1 ? (double)sizes->full_hidden : 0;
    stage->items[ERG_MEMORY_ROPE] = (double)(layout->virtual_stages * sizes->rope);
    if (request->accounting == ERG_MEMORY_ARENA)
        return;
    long ranks = layout->data * layout->context;
    int64_t *rounding = erg_xcalloc((size_t)ranks, sizeof *rounding);
    erg_memory_moments_rounding(request, sizes, index, rounding);
    for (long rank = 0; rank < ranks; rank++)
        stage->items[ERG_MEMORY_ROUNDING] =
            larger(stage->items[ERG_MEMORY_ROUNDING], (double)rounding[rank]);
    free(rounding);
}

/* One group of activations; of the largest chunk if they differ. */
struct group {
    double kept;     /* all tensors */
    double moved;    /* in host memory while the group waits */
    double split;    /* bytes of the tensor that moves only in part */
    double rounding; /* the bytes that the rest takes beyond its size */
};

static struct group group_of(const struct erg_memory_request *request,
                             const struct erg_memory_sizes *sizes, long index, long layers)
{
    enum erg_recompute recompute = erg_layout_recompute(request->layout, index);
    double offload = erg_layout_offload(request->layout, index);
    struct group group = {.kept = (double)(layers * sizes->kept[recompute])};
    if (!erg_memory_offloads(request->layout, index))
        return group;
    group.moved = offload * (double)(layers * sizes->movable[recompute]);
    if (request->accounting == ERG_MEMORY_ARENA)
        return group;
    struct erg_memory_choice choice;
    erg_memory_choose(&choice, sizes, recompute, layers, offload, ERG_MEMORY_FRAMEWORK);
    group.moved = (double)choice.moved;
    if (choice.split) {
        int64_t tail = choice.split->bytes - choice.split->moved;
        group.split = (double)choice.split->bytes;
        group.rounding = (double)(erg_memory_served_bytes(sizes, tail) - tail);
    }
    erg_memory_choice_release(&choice);
    return group;
}

/*
 * Layers in flight at the worst moment, in units of the largest chunk: with equal chunks, the
 * number of groups in flight. The forward passes run ahead of the backward passes by the warm-up,
 * so the set of groups in flight repeats after every period. While both pass through one chunk
 * each, memory in flight changes linearly, so the peak is where one of them leaves its chunk.
 */
static double groups_in_flight(const struct erg_memory_request *request, long index, long most,
                               long groups)
{
    const struct erg_layout *layout = request->layout;
    const long layers = request->model->layers;
    if (!layout->chunk_layers || layout->virtual_stages == 1 ||
        erg_layout_stage_layers(layout, layers, index) == most * layout->virtual_stages)
        return (double)groups;
    const struct erg_pass_order order = order_of(layout);
    const long all = (long)erg_pass_order_count(&order);
    const long repeats = groups + 2 * (long)(order.group * order.chunks);
    const long end = all < repeats ? all : repeats;
    struct erg_pass_run forward = erg_pass_run_first(&order, false);
    struct erg_pass_run backward = erg_pass_run_first(&order, true);
    long flying = 0, worst = 0, same = 0;
    for (long k = 0; k < end; k += same) {
        long grows = erg_layout_chunk_layers(layout, layers, index, (long)forward.chunk);
        long until = groups - k;
        if (k >= groups) {
            grows -= erg_layout_chunk_layers(layout, layers, index, (long)backward.chunk);
            until = (long)backward.left;
        }
        same = (long)forward.left < until ? (long)forward.left : until;
        same = same < end - k ? same : end - k;
        flying += same * grows;
        worst = flying > worst ? flying : worst;
        erg_pass_run_on(&forward, &order, false, (size_t)same);
        if (k >= groups)
            erg_pass_run_on(&backward, &order, true, (size_t)same);
    }
    return (double)worst / (double)most;
}

/* The most layers of any chunk of a stage. */
static long most_layers(const struct erg_layout *layout, long layers, long index)
{
    long most = 1;
    if (!layout->chunk_layers)
        return erg_layout_chunk_layers(layout, layers, index, 0);
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++) {
        long own = erg_layout_chunk_layers(layout, layers, index, chunk);
        most = own > most ? own : most;
    }
    return most;
}

/* Units of copying in flight. */
struct flight {
    long most, unit; /* layers of the largest chunk, and of a unit */
    double units;
    bool apart;   /* see is_apart() */
    bool once;    /* one forward pass follows the first backward pass */
    double head;  /* units of the head's chunk, which never moves */
    long waiting; /* further heads waiting for their backward pass */
};

static struct flight flight_of(const struct erg_memory_request *request, long index)
{
    const struct erg_layout *layout = request->layout;
    const long all = layout->microbatches * layout->virtual_stages;
    const long ahead = erg_memory_warmup(layout, index), groups = ahead < all ? ahead + 1 : all;
    long most = most_layers(layout, request->model->layers, index);
    long unit = request->layer_copies ? 1 : most;
    struct flight flight = {
        .most = most,
        .unit = unit,
        .units = groups_in_flight(request, index, most, groups) * (double)most / (double)unit,
        .apart = ahead == all,
        .once = ahead + 1 == all,
    };
    if (index == layout->pipeline - 1) {
        long layers = erg_layout_chunk_layers(layout, request->model->layers, index,
                                              layout->virtual_stages - 1);
        flight.waiting = flight.apart ? layout->microbatches - 1 : 0;
        flight.head = (double)((1 + flight.waiting) * layers) / (double)unit;
    }
    return flight;
}

/* Logits in memory at once, in units of the bf16 ones: those, and two fp32 copies. */
enum { HEAD_LOGITS = 5 };

enum {
    FORWARD = ERG_MEMORY_FORWARD,
    FFN = ERG_MEMORY_FFN,
    HEAD = ERG_MEMORY_AT_HEAD,
};
static const char *const moment_names[ERG_MEMORY_MOMENTS] = {"forward",  "backward", "backward",
                                                             "backward", "backward", "head"};

struct moment {
    double kept, buffers, transient, head, pipeline;
    double weights, gradients; /* gathered by FSDP */
};

static double sum_of(const struct moment *moment)
{
    return moment->kept + moment->buffers + moment->transient + moment->head + moment->pipeline +
           moment->weights + moment->gradients;
}

/*
 * Hidden tensors between stages: the output being sent, the next input and both gradients. Where
 * all forward passes come first no input is still to come, and at first no gradient to be sent; nor
 * is there an output on the last stage. Without virtual stages the peak is at the first of few
 * backward passes, so the remaining forward passes determine the buffers: with one, the next input
 * or the gradient being sent, with two both.
 */
static void fill_pipeline(struct moment *moments, const struct erg_memory_request *request,
                          double hidden, long index)
{
    const struct erg_layout *layout = request->layout;
    bool first = index == 0, last = index == layout->pipeline - 1, apart = is_apart(layout, index);
    long later = layout->microbatches - erg_memory_warmup(layout, index) - 1;
    double forward = apart ? (last ? 3 : 2) : 4, backward = forward, head = forward;
    if (layout->virtual_stages == 1) {
        forward = (last ? 0 : 1 + !apart) + (!first && later > 0) + 1;
        backward = 1 + !last + (first || apart ? 0 : later < 2 ? (double)later : 2);
        head = last ? 2 + (!first && later > 0) : forward;
    }
    for (int i = 0; i < ERG_MEMORY_MOMENTS; i++)
        moments[i].pipeline = (i == FORWARD ? forward : i == HEAD ? head : backward) * hidden;
}

/* The weights that FSDP has gathered. */
static void fill_gathered(struct moment *moments, const struct erg_memory_request *request,
                          const struct erg_memory_sizes *sizes)
{
    double weights[ERG_MEMORY_MOMENTS], gradients[ERG_MEMORY_MOMENTS];
    if (!erg_layout_is_sharded(request->layout))
        return;
    erg_memory_gathered(weights, gradients, request, sizes);
    for (int i = 0; i < ERG_MEMORY_MOMENTS; i++) {
        moments[i].weights = weights[i];
        moments[i].gradients = gradients[i];
    }
}

/*
 * The newest two units are whole: one is being made, one copied out. (Of single layers in chunks of
 * one, the copy ends in the backward pass between; before the first of those there is but one
 * buffer, which is as much.) In backward passes the newest is, and the oldest has come back. Where
 * all forward passes come first, the newest group has left before the first backward pass, and only
 * then are there buffers to receive in; where all but one do, one of the two. The framework's are
 * left from the iteration before.
 *
 * Layers of the head's chunk are whole, and of single layers none is being copied when they have
 * run. On the head's stage the worst is before any group of another chunk comes back: those of the
 * head are whole, and all but one of its microbatches wait with the input and output of the final
 * norm and the softmax in fp32.
 */
static void fill_moments(struct moment *moments, const struct erg_memory_request *request,
                         const struct erg_memory_sizes *sizes, long index,
                         const struct group *group, const struct flight *flight)
{
    const bool is_arena = request->accounting == ERG_MEMORY_ARENA;
    double units = flight->units, head = flight->head;
    bool alone = request->layer_copies && flight->most == 1 && is_arena;
    double whole_forward = larger(head, alone ? 1 : 2);
    double whole_backward = larger(head, flight->apart && !request->layer_copies ? 0 : 1);
    double receive = 2 * group->moved, early = receive;
    if (is_arena && (flight->apart || flight->once))
        early = flight->apart ? 0 : group->moved;
    double waiting = (double)flight->waiting * 2 * (double)(sizes->hidden + sizes->logits);
    enum erg_recompute recompute = erg_layout_recompute(request->layout, index);
    double saved = group->moved - group->rounding, all = units * group->kept;
    double movable = (double)(flight->unit * sizes->movable[recompute]);
    double transient[ERG_MEMORY_MOMENTS];
    erg_memory_transients(transient, sizes, recompute, movable - group->moved);
    moments[FORWARD] = (struct moment){
        .kept = all - larger(units - whole_forward, 0) * saved,
        .buffers = early,
        .transient = transient[FORWARD],
        .head = waiting,
    };
    for (int i = FFN; i < HEAD; i++)
        moments[i] = (struct moment){
            .kept = all - larger(units - whole_backward, 0) * saved,
            .buffers = flight->waiting ? early : receive + group->split,
            .transient = transient[i],
            .head = waiting,
        };
    moments[HEAD] = (struct moment){.kept = moments[FORWARD].kept, .buffers = early};
    if (index == request->layout->pipeline - 1) {
        if (request->layer_copies)
            moments[HEAD].kept = all - larger(units - head, 0) * saved;
        moments[HEAD].head = waiting + HEAD_LOGITS * (double)sizes->logits;
    }
    fill_pipeline(moments, request, (double)sizes->hidden, index);
    fill_gathered(moments, request, sizes);
}

void erg_memory_closed(struct erg_memory_stage *stage, const struct erg_memory_request *request,
                       const struct erg_memory_sizes *sizes, long index)
{
    if (request->accounting == ERG_MEMORY_STATIC) {
        erg_memory_static_closed(stage, request, sizes, index);
        return;
    }
    struct flight flight = flight_of(request, index);
    struct group group = group_of(request, sizes, index, flight.unit);
    struct moment moments[ERG_MEMORY_MOMENTS];
    int worst = FORWARD;
    *stage = (struct erg_memory_stage){.groups = erg_memory_groups(request->layout, index)};
    add_static(stage, request, sizes, index,
               erg_layout_stage_layers(request->layout, request->model->layers, index));
    fill_moments(moments, request, sizes, index, &group, &flight);
    for (int i = FORWARD + 1; i < ERG_MEMORY_MOMENTS; i++)
        if (sum_of(&moments[i]) > sum_of(&moments[worst]))
            worst = i;
    stage->moment = moment_names[worst];
    stage->items[ERG_MEMORY_ACTIVATIONS] = moments[worst].kept;
    stage->items[ERG_MEMORY_OFFLOAD] = moments[worst].buffers;
    stage->items[ERG_MEMORY_TRANSIENT] = moments[worst].transient;
    stage->items[ERG_MEMORY_HEAD] = moments[worst].head;
    stage->items[ERG_MEMORY_PIPELINE] = moments[worst].pipeline;
    stage->items[ERG_MEMORY_WEIGHTS] += moments[worst].weights;
    stage->items[ERG_MEMORY_GRADIENTS] += moments[worst].gradients;
    const long units = flight.most / flight.unit;
    stage->offload_bytes = group.moved * (double)units;
    stage->host_bytes = stage->offload_bytes * (double)stage->groups;
    stage->offload = stage->offload_bytes > 0 ? erg_layout_offload(request->layout, index) : 0;
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        stage->peak_bytes += stage->items[i];
}

void erg_memory_lines_init(struct erg_memory_lines *lines, const struct erg_memory_request *request,
                           const struct erg_memory_sizes *sizes, long index)
{
    if (request->accounting == ERG_MEMORY_STATIC) {
        erg_memory_static_lines(lines, request, sizes, index);
        return;
    }
    struct erg_layout layout = *request->layout;
    struct erg_memory_request own = *request;
    struct erg_memory_stage constant = {0};
    lines->ratio_count = 0;
    struct moment without[ERG_MEMORY_MOMENTS], with[ERG_MEMORY_MOMENTS];
    own.layout = &layout;
    own.accounting = ERG_MEMORY_ARENA;
    layout.stage_offload = NULL;
    layout.offload = 1;
    struct flight flight = flight_of(&own, index);
    struct group all = group_of(&own, sizes, index, flight.unit), none = {.kept = all.kept};
    add_static(&constant, &own, sizes, index,
               erg_layout_stage_layers(&layout, request->model->layers, index));
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        constant.peak_bytes += constant.items[i];
    fill_moments(without, &own, sizes, index, &none, &flight);
    fill_moments(with, &own, sizes, index, &all, &flight);
    for (int i = 0; i < ERG_MEMORY_MOMENTS; i++) {
        lines->least[i] = constant.peak_bytes + sum_of(&without[i]);
        lines->slope[i] = sum_of(&with[i]) - sum_of(&without[i]);
    }
    const long units = flight.most / flight.unit;
    lines->host_bytes = (double)(erg_memory_groups(&layout, index) * units) * all.moved;
}

/*
 * After its last forward pass a stage has begun the backward passes of a period: the last chunk has
 * fewer than all microbatches in flight, or the first chunk more, and each other chunk has as many
 * as there are stages. Memory in flight at that moment does not exceed the peak.
 */
static void fill_flying(struct erg_memory_floor *floor, const struct erg_layout *layout, long index)
{
    const long stages = layout->pipeline, before = (layout->virtual_stages - 1) * stages;
    const long groups = erg_memory_groups(layout, index), last = groups - before;
    if (layout->virtual_stages == 1)
        floor->flying = (double)groups;
    else if (is_apart(layout, index))
        floor->flying = (double)layout->microbatches;
    else if (last < stages)
        floor->flying = (double)last;
    else
        floor->flying = (double)stages;
    if (layout->virtual_stages > 1 && !is_apart(layout, index))
        floor->beyond = (double)(last < stages ? (stages - last) * (layout->virtual_stages - 1)
                                               : last - stages);
}

void erg_memory_floor_init(struct erg_memory_floor *floor, const struct erg_memory_request *request,
                           const struct erg_memory_sizes *sizes, long index)
{
    if (request->accounting == ERG_MEMORY_STATIC) {
        erg_memory_static_floor(floor, request, sizes, index);
        fill_flying(floor, request->layout, index);
        return;
    }
    const struct erg_layout *layout = request->layout;
    enum erg_recompute recompute = erg_layout_recompute(layout, index);
    struct erg_memory_request own = *request;
    struct erg_memory_stage constant = {0};
    struct moment moments[ERG_MEMORY_MOMENTS] = {
        [HEAD] = {.head = index == layout->pipeline - 1 ? HEAD_LOGITS * (double)sizes->logits : 0}};
    double transient[ERG_MEMORY_MOMENTS], most = 0;
    erg_memory_transients(transient, sizes, recompute, 0);
    moments[FORWARD].transient = transient[FORWARD];
    moments[FFN].transient = transient[FFN];
    own.accounting = ERG_MEMORY_ARENA;
    add_static(&constant, &own, sizes, index, 0);
    fill_pipeline(moments, request, (double)sizes->hidden, index);
    for (int i = 0; i < ERG_MEMORY_MOMENTS; i++)
        most = larger(most, sum_of(&moments[i]));
    double layer[ERG_MEMORY_ITEMS] = {0};
    add_parameters(layer, request, sizes->layer_parameters, sizes->trained_layer);
    *floor = (struct erg_memory_floor){
        .fixed_bytes = most,
        .layer_bytes =
            layer[ERG_MEMORY_WEIGHTS] + layer[ERG_MEMORY_GRADIENTS] + layer[ERG_MEMORY_OPTIMIZER],
        .kept_bytes = (double)sizes->kept[recompute],
        .movable_bytes = (double)sizes->movable[recompute],
    };
    fill_flying(floor, layout, index);
    if (sizes->expert_parameters > 0) {
        double experts[ERG_MEMORY_ITEMS] = {0};
        erg_memory_add_experts(experts, request, sizes->expert_parameters);
        for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
            floor->layer_bytes += experts[i];
    }
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        floor->fixed_bytes += constant.items[i];
}
