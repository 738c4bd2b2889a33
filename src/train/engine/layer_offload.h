/*
 * Offload: copies of tensors of a stage's layers to host memory and back, concurrent with its
 * passes. The list of layout/memory/copies.h gives the begin of each copy and the place where the
 * passes wait for it.
 *
 * The offloaded tensors of a layer are written in a slot of the stage, copied out to host memory,
 * copied in, and read in one of two places that take turns. A slot is free for another layer when
 * the copy out has ended, a place when the backward pass of its layer has ended. Copies out and in
 * have a stream each. Streams wait by events; the host never waits.
 */
#ifndef ERG_TRAIN_ENGINE_LAYER_OFFLOAD_H
#define ERG_TRAIN_ENGINE_LAYER_OFFLOAD_H

#include "decoder/decoder_stage.h"
#include "train/engine/step_timeline.h"

struct erg_offload;

struct erg_offload_options {
    struct erg_backend *backend;
    struct erg_stage *stage; /* whose mover it becomes; all outlive it */
    const struct erg_layout *layout;
    long layers, index;                      /* of the model; which stage it is */
    struct erg_stream *stream;               /* of the passes */
    const struct erg_static_memory *buffers; /* of the rank; where they lie */
    void *memory;
    struct erg_timeline *timeline;
};

/* *offload is NULL for a stage that offloads nothing; all calls accept NULL and then do nothing. */
int erg_offload_open(struct erg_offload **offload, const struct erg_offload_options *options,
                     struct erg_error *err);
void erg_offload_close(struct erg_offload *offload);

/* The passes of a step begin: all of them, or only the forward passes, which offload nothing. */
void erg_offload_begin(struct erg_offload *offload, bool forward_alone);

#endif
