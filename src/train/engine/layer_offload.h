/*
 * Offload: copies of tensors of a stage's layers to host memory and back, concurrent with its
 * passes. The list of layout/memory/copies.h gives the start of each copy and the position at which
 * the passes wait for it.
 *
 * A layer's offloaded tensors are written in a slot of the stage, copied to host memory, copied
 * back into one of two alternating buffers, and read there. A slot is free for another layer when
 * the copy out has ended, a buffer when the backward pass of its layer has ended. Copies out and in
 * each have a stream. Streams wait by events; the host never waits.
 */
#ifndef ERG_TRAIN_ENGINE_LAYER_OFFLOAD_H
#define ERG_TRAIN_ENGINE_LAYER_OFFLOAD_H

#include "decoder/decoder_stage.h"
#include "train/engine/step_timeline.h"

struct erg_offload;

struct erg_offload_options {
    struct erg_backend *backend;
    struct erg_stage *stage; /* uses this offload as its mover; all outlive it */
    const struct erg_layout *layout;
    long layers, index;                      /* layers of the model; index of the stage */
    struct erg_stream *stream;               /* of the passes */
    const struct erg_static_memory *buffers; /* of the rank; and their memory */
    void *memory;
    struct erg_timeline *timeline;
};

/* *offload is NULL for a stage that offloads nothing; all calls accept NULL and then do nothing. */
int erg_offload_open(struct erg_offload **offload, const struct erg_offload_options *options,
                     struct erg_error *err);
void erg_offload_close(struct erg_offload *offload);

/*
 * Call it when the passes of a step begin: all of them, or only the forward passes, which offload
 * nothing.
 */
void erg_offload_begin(struct erg_offload *offload, bool forward_alone);

#endif
