/*
 * The schedule of a pipeline's copies to host memory and its messages: their start and end on one
 * GPU of each stage, and the waits of compute.
 *
 * A stage runs its passes in the order of memory/copies.h, each as soon as the previous one has
 * ended, its input has arrived, and the copies that must precede it have ended. The output of a
 * pass is sent immediately. On links inside a node and on those between nodes, a GPU sends one
 * message at a time and receives one. It has one link to host memory in each direction; copies out
 * run in sequence, and so do copies in.
 *
 * Messages between nodes may share a resource with copies, either host memory or the GPU's link to
 * the switch with the network adapter: sends with copies out, receives with copies in. Together
 * they never exceed its bandwidth. A message has priority, since another stage waits for it; copies
 * use the remaining bandwidth.
 *
 * Not modelled: the embedding, sums of gradients and the optimizer, which follow the pipeline, and
 * the slowdown of kernels that run during copies (engine: offload_interference).
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
    long chunk, microbatch; /* of the copy, or of the pass that sends or receives */
    long layer;             /* of a copy; -1: all of the chunk */
    long peer;              /* stage of a message; -1: a copy */
    bool backward;          /* a message: a gradient */
    bool between_nodes;     /* a message */
    int64_t bytes;
    double start_s, end_s; /* since the start of the iteration */
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
        double copy_wait_s; /* time in which compute had its input, but not its copies */
        double end_s;       /* of the last pass and copy */
    } * stages;
    long count;
    double time_s; /* the longest end_s */
};

/* Times of passes, and rates in bytes/s in one direction. */
struct erg_memory_speeds {
    int64_t message_bytes;
    struct erg_memory_stage_speed {
        double forward_s, backward_s; /* a layer */
        double copy;                  /* to host memory, and back */
        /*
         * Messages to and from the next stage; the last stage's next is the first. Between two
         * kinds of GPUs, that of the slower one.
         */
        double message;
        bool between_nodes; /* these messages are */
        double shared;      /* of the link that copies and messages between nodes share; INFINITY:
                             * nothing */
    } * stages;
    double head_s; /* last stage: head with loss, a third of it forward */
};

/* `stages` [count] are the stages of one pipeline, in order. */
void erg_memory_traffic_init(struct erg_memory_traffic *traffic,
                             const struct erg_memory_copies *stages, long count,
                             const struct erg_memory_speeds *speeds);
void erg_memory_traffic_release(struct erg_memory_traffic *traffic);

/*
 * The traffic of a layout whose stages each run on an engine and its machine, `on` [pipeline].
 * Consecutive stages on the same machine (equal pointers) fill its nodes in order; others are on
 * different nodes. *shared_s is the additional time of an iteration because copies and messages
 * share a link.
 */
void erg_memory_traffic_of_layout(struct erg_memory_traffic *traffic, double *shared_s,
                                  const struct erg_memory_request *request,
                                  const struct erg_time_request *on);

#endif
