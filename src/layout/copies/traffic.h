/*
 * A pipeline's copies to host memory and its messages in time: when each begins and ends, on one
 * GPU of each stage, and what compute waits for.
 *
 * A stage runs its passes in the order of memory/copies.h, each as soon as the one before it has
 * ended, its input is there, and so are the copies that must have ended. The output of a pass is
 * sent at once: one message at a time leaves a GPU, and one arrives, on the links inside a node and
 * on those between nodes each. In each direction a GPU has one link to host memory; copies out take
 * theirs one after the other, so do copies in.
 *
 * Messages between nodes may share something with copies, the GPU's link to a switch where the
 * network adapter is, or host memory: sends with copies out, receives with copies in. Together they
 * never have more than its bandwidth. A message goes first, since another stage waits for it, and
 * copies use the remaining bandwidth.
 *
 * Left out: the embedding, sums of gradients and the optimizer, which follow the pipeline, and the
 * slowdown of kernels that run during copies (engine: offload_interference).
 */
#ifndef ERG_LAYOUT_COPIES_TRAFFIC_H
#define ERG_LAYOUT_COPIES_TRAFFIC_H

#include "layout/memory/copies.h"
#include "layout/time/time.h"

enum erg_memory_transfer_kind {
    ERG_MEMORY_COPY_OUT,
    ERG_MEMORY_COPY_IN,
    ERG_MEMORY_SEND,
    ERG_MEMORY_RECEIVE,
};
const char *erg_memory_transfer_name(enum erg_memory_transfer_kind kind); /* "copy_out", … */

struct erg_memory_transfer {
    enum erg_memory_transfer_kind kind;
    long chunk, microbatch; /* that is copied, or whose pass sends, or is sent for */
    long layer;             /* of a copy; -1: all of the chunk */
    long peer;              /* stage of a message; -1: a copy */
    bool backward;          /* a message: a gradient */
    bool between_nodes;     /* a message */
    int64_t bytes;
    double start_s, end_s; /* since the iteration's begin */
};

struct erg_memory_traffic {
    struct erg_memory_stage_traffic {
        struct erg_memory_transfer *items; /* by start */
        size_t count, capacity;
        struct erg_memory_pass_time { /* in the order in which the stage runs them */
            bool backward;
            long chunk, microbatch;
            double start_s, end_s;
        } * passes;
        size_t pass_count;
        double copy_wait_s; /* compute had its input, but not its copies */
        double end_s;       /* of the last pass and copy */
    } * stages;
    long count;
    double time_s; /* the longest end_s */
};

/* How fast things go; bytes/s in one direction. */
struct erg_memory_speeds {
    int64_t message_bytes;
    struct erg_memory_stage_speed {
        double forward_s, backward_s; /* a layer */
        double copy;                  /* to host memory, and back */
        /* Messages to and from the next stage; of the last, the first. Between GPUs of two kinds
         * the slower one's. */
        double message;
        bool between_nodes; /* they are */
        double shared;      /* of the link that copies and messages between nodes share; INFINITY:
                             * nothing */
    } * stages;
    double head_s; /* of the last stage: loss and all, a third of it forward */
};

/* `stages` [count] are those of one pipeline, in order. */
void erg_memory_traffic_init(struct erg_memory_traffic *traffic,
                             const struct erg_memory_copies *stages, long count,
                             const struct erg_memory_speeds *speeds);
void erg_memory_traffic_release(struct erg_memory_traffic *traffic);

/*
 * All of a layout whose stages each run on an engine and its machine, `on` [pipeline]. Stages that
 * follow each other on the same machine, which is the same pointer then, fill its nodes one after
 * the other; others lie on different nodes. *shared_s is the additional time of an iteration
 * because copies and messages share a link.
 */
void erg_memory_traffic_of_layout(struct erg_memory_traffic *traffic, double *shared_s,
                                  const struct erg_memory_request *request,
                                  const struct erg_time_request *on);

#endif
