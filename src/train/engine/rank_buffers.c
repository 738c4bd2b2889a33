/* The buffers of a rank, with the scratch that its backend's kernels need. */
#include "train/engine/rank_buffers.h"

#include "train/engine/optimizer.h"

int erg_rank_buffers_init(struct erg_static_memory *buffers, size_t *bound,
                          const struct erg_stage_options *options, const struct erg_layout *layout,
                          long stage, int64_t least_moved, struct erg_error *err)
{
    const struct erg_memory_request request = {.model = options->weights.model,
                                               .layout = layout,
                                               .accounting = ERG_MEMORY_STATIC,
                                               .sequence_parallel = options->sequence_parallel,
                                               .least_moved = least_moved};
    struct erg_static_tensors tensors;
    struct erg_static_shape shape;
    erg_static_tensors_init(&tensors, request.model, options->weights.tensor);
    erg_static_shape_init(&shape, &request, &tensors, stage);
    if (bound)
        *bound = shape.scratch + shape.optimizer_scratch;
    shape.element = options->backend->element_bytes;
    erg_static_move(&shape, &request, stage, erg_layout_offload(layout, stage));
    if (erg_stage_scratch(&shape.scratch, options, err) != 0 ||
        erg_optimizer_scratch(&shape.optimizer_scratch, options->backend, &options->weights, err))
        return -1;
    erg_static_memory_init(buffers, &shape);
    return 0;
}
