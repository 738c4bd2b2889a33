/*
 * Stage: the layers of a model that one rank trains, on any backend (device/backend.h), with the
 * embedding before and the head and the loss after them where they are its own. It holds weights,
 * gradients, and the activations of as many microbatches as are in flight, each in a slot.
 *
 * Everything lies in one piece of memory, at offsets that erg_stage_memory() lists.
 *
 * A pass reads and writes elements; gradients of weights are float and added to what is there. All
 * is queued on one stream. What changes from step to step is read through pointers: ids and
 * targets, and one over the number of targets that count.
 */
#ifndef ERG_DECODER_STAGE_H
#define ERG_DECODER_STAGE_H

#include "decoder/decoder_weights.h"
#include "device/backend.h"

struct erg_stage;

struct erg_stage_options {
    struct erg_backend *backend;        /* outlives the stage */
    struct erg_weights_request weights; /* whose model outlives it, too */
    long sequences, sequence;           /* of a microbatch; tokens of each */
    size_t slots;                       /* microbatches in flight, at least 1 */
};

/* ERG_INFEASIBLE for a model with operations that there are none of here, which it names. */
int erg_stage_check(const struct erg_model *model, struct erg_error *err);

/* One buffer of a stage. */
struct erg_stage_buffer {
    const char *name;
    size_t bytes, offset; /* a multiple of 256 */
};
struct erg_stage_memory {
    struct erg_stage_buffer *items;
    size_t count, capacity;
    size_t bytes; /* of all */
};
int erg_stage_memory(struct erg_stage_memory *memory, const struct erg_stage_options *options,
                     struct erg_error *err);
void erg_stage_memory_release(struct erg_stage_memory *memory);

int erg_stage_open(struct erg_stage **stage, const struct erg_stage_options *options,
                   struct erg_error *err);
void erg_stage_close(struct erg_stage *stage);

const struct erg_weights *erg_stage_weights(const struct erg_stage *stage);
void *erg_stage_values(const struct erg_stage *stage);     /* elements, [weights->elements] */
float *erg_stage_gradients(const struct erg_stage *stage); /* [weights->elements] */

/* A microbatch, in memory of the device: [sequences * sequence] each. */
struct erg_stage_tokens {
    const int32_t *ids, *order; /* of the embedding; order: erg_ops_embedding_order() */
    /* Of the head; negative: does not count. NULL: there are none, and the pass ends with the
     * logits, which else become their gradients. */
    const int32_t *targets;
    const float *scale; /* one over the targets of the whole step that count */
    float *loss;        /* added to: -log p of the targets times scale */
};

int erg_stage_forward(struct erg_stage *stage, size_t slot, const struct erg_stage_tokens *tokens,
                      struct erg_stream *stream, struct erg_error *err);
/* After the forward of the same slot; of several slots only the last one's head is kept. */
int erg_stage_backward(struct erg_stage *stage, size_t slot, const struct erg_stage_tokens *tokens,
                       struct erg_stream *stream, struct erg_error *err);

#endif
