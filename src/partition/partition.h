/*
 * Partition (scale 1): from the op list of a layer to the steps that a device runs.
 *
 * A microbatch is split into two nanobatches. The op list of a stage is cut at its
 * communications into segments: compute ops C_k followed by a communication X_k. While one
 * nanobatch computes, the other communicates:
 *     nanobatch 0 runs C_k during nanobatch 1's previous communication X_{k-1},
 *     nanobatch 1 runs C_k during nanobatch 0's X_k.
 * Each such pair is a partition. Partitions that run the same ops during the same communication are
 * one type, and all of a type share one schedule in an instruction.
 *
 * Under sequence parallelism tensor ranks scatter the sum of a half of the layer, normalise their
 * rows and gather the rows of all ranks. A norm of a rank's few rows hides neither exchange, so the
 * three are one communication with work in it.
 *
 * Everything here is derived from the op list (model/): types, their names, launch slots and
 * counts. Name: direction, the parts of the layer that compute ("attn" stands for qkv, attention
 * and output projection together; else "qkv", "ao", "o", "a", "mlp"), and the communication ("ar",
 * "ag", "rs", or "norm" for one with a norm in it) when the same compute runs during different
 * ones.
 *
 * Launch slots: consecutive memory-bound ops of one group and direction are one slot, each
 * compute-bound op is one, except a weight gradient, which follows its input gradient. A slot is
 * named after its group and its number in the run ("linear_0"). The last of several slots is not
 * searched when it is a linear that follows another linear, or when what computes after it cannot
 * hide the communication on few SMs at the highest clock: launching there always leaves
 * communication exposed or starves the compute.
 *
 * Source: formation of partitions, launch slots and sets of SMs: Wu, Chung, Chowdhury, "Kareus:
 * Joint Reduction of Dynamic and Static Energy in Large Model Training" (arXiv 2601.17654).
 */
#ifndef ERG_PARTITION_H
#define ERG_PARTITION_H

#include "device/work.h"
#include "ergon/error.h"
#include "hardware/hardware.h"
#include "job/job.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>

struct erg_slot {
    char name[16];
    size_t op; /* the communication starts just before this op of the task */
};

struct erg_partition {
    char key[24]; /* "fwd_attn", "bwd_qkv_rs" */
    bool backward;
    int occurrences; /* per layer and direction */
    struct erg_task task;
    const char **op_names;        /* [task.op_count] */
    const struct erg_slot *slots; /* the searched ones, in launch order */
    size_t slot_count;
    const int *sms; /* the searched SM counts, increasing */
    size_t sms_count;
    size_t run_ops; /* ops of the run, memory-bound groups counted once: its size for a search */
    int kernels;    /* host launches of one execution, the communication included */
};

/* The tasks of one partition of an instruction; its ends differ from the steady state. */
struct erg_stage_partition {
    int nanobatch; /* which computes: 0 or 1 */
    int type;      /* index of the partition type, or -1 for a tail of compute after the last cut,
                    * and under sequence parallelism for the norms before the first */
    struct erg_task task;
};

/* Steps that are measured and run as one: a whole layer, or work outside the layers. */
struct erg_steps {
    struct erg_step *steps;
    size_t count;
    int kernels;
};

/* Work outside the layers, by where it happens. */
enum erg_fixed {
    ERG_FIXED_EMBEDDING_FORWARD,
    ERG_FIXED_EMBEDDING_BACKWARD,
    ERG_FIXED_EMBEDDING_BACKWARD_NANOBATCH, /* of one of the two nanobatches */
    ERG_FIXED_HEAD_FORWARD,
    ERG_FIXED_HEAD_BACKWARD,
    ERG_FIXED_COUNT,
};
const char *erg_fixed_name(enum erg_fixed fixed);

struct erg_workload_request {
    const struct erg_model *model;
    const struct erg_gpu *gpu;
    const struct erg_stack *stack;
    int tensor, context;
    int microbatch_size;                /* sequences */
    int sequence;                       /* tokens */
    bool recompute;                     /* the backward replays the forward, layer by layer */
    bool norms_again, activation_again; /* the backward makes their outputs again */
    bool sequence_parallel;             /* the stream has a share of the rows on each tensor rank */
};

/* The activations that the backward pass recomputes. */
void erg_workload_set_recompute(struct erg_workload_request *request, enum erg_recompute recompute);

/* One layer of the job's model, with the job's parallelism, on one of its GPUs. */
struct erg_workload_request erg_workload_of_job(const struct erg_job *job,
                                                const struct erg_gpu *gpu);

/* Everything that a device runs for a job's microbatch, per layer. */
struct erg_workload {
    bool nanobatched; /* false when the microbatch cannot be split in two: no partitions */
    /*
     * Forward types first. A backward instruction runs `backward_count` types, and where
     * `replays_forward` all forward types before them, with configurations of their own:
     * activations are recomputed, and a layer ends in a communication. Where it does not (keys and
     * values alone are exchanged), what computes again runs on into the backward pass, and the
     * backward types hold both.
     */
    struct erg_partition *partitions;
    size_t forward_count, backward_count;
    bool replays_forward;

    /* Whole layers [0] forward, [1] backward, with the replay when activations are recomputed. */
    struct erg_steps sequential[2]; /* one microbatch, communication after compute */
    struct erg_steps nanobatch[2];  /* two nanobatches, the library's communication at once */

    /*
     * The ends of an instruction of nanobatches. No communication runs during its first partition,
     * and only the tail's compute runs during its last communication: `ends` are these two, run
     * once instead of the first partition type of the direction (of the replay, when there is one);
     * the tail's communication is launched at once on the fewest SMs that hide it, or on the most
     * where none do. The first partition and the tail of the other nanobatch add up to one
     * partition of its type. Under sequence parallelism both nanobatches begin with a norm alone
     * and end with a tail: `ends` are these four and the first partition between them.
     * `nanobatch_single` is a whole instruction of one layer, ends included, with the library.
     */
    struct erg_steps ends[2], nanobatch_single[2];

    struct erg_steps fixed[ERG_FIXED_COUNT];
    double boundary_bytes; /* activations of a microbatch that one GPU sends to the next stage */

    struct erg_arena *arena; /* private: owns all of the above */
};

int erg_workload_build(struct erg_workload *workload, const struct erg_workload_request *request,
                       struct erg_error *err);
void erg_workload_release(struct erg_workload *workload);

/*
 * The exact list of an instruction of `layers` layers, 2 per segment and 2 for the tail. A
 * backward that recomputes replays every layer just before its backward. `list` receives *count
 * entries that live as long as the workload.
 */
int erg_stage_partitions(struct erg_workload *workload, const struct erg_workload_request *request,
                         int layers, bool backward, const struct erg_stage_partition **list,
                         size_t *count, struct erg_error *err);

/*
 * The same as steps that a device runs in one go, which live as long as the workload: one
 * microbatch with its communication after compute, or two nanobatches. launches[types] of these
 * (forward types first; NULL: the library's communication at once); communications without a type,
 * at the ends, are launched at once on the fewest SMs that hide them, or on the most.
 */
int erg_stage_sequential(struct erg_workload *workload, const struct erg_workload_request *request,
                         int layers, bool backward, struct erg_steps *steps, struct erg_error *err);
int erg_stage_nanobatched(struct erg_workload *workload, const struct erg_workload_request *request,
                          int layers, bool backward, const struct erg_launch *launches,
                          struct erg_steps *steps, struct erg_error *err);

/* One partition under one configuration as a step of a device. */
struct erg_step erg_partition_step(const struct erg_partition *partition, size_t slot, int sms);

#endif
