/*
 * The order of the passes of a pipeline, written once: the schedule, the memory of layouts and
 * their time follow it.
 *
 * 1F1B: a stage runs one forward pass for each stage after it, then forward and backward passes in
 * turn. Interleaved, stages take the microbatches in groups, each group through all chunks; the
 * stages fill up twice as long and by a group for each further chunk. (Megatron-LM's order.)
 */
#ifndef ERG_ITERATION_PASS_ORDER_H
#define ERG_ITERATION_PASS_ORDER_H

#include <stdbool.h>
#include <stddef.h>

struct erg_pass_order {
    size_t stages, chunks, microbatches;
    size_t group; /* microbatches that go through all chunks together */
};

struct erg_pass {
    size_t chunk, microbatch;
};

/*
 * A group smaller than the number of stages would wait for itself: what the last stage passes back
 * to the first would come too late. So a group has as many microbatches as there are stages, or as
 * few more as it takes to leave no smaller group at the end.
 */
static inline struct erg_pass_order erg_pass_order_of(size_t stages, size_t chunks,
                                                      size_t microbatches)
{
    size_t group = microbatches < stages ? microbatches : stages;
    while (microbatches > stages && microbatches % group != 0 && microbatches % group < stages)
        group++;
    return (struct erg_pass_order){stages, chunks, microbatches, group};
}

/* Forward passes of a stage in an iteration; of backward passes there are as many. */
static inline size_t erg_pass_order_count(const struct erg_pass_order *order)
{
    return order->microbatches * order->chunks;
}

/* Forward passes of a stage before its first backward pass, without the one right before it. */
static inline size_t erg_pass_order_warmup(const struct erg_pass_order *order, size_t stage)
{
    size_t all = erg_pass_order_count(order), forwards = order->stages - stage - 1;
    if (order->chunks > 1)
        forwards = order->microbatches <= order->stages
                       ? all
                       : 2 * forwards + (order->chunks - 1) * order->group;
    return forwards < all ? forwards : all;
}

/* The i-th pass of a direction, the same on all stages. With one chunk this is microbatch i. */
static inline struct erg_pass erg_pass_order_nth(const struct erg_pass_order *order, bool backward,
                                                 size_t i)
{
    if (order->chunks == 1)
        return (struct erg_pass){0, i};
    size_t first = i / (order->group * order->chunks) * order->group;
    size_t left = order->microbatches - first, size = left < order->group ? left : order->group;
    size_t within = i - first * order->chunks, chunk = within / size;
    return (struct erg_pass){backward ? order->chunks - 1 - chunk : chunk, first + within % size};
}

/* Passes of a direction that follow each other through one chunk: how many of them are left. */
struct erg_pass_run {
    size_t chunk, left;
    size_t first, size; /* the group of microbatches */
};

static inline struct erg_pass_run erg_pass_run_first(const struct erg_pass_order *order,
                                                     bool backward)
{
    size_t size = order->chunks == 1 ? order->microbatches : order->group;
    return (struct erg_pass_run){backward ? order->chunks - 1 : 0, size, 0, size};
}

/* After `count` of those that are left. */
static inline void erg_pass_run_on(struct erg_pass_run *run, const struct erg_pass_order *order,
                                   bool backward, size_t count)
{
    run->left -= count;
    if (run->left > 0)
        return;
    if (run->chunk == (backward ? 0 : order->chunks - 1)) {
        size_t left = order->microbatches - (run->first += run->size);
        run->size = left < order->group ? left : order->group;
        run->chunk = backward ? order->chunks - 1 : 0;
    } else {
        run->chunk += backward ? (size_t)-1 : 1;
    }
    run->left = run->size;
}

/* Which forward pass a pass of these is: the inverse of erg_pass_order_nth(). */
static inline size_t erg_pass_order_forward(const struct erg_pass_order *order,
                                            struct erg_pass pass)
{
    size_t first = pass.microbatch / order->group * order->group;
    size_t left = order->microbatches - first, size = left < order->group ? left : order->group;
    return first * order->chunks + pass.chunk * size + pass.microbatch - first;
}

#endif
