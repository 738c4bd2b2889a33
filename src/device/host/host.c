/* The host as a device: memory, and streams that run in order or at random. */
#include "device/host/host_internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "io/file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 };

enum item_kind {
    ITEM_KERNEL,
    ITEM_COPY,
    ITEM_FILL,
    ITEM_RECORD,
    ITEM_WAIT,
    ITEM_EXCHANGE,
    ITEM_COUNT
};

/* The work that is queued on a stream. */
struct host_item {
    enum item_kind kind;
    uint64_t number; /* in the order of queueing */
    union {
        struct erg_kernel kernel;
        struct erg_host_exchange exchange;
    };
    void *to;
    const void *from;
    int byte;
    size_t bytes;
    struct erg_event *event;
    uint64_t record; /* number of the record of the event */
};

struct erg_stream {
    struct host_item *items;
    size_t count, capacity, done;
    uint64_t priority;       /* in a random order */
    struct erg_stream *next; /* list of all streams */
};

/* Recorded `queued` times; `happened` of these have been reached. */
struct erg_event {
    uint64_t queued, happened;
    int64_t time_ns; /* time of the latest one */
};

struct host {
    struct erg_backend backend;
    bool random;
    struct erg_rng rng;
    struct erg_stream *streams;
    uint64_t queued; /* items */
    struct erg_peers *peers;
    uint32_t groups; /* made so far */
};

enum { MEETING_S = 60 };

static struct host *host_of(struct erg_backend *backend)
{
    return (struct host *)backend;
}

/* ---- running ---- */

/* True: the item is complete. */
static bool run_item(struct host *host, struct host_item *item)
{
    size_t element_bytes = host->backend.element_bytes;
    switch (item->kind) {
    case ITEM_KERNEL:
        erg_host_run(element_bytes == sizeof(float), &item->kernel);
        break;
    case ITEM_COPY:
        memmove(item->to, item->from, item->bytes);
        break;
    case ITEM_FILL:
        memset(item->to, item->byte, item->bytes);
        break;
    case ITEM_RECORD:
        item->event->happened = item->record;
        item->event->time_ns = erg_now_ns();
        break;
    case ITEM_WAIT:
        break;
    case ITEM_COUNT:
        __atomic_add_fetch((uint64_t *)item->to, 1, __ATOMIC_RELAXED);
        break;
    case ITEM_EXCHANGE:
        return erg_host_exchange_step(&item->exchange, host->peers, element_bytes);
    }
    return true;
}

static bool is_ready(const struct host *host, const struct erg_stream *stream)
{
    if (stream->done == stream->count)
        return false;
    const struct host_item *head = &stream->items[stream->done];
    return head->kind == ITEM_WAIT       ? head->event->happened >= head->record
           : head->kind == ITEM_EXCHANGE ? erg_host_exchange_ready(&head->exchange, host->peers)
                                         : true;
}

/*
 * Now and then moves a stream to another place in a random order. In between, the first stream that
 * can run does so, so that others wait long.
 */
static void reorder(struct host *host)
{
    enum { SELDOM = 24 };
    for (struct erg_stream *stream = host->streams; stream; stream = stream->next)
        if (!stream->priority || erg_rng_below(&host->rng, SELDOM) == 0)
            stream->priority = 1 + erg_rng_below(&host->rng, 1 << 30);
}

/*
 * A stream whose head can run: the first one in the random order, or the one whose head was queued
 * first; NULL: none.
 */
static struct erg_stream *choose(struct host *host)
{
    struct erg_stream *chosen = NULL;
    if (host->random)
        reorder(host);
    for (struct erg_stream *stream = host->streams; stream; stream = stream->next) {
        if (!is_ready(host, stream))
            continue;
        if (!chosen || (host->random ? stream->priority > chosen->priority
                                     : stream->items[stream->done].number <
                                           chosen->items[chosen->done].number))
            chosen = stream;
    }
    return chosen;
}

/* Runs the head of a stream; if none can run, waits for other ranks. */
static int run_any(struct host *host, struct erg_error *err)
{
    struct erg_stream *chosen = choose(host);
    if (!chosen) {
        assert(
            host->peers); /* events are recorded before any wait for them, so some stream can run */
        return erg_peers_wait(host->peers, err);
    }
    if (run_item(host, &chosen->items[chosen->done]) && ++chosen->done == chosen->count)
        chosen->done = chosen->count = 0;
    return 0;
}

static void queue(struct erg_backend *backend, struct erg_stream *stream,
                  const struct host_item *item)
{
    struct host *host = host_of(backend);
    ERG_PUSH(stream, items, *item);
    stream->items[stream->count - 1].number = host->queued++;
}

/* ---- the table ---- */

static int host_alloc(struct erg_backend *backend, void **memory, size_t bytes,
                      struct erg_error *err)
{
    (void)backend;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *memory = rounded >= bytes ? aligned_alloc(ALIGNMENT, rounded ? rounded : ALIGNMENT) : NULL;
    if (*memory)
        return 0;
    return erg_fail(err, ERG_INFEASIBLE, "this machine has less than %zu bytes of free memory",
                    bytes);
}

static void host_free(struct erg_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

/* The kernel's estimate of the memory available without swapping. */
static int host_memory_free(struct erg_backend *backend, size_t *bytes, struct erg_error *err)
{
    static const char path[] = "/proc/meminfo", key[] = "\nMemAvailable:";
    char *text = NULL;
    const char *at = NULL;
    unsigned long long kib;
    (void)backend;
    if (erg_file_read(path, 0, &text, NULL, err) != 0)
        return -1;
    at = strstr(text, key);
    bool known = at && sscanf(at + sizeof key - 1, "%llu kB", &kib) == 1;
    if (known)
        *bytes = (size_t)kib << 10;
    free(text);
    return known ? 0 : erg_fail(err, ERG_FAILED, "%s: expected a line MemAvailable in kB", path);
}

static int host_copy(struct erg_backend *backend, void *to, const void *from, size_t bytes,
                     struct erg_stream *stream, struct erg_error *err)
{
    (void)err;
    queue(backend, stream, &(struct host_item){ITEM_COPY, .to = to, .from = from, .bytes = bytes});
    return 0;
}

static int host_fill(struct erg_backend *backend, void *memory, int byte, size_t bytes,
                     struct erg_stream *stream, struct erg_error *err)
{
    (void)err;
    queue(backend, stream,
          &(struct host_item){ITEM_FILL, .to = memory, .byte = byte, .bytes = bytes});
    return 0;
}

static int host_stream_new(struct erg_backend *backend, struct erg_stream **stream, bool urgent,
                           struct erg_error *err)
{
    (void)urgent;
    (void)err;
    struct host *host = host_of(backend);
    *stream = erg_xcalloc(1, sizeof **stream);
    (*stream)->next = host->streams;
    host->streams = *stream;
    return 0;
}

static void host_stream_free(struct erg_backend *backend, struct erg_stream *stream)
{
    struct erg_stream **at = &host_of(backend)->streams;
    if (!stream)
        return;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    free(stream->items);
    free(stream);
}

static int host_stream_wait(struct erg_backend *backend, struct erg_stream *stream,
                            struct erg_error *err)
{
    while (stream->done < stream->count)
        if (run_any(host_of(backend), err) != 0)
            return -1;
    return 0;
}

static int host_event_new(struct erg_backend *backend, struct erg_event **event, bool timed,
                          struct erg_error *err)
{
    (void)backend;
    (void)timed;
    (void)err;
    *event = erg_xcalloc(1, sizeof **event);
    return 0;
}

static void host_event_free(struct erg_backend *backend, struct erg_event *event)
{
    (void)backend;
    free(event);
}

static int host_event_record(struct erg_backend *backend, struct erg_event *event,
                             struct erg_stream *stream, struct erg_error *err)
{
    (void)err;
    queue(backend, stream,
          &(struct host_item){ITEM_RECORD, .event = event, .record = ++event->queued});
    return 0;
}

static int host_event_seconds(struct erg_backend *backend, double *seconds, struct erg_event *from,
                              struct erg_event *to, struct erg_error *err)
{
    (void)backend;
    (void)err;
    *seconds = 1e-9 * (double)(to->time_ns - from->time_ns);
    return 0;
}

static int host_event_wait(struct erg_backend *backend, struct erg_event *event,
                           struct erg_stream *stream, struct erg_error *err)
{
    (void)err;
    queue(backend, stream, &(struct host_item){ITEM_WAIT, .event = event, .record = event->queued});
    return 0;
}

static int host_scratch_bytes(struct erg_backend *backend, const struct erg_kernel *kernel,
                              size_t *bytes, struct erg_error *err)
{
    (void)backend;
    (void)kernel;
    (void)err;
    *bytes = 0;
    return 0;
}

static int host_launch(struct erg_backend *backend, const struct erg_kernel *kernel, void *scratch,
                       struct erg_stream *stream, struct erg_error *err)
{
    (void)scratch;
    (void)err;
    queue(backend, stream, &(struct host_item){ITEM_KERNEL, .kernel = *kernel});
    return 0;
}

static int host_group_new(struct erg_backend *backend, struct erg_group **group, const int *ranks,
                          size_t count, struct erg_error *err)
{
    (void)err;
    struct host *host = host_of(backend);
    uint32_t channel = host->groups++; /* the same on all ranks */
    *group = NULL;
    if (count == 0)
        return 0;
    struct erg_group *made = erg_xcalloc(1, sizeof *made);
    made->ranks = erg_xcalloc(count, sizeof *made->ranks);
    memcpy(made->ranks, ranks, count * sizeof *ranks);
    made->count = count;
    made->channel = channel;
    while (ranks[made->place] != erg_peers_rank(host->peers))
        made->place++;
    *group = made;
    return 0;
}

static void host_group_free(struct erg_backend *backend, struct erg_group *group)
{
    (void)backend;
    if (group)
        free(group->ranks);
    free(group);
}

static int host_exchange(struct erg_backend *backend, struct erg_group *group,
                         const struct erg_exchange *exchange, struct erg_stream *stream,
                         struct erg_error *err)
{
    (void)err;
    queue(backend, stream,
          &(struct host_item){ITEM_EXCHANGE, .exchange = {.exchange = *exchange, .group = group}});
    return 0;
}

static int host_count(struct erg_backend *backend, uint64_t *number, struct erg_stream *stream,
                      struct erg_error *err)
{
    (void)err;
    queue(backend, stream, &(struct host_item){ITEM_COUNT, .to = number});
    return 0;
}

static void host_close(struct erg_backend *backend)
{
    assert(!host_of(backend)->streams);
    erg_peers_close(host_of(backend)->peers);
    free(backend);
}

int erg_host_open(struct erg_backend **backend, const struct erg_host_options *options,
                  struct erg_error *err)
{
    static const struct erg_backend_table table = {
        .close = host_close,
        .alloc = host_alloc,
        .free = host_free,
        .host_alloc = host_alloc,
        .host_free = host_free,
        .memory_free = host_memory_free,
        .copy = host_copy,
        .fill = host_fill,
        .stream_new = host_stream_new,
        .stream_free = host_stream_free,
        .stream_wait = host_stream_wait,
        .event_new = host_event_new,
        .event_free = host_event_free,
        .event_record = host_event_record,
        .event_seconds = host_event_seconds,
        .event_wait = host_event_wait,
        .scratch_bytes = host_scratch_bytes,
        .launch = host_launch,
        .group_new = host_group_new,
        .group_free = host_group_free,
        .exchange = host_exchange,
        .count = host_count,
    };
    struct erg_peers *peers = NULL;
    if (options->rendezvous && erg_peers_open(&peers, options->rendezvous, MEETING_S, err) != 0)
        return -1;
    struct host *host = erg_xcalloc(1, sizeof *host);
    host->backend =
        (struct erg_backend){&table, options->float32 ? sizeof(float) : sizeof(erg_bf16), "host",
                             true, options->spoils_free};
    host->random = options->seed != 0;
    host->peers = peers;
    erg_rng_seed(&host->rng, options->seed);
    *backend = &host->backend;
    return 0;
}
