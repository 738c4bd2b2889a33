/* Stage: the modes of its passes for kernels and exchanges, and passes that only query or warm
 * up. */
#include "base/memory.h"
#include "decoder/stage_internal.h"

#include <assert.h>

/* ---- kernels ---- */

static int measure_scratch(struct erg_stage *stage, const struct erg_kernel *kernel,
                           struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    size_t bytes;
    if (backend->table->scratch_bytes(backend, kernel, &bytes, err) != 0)
        return -1;
    if (stage->beside && bytes > stage->beside_bytes)
        return erg_fail(err, ERG_INFEASIBLE,
                        "a norm within an exchange takes %zu bytes of scratch, but a nanobatch of "
                        "hidden states has %zu; expected longer nanobatches",
                        bytes, stage->beside_bytes);
    if (!stage->beside && bytes > stage->scratch_bytes)
        stage->scratch_bytes = bytes;
    return 0;
}

static bool is_product(const struct erg_kernel *kernel)
{
    return kernel->kind == ERG_KERNEL_LINEAR || kernel->kind == ERG_KERNEL_LINEAR_INPUT_GRADIENT ||
           kernel->kind == ERG_KERNEL_LINEAR_WEIGHT_GRADIENT;
}

static bool same_product(const struct erg_kernel *a, const struct erg_kernel *b)
{
    return a->kind == b->kind && a->linear.tokens == b->linear.tokens &&
           a->linear.inputs == b->linear.inputs && a->linear.outputs == b->linear.outputs;
}

/* Layers have the same products: each is chosen once. */
static int choose_product(struct erg_stage *stage, const struct erg_kernel *kernel,
                          struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    if (!is_product(kernel))
        return 0;
    for (size_t i = 0; i < stage->chosen.count; i++)
        if (same_product(&stage->chosen.items[i], kernel))
            return 0;
    ERG_PUSH(&stage->chosen, items, *kernel);
    return backend->table->choose(backend, kernel, err);
}

int erg_stage_launch(struct erg_stage *stage, const struct erg_kernel *kernel,
                     struct erg_stream *stream, struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    switch (stage->mode) {
    case ERG_STAGE_MEASURES:
        return measure_scratch(stage, kernel, err);
    case ERG_STAGE_CHOOSES:
        return choose_product(stage, kernel, err);
    default: {
        struct erg_kernel bounded = *kernel;
        bounded.leave_sms = stage->exchange_sms;
        return backend->table->launch(backend, &bounded,
                                      stage->beside ? stage->beside : stage->scratch, stream, err);
    }
    }
}

/* ---- exchanges ---- */

int erg_stage_exchange(struct erg_stage *stage, struct erg_group *group,
                       enum erg_exchange_kind kind, bool floats, size_t count, const void *from,
                       void *to, struct erg_stream *stream, struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    struct erg_exchange exchange = {kind, floats, count, from, to, stage->exchange_sms};
    return stage->mode == ERG_STAGE_RUNS
               ? backend->table->exchange(backend, group, &exchange, stream, err)
               : 0;
}

/*
 * Between `partial` rows of tokens and the stream's rows. Under sequence parallelism a rank's share
 * is one of each half where there are halves, so that both are exchanged.
 */
static int exchange_rows(struct erg_stage *stage, enum erg_exchange_kind kind, void *from, void *to,
                         const struct erg_stage_rows *rows, struct erg_stream *stream,
                         struct erg_error *err)
{
    const bool gathers = kind == ERG_EXCHANGE_ALL_GATHER;
    const size_t all = (size_t)stage->options.sequences;
    const size_t pieces = stage->options.halves && rows->sequences == all ? 2 : 1;
    int result = 0;
    for (size_t i = 0; i < pieces && result == 0; i++) {
        const size_t count = rows->sequences / pieces;
        const struct erg_stage_rows piece =
            erg_stage_rows_of(stage, rows->first_sequence + i * count, count);
        void *of_tokens = erg_stage_row(stage, gathers ? to : from, stage->hidden, &piece);
        void *of_stream = erg_stage_stream_row(stage, gathers ? from : to, &piece);
        result = erg_stage_exchange(stage, stage->options.tensor_group, kind, false,
                                    piece.rows * stage->hidden, gathers ? of_stream : of_tokens,
                                    gathers ? of_tokens : of_stream, stream, err);
    }
    return result;
}

int erg_stage_sum(struct erg_stage *stage, void *to, const struct erg_stage_rows *rows,
                  struct erg_stream *stream, struct erg_error *err)
{
    const bool parts = stage->options.sequence_parallel;
    return stage->ranks == 1
               ? 0
               : exchange_rows(stage, parts ? ERG_EXCHANGE_REDUCE_SCATTER : ERG_EXCHANGE_ALL_REDUCE,
                               stage->partial, to, rows, stream, err);
}

int erg_stage_gather(struct erg_stage *stage, void *own, void *all,
                     const struct erg_stage_rows *rows, struct erg_stream *stream,
                     struct erg_error *err)
{
    return stage->options.sequence_parallel
               ? exchange_rows(stage, ERG_EXCHANGE_ALL_GATHER, own, all, rows, stream, err)
               : 0;
}

/* The input of a half of a layer: its norm's output, or, in the backward pass, the gradient of the
 * half's output, followed by the norm's output for gradients of weights. The norm's output is in
 * the place of the input's gradient, which is computed later. */
static int gather_start(struct erg_stage *stage, const struct erg_stage_place *place,
                        enum erg_model_op_id norm, bool backward, const struct erg_stage_rows *rows,
                        struct erg_stream *stream, struct erg_error *err)
{
    const bool of_a = norm == ERG_MODEL_NORM_A;
    void *normalised = of_a ? place->act->n_a : place->act->n_m;
    void *gradient = of_a ? stage->d_mid : place->d_out;
    if (!stage->options.sequence_parallel)
        return 0;
    if (!backward)
        return erg_stage_gather(stage, normalised, stage->gathered, rows, stream, err);
    return erg_stage_gather(stage, gradient, stage->gathered, rows, stream, err) ||
                   erg_stage_again_op(stage, place, norm, rows, stream, err) ||
                   erg_stage_gather(stage, normalised, stage->partial, rows, stream, err)
               ? -1
               : 0;
}

int erg_stage_exchange_op(struct erg_stage *stage, const struct erg_stage_place *place,
                          enum erg_model_op_id part, bool backward,
                          const struct erg_stage_rows *rows, struct erg_stream *stream,
                          struct erg_error *err)
{
    const struct erg_stage_activations *act = place->act;
    switch (part) {
    case ERG_MODEL_GATHER_KV:
        return erg_stage_gather_kv(stage, act, rows, stream, err);
    case ERG_MODEL_SCATTER_KV:
        return erg_stage_scatter_kv(stage, rows, stream, err);
    case ERG_MODEL_GATHER_A:
        return gather_start(stage, place, ERG_MODEL_NORM_A, backward, rows, stream, err);
    case ERG_MODEL_GATHER_M:
        return gather_start(stage, place, ERG_MODEL_NORM_M, backward, rows, stream, err);
    default:
        assert(part == ERG_MODEL_REDUCE_A || part == ERG_MODEL_REDUCE_M);
        return erg_stage_sum(stage, stage->reduce, rows, stream, err);
    }
}

/* ---- whole passes ---- */

int erg_stage_run_ends(struct erg_stage *stage, enum erg_stage_mode mode,
                       const struct erg_stage_tokens *tokens, struct erg_stream *stream,
                       struct erg_error *err)
{
    size_t last = stage->options.weights.chunk_count - 1;
    int result = 0;
    stage->mode = mode;
    for (size_t chunk = 0; chunk <= last && result == 0; chunk += last ? last : 1) {
        size_t pass = erg_stage_pass(stage, chunk);
        bool begins = stage->options.weights.embedding && chunk == 0;
        bool ends = stage->options.weights.head && chunk == last;
        void *message = stage->d_stream[0], *gradient = stage->d_stream[1];
        result = erg_stage_forward(stage, pass, tokens, ends ? NULL : message, NULL, NULL, stream,
                                   err) ||
                         erg_stage_backward(stage, pass, tokens, ends ? NULL : message,
                                            begins ? NULL : gradient, NULL, NULL, stream, err)
                     ? -1
                     : 0;
    }
    stage->mode = ERG_STAGE_RUNS;
    return result;
}

int erg_stage_warm_up(struct erg_stage *stage, const struct erg_stage_tokens *tokens,
                      struct erg_stream *stream, struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    return erg_stage_run_ends(stage, ERG_STAGE_ALONE, tokens, stream, err) ||
                   backend->table->stream_wait(backend, stream, err)
               ? -1
               : 0;
}
