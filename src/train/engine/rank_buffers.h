/*
 * Rank buffers: all memory of a rank on its device, and the offset of each buffer, before anything
 * is allocated (layout/memory/static_memory.h). `ergon memory` sums the same table.
 */
#ifndef ERG_TRAIN_ENGINE_RANK_BUFFERS_H
#define ERG_TRAIN_ENGINE_RANK_BUFFERS_H

#include "decoder/decoder_stage.h"

/* The scratch memory of a backend's kernels for a stage with these options. */
int erg_rank_kernels(struct erg_memory_kernels *kernels, const struct erg_stage_options *options,
                     struct erg_error *err);

/*
 * The buffers of a stage of the layout with these options, which does not offload tensors below
 * `least_moved` bytes. Uses only the elements and scratch of the options' backend; groups have no
 * effect. *bound, if not NULL: the scratch that `ergon memory` counts.
 */
int erg_rank_buffers_init(struct erg_static_memory *buffers, size_t *bound,
                          const struct erg_stage_options *options, const struct erg_layout *layout,
                          long stage, int64_t least_moved, struct erg_error *err);

#endif
