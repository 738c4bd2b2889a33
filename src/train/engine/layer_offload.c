/* Copies parts of layers to host memory and back. */
#include "train/engine/layer_offload.h"

#include "base/memory.h"
#include "layout/memory/copies.h"

#include <assert.h>
#include <stdlib.h>

/* A direction: its stream, and its copy for which the passes have not yet waited. */
struct offload_lane {
    enum erg_lane lane;
    struct erg_stream *stream;
    struct erg_event *reached; /* the passes' queued work at its start */
    struct erg_event *moved;   /* the copy has ended */
    const struct erg_memory_copy *open;
    size_t next; /* index in the list */
};

struct erg_offload {
    struct erg_offload_options options;
    struct erg_memory_copies copies;
    size_t bytes; /* of a copy */
    bool forward_alone;
    size_t at; /* number of the step's layers queued so far */
    struct offload_lane out, in;
    size_t out_pass; /* pass whose layer is copied out */
    size_t returned; /* copies in that the step has begun */
    char *host;
    bool *host_taken; /* [host_count] */
    size_t host_count, most_layers;
    size_t *host_of; /* [chunks][microbatches][most_layers]: place of a layer in host memory */
    char *reads;     /* where a layer's backward pass reads the returned tensors, or NULL */
};

/* ---- opening ---- */

static int open_lane(struct erg_offload *offload, struct offload_lane *lane, enum erg_lane kind,
                     struct erg_error *err)
{
    struct erg_backend *backend = offload->options.backend;
    lane->lane = kind;
    return backend->table->stream_new(backend, &lane->stream, false, err) ||
                   backend->table->event_new(backend, &lane->reached, false, err) ||
                   backend->table->event_new(backend, &lane->moved, false, err)
               ? -1
               : 0;
}

static void close_lane(struct erg_offload *offload, struct offload_lane *lane)
{
    struct erg_backend *backend = offload->options.backend;
    if (lane->reached)
        backend->table->event_free(backend, lane->reached);
    if (lane->moved)
        backend->table->event_free(backend, lane->moved);
    backend->table->stream_free(backend, lane->stream);
}

static int move(void *context, size_t pass, size_t layer, bool done, struct erg_error *err);

/* Fills unwritten memory with NaN, for tests. */
static int spoil(struct erg_offload *offload, void *memory, size_t bytes, struct erg_error *err)
{
    struct erg_backend *backend = offload->options.backend;
    return backend->spoils_free
               ? backend->table->fill(backend, memory, 0xff, bytes, offload->options.stream, err)
               : 0;
}

static int spoil_all(struct erg_offload *offload, struct erg_error *err)
{
    const struct erg_static_memory *buffers = offload->options.buffers;
    const enum erg_static_set first = ERG_STATIC_MOVED, behind = ERG_STATIC_RETURNS + 1;
    return spoil(offload, (char *)offload->options.memory + buffers->begins[first],
                 buffers->begins[behind] - buffers->begins[first], err);
}

static void count_layers(struct erg_offload *offload)
{
    const struct erg_offload_options *options = &offload->options;
    const struct erg_layout *layout = options->layout;
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++) {
        const size_t own =
            (size_t)erg_layout_chunk_layers(layout, options->layers, options->index, chunk);
        offload->most_layers = own > offload->most_layers ? own : offload->most_layers;
    }
    offload->host_of =
        erg_xcalloc((size_t)(layout->virtual_stages * layout->microbatches) * offload->most_layers,
                    sizeof *offload->host_of);
}

int erg_offload_open(struct erg_offload **out, const struct erg_offload_options *options,
                     struct erg_error *err)
{
    struct erg_backend *backend = options->backend;
    const struct erg_static_memory *buffers = options->buffers;
    *out = NULL;
    if (buffers->host_bytes == 0)
        return 0;
    struct erg_offload *offload = erg_xcalloc(1, sizeof *offload);
    offload->options = *options;
    offload->bytes = buffers->pieces[ERG_STATIC_MOVED];
    offload->host_count = buffers->host_bytes / offload->bytes;
    offload->host_taken = erg_xcalloc(offload->host_count, sizeof *offload->host_taken);
    count_layers(offload);
    erg_static_copies_init(&offload->copies, options->layout, options->layers, options->index,
                           (int64_t)offload->bytes);
    void *host = NULL;
    const int result = backend->table->host_alloc(backend, &host, buffers->host_bytes, err) ||
                               open_lane(offload, &offload->out, ERG_LANE_COPY_OUT, err) ||
                               open_lane(offload, &offload->in, ERG_LANE_COPY_IN, err) ||
                               spoil_all(offload, err)
                           ? -1
                           : 0;
    offload->host = host;
    if (result != 0) {
        erg_offload_close(offload);
        return -1;
    }
    const struct erg_stage_mover mover = {move, offload};
    erg_stage_set_mover(options->stage, &mover);
    *out = offload;
    return 0;
}

void erg_offload_close(struct erg_offload *offload)
{
    if (!offload)
        return;
    struct erg_backend *backend = offload->options.backend;
    const struct erg_stage_mover nobody = {0};
    erg_stage_set_mover(offload->options.stage, &nobody);
    close_lane(offload, &offload->out);
    close_lane(offload, &offload->in);
    if (offload->host)
        backend->table->host_free(backend, offload->host);
    erg_memory_copies_release(&offload->copies);
    free(offload->host_taken);
    free(offload->host_of);
    free(offload);
}

/* ---- copies ---- */

static size_t *host_of(struct erg_offload *offload, const struct erg_memory_copy *copy)
{
    const long microbatches = offload->options.layout->microbatches;
    const size_t group = (size_t)(copy->chunk * microbatches + copy->microbatch);
    return &offload->host_of[group * offload->most_layers + (size_t)copy->layer];
}

static char *host_memory(struct erg_offload *offload, const struct erg_memory_copy *copy)
{
    return offload->host + *host_of(offload, copy) * offload->bytes;
}

/* The next copy of a direction if it begins here; NULL: none. */
static const struct erg_memory_copy *next_copy(struct erg_offload *offload,
                                               struct offload_lane *lane)
{
    const struct erg_memory_copies *copies = &offload->copies;
    while (lane->next < copies->count && copies->items[lane->next].in != (lane == &offload->in))
        lane->next++;
    if (lane->next == copies->count || copies->items[lane->next].begin != offload->at)
        return NULL;
    assert(!lane->open);
    return lane->open = &copies->items[lane->next++];
}

/*
 * Copies after the passes' work queued so far: then the source of a copy out is written, and the
 * last reader of a copy in's buffer has finished.
 */
static int begin(struct erg_offload *offload, struct offload_lane *lane, void *to, const void *from,
                 struct erg_error *err)
{
    const struct erg_offload_options *options = &offload->options;
    struct erg_backend *backend = options->backend;
    const struct erg_timeline_span span = {.lane = (int32_t)lane->lane,
                                           .kind = ERG_SPAN_COPY,
                                           .chunk = (int32_t)lane->open->chunk,
                                           .microbatch = (int32_t)lane->open->microbatch};
    return erg_backend_follow(backend, lane->reached, lane->stream, options->stream, err) ||
                   erg_timeline_begin(options->timeline, &span, lane->stream, err) ||
                   backend->table->copy(backend, to, from, offload->bytes, lane->stream, err) ||
                   erg_timeline_end(options->timeline, lane->lane, lane->stream, err) ||
                   backend->table->event_record(backend, lane->moved, lane->stream, err)
               ? -1
               : 0;
}

/* If the open copy of a direction must end here, the passes wait for it; *ended: whether it did. */
static int end(struct erg_offload *offload, struct offload_lane *lane, bool *ended,
               struct erg_error *err)
{
    struct erg_backend *backend = offload->options.backend;
    *ended = lane->open && lane->open->end == offload->at;
    return *ended ? backend->table->event_wait(backend, lane->moved, offload->options.stream, err)
                  : 0;
}

/* After a layer of a pass: the copy out that ran during it has ended, and the layer's own
 * begins. */
static int copy_out(struct erg_offload *offload, size_t pass, size_t layer, struct erg_error *err)
{
    struct offload_lane *lane = &offload->out;
    struct erg_stage *stage = offload->options.stage;
    bool ended;
    if (end(offload, lane, &ended, err) != 0)
        return -1;
    if (ended) {
        const size_t moved = (size_t)lane->open->layer;
        if (spoil(offload, erg_stage_moved(stage, offload->out_pass, moved), offload->bytes, err))
            return -1;
        erg_stage_give_moved(stage, offload->out_pass, moved);
        lane->open = NULL;
    }
    const struct erg_memory_copy *copy = next_copy(offload, lane);
    if (!copy)
        return 0;
    assert((size_t)copy->layer == layer);
    size_t host = 0;
    while (offload->host_taken[host])
        host++;
    assert(host < offload->host_count);
    offload->host_taken[host] = true;
    *host_of(offload, copy) = host;
    offload->out_pass = pass;
    return begin(offload, lane, host_memory(offload, copy), erg_stage_moved(stage, pass, layer),
                 err);
}

static char *place(const struct erg_offload *offload, size_t turn)
{
    return (char *)offload->options.memory +
           erg_static_offset(offload->options.buffers, ERG_STATIC_RETURNED, turn % ERG_STATIC_RING);
}

/* Before a layer of a pass: its tensors have returned, and the next copy in begins. */
static int copy_in(struct erg_offload *offload, size_t pass, size_t layer, struct erg_error *err)
{
    struct offload_lane *lane = &offload->in;
    bool ended;
    if (end(offload, lane, &ended, err) != 0)
        return -1;
    if (ended) {
        assert((size_t)lane->open->layer == layer);
        offload->host_taken[*host_of(offload, lane->open)] = false;
        offload->reads = place(offload, offload->returned - 1);
        erg_stage_return_moved(offload->options.stage, pass, layer, offload->reads);
        lane->open = NULL;
    }
    const struct erg_memory_copy *copy = next_copy(offload, lane);
    return copy ? begin(offload, lane, place(offload, offload->returned++),
                        host_memory(offload, copy), err)
                : 0;
}

/* The returned tensors are no longer read. */
static int forget(struct erg_offload *offload, struct erg_error *err)
{
    char *reads = offload->reads;
    offload->reads = NULL;
    return reads ? spoil(offload, reads, offload->bytes, err) : 0;
}

static int move(void *context, size_t pass, size_t layer, bool done, struct erg_error *err)
{
    struct erg_offload *offload = context;
    if (offload->forward_alone) {
        /* The layer has read the previous layer's output. */
        if (done && layer > 0)
            erg_stage_give_moved(offload->options.stage, pass, layer - 1);
        return 0;
    }
    if (!done)
        return copy_in(offload, pass, layer, err);
    offload->at++;
    return forget(offload, err) || copy_out(offload, pass, layer, err) ? -1 : 0;
}

void erg_offload_begin(struct erg_offload *offload, bool forward_alone)
{
    if (!offload)
        return;
    assert(!offload->out.open && !offload->in.open);
    offload->forward_alone = forward_alone;
    offload->at = offload->out.next = offload->in.next = offload->returned = 0;
}
