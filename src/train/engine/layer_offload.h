/*
 * Offload: what moves of the layers of a stage to host memory and back, beside its passes. The list
 * of layout/memory/copies.h is the program: a copy begins where it says, and the passes wait for it
 * where it says.
 *
 * What moves of a layer is, one after the other, written in a slot of the stage, copied out, in
 * host memory, copied in, and read in one of two places that take turns. A slot is another layer's
 * when the copy out has ended; a place when the layer before in it has gone backward. Copies out
 * and in have a stream each. Everything waits by events, the host for nothing.
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

/* Of a stage of which nothing moves *offload is NULL, with which all calls do nothing. */
int erg_offload_open(struct erg_offload **offload, const struct erg_offload_options *options,
                     struct erg_error *err);
void erg_offload_close(struct erg_offload *offload);

/* The passes of a step begin: all of them, or the forward passes alone, of which nothing moves. */
void erg_offload_begin(struct erg_offload *offload, bool forward_alone);

#endif
