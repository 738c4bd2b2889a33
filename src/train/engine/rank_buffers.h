/*
 * The layout of a rank's device memory: size and offset of every buffer, known before anything is
 * allocated (layout/memory/static_memory.h). `ergon memory` sums such a table, with upper bounds
 * for scratch.
 */
#ifndef ERG_TRAIN_ENGINE_RANK_BUFFERS_H
#define ERG_TRAIN_ENGINE_RANK_BUFFERS_H

#include "decoder/decoder_stage.h"

/* Element size, and scratch of the kernels of the passes and of the optimizer, in bytes. */
int erg_rank_kernels(struct erg_memory_kernels *kernels, const struct erg_stage_options *options,
                     struct erg_error *err);

/*
 * `options` and `layout` must describe the same stage. Tensors below `least_moved` bytes are not
 * offloaded. The backend is only asked for element size and scratch; communication groups may be
 * NULL. *bound (may be NULL) receives the upper bound of all scratch, bytes, that `ergon memory`
 * counts.
 */
int erg_rank_buffers_init(struct erg_static_memory *buffers, size_t *bound,
                          const struct erg_stage_options *options, const struct erg_layout *layout,
                          long stage, int64_t least_moved, struct erg_error *err);

#endif
