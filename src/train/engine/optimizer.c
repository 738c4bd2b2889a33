/* Sums gradients, updates this rank's share of the weights, and gathers them. */
#include "train/engine/optimizer.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* In device memory. */
struct optimizer_scalars {
    double squares;
    struct erg_ops_update update;
};
_Static_assert(sizeof(struct optimizer_scalars) <= ERG_STATIC_SCALARS_BYTES, "they have room");

struct element_ranges {
    struct element_range {
        size_t begin, end;
    } * items;
    size_t count, capacity;
};

struct erg_optimizer {
    struct erg_optimizer_options options;
    const struct erg_weights *weights;
    struct erg_stream *stream;     /* for sums and gathers */
    struct erg_event *reached;     /* work that another stream has queued so far */
    struct erg_event **gathered;   /* [buckets] */
    struct element_ranges counted; /* ranges of all weights whose squares this rank sums */

    float *state; /* on the device, like the scalars and the scratch */
    struct optimizer_scalars *scalars;
    void *scratch;
    struct optimizer_scalars of_host; /* must stay valid while copies are queued */
};

/* ---- opening ---- */

static int compare_ranges(const void *a, const void *b)
{
    const struct element_range *one = a, *other = b;
    return one->begin < other->begin ? -1 : one->begin > other->begin;
}

/* This rank's shares of all buckets except the parts that other ranks count; padding is 0 and does
 * not change the sum. */
static void list_counted(struct element_ranges *list, const struct erg_weights *weights,
                         const struct erg_weight_spans *spans)
{
    struct element_ranges copies = {0}, counted = {0};
    for (size_t i = 0; i < spans->count; i++)
        if (spans->items[i].copy) {
            const struct erg_weight_span *span = &spans->items[i];
            size_t end = span->offset + (span->rows - 1) * span->stride + span->columns;
            ERG_PUSH(&copies, items, (struct element_range){span->offset, end});
        }
    if (copies.count)
        qsort(copies.items, copies.count, sizeof *copies.items, compare_ranges);
    for (size_t b = 0; b < weights->buckets.count; b++) {
        const struct erg_weight_bucket *bucket = &weights->buckets.items[b];
        size_t begin = bucket->share, end = bucket->share + bucket->part;
        assert(end <= weights->elements);
        for (size_t i = 0; i < copies.count && begin < end; i++) {
            struct element_range copy = copies.items[i];
            if (copy.end <= begin || copy.begin >= end)
                continue;
            if (copy.begin > begin)
                ERG_PUSH(&counted, items, (struct element_range){begin, copy.begin});
            begin = copy.end;
        }
        if (begin < end)
            ERG_PUSH(&counted, items, (struct element_range){begin, end});
    }
    free(copies.items);
    *list = counted;
}

int erg_optimizer_scratch(size_t *bytes, struct erg_backend *backend,
                          const struct erg_weights_request *request, struct erg_error *err)
{
    struct erg_weights weights;
    struct erg_kernel squares = {ERG_KERNEL_SQUARES, .floats = {.count = 1}};
    erg_weights_init(&weights, request);
    for (size_t i = 0; i < weights.buckets.count; i++)
        if (weights.buckets.items[i].part > squares.floats.count)
            squares.floats.count = weights.buckets.items[i].part;
    erg_weights_release(&weights);
    return backend->table->scratch_bytes(backend, &squares, bytes, err);
}

static void place_memory(struct erg_optimizer *optimizer)
{
    const struct erg_static_memory *buffers = optimizer->options.buffers;
    void *memory = optimizer->options.memory;
    assert(buffers->bytes[ERG_STATIC_STATE] == 3 * optimizer->weights->state * sizeof(float));
    optimizer->state = erg_static_at(buffers, memory, ERG_STATIC_STATE, 0);
    optimizer->scalars = erg_static_at(buffers, memory, ERG_STATIC_OPTIMIZER_SCALARS, 0);
    optimizer->scratch = erg_static_at(buffers, memory, ERG_STATIC_OPTIMIZER_SCRATCH, 0);
}

int erg_optimizer_open(struct erg_optimizer **out, const struct erg_optimizer_options *options,
                       struct erg_error *err)
{
    struct erg_optimizer *optimizer = erg_xcalloc(1, sizeof *optimizer);
    struct erg_backend *backend = options->backend;
    optimizer->options = *options;
    optimizer->weights = erg_stage_weights(options->stage);
    size_t buckets = optimizer->weights->buckets.count;
    optimizer->gathered = erg_xcalloc(buckets, sizeof *optimizer->gathered);
    list_counted(&optimizer->counted, optimizer->weights, options->spans);
    place_memory(optimizer);
    int result = backend->table->stream_new(backend, &optimizer->stream, true, err) ||
                         backend->table->event_new(backend, &optimizer->reached, false, err)
                     ? -1
                     : 0;
    for (size_t i = 0; i < buckets && result == 0; i++)
        result = backend->table->event_new(backend, &optimizer->gathered[i], false, err);
    if (result == 0)
        result =
            backend->table->fill(backend, optimizer->state, 0,
                                 options->buffers->bytes[ERG_STATIC_STATE], options->stream, err);
    if (result != 0) {
        erg_optimizer_close(optimizer);
        return -1;
    }
    *out = optimizer;
    return 0;
}

void erg_optimizer_close(struct erg_optimizer *optimizer)
{
    if (!optimizer)
        return;
    struct erg_backend *backend = optimizer->options.backend;
    for (size_t i = 0; i < optimizer->weights->buckets.count; i++)
        if (optimizer->gathered[i])
            backend->table->event_free(backend, optimizer->gathered[i]);
    if (optimizer->reached)
        backend->table->event_free(backend, optimizer->reached);
    backend->table->stream_free(backend, optimizer->stream);
    free(optimizer->gathered);
    free(optimizer->counted.items);
    free(optimizer);
}

float *erg_optimizer_state(struct erg_optimizer *optimizer)
{
    return optimizer->state;
}

/* ---- streams ---- */

/* Sums and gathers wait for the work that was queued on the stream of the passes. */
static int follow_passes(struct erg_optimizer *optimizer, struct erg_error *err)
{
    return erg_backend_follow(optimizer->options.backend, optimizer->reached, optimizer->stream,
                              optimizer->options.stream, err);
}

/* Begins a span of a step on the timeline. */
static int begin_span(struct erg_optimizer *optimizer, enum erg_lane lane, enum erg_span_kind kind,
                      struct erg_error *err)
{
    const struct erg_timeline_span span = {
        .lane = (int32_t)lane, .kind = (int32_t)kind, .chunk = -1, .microbatch = -1};
    struct erg_stream *stream =
        lane == ERG_LANE_COMPUTE ? optimizer->options.stream : optimizer->stream;
    return erg_timeline_begin(optimizer->options.timeline, &span, stream, err);
}

static int end_span(struct erg_optimizer *optimizer, enum erg_lane lane, struct erg_error *err)
{
    struct erg_stream *stream =
        lane == ERG_LANE_COMPUTE ? optimizer->options.stream : optimizer->stream;
    return erg_timeline_end(optimizer->options.timeline, lane, stream, err);
}

/* ---- gradients ---- */

static int sum(struct erg_optimizer *optimizer, struct erg_group *group,
               enum erg_exchange_kind kind, float *from, float *to, size_t count,
               struct erg_error *err)
{
    struct erg_backend *backend = optimizer->options.backend;
    struct erg_exchange exchange = {kind, true, count, from, to, 0};
    return group ? backend->table->exchange(backend, group, &exchange, optimizer->stream, err) : 0;
}

/* Each rank with the same keys and values has the gradients of its own queries. */
static int sum_keys(struct erg_optimizer *optimizer, long layer, struct erg_error *err)
{
    static const enum erg_tensor tensors[] = {ERG_TENSOR_QKV, ERG_TENSOR_QKV_BIAS};
    if (!optimizer->options.groups->keys)
        return 0;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const struct erg_weight *weight = erg_weights_find(optimizer->weights, layer, tensors[i]);
        if (!weight)
            continue;
        size_t queries = erg_stage_query_rows(optimizer->options.stage);
        assert(queries < weight->rows);
        float *first = erg_stage_gradients(optimizer->options.stage) + weight->offset +
                       queries * weight->columns;
        if (sum(optimizer, optimizer->options.groups->keys, ERG_EXCHANGE_ALL_REDUCE, first, first,
                (weight->rows - queries) * weight->columns, err) != 0)
            return -1;
    }
    return 0;
}

static int sum_over_tensor(struct erg_optimizer *optimizer, const struct erg_weight_bucket *bucket,
                           struct erg_error *err)
{
    const struct erg_rank_groups *groups = optimizer->options.groups;
    float *first = erg_stage_gradients(optimizer->options.stage) + bucket->offset;
    if (bucket->kind == ERG_BUCKET_LAYER)
        return sum_keys(optimizer, bucket->layer, err);
    bool in_parts = bucket->kind == ERG_BUCKET_HEAD_NORMS ||
                    (bucket->kind == ERG_BUCKET_VECTORS && optimizer->options.sequence_parallel);
    return in_parts ? sum(optimizer, groups->vectors, ERG_EXCHANGE_ALL_REDUCE, first, first,
                          bucket->elements, err)
                    : 0;
}

static const struct erg_weight_bucket *tied_bucket(const struct erg_optimizer *optimizer)
{
    const struct erg_weight *head = erg_weights_find(optimizer->weights, -1, ERG_TENSOR_HEAD);
    assert(head && head->bucket < optimizer->weights->buckets.count);
    return &optimizer->weights->buckets.items[head->bucket];
}

float *erg_optimizer_tied(struct erg_optimizer *optimizer)
{
    return erg_stage_gradients(optimizer->options.stage) + tied_bucket(optimizer)->share;
}

/*
 * Embedding and head of a tied model have the same layout on their stages: each share is summed
 * over the two. Both stages do that after all other sums, since the first stage ends last: after
 * the embedding, and on the last stage after the vectors.
 */
static int sum_tied(struct erg_optimizer *optimizer, const struct erg_weight_bucket *told,
                    struct erg_error *err)
{
    struct erg_group *tied = optimizer->options.groups->tied;
    if (!tied)
        return 0;
    const struct erg_weight_bucket *bucket = tied_bucket(optimizer);
    enum erg_bucket_kind last =
        bucket->kind == ERG_BUCKET_EMBEDDING ? ERG_BUCKET_EMBEDDING : ERG_BUCKET_VECTORS;
    float *share = erg_optimizer_tied(optimizer);
    return told->kind == last
               ? sum(optimizer, tied, ERG_EXCHANGE_ALL_REDUCE, share, share, bucket->part, err)
               : 0;
}

static int sum_bucket(void *context, size_t index, struct erg_error *err)
{
    struct erg_optimizer *optimizer = context;
    const struct erg_weight_bucket *bucket = &optimizer->weights->buckets.items[index];
    assert(index < optimizer->weights->buckets.count);
    float *gradients = erg_stage_gradients(optimizer->options.stage);
    return follow_passes(optimizer, err) ||
                   begin_span(optimizer, ERG_LANE_WEIGHTS, ERG_SPAN_SUM, err) ||
                   sum_over_tensor(optimizer, bucket, err) ||
                   sum(optimizer, optimizer->options.groups->zero, ERG_EXCHANGE_REDUCE_SCATTER,
                       gradients + bucket->offset, gradients + bucket->share, bucket->part, err) ||
                   sum_tied(optimizer, bucket, err) || end_span(optimizer, ERG_LANE_WEIGHTS, err)
               ? -1
               : 0;
}

struct erg_stage_listener erg_optimizer_adds(struct erg_optimizer *optimizer)
{
    return (struct erg_stage_listener){sum_bucket, optimizer};
}

int erg_optimizer_squares(struct erg_optimizer *optimizer, double *squares, struct erg_error *err)
{
    struct erg_backend *backend = optimizer->options.backend;
    if (follow_passes(optimizer, err) ||
        backend->table->fill(backend, &optimizer->scalars->squares, 0, sizeof(double),
                             optimizer->stream, err))
        return -1;
    for (size_t i = 0; i < optimizer->counted.count; i++) {
        struct element_range range = optimizer->counted.items[i];
        struct erg_kernel kernel = {
            ERG_KERNEL_SQUARES,
            .floats = {.count = range.end - range.begin,
                       .in = erg_stage_gradients(optimizer->options.stage) + range.begin,
                       .sum = &optimizer->scalars->squares}};
        if (backend->table->launch(backend, &kernel, optimizer->scratch, optimizer->stream, err))
            return -1;
    }
    if (erg_backend_copy_now(backend, &optimizer->of_host.squares, &optimizer->scalars->squares,
                             sizeof(double), optimizer->stream, err) != 0)
        return -1;
    *squares = optimizer->of_host.squares;
    return 0;
}

/* ---- weights ---- */

static void *values_at(const struct erg_optimizer *optimizer, size_t element)
{
    return (char *)erg_stage_values(optimizer->options.stage) +
           element * optimizer->options.backend->element_bytes;
}

/* Gathers every rank's share of each bucket, in the order in which a forward pass reads them. */
static int gather(struct erg_optimizer *optimizer, struct erg_error *err)
{
    struct erg_backend *backend = optimizer->options.backend;
    struct erg_group *zero = optimizer->options.groups->zero;
    if (!zero)
        return 0;
    if (follow_passes(optimizer, err) ||
        begin_span(optimizer, ERG_LANE_WEIGHTS, ERG_SPAN_GATHER, err))
        return -1;
    for (size_t i = optimizer->weights->buckets.count; i > 0; i--) {
        const struct erg_weight_bucket *bucket = &optimizer->weights->buckets.items[i - 1];
        struct erg_exchange exchange = {ERG_EXCHANGE_ALL_GATHER,
                                        false,
                                        bucket->part,
                                        values_at(optimizer, bucket->share),
                                        values_at(optimizer, bucket->offset),
                                        0};
        if (backend->table->exchange(backend, zero, &exchange, optimizer->stream, err) ||
            backend->table->event_record(backend, optimizer->gathered[i - 1], optimizer->stream,
                                         err))
            return -1;
    }
    return end_span(optimizer, ERG_LANE_WEIGHTS, err);
}

int erg_optimizer_wait(struct erg_optimizer *optimizer, struct erg_error *err)
{
    struct erg_backend *backend = optimizer->options.backend;
    return backend->table->stream_wait(backend, optimizer->stream, err);
}

static int await_bucket(void *context, size_t bucket, struct erg_error *err)
{
    struct erg_optimizer *optimizer = context;
    struct erg_backend *backend = optimizer->options.backend;
    return backend->table->event_wait(backend, optimizer->gathered[bucket],
                                      optimizer->options.stream, err);
}

struct erg_stage_listener erg_optimizer_reads(struct erg_optimizer *optimizer)
{
    return (struct erg_stage_listener){await_bucket, optimizer};
}

int erg_optimizer_round(struct erg_optimizer *optimizer, struct erg_error *err)
{
    struct erg_backend *backend = optimizer->options.backend;
    for (size_t i = 0; i < optimizer->weights->buckets.count; i++) {
        const struct erg_weight_bucket *bucket = &optimizer->weights->buckets.items[i];
        struct erg_kernel kernel = {ERG_KERNEL_ROUND,
                                    .floats = {.count = bucket->part,
                                               .in = optimizer->state + bucket->state,
                                               .out = values_at(optimizer, bucket->share)}};
        if (backend->table->launch(backend, &kernel, NULL, optimizer->options.stream, err) != 0)
            return -1;
    }
    return gather(optimizer, err) ||
                   backend->table->stream_wait(backend, optimizer->options.stream, err) ||
                   backend->table->stream_wait(backend, optimizer->stream, err)
               ? -1
               : 0;
}

/* The padding after a weight is 0 and stays 0: kernels process eight elements at a time. */
static int update_part(struct erg_optimizer *optimizer, const struct erg_weight *weight,
                       struct erg_error *err)
{
    enum { TOGETHER = 8 };
    const struct erg_weight_bucket *bucket = &optimizer->weights->buckets.items[weight->bucket];
    size_t begin = weight->offset;
    size_t end = begin + (weight->rows * weight->columns + TOGETHER - 1) / TOGETHER * TOGETHER;
    begin = begin > bucket->share ? begin : bucket->share;
    end = end < bucket->share + bucket->part ? end : bucket->share + bucket->part;
    if (begin >= end)
        return 0;
    struct erg_backend *backend = optimizer->options.backend;
    float *master = optimizer->state + bucket->state + (begin - bucket->share);
    size_t all = optimizer->weights->state;
    struct erg_kernel kernel = {
        ERG_KERNEL_ADAMW,
        .adamw = {.count = end - begin,
                  .decays = weight->decays,
                  .update = &optimizer->scalars->update,
                  .gradient = erg_stage_gradients(optimizer->options.stage) + begin,
                  .master = master,
                  .m = master + all,
                  .v = master + 2 * all,
                  .weight = values_at(optimizer, begin)}};
    return backend->table->launch(backend, &kernel, optimizer->scratch, optimizer->options.stream,
                                  err);
}

int erg_optimizer_update(struct erg_optimizer *optimizer, const struct erg_ops_update *update,
                         struct erg_error *err)
{
    struct erg_backend *backend = optimizer->options.backend;
    optimizer->of_host.update = *update;
    if (begin_span(optimizer, ERG_LANE_COMPUTE, ERG_SPAN_UPDATE, err) ||
        backend->table->copy(backend, &optimizer->scalars->update, &optimizer->of_host.update,
                             sizeof *update, optimizer->options.stream, err))
        return -1;
    for (size_t i = 0; i < optimizer->weights->count; i++)
        if (update_part(optimizer, &optimizer->weights->items[i], err) != 0)
            return -1;
    return end_span(optimizer, ERG_LANE_COMPUTE, err) || gather(optimizer, err) ? -1 : 0;
}
