/*
 * The copies of ergon's own training, layer by layer, and the memory of the moved tensors, on the
 * device and in host memory.
 *
 * A copy out runs during the layer after its own, forward or backward. A copy in starts when the
 * layer that runs backward before its own begins; a forward pass between two backward passes gives
 * it more time. A layer whose backward comes so soon that copies would save nothing stays: the last
 * two of the pass that turns around at the head.
 */
#include "base/memory.h"
#include "base/random.h"
#include "iteration/pass_order.h"
#include "layout/memory/copies.h"
#include "layout/memory/memory_simulation.h"
#include "layout/memory/static_memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The least number of layers between a layer's forward and its backward for it to move. */
enum { LEAST_BETWEEN = 3 };

enum { MOST_CHUNKS = 16, KNOWN = 512 }; /* KNOWN: cached walks */

/* The positions of a stage's passes, in layers. */
struct layer_flight {
    const struct erg_layout *layout;
    struct erg_pass_order order;
    long layers, stage; /* layers: of the model */
    size_t count, warmup;
    size_t *forward, *backward; /* [count]: start of the k-th forward, and of its backward */
    size_t end;
};

static size_t layers_of(const struct layer_flight *flight, size_t k)
{
    const struct erg_pass pass = erg_pass_order_nth(&flight->order, false, k);
    return (size_t)erg_layout_chunk_layers(flight->layout, flight->layers, flight->stage,
                                           (long)pass.chunk);
}

/* The forward pass whose backward is the k-th. */
static size_t turned(const struct layer_flight *flight, size_t k)
{
    return erg_pass_order_forward(&flight->order, erg_pass_order_nth(&flight->order, true, k));
}

/* Lists the passes in the order in which the stage runs them, and adds them to `copies`. */
static void flight_init(struct layer_flight *flight, const struct erg_layout *layout, long layers,
                        long stage, size_t microbatches, struct erg_memory_copies *copies)
{
    *flight = (struct layer_flight){.layout = layout,
                                    .layers = layers,
                                    .stage = stage,
                                    .order = erg_pass_order_of((size_t)layout->pipeline,
                                                               (size_t)layout->virtual_stages,
                                                               microbatches)};
    flight->count = erg_pass_order_count(&flight->order);
    flight->warmup = erg_pass_order_warmup(&flight->order, (size_t)stage);
    flight->forward = erg_xcalloc(flight->count, sizeof *flight->forward);
    flight->backward = erg_xcalloc(flight->count, sizeof *flight->backward);
    for (size_t forward = 0, backward = 0; backward < flight->count;) {
        const bool back = forward == flight->count || forward > flight->warmup + backward;
        const size_t k = back ? turned(flight, backward++) : forward++;
        const struct erg_pass pass = erg_pass_order_nth(&flight->order, false, k);
        const size_t begin = flight->end;
        *(back ? &flight->backward[k] : &flight->forward[k]) = begin;
        flight->end += layers_of(flight, k);
        if (copies)
            ERG_PUSH(&copies->passes, items,
                     (struct erg_memory_pass){back, (long)pass.chunk, (long)pass.microbatch, begin,
                                              flight->end});
    }
}

static void flight_release(struct layer_flight *flight)
{
    free(flight->forward);
    free(flight->backward);
}

static size_t backward_of(const struct layer_flight *flight, size_t k, size_t layer)
{
    return flight->backward[k] + layers_of(flight, k) - 1 - layer;
}

static bool moves(const struct layer_flight *flight, size_t k, size_t layer)
{
    return backward_of(flight, k, layer) > flight->forward[k] + layer + LEAST_BETWEEN;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The end of a copy out, and the start of a copy in. */
static size_t out_end(const struct layer_flight *flight, size_t k, size_t layer)
{
    return flight->forward[k] + layer + 2;
}

/*
 * `before`: the position of the layer that runs backward before this one; SIZE_MAX: none, so the
 * copy may begin after the forward passes of the warm-up.
 */
static size_t in_begin(const struct layer_flight *flight, size_t k, size_t layer, size_t before)
{
    const size_t own = backward_of(flight, k, layer);
    if (before == SIZE_MAX)
        before = least(flight->warmup < flight->count ? flight->forward[flight->warmup] : own - 1,
                       own - 1);
    return most(out_end(flight, k, layer), before);
}

/* ---- the list ---- */

/* Walks the copies in of a stage, in their order. */
struct returns {
    const struct layer_flight *flight;
    size_t pass, layer, before; /* layer: from above, of those already checked */
    size_t k, begin, end;       /* of the one found; its layer is `layer` */
};

/* The next copy in; false: there is none. */
static bool next_return(struct returns *at)
{
    const struct layer_flight *flight = at->flight;
    for (; at->pass < flight->count; at->pass++, at->layer = SIZE_MAX) {
        at->k = turned(flight, at->pass);
        if (at->layer == SIZE_MAX)
            at->layer = layers_of(flight, at->k);
        while (at->layer > 0) {
            const size_t before = at->before, layer = --at->layer;
            at->before = backward_of(flight, at->k, layer);
            if (!moves(flight, at->k, layer))
                continue;
            at->begin = in_begin(flight, at->k, layer, before);
            at->end = at->before;
            return true;
        }
    }
    return false;
}

static void add_copy(struct erg_memory_copies *copies, const struct layer_flight *flight, size_t k,
                     size_t layer, bool in, size_t begin, size_t end, int64_t bytes)
{
    const struct erg_pass pass = erg_pass_order_nth(&flight->order, false, k);
    assert(begin < end);
    ERG_PUSH(copies, items,
             (struct erg_memory_copy){in, (long)pass.chunk, (long)pass.microbatch, (long)layer,
                                      bytes, begin, end});
}

void erg_static_copies_init(struct erg_memory_copies *copies, const struct erg_layout *layout,
                            long layers, long stage, int64_t bytes)
{
    struct layer_flight flight;
    *copies = (struct erg_memory_copies){0};
    flight_init(&flight, layout, layers, stage, (size_t)layout->microbatches, copies);
    struct returns in = {.flight = &flight, .layer = SIZE_MAX, .before = SIZE_MAX};
    bool returns = bytes > 0 && next_return(&in);
    for (size_t k = 0; k < flight.count && bytes > 0; k++)
        for (size_t layer = 0; layer < layers_of(&flight, k); layer++) {
            const size_t begin = flight.forward[k] + layer + 1;
            for (; returns && in.begin < begin; returns = next_return(&in))
                add_copy(copies, &flight, in.k, in.layer, true, in.begin, in.end, bytes);
            if (moves(&flight, k, layer))
                add_copy(copies, &flight, k, layer, false, begin, begin + 1, bytes);
        }
    for (; returns; returns = next_return(&in))
        add_copy(copies, &flight, in.k, in.layer, true, in.begin, in.end, bytes);
    flight_release(&flight);
}

/* ---- room ---- */

/* Counts one more item from one position to another. */
static void hold(int *change, size_t from, size_t to)
{
    change[from]++;
    change[to]--;
}

/* The highest number of items at once. */
static size_t deepest(const int *change, size_t positions)
{
    int now = 0, found = 0;
    for (size_t i = 0; i < positions; i++) {
        now += change[i];
        found = now > found ? now : found;
    }
    return (size_t)found;
}

/*
 * When the input of a forward pass is received and its first layer's part is allocated: after the
 * previous forward pass.
 */
static size_t opened(const struct layer_flight *flight, size_t k)
{
    const struct erg_pass pass = erg_pass_order_nth(&flight->order, false, k);
    if (flight->stage == 0 && pass.chunk == 0)
        return flight->forward[k];
    return k ? flight->forward[k - 1] + layers_of(flight, k - 1) : 0;
}

/*
 * With more microbatches than needed to fill the pipeline, memory in flight repeats, unless the
 * last group of interleaved passes is smaller.
 */
static size_t microbatches_of(const struct erg_layout *layout)
{
    const bool repeats =
        layout->virtual_stages == 1 || layout->microbatches % layout->pipeline == 0;
    return (size_t)(repeats ? erg_memory_microbatches(layout) : layout->microbatches);
}

/* Cached results of a walk: a search requests the same walk for each mode, degree and ratio. */
struct walked {
    struct walk_key {
        long stages, stage, microbatches, chunks, inputs;
        long layers[MOST_CHUNKS];
    } key;
    size_t moved, hosted;
};

static void walk(struct walked *found, const struct erg_layout *layout, long layers, long stage,
                 bool inputs)
{
    struct layer_flight flight;
    flight_init(&flight, layout, layers, stage, microbatches_of(layout), NULL);
    const size_t positions = flight.end + 2;
    int *device = erg_xcalloc(positions, sizeof *device),
        *host = erg_xcalloc(positions, sizeof *host);
    for (size_t k = 0; k < flight.count; k++)
        for (size_t layer = 0; layer < layers_of(&flight, k); layer++) {
            const size_t from = layer || !inputs ? flight.forward[k] + layer : opened(&flight, k);
            const bool leaves = moves(&flight, k, layer);
            /* Tensors that stay are freed after the backward pass of the whole pass. */
            hold(device, from,
                 leaves ? out_end(&flight, k, layer) : flight.backward[k] + layers_of(&flight, k));
        }
    struct returns in = {.flight = &flight, .layer = SIZE_MAX, .before = SIZE_MAX};
    while (next_return(&in)) /* a copy out that begins where it ends needs separate room */
        hold(host, flight.forward[in.k] + in.layer + 1, in.end + 1);
    found->moved = deepest(device, positions);
    found->hosted = deepest(host, positions);
    if (found->hosted == 0)
        found->moved = 0;
    free(device);
    free(host);
    flight_release(&flight);
}

void erg_stage_room_move(struct erg_stage_room *room, const struct erg_layout *layout, long layers,
                         long stage, uint64_t moved)
{
    static _Thread_local struct walked known[KNOWN];
    struct walked asked = {.key = {.stages = layout->pipeline,
                                   .stage = stage,
                                   .microbatches = (long)microbatches_of(layout),
                                   .chunks = layout->virtual_stages,
                                   .inputs = moved >> ERG_STATIC_X_A & 1}};
    room->moved = room->hosted = 0;
    if (!moved)
        return;
    uint64_t hash = 0;
    for (long chunk = 0; chunk < layout->virtual_stages && chunk < MOST_CHUNKS; chunk++)
        asked.key.layers[chunk] = erg_layout_chunk_layers(layout, layers, stage, chunk);
    for (size_t i = 0; i < sizeof asked.key / sizeof(long); i++)
        hash = erg_hash_u64(hash, (uint64_t)((const long *)&asked.key)[i]);
    struct walked *at = &known[hash % KNOWN];
    if (layout->virtual_stages > MOST_CHUNKS)
        at = &asked;
    if (at == &asked || memcmp(&at->key, &asked.key, sizeof asked.key) != 0) {
        walk(&asked, layout, layers, stage, asked.key.inputs);
        *at = asked;
    }
    room->moved = at->moved;
    room->hosted = at->hosted;
}
