/*
 * Stage: the layers of a model that one rank trains, on any backend (device/backend.h), in one or
 * several chunks that are not neighbours in the model, with the embedding before the first and the
 * head and the loss after the last where they are its own. Tensor ranks hold parts of its matrices,
 * context ranks parts of its sequences; they exchange within the passes.
 *
 * A pass is a microbatch on its way through a chunk: the stage holds its activations from the
 * forward pass to the backward pass. Everything lies in one piece of memory, as
 * layout/memory/static_memory.h lays it out.
 *
 * Tensors of elements are what passes read and write; gradients of weights are float and
 * accumulate. All work is queued on one stream, except the exchanges of nanobatches. Values that
 * change from step to step are read through pointers: ids and targets, and one over the number of
 * targets that count.
 *
 * Sequence parallelism: between the products, where norms are, each tensor rank holds and computes
 * only its share of the tokens, which are contiguous in the stream's tensors. Gradients of weights
 * that all tensor ranks hold whole then cover only that share, and gradients of norms of heads
 * always cover only a rank's heads. The caller sums both over tensor ranks.
 */
#ifndef ERG_DECODER_STAGE_H
#define ERG_DECODER_STAGE_H

#include "decoder/decoder_weights.h"
#include "device/backend.h"
#include "device/work.h"
#include "layout/memory/static_memory.h"

struct erg_stage;

struct erg_stage_options {
    struct erg_backend *backend;        /* outlives the stage */
    struct erg_weights_request weights; /* whose model outlives it, too */
    long sequences, sequence;           /* of a microbatch; tokens of each, over context ranks */
    long context, context_place;        /* the degree, and this rank's place */
    bool sequence_parallel;
    /* With sequence parallelism: a rank's share of the tokens is one of each half of the
     * microbatch, so that nanobatches have rows of their own; else one of the whole. */
    bool halves;
    struct erg_stage_room room; /* layout/memory/static_memory.h */
    enum erg_recompute recompute;
    struct erg_group *tensor_group, *context_group; /* NULL for a degree of 1; outlive the stage */
};

/* ERG_INFEASIBLE for a model with unsupported operations, which the error names. */
int erg_stage_check(const struct erg_model *model, struct erg_error *err);

/* The most scratch memory that a kernel of its passes needs, bytes. Groups have no effect. */
int erg_stage_scratch(size_t *bytes, const struct erg_stage_options *options,
                      struct erg_error *err);

/* Has the backend choose how it runs each product of its passes, where it has a choice. Takes
 * seconds and memory, so call it before a rank's permanent allocations. Groups are not looked
 * at. */
int erg_stage_choose(const struct erg_stage_options *options, struct erg_error *err);

/* `memory` of the device, which outlives the stage, is laid out as `buffers`, which are of such a
 * stage: the first stage_bytes of it are the stage's. */
int erg_stage_open(struct erg_stage **stage, const struct erg_stage_options *options,
                   const struct erg_static_memory *buffers, void *memory, struct erg_error *err);
void erg_stage_close(struct erg_stage *stage);

const struct erg_weights *erg_stage_weights(const struct erg_stage *stage);
void *erg_stage_values(const struct erg_stage *stage);     /* elements, [weights->elements] */
float *erg_stage_gradients(const struct erg_stage *stage); /* [weights->elements] */

/* Rows of queries in the weight of queries, keys and values. */
size_t erg_stage_query_rows(const struct erg_stage *stage);

/* Elements that a pass hands to the next stage, or back: [tokens, hidden] of this rank. */
size_t erg_stage_message(const struct erg_stage *stage);

/*
 * Opens a pass of a chunk: no more than room for. A pass is a small number, which is free again
 * when its backward has been queued.
 */
size_t erg_stage_pass(struct erg_stage *stage, size_t chunk);
/* Closes a pass whose forward has been queued and that gets no backward. */
void erg_stage_leave(struct erg_stage *stage, size_t pass);
/* The input of a pass that does not begin with the embedding; fill it before the forward pass. */
void *erg_stage_input(struct erg_stage *stage, size_t pass);

/*
 * The tensors of layers that move to host memory are contiguous, in slots of their own. A layer of
 * a pass has a slot from its forward pass until the slot is released or the pass ends; the
 * layer's backward pass reads the tensors in the slot to which they returned.
 */
void *erg_stage_moved(const struct erg_stage *stage, size_t pass, size_t layer);
void erg_stage_give_moved(struct erg_stage *stage, size_t pass, size_t layer);
void erg_stage_return_moved(struct erg_stage *stage, size_t pass, size_t layer, void *memory);

/* Who moves it: is called before the operations of a layer are queued, and when they are (`done`).
 */
struct erg_stage_mover {
    int (*call)(void *context, size_t pass, size_t layer, bool done, struct erg_error *err);
    void *context;
};
void erg_stage_set_mover(struct erg_stage *stage, const struct erg_stage_mover *mover);

/*
 * How a pass runs the layers of its chunk otherwise than one operation after the other: steps in
 * the order of erg_stage_nanobatched() or erg_stage_sequential() (partition/partition.h), as
 * erg_plan_expand() makes them of an option of a plan. Nanobatches take turns: while one computes
 * the other exchanges, on a stream of the stage's own. Both passes of a microbatch may have any.
 */
struct erg_stage_program {
    const struct erg_step *steps;
    size_t count;
};

/* A microbatch, in memory of the device: [sequences * sequence / context] each. */
struct erg_stage_tokens {
    const int32_t *ids, *order; /* of the embedding; order: erg_ops_embedding_order() */
    /* The head's targets; a negative target does not count. NULL: without targets the pass ends
     * with the logits; with targets their gradients overwrite them. */
    const int32_t *targets;
    const float *scale; /* one over the targets of the whole step that count */
    float *loss;        /* added to: -log p of the targets times scale */
};

/*
 * Runs every kernel of both passes once, on this rank alone, and waits: a device may load a kernel
 * at its first launch and wait for all running work before it does, and that work may include the
 * receipt of a message that was not sent yet. The contents of passes and gradients are undefined
 * afterwards.
 */
int erg_stage_warm_up(struct erg_stage *stage, const struct erg_stage_tokens *tokens,
                      struct erg_stream *stream, struct erg_error *err);

/*
 * Runs a program of a chunk once, as erg_stage_warm_up() does. ERG_FAILED where it names operations
 * together that no kernel does together. Under sequence parallelism the stage has `halves`.
 */
int erg_stage_try_program(struct erg_stage *stage, size_t chunk, bool backward,
                          const struct erg_stage_program *program, struct erg_stream *stream,
                          struct erg_error *err);

/*
 * Begins a step. The first pass writes the gradients of products, and later passes add to them;
 * this call fills all other gradients with 0. Gaps between weights keep the caller's values.
 */
int erg_stage_clear_gradients(struct erg_stage *stage, struct erg_stream *stream,
                              struct erg_error *err);

/* Callback: a forward pass is about to read a bucket of weights for the first time, or a backward
 * pass has queued all that it adds to the bucket's gradients. */
struct erg_stage_listener {
    int (*call)(void *context, size_t bucket, struct erg_error *err);
    void *context;
};

/* Writes `output`, elements of a message; NULL where the pass ends with the head. `program`: NULL:
 * one operation after the other. `reads`: NULL, or the callback for buckets. */
int erg_stage_forward(struct erg_stage *stage, size_t pass, const struct erg_stage_tokens *tokens,
                      void *output, const struct erg_stage_program *program,
                      const struct erg_stage_listener *reads, struct erg_stream *stream,
                      struct erg_error *err);

/*
 * Reads the gradient of the output and writes that of the input, messages both; NULL where the pass
 * ends with the head, and where it begins with the embedding. `adds`: NULL, or the callback for
 * buckets; the first chunk reports buckets to which all chunks add.
 */
int erg_stage_backward(struct erg_stage *stage, size_t pass, const struct erg_stage_tokens *tokens,
                       void *d_output, void *d_input, const struct erg_stage_program *program,
                       const struct erg_stage_listener *adds, struct erg_stream *stream,
                       struct erg_error *err);

#endif
