/* The buffers of a rank, with the scratch that its backend's kernels need. */
#include "train/engine/rank_buffers.h"

#include "train/engine/optimizer.h"

int erg_rank_kernels(struct erg_memory_kernels *kernels, const struct erg_stage_options *options,
                     struct erg_error *err)
{
    *kernels = (struct erg_memory_kernels){.element_bytes = options->backend->element_bytes};
    return erg_stage_scratch(&kernels->scratch_bytes, options, err) != 0 ||
                   erg_optimizer_scratch(&kernels->optimizer_scratch_bytes, options->backend,
                                         &options->weights, err) != 0
               ? -1
               : 0;
}

int erg_rank_buffers_init(struct erg_static_memory *buffers, size_t *bound,
                          const struct erg_stage_options *options, const struct erg_layout *layout,
                          long stage, int64_t least_moved, struct erg_error *err)
{
    struct erg_memory_request request = {.model = options->weights.model,
                                         .layout = layout,
                                         .accounting = ERG_MEMORY_STATIC,
                                         .sequence_parallel = options->sequence_parallel,
                                         .least_moved = least_moved};
    struct erg_static_tensors tensors;
    struct erg_static_shape shape;
    struct erg_memory_kernels kernels;
    if (erg_rank_kernels(&kernels, options, err) != 0)
        return -1;
    erg_static_tensors_init(&tensors, request.model, options->weights.tensor);
    if (bound) {
        erg_static_shape_init(&shape, &request, &tensors, stage);
        *bound = shape.scratch + shape.optimizer_scratch;
    }
    request.kernels = &kernels;
    erg_static_shape_init(&shape, &request, &tensors, stage);
    erg_static_memory_init(buffers, &shape);
    return 0;
}
