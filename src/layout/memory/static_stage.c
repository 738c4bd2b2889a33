/* The static accounting of stages: sums of their buffers, which are constant over time. */
#include "base/memory.h"
#include "iteration/pass_order.h"
#include "layout/memory/memory_internal.h"
#include "layout/memory/static_memory.h"

#include <assert.h>
#include <math.h>

void erg_static_memory_of(struct erg_static_memory *memory,
                          const struct erg_memory_request *request,
                          const struct erg_memory_sizes *sizes, long index)
{
    struct erg_static_shape shape;
    erg_static_shape_init(&shape, request, &sizes->static_tensors, index);
    erg_static_memory_init(memory, &shape);
}

/* Layers of the stage's largest chunk. */
static long most_layers(const struct erg_memory_request *request, long index)
{
    const struct erg_layout *layout = request->layout;
    long most = 0;
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++) {
        const long own = erg_layout_chunk_layers(layout, request->model->layers, index, chunk);
        most = own > most ? own : most;
    }
    return most;
}

void erg_memory_static_closed(struct erg_memory_stage *stage,
                              const struct erg_memory_request *request,
                              const struct erg_memory_sizes *sizes, long index)
{
    struct erg_static_memory memory;
    erg_static_memory_of(&memory, request, sizes, index);
    *stage = (struct erg_memory_stage){
        .moment = "always",
        .groups = erg_memory_groups(request->layout, index),
        .offload_bytes =
            (double)(memory.pieces[ERG_STATIC_MOVED]) * (double)most_layers(request, index),
        .host_bytes = (double)memory.host_bytes,
        .offload = memory.offload,
    };
    erg_static_items(stage->items, &memory);
    stage->peak_bytes = (double)memory.total;
}

/* The bytes that a stage needs by its offloaded tensors, from its bytes without offloading. */
struct moving {
    const struct erg_static_memory *without;
    struct erg_stage_room room;
    size_t piece, kept; /* bytes of a layer's slots that move, and of kept ones */
};

/* Moves one more tensor. */
static void add_moving(struct moving *moving, enum erg_static_buffer buffer)
{
    const struct erg_stage_room *room = &moving->room;
    const size_t place = erg_static_place(moving->without, buffer);
    moving->piece += place;
    moving->kept +=
        place * (room->layers + (buffer == ERG_STATIC_X_A ? room->inputs : room->passes));
}

static void add_ratio(struct erg_memory_lines *lines, double offload, const struct moving *moving)
{
    const size_t places = moving->piece ? moving->room.moved + ERG_STATIC_RING : 0;
    assert(lines->ratio_count < ERG_MEMORY_RATIOS);
    lines->ratios[lines->ratio_count++] = (struct erg_memory_ratio){
        offload, (double)(moving->without->total + places * moving->piece) - (double)moving->kept,
        (double)(moving->room.hosted * moving->piece)};
}

/* The ratio from which on `bytes` of `all` move, in thousandths, as printed. */
static double ratio_of(size_t bytes, size_t all)
{
    enum { STEPS = 1000 };
    return fmin(1, ceil(STEPS * ((double)bytes / (double)all) - 1e-9) / STEPS);
}

/* One ratio for each tensor that can move. */
void erg_memory_static_lines(struct erg_memory_lines *lines,
                             const struct erg_memory_request *request,
                             const struct erg_memory_sizes *sizes, long index)
{
    struct erg_static_memory without;
    struct erg_static_shape shape;
    size_t bytes[ERG_STATIC_BUFFERS], sum = 0;
    uint64_t moves = 0;
    double ratio = 0;
    *lines = (struct erg_memory_lines){0};
    erg_static_shape_init(&shape, request, &sizes->static_tensors, index);
    erg_static_move(&shape, request, index, 0);
    erg_static_memory_init(&without, &shape);
    struct moving moving = {.without = &without, .room = shape.room};
    const size_t all = erg_static_find_movable(bytes, &shape, (size_t)request->least_moved);
    for (int i = 0; i < ERG_STATIC_BUFFERS; i++) {
        if (bytes[i] == 0)
            continue;
        sum += bytes[i];
        if (ratio_of(sum, all) > ratio) /* otherwise it moves with the previous one */
            add_ratio(lines, ratio, &moving);
        ratio = ratio_of(sum, all);
        if (!moves)
            erg_stage_room_move(&moving.room, request->layout, request->model->layers, index,
                                UINT64_C(1) << i);
        moves |= UINT64_C(1) << i;
        if (moving.room.hosted == 0)
            break; /* no layer of the stage has time to move */
        add_moving(&moving, (enum erg_static_buffer)i);
    }
    if (moving.piece || !lines->ratio_count)
        add_ratio(lines, ratio, &moving);
    lines->host_bytes = lines->ratios[lines->ratio_count - 1].host_bytes;
    for (int i = 0; i < ERG_MEMORY_MOMENTS; i++)
        lines->least[i] = lines->ratios[0].bytes;
}

/* Bytes of a weight: the weight in use with its gradient, and the state that ranks share. */
static const double own_bytes = 2 + 4, shared_bytes = 12;

/*
 * The stage without layers, and the addend of each layer. Layers share two buckets, of heads' norms
 * and of vectors. The sum may contain their rounding twice, like that of the weights' buffers, so
 * it is ignored.
 */
void erg_memory_static_floor(struct erg_memory_floor *floor,
                             const struct erg_memory_request *request,
                             const struct erg_memory_sizes *sizes, long index)
{
    const struct erg_layout *layout = request->layout;
    const struct erg_static_tensors *tensors = &sizes->static_tensors;
    const size_t ranks = (size_t)(layout->data * layout->context);
    const double weight = own_bytes + shared_bytes / (double)ranks;
    struct erg_layout equal = *layout;
    struct erg_memory_request without = *request;
    struct erg_static_shape shape;
    struct erg_static_memory memory;
    equal.chunk_layers = NULL; /* the number of first layers of passes does not depend on the
                                * chunks */
    without.layout = &equal;
    erg_static_shape_init(&shape, &without, tensors, index);
    erg_static_move(&shape, request, index, 0);
    shape.room.layers = 0;
    shape.weights =
        erg_static_weights_of(tensors, 0, index == 0, index == layout->pipeline - 1, ranks);
    erg_static_memory_init(&memory, &shape);
    const double kept =
        (double)(memory.pieces[ERG_STATIC_LAYERS] + memory.pieces[ERG_STATIC_LAYER_INPUTS]);
    size_t bytes[ERG_STATIC_BUFFERS];
    erg_static_find_movable(bytes, &shape, (size_t)request->least_moved);
    double movable = 0;
    for (int i = 0; i < ERG_STATIC_BUFFERS; i++)
        movable += bytes[i] ? (double)erg_static_place(&memory, (enum erg_static_buffer)i) : 0;
    /* A moving input has no separate buffer. */
    const double inputs =
        movable > 0 ? (double)(memory.counts[ERG_STATIC_INPUTS] * memory.pieces[ERG_STATIC_INPUTS] -
                               shape.room.passes * memory.pieces[ERG_STATIC_INPUTS])
                    : 0;
    const double rounding =
        2 * (double)(ERG_WEIGHT_ELEMENTS * ranks) * weight + 3 * ERG_STATIC_ALIGNMENT;
    *floor = (struct erg_memory_floor){
        .fixed_bytes = (double)memory.total - rounding - inputs -
                       (double)memory.counts[ERG_STATIC_LAYERS] * kept,
        .layer_bytes =
            (double)(erg_bucket_room(tensors->layer[ERG_BUCKET_LAYER], ranks) +
                     tensors->layer[ERG_BUCKET_HEAD_NORMS] + tensors->layer[ERG_BUCKET_VECTORS]) *
            weight,
        .kept_bytes = kept,
        .movable_bytes = movable,
    };
}

/* Every pass of an iteration needs the same. */
void erg_memory_static_course(struct erg_memory_course *course,
                              const struct erg_memory_request *request,
                              const struct erg_memory_stage *stage, long index, long microbatches)
{
    const struct erg_layout *layout = request->layout;
    const struct erg_pass_order order = erg_pass_order_of(
        (size_t)layout->pipeline, (size_t)layout->virtual_stages, (size_t)microbatches);
    const size_t all = erg_pass_order_count(&order);
    const size_t warmup = erg_pass_order_warmup(&order, (size_t)index);
    for (size_t i = 0, forward = 0, backward = 0; i < 2 * all; i++) {
        const bool back = forward == all || forward > warmup + backward;
        const struct erg_pass pass =
            erg_pass_order_nth(&order, back, back ? backward++ : forward++);
        struct erg_memory_step step = {
            .backward = back, .chunk = (long)pass.chunk, .microbatch = (long)pass.microbatch};
        for (int item = 0; item < ERG_MEMORY_ITEMS; item++)
            step.items[item] = (float)stage->items[item];
        ERG_PUSH(course, steps, step);
    }
}
