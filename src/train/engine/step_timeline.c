/* Records when the pieces of a step begin and end. */
#include "train/engine/step_timeline.h"

#include "base/clock.h"
#include "base/memory.h"
#include "trace/cupti.h"

#include <assert.h>
#include <stdlib.h>

const char *erg_lane_name(enum erg_lane lane)
{
    static const char *const names[ERG_LANES] = {"compute",
                                                 "receive activations",
                                                 "send activations",
                                                 "receive gradients",
                                                 "send gradients",
                                                 "weights",
                                                 "copies to host memory",
                                                 "copies from host memory"};
    return names[lane];
}

const char *erg_span_name(enum erg_span_kind kind)
{
    static const char *const names[] = {"forward",          "backward",       "update", "message",
                                        "sum of gradients", "gather weights", "copy"};
    return names[kind];
}

void erg_timeline_init(struct erg_timeline *timeline, struct erg_backend *backend)
{
    *timeline = (struct erg_timeline){.backend = backend};
}

void erg_timeline_release(struct erg_timeline *timeline)
{
    struct erg_backend *backend = timeline->backend;
    for (size_t i = 0; i < timeline->timed.count; i++) {
        backend->table->event_free(backend, timeline->timed.items[i].begin);
        backend->table->event_free(backend, timeline->timed.items[i].end);
    }
    if (timeline->origin)
        backend->table->event_free(backend, timeline->origin);
    free(timeline->timed.items);
    *timeline = (struct erg_timeline){0};
}

int erg_timeline_start(struct erg_timeline *timeline, struct erg_cupti *kernels,
                       struct erg_stream *stream, struct erg_error *err)
{
    struct erg_backend *backend = timeline->backend;
    if (!timeline->origin && backend->table->event_new(backend, &timeline->origin, true, err) != 0)
        return -1;
    timeline->runs = true;
    timeline->kernels = kernels;
    timeline->count = 0;
    if (backend->table->event_record(backend, timeline->origin, stream, err) ||
        backend->table->stream_wait(backend, stream, err))
        return -1;
    timeline->origin_ns = erg_now_ns();
    return 0;
}

/* Makes room for one more span, with its events. */
static int grow(struct erg_timeline *timeline, struct erg_error *err)
{
    struct erg_backend *backend = timeline->backend;
    struct erg_timed_span made = {0};
    if (timeline->count < timeline->timed.count)
        return 0;
    if (backend->table->event_new(backend, &made.begin, true, err) != 0)
        return -1;
    if (backend->table->event_new(backend, &made.end, true, err) != 0) {
        backend->table->event_free(backend, made.begin);
        return -1;
    }
    ERG_PUSH(&timeline->timed, items, made);
    return 0;
}

int erg_timeline_begin(struct erg_timeline *timeline, const struct erg_timeline_span *span,
                       struct erg_stream *stream, struct erg_error *err)
{
    struct erg_backend *backend = timeline->backend;
    if (!timeline->runs)
        return 0;
    if (grow(timeline, err) != 0)
        return -1;
    struct erg_timed_span *timed = &timeline->timed.items[timeline->count++];
    timed->span = *span;
    erg_cupti_push(timeline->kernels, timeline->count);
    return backend->table->event_record(backend, timed->begin, stream, err);
}

int erg_timeline_end(struct erg_timeline *timeline, enum erg_lane lane, struct erg_stream *stream,
                     struct erg_error *err)
{
    struct erg_backend *backend = timeline->backend;
    if (!timeline->runs)
        return 0;
    size_t last = timeline->count;
    do
        assert(last > 0);
    while (timeline->timed.items[--last].span.lane != (int32_t)lane);
    erg_cupti_pop(timeline->kernels);
    return backend->table->event_record(backend, timeline->timed.items[last].end, stream, err);
}

int erg_timeline_stop(struct erg_timeline *timeline, struct erg_timeline_span **spans,
                      size_t *count, struct erg_error *err)
{
    struct erg_backend *backend = timeline->backend;
    int result = 0;
    *count = timeline->count;
    *spans = erg_xcalloc(timeline->count + 1, sizeof **spans);
    for (size_t i = 0; i < timeline->count && result == 0; i++) {
        const struct erg_timed_span *timed = &timeline->timed.items[i];
        (*spans)[i] = timed->span;
        result = backend->table->event_seconds(backend, &(*spans)[i].begin_s, timeline->origin,
                                               timed->begin, err) ||
                         backend->table->event_seconds(backend, &(*spans)[i].end_s,
                                                       timeline->origin, timed->end, err)
                     ? -1
                     : 0;
    }
    timeline->runs = false;
    timeline->kernels = NULL;
    return result;
}

void erg_timeline_waits(const struct erg_timeline_span *spans, size_t count, double *bubble_s,
                        double *gradients_s)
{
    double end_s = -1, summed_s = 0;
    *bubble_s = 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_timeline_span *span = &spans[i];
        if (span->kind == ERG_SPAN_FORWARD || span->kind == ERG_SPAN_BACKWARD) {
            if (end_s >= 0 && span->begin_s > end_s)
                *bubble_s += span->begin_s - end_s;
            end_s = span->end_s;
        }
        if (span->kind == ERG_SPAN_SUM)
            summed_s = span->end_s;
    }
    *gradients_s = summed_s > end_s && end_s >= 0 ? summed_s - end_s : 0;
}
