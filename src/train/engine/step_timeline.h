/*
 * Timeline: when the pieces of one step ran on a rank's device, by timed events on its streams.
 *
 * Times are seconds since the timeline was started, which all ranks do at about one moment.
 */
#ifndef ERG_TRAIN_ENGINE_STEP_TIMELINE_H
#define ERG_TRAIN_ENGINE_STEP_TIMELINE_H

#include "device/backend.h"

/* One after the other on each. */
enum erg_lane {
    ERG_LANE_COMPUTE,
    ERG_LANE_INPUT,    /* activations that come from the stage before */
    ERG_LANE_OUTPUT,   /* and go to the next */
    ERG_LANE_D_OUTPUT, /* gradients that come from the next stage */
    ERG_LANE_D_INPUT,  /* and go to the one before */
    ERG_LANE_WEIGHTS,  /* sums of gradients, and weights that are gathered */
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
    int32_t chunk, microbatch; /* of a pass; else -1 */
    int32_t mode, clock_mhz;   /* of a plan: enum erg_mode and its clock; clock 0: there is none */
};

struct erg_cupti;

struct erg_timeline {
    struct erg_backend *backend;
    struct erg_cupti *kernels; /* records meanwhile: a piece is its number, from 1; NULL: none */
    bool runs;
    struct erg_event *origin;
    int64_t origin_ns; /* when that happened, by erg_now_ns() */
    struct {
        struct erg_timed_span {
            struct erg_timeline_span span;
            struct erg_event *begin, *end;
        } * items;
        size_t count, capacity;
    } timed;
    size_t count; /* of this step; events of the others wait for later ones */
};

void erg_timeline_init(struct erg_timeline *timeline, struct erg_backend *backend);
void erg_timeline_release(struct erg_timeline *timeline);

/* From now on pieces are noted; `kernels` records already, NULL: nothing does. Waits for the
 * stream. */
int erg_timeline_start(struct erg_timeline *timeline, struct erg_cupti *kernels,
                       struct erg_stream *stream, struct erg_error *err);

/* Around work that is queued on a stream in between; nothing where the timeline does not run. */
int erg_timeline_begin(struct erg_timeline *timeline, const struct erg_timeline_span *span,
                       struct erg_stream *stream, struct erg_error *err);
int erg_timeline_end(struct erg_timeline *timeline, enum erg_lane lane, struct erg_stream *stream,
                     struct erg_error *err);

/* After all streams have been waited for: *spans [*count], to be freed. */
int erg_timeline_stop(struct erg_timeline *timeline, struct erg_timeline_span **spans,
                      size_t *count, struct erg_error *err);

/* Seconds that a rank's compute lane waited between its first pass and its last one, and then for
 * the sums of gradients. */
void erg_timeline_waits(const struct erg_timeline_span *spans, size_t count, double *bubble_s,
                        double *gradients_s);

#endif
