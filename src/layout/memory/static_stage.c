/* The static accounting of stages: sums of their buffers, which are the same at every moment. */
#include "base/memory.h"
#include "iteration/pass_order.h"
#include "layout/memory/memory_internal.h"
#include "layout/memory/static_memory.h"

void erg_static_memory_of(struct erg_static_memory *memory,
                          const struct erg_memory_request *request,
                          const struct erg_memory_sizes *sizes, long index)
{
    struct erg_static_shape shape;
    erg_static_shape_init(&shape, request, &sizes->static_tensors, index);
    erg_static_memory_init(memory, &shape);
}

void erg_memory_static_closed(struct erg_memory_stage *stage,
                              const struct erg_memory_request *request,
                              const struct erg_memory_sizes *sizes, long index)
{
    struct erg_static_memory memory;
    erg_static_memory_of(&memory, request, sizes, index);
    *stage = (struct erg_memory_stage){.moment = "always",
                                       .groups = erg_memory_groups(request->layout, index)};
    erg_static_items(stage->items, &memory);
    stage->peak_bytes = (double)memory.total;
}

void erg_memory_static_lines(struct erg_memory_lines *lines,
                             const struct erg_memory_request *request,
                             const struct erg_memory_sizes *sizes, long index)
{
    struct erg_static_memory memory;
    erg_static_memory_of(&memory, request, sizes, index);
    *lines = (struct erg_memory_lines){0};
    for (int i = 0; i < ERG_MEMORY_MOMENTS; i++)
        lines->least[i] = (double)memory.total;
}

/* Bytes of a weight: in use and its gradient, and of what ranks share of it. */
static const double own_bytes = 2 + 4, shared_bytes = 12;

/*
 * The stage without layers, and what each adds. Layers share two buckets, of heads' norms and of
 * vectors, whose rounding the sum may have twice, as that of the buffers of weights: it is left
 * out.
 */
void erg_memory_static_floor(struct erg_memory_floor *floor,
                             const struct erg_memory_request *request,
                             const struct erg_memory_sizes *sizes, long index)
{
    const struct erg_layout *layout = request->layout;
    const struct erg_static_tensors *tensors = &sizes->static_tensors;
    const size_t ranks = (size_t)(layout->data * layout->context);
    const double bytes = own_bytes + shared_bytes / (double)ranks;
    struct erg_layout equal = *layout;
    struct erg_memory_request without = *request;
    struct erg_static_shape shape;
    struct erg_static_memory memory;
    equal.chunk_layers = NULL; /* the first layers of passes are as many whatever chunks have */
    without.layout = &equal;
    erg_static_shape_init(&shape, &without, tensors, index);
    shape.room.layers = 0;
    shape.weights =
        erg_static_weights_of(tensors, 0, index == 0, index == layout->pipeline - 1, ranks);
    erg_static_memory_init(&memory, &shape);
    const double kept =
        (double)(memory.pieces[ERG_STATIC_LAYERS] + memory.pieces[ERG_STATIC_LAYER_INPUTS]);
    const double rounding =
        2 * (double)(ERG_WEIGHT_ELEMENTS * ranks) * bytes + 3 * ERG_STATIC_ALIGNMENT;
    *floor = (struct erg_memory_floor){
        .fixed_bytes =
            (double)memory.total - rounding - (double)memory.counts[ERG_STATIC_LAYERS] * kept,
        .layer_bytes =
            (double)(erg_bucket_room(tensors->layer[ERG_BUCKET_LAYER], ranks) +
                     tensors->layer[ERG_BUCKET_HEAD_NORMS] + tensors->layer[ERG_BUCKET_VECTORS]) *
            bytes,
        .kept_bytes = kept,
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
