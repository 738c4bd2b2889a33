/* What rank 0 of a CUDA device and its followers share. */
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

/* What rank 0 tells the others; the bytes of an enqueue's steps follow in a message of their own.
 */
struct device_message {
    uint32_t command;
    uint32_t steps;
    uint64_t repeats, bytes;
    int64_t delay_ns;         /* of the followers' run of an enqueue */
    uint64_t pass, reference; /* of numbers */
};

enum { DEVICE_ANSWER_S = 60 }; /* how long one rank waits for the others' answer */

/* World calls. */

/* Rank 0 reads the sensors of all GPUs and compares their spans: they are on its machine. */
int erg_device_check_machines(const struct erg_worker_options *options, struct erg_error *err);
/* The PCI addresses of all GPUs, in the order of ranks; the caller frees. */
int erg_device_share_buses(const struct erg_worker *worker,
                           const struct erg_worker_options *options, char **buses,
                           struct erg_error *err);
/* Spans of all ranks, [rank][ERG_DEVICE_SPANS]. */
int erg_device_gather_spans(struct erg_worker *worker, const struct erg_worker_options *options,
                            struct erg_device_span *all, struct erg_error *err);
/* Of all ranks, [rank][ERG_DIFFERENCES]; the caller frees. */
int erg_device_gather_differences(const struct erg_worker *worker,
                                  const struct erg_worker_options *options, size_t pass,
                                  size_t reference, struct erg_difference **all, size_t *count,
                                  struct erg_error *err);

#endif
