/*
 * Timeline: the times of the parts of one step on a rank's device, from timed events on its
 * streams.
 *
 * Times are seconds since the timeline was started, which all ranks do at about the same moment.
 */
#ifndef ERG_TRAIN_ENGINE_STEP_TIMELINE_H
#define ERG_TRAIN_ENGINE_STEP_TIMELINE_H

#include "device/backend.h"

/* Spans of a lane do not overlap. */
enum erg_lane {
    ERG_LANE_COMPUTE,
    ERG_LANE_INPUT,    /* activations from the previous stage */
    ERG_LANE_OUTPUT,   /* activations to the next stage */
    ERG_LANE_D_OUTPUT, /* gradients from the next stage */
    ERG_LANE_D_INPUT,  /* gradients to the previous stage */
    ERG_LANE_WEIGHTS,  /* sums of gradients, and gathers of weights */
    ERG_LANE_COPY_OUT, /* activations to host memory */
    ERG_LANE_COPY_IN,  /* and back */
    ERG_LANES,
};
const char *erg_lane_name(enum erg_lane lane);

enum erg_span_kind {
    ERG_SPAN_FORWARD,
    ERG_SPAN_BACKWARD,
    ERG_SPAN_UPDATE,
    ERG_SPAN_MESSAGE,
    ERG_SPAN_SUM,
    ERG_SPAN_GATHER,
    ERG_SPAN_COPY,
};
const char *erg_span_name(enum erg_span_kind kind);

/* Plain data without pointers, which ranks send each other. */
struct erg_timeline_span {
    double begin_s, end_s;
    int32_t lane, kind;
    int32_t chunk, microbatch; /* of a pass; otherwise -1 */
    int32_t mode, clock_mhz;   /* of a plan: enum erg_mode, and its clock; 0: none */
};

struct erg_cupti;

struct erg_timeline {
    struct erg_backend *backend;
    /* Kernel recorder: numbers are those of pieces, from 1; NULL: none. */
    struct erg_cupti *kernels;
    bool runs;
    struct erg_event *origin;
    int64_t origin_ns; /* the time of the start, by erg_now_ns() */
    struct {
        struct erg_timed_span {
            struct erg_timeline_span span;
            struct erg_event *begin, *end;
        } * items;
        size_t count, capacity;
    } timed;
    size_t count; /* spans of this step; further events are kept for later steps */
};

void erg_timeline_init(struct erg_timeline *timeline, struct erg_backend *backend);
void erg_timeline_release(struct erg_timeline *timeline);

/* Records pieces from now on. `kernels` is already recording; NULL: none. Waits for the stream. */
int erg_timeline_start(struct erg_timeline *timeline, struct erg_cupti *kernels,
                       struct erg_stream *stream, struct erg_error *err);

/* Call both around work that is queued on a stream; they do nothing unless the timeline runs. */
int erg_timeline_begin(struct erg_timeline *timeline, const struct erg_timeline_span *span,
                       struct erg_stream *stream, struct erg_error *err);
int erg_timeline_end(struct erg_timeline *timeline, enum erg_lane lane, struct erg_stream *stream,
                     struct erg_error *err);

/* Call it after all streams have finished: *spans [*count]; free it. */
int erg_timeline_stop(struct erg_timeline *timeline, struct erg_timeline_span **spans,
                      size_t *count, struct erg_error *err);

/*
 * Seconds that a rank's compute lane waited between its first and its last pass, and then for the
 * sums of gradients.
 */
void erg_timeline_waits(const struct erg_timeline_span *spans, size_t count, double *bubble_s,
                        double *gradients_s);

#endif
