/* Stage: what its passes do with their kernels and exchanges, and passes that only ask or warm up.
 */
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
    if (bytes > stage->scratch_bytes)
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
        return backend->table->launch(backend, &bounded, stage->scratch, stream, err);
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

int erg_stage_sum(struct erg_stage *stage, void *to, const struct erg_stage_rows *rows,
                  struct erg_stream *stream, struct erg_error *err)
{
    const bool parts = stage->options.sequence_parallel;
    const size_t h = stage->hidden;
    assert(!parts || rows->sequences == (size_t)stage->options.sequences);
    return stage->ranks == 1
               ? 0
               : erg_stage_exchange(stage, stage->options.tensor_group,
                                    parts ? ERG_EXCHANGE_REDUCE_SCATTER : ERG_EXCHANGE_ALL_REDUCE,
                                    false, rows->rows * h,
                                    erg_stage_row(stage, stage->partial, h, rows),
                                    erg_stage_row(stage, to, h, rows), stream, err);
}

int erg_stage_gather(struct erg_stage *stage, void *rows, void **all, struct erg_stream *stream,
                     struct erg_error *err)
{
    bool parts = stage->options.sequence_parallel;
    *all = parts ? stage->gathered : rows;
    return parts ? erg_stage_exchange(stage, stage->options.tensor_group, ERG_EXCHANGE_ALL_GATHER,
                                      false, stage->rows * stage->hidden, rows, *all, stream, err)
                 : 0;
}

int erg_stage_exchange_op(struct erg_stage *stage, const struct erg_stage_place *place,
                          enum erg_model_op_id part, const struct erg_stage_rows *rows,
                          struct erg_stream *stream, struct erg_error *err)
{
    switch (part) {
    case ERG_MODEL_GATHER_KV:
        return erg_stage_gather_kv(stage, place->act, rows, stream, err);
    case ERG_MODEL_SCATTER_KV:
        return erg_stage_scatter_kv(stage, rows, stream, err);
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
