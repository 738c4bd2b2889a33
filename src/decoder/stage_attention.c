/*
 * Attention of a stage: of whole sequences, or of this rank's two chunks of each against the keys
 * and values that context ranks gather (ops/context.h).
 */
#include "decoder/stage_internal.h"

static size_t kv_row(const struct erg_stage *stage)
{
    return 2 * stage->kv_heads * stage->head_dim;
}

/* ---- whole sequences ---- */

static struct erg_kernel whole_sequences(struct erg_stage *stage,
                                         const struct erg_stage_activations *act,
                                         enum erg_kernel_kind kind,
                                         const struct erg_stage_rows *rows)
{
    const size_t qkv = stage->qkv_row, at = rows->first * qkv;
    struct erg_ops_attention shape = {rows->sequences,
                                      stage->sequence,
                                      stage->sequence,
                                      stage->heads,
                                      stage->kv_heads,
                                      stage->head_dim,
                                      qkv,
                                      qkv,
                                      qkv,
                                      stage->attn_row,
                                      true};
    return (struct erg_kernel){
        kind, .attention = {.shape = shape,
                            .q = erg_stage_at(stage, act->rotated, at),
                            .k = erg_stage_at(stage, act->rotated, at + stage->attn_row),
                            .v = erg_stage_at(stage, act->qkv, at + stage->values_at),
                            .out = erg_stage_row(stage, act->attn, stage->attn_row, rows),
                            .stats = erg_stage_float_row(act->stats, stage->heads, rows),
                            .d_out = erg_stage_row(stage, stage->d_attn, stage->attn_row, rows),
                            .d_q = erg_stage_at(stage, stage->d_qkv, at),
                            .d_k = erg_stage_at(stage, stage->d_qkv, at + stage->attn_row),
                            .d_v = erg_stage_at(stage, stage->d_qkv, at + stage->values_at)}};
}

/* ---- chunks of sequences ---- */

struct kv_runs {
    size_t runs, count;
    void *from, *to;
    size_t from_stride, to_stride;
};

static int move_runs(struct erg_stage *stage, enum erg_kernel_kind kind, const struct kv_runs *runs,
                     struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel kernel = {kind, .runs = {runs->runs, runs->count, runs->from,
                                               runs->from_stride, runs->to, runs->to_stride}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

/* Keys and values of this rank's tokens, between packed rows and rows of their own. */
static int copy_own(struct erg_stage *stage, void *keys, void *values, bool pack,
                    const struct erg_stage_rows *rows, struct erg_stream *stream,
                    struct erg_error *err)
{
    size_t half = kv_row(stage) / 2, row = kv_row(stage), packed = stage->qkv_row;
    size_t at = rows->first * packed;
    void *const sides[2] = {erg_stage_at(stage, keys, at + stage->attn_row),
                            erg_stage_at(stage, values, at + stage->values_at)};
    for (size_t i = 0; i < 2; i++) {
        void *own = erg_stage_at(stage, stage->kv_own, rows->first * row + i * half);
        struct kv_runs runs =
            pack ? (struct kv_runs){rows->tokens, half, sides[i], own, packed, row}
                 : (struct kv_runs){rows->tokens, half, own, sides[i], row, packed};
        if (move_runs(stage, ERG_KERNEL_COPY_RUNS, &runs, stream, err) != 0)
            return -1;
    }
    return 0;
}

/* Where the rows of all context ranks begin in a tensor [c, T, K] or [b, S, K]. */
static size_t all_ranks_at(const struct erg_stage *stage, const struct erg_stage_rows *rows)
{
    return rows->first * stage->context * kv_row(stage);
}

/* Between the order of ranks [c, b, S/c, K] and that of sequences [b, S, K]; of a nanobatch b is
 * its sequences. */
static int reorder(struct erg_stage *stage, void *ranks, void *sequences, bool to_sequences,
                   const struct erg_stage_rows *rows, struct erg_stream *stream,
                   struct erg_error *err)
{
    size_t row = kv_row(stage), whole = (size_t)stage->options.sequence;
    size_t at = all_ranks_at(stage, rows);
    for (size_t rank = 0; rank < stage->context; rank++)
        for (int half = ERG_CONTEXT_LOW; half <= ERG_CONTEXT_HIGH; half++) {
            struct erg_context_chunk chunk =
                erg_context_chunk(whole, stage->context, rank, (enum erg_context_half)half);
            void *of_rank = erg_stage_at(
                stage, ranks, at + (rank * rows->tokens + (size_t)half * chunk.count) * row);
            void *of_sequence = erg_stage_at(stage, sequences, at + chunk.first * row);
            struct kv_runs runs = {rows->sequences,
                                   chunk.count * row,
                                   to_sequences ? of_rank : of_sequence,
                                   to_sequences ? of_sequence : of_rank,
                                   (to_sequences ? stage->sequence : whole) * row,
                                   (to_sequences ? whole : stage->sequence) * row};
            if (move_runs(stage, ERG_KERNEL_COPY_RUNS, &runs, stream, err) != 0)
                return -1;
        }
    return 0;
}

int erg_stage_gather_kv(struct erg_stage *stage, const struct erg_stage_activations *act,
                        const struct erg_stage_rows *rows, struct erg_stream *stream,
                        struct erg_error *err)
{
    const size_t row = kv_row(stage);
    if (stage->context == 1)
        return 0;
    return copy_own(stage, act->rotated, act->qkv, true, rows, stream, err) ||
                   erg_stage_exchange(
                       stage, stage->options.context_group, ERG_EXCHANGE_ALL_GATHER, false,
                       rows->tokens * row, erg_stage_row(stage, stage->kv_own, row, rows),
                       erg_stage_at(stage, stage->kv_ranks, all_ranks_at(stage, rows)), stream,
                       err) ||
                   reorder(stage, stage->kv_ranks, stage->kv, true, rows, stream, err)
               ? -1
               : 0;
}

/* One chunk of one sequence against all keys before its end. */
static struct erg_kernel one_chunk(struct erg_stage *stage, const struct erg_stage_activations *act,
                                   enum erg_kernel_kind kind, size_t sequence,
                                   enum erg_context_half half)
{
    size_t row = kv_row(stage), whole = (size_t)stage->options.sequence;
    struct erg_context_chunk chunk =
        erg_context_chunk(whole, stage->context, (size_t)stage->options.context_place, half);
    size_t first = sequence * stage->sequence + (size_t)half * chunk.count;
    size_t at = sequence * whole * row;
    void *d_kv = half == ERG_CONTEXT_HIGH ? stage->d_kv : stage->d_kv_low;
    struct erg_ops_attention shape = {1,
                                      chunk.count,
                                      chunk.keys,
                                      stage->heads,
                                      stage->kv_heads,
                                      stage->head_dim,
                                      stage->qkv_row,
                                      row,
                                      row,
                                      stage->attn_row,
                                      true};
    return (struct erg_kernel){
        kind, .attention = {.shape = shape,
                            .q = erg_stage_at(stage, act->rotated, first * stage->qkv_row),
                            .k = erg_stage_at(stage, stage->kv, at),
                            .v = erg_stage_at(stage, stage->kv, at + row / 2),
                            .out = erg_stage_at(stage, act->attn, first * stage->attn_row),
                            .stats = act->stats ? act->stats + first * stage->heads : NULL,
                            .d_out = erg_stage_at(stage, stage->d_attn, first * stage->attn_row),
                            .d_q = erg_stage_at(stage, stage->d_qkv, first * stage->qkv_row),
                            .d_k = erg_stage_at(stage, d_kv, at),
                            .d_v = erg_stage_at(stage, d_kv, at + row / 2)}};
}

static int attend_chunks(struct erg_stage *stage, const struct erg_stage_activations *act,
                         enum erg_kernel_kind kind, const struct erg_stage_rows *rows,
                         struct erg_stream *stream, struct erg_error *err)
{
    for (size_t i = 0; i < rows->sequences; i++)
        for (int half = ERG_CONTEXT_LOW; half <= ERG_CONTEXT_HIGH; half++) {
            struct erg_kernel kernel =
                one_chunk(stage, act, kind, rows->first_sequence + i, (enum erg_context_half)half);
            if (erg_stage_launch(stage, &kernel, stream, err) != 0)
                return -1;
        }
    return 0;
}

/* Keys that this rank's queries do not see get no gradient; the high chunk sees all keys that the
 * low one sees. */
static int clear_unseen(struct erg_stage *stage, const struct erg_stage_rows *rows,
                        struct erg_stream *stream, struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    size_t bytes = rows->tokens * stage->context * kv_row(stage) * stage->element;
    void *at = erg_stage_at(stage, stage->d_kv, all_ranks_at(stage, rows));
    return erg_stage_queues(stage) ? backend->table->fill(backend, at, 0, bytes, stream, err) : 0;
}

static int add_low(struct erg_stage *stage, const struct erg_stage_rows *rows,
                   struct erg_stream *stream, struct erg_error *err)
{
    size_t whole = (size_t)stage->options.sequence, row = kv_row(stage);
    size_t at = all_ranks_at(stage, rows);
    struct erg_context_chunk low = erg_context_chunk(
        whole, stage->context, (size_t)stage->options.context_place, ERG_CONTEXT_LOW);
    struct kv_runs runs = {rows->sequences,
                           low.keys * row,
                           erg_stage_at(stage, stage->d_kv_low, at),
                           erg_stage_at(stage, stage->d_kv, at),
                           whole * row,
                           whole * row};
    return move_runs(stage, ERG_KERNEL_ADD_RUNS, &runs, stream, err);
}

int erg_stage_scatter_kv(struct erg_stage *stage, const struct erg_stage_rows *rows,
                         struct erg_stream *stream, struct erg_error *err)
{
    const size_t row = kv_row(stage);
    if (stage->context == 1)
        return 0;
    return reorder(stage, stage->kv_ranks, stage->d_kv, false, rows, stream, err) ||
                   erg_stage_exchange(
                       stage, stage->options.context_group, ERG_EXCHANGE_REDUCE_SCATTER, false,
                       rows->tokens * row,
                       erg_stage_at(stage, stage->kv_ranks, all_ranks_at(stage, rows)),
                       erg_stage_row(stage, stage->kv_own, row, rows), stream, err) ||
                   copy_own(stage, stage->d_qkv, stage->d_qkv, false, rows, stream, err)
               ? -1
               : 0;
}

/* ---- both ---- */

int erg_stage_attention(struct erg_stage *stage, const struct erg_stage_activations *act,
                        const struct erg_stage_rows *rows, struct erg_stream *stream,
                        struct erg_error *err)
{
    if (stage->context > 1)
        return attend_chunks(stage, act, ERG_KERNEL_ATTENTION, rows, stream, err);
    struct erg_kernel kernel = whole_sequences(stage, act, ERG_KERNEL_ATTENTION, rows);
    return erg_stage_launch(stage, &kernel, stream, err);
}

int erg_stage_attention_gradient(struct erg_stage *stage, const struct erg_stage_activations *act,
                                 const struct erg_stage_rows *rows, struct erg_stream *stream,
                                 struct erg_error *err)
{
    if (stage->context > 1)
        return clear_unseen(stage, rows, stream, err) ||
                       attend_chunks(stage, act, ERG_KERNEL_ATTENTION_GRADIENT, rows, stream,
                                     err) ||
                       add_low(stage, rows, stream, err)
                   ? -1
                   : 0;
    struct erg_kernel kernel = whole_sequences(stage, act, ERG_KERNEL_ATTENTION_GRADIENT, rows);
    return erg_stage_launch(stage, &kernel, stream, err);
}
