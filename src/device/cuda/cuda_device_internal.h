/* Declarations shared by rank 0 of a CUDA device and the other ranks. */
#ifndef ERG_CUDA_DEVICE_INTERNAL_H
#define ERG_CUDA_DEVICE_INTERNAL_H

#include "device/cuda/cuda_device.h"

enum device_command {
    COMMAND_BEGIN,
    COMMAND_ENQUEUE,
    COMMAND_SYNC,
    COMMAND_REPEAT,
    COMMAND_CLEAR,
    COMMAND_NOTE,
    COMMAND_COMPARE,
    COMMAND_CLOSE,
};

/* A message of rank 0 to the others; the bytes of an enqueue's steps follow in a second message. */
struct device_message {
    uint32_t command;
    uint32_t steps;
    uint64_t repeats, bytes;
    int64_t delay_ns;         /* delay of the followers' run of an enqueue */
    uint64_t pass, reference; /* passes to note or compare */
};

enum { DEVICE_ANSWER_S = 60 }; /* limit of a rank's wait for the others' answer */

/* The state of each rank, and its data about all ranks. */
struct device_rank {
    const struct erg_worker_options *options;
    struct erg_worker *worker;
    char *buses;                        /* [rank][sizeof erg_cuda.bus]: PCI addresses */
    struct erg_device_span *spans;      /* [rank][ERG_DEVICE_SPANS], of the latest sync */
    struct erg_difference *differences; /* [rank][ERG_DIFFERENCES], of the latest comparison */
    size_t difference_count;            /* of each rank */
};

/* World calls. Close's own status is that of the worker. */
int erg_device_rank_open(struct device_rank *rank, const struct erg_worker_options *options,
                         struct erg_error *err);
int erg_device_rank_close(struct device_rank *rank, struct erg_error *err);

/*
 * Executes a command that rank 0 sent to all ranks, including itself; `bytes`: an enqueue's steps.
 */
int erg_device_obey(struct device_rank *rank, const struct device_message *message, char *bytes,
                    struct erg_error *err);

#endif
