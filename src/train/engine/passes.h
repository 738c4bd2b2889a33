/*
 * Passes: the instructions of a stage, run in the order of the schedule (iteration/iteration.h),
 * and the messages between stages.
 *
 * Messages have their own streams, one for each direction and end. An input is received into its
 * pass as soon as the previous forward has ended; an output is sent from one of two alternating
 * buffers, and so are gradients. A channel sends and receives its messages in one order.
 */
#ifndef ERG_TRAIN_ENGINE_PASSES_H
#define ERG_TRAIN_ENGINE_PASSES_H

#include "decoder/decoder_stage.h"
#include "iteration/iteration.h"
#include "train/engine/clock_controller.h"
#include "train/engine/layer_offload.h"
#include "train/engine/pass_plan.h"
#include "train/engine/ranks.h"
#include "train/engine/step_timeline.h"

/* Instructions of one stage. */
struct erg_pass_list {
    struct erg_schedule schedule;
    const struct erg_instruction *items; /* of this rank's stage */
    size_t count;
};

/* A single stage has one chunk. */
int erg_pass_list_init(struct erg_pass_list *list, const struct erg_layout *layout, long stage,
                       struct erg_error *err);
void erg_pass_list_release(struct erg_pass_list *list);

struct erg_passes;

struct erg_passes_options {
    struct erg_backend *backend;
    struct erg_stage *stage;
    const struct erg_pass_list *list;
    const struct erg_rank_groups *groups;
    struct erg_stream *stream;               /* of the passes; all outlive it */
    const struct erg_static_memory *buffers; /* of the rank; and their memory */
    void *memory;
    struct erg_timeline *timeline;
    struct erg_offload *offload;         /* NULL: no offloading */
    const struct erg_pass_plan *plan;    /* of the stage; NULL: all passes are sequential */
    struct erg_clock_controller *clocks; /* of the plan; NULL: GPUs keep their own */
    bool times_work;                     /* enables erg_passes_worked() */
    uint64_t *finished; /* counts finished instructions, if the device reports them */
};

int erg_passes_open(struct erg_passes **passes, const struct erg_passes_options *options,
                    struct erg_error *err);
void erg_passes_close(struct erg_passes *passes);

/*
 * Queues all passes of a step: microbatch i has tokens[i]. Calls `reads` for weights in the first
 * microbatch, and `adds` for gradients in the last one.
 */
int erg_passes_run(struct erg_passes *passes, const struct erg_stage_tokens *tokens,
                   const struct erg_stage_listener *reads, const struct erg_stage_listener *adds,
                   struct erg_error *err);

/*
 * Queues only the forward passes of a step, in the same order: it changes no gradient, and the
 * stage keeps no activations.
 */
int erg_passes_forward(struct erg_passes *passes, const struct erg_stage_tokens *tokens,
                       const struct erg_stage_listener *reads, struct erg_error *err);

/* "forward of microbatch 2" */
void erg_pass_list_describe(const struct erg_pass_list *list, size_t stage, size_t instruction,
                            char *text, size_t capacity);

/*
 * Seconds that this rank worked in the passes of the last step, which must have ended; NaN: not
 * enabled.
 */
int erg_passes_worked(struct erg_passes *passes, double *seconds, struct erg_error *err);

/* Waits until all messages have been sent. */
int erg_passes_wait(struct erg_passes *passes, struct erg_error *err);

#endif
