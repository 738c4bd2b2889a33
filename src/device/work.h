/*
 * Work: the steps that a device executes.
 *
 * A task is a run of compute ops on one stream plus at most one communication op on a second
 * stream. A launch sets the start of the communication and its number of SMs. A step is a task with
 * a launch; steps run in sequence, each ending with a join of both streams. A step can be a part of
 * one layer in steady state, measured alone; several steps form an instruction. All sizes are per
 * GPU.
 */
#ifndef ERG_DEVICE_WORK_H
#define ERG_DEVICE_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum erg_op_kind {
    ERG_OP_MEMORY,            /* memory-bound: time set by bytes */
    ERG_OP_GEMM,              /* matrix product */
    ERG_OP_ATTENTION_FORWARD, /* flash attention */
    ERG_OP_ATTENTION_BACKWARD,
};

/* The kind of the op, for a device that runs real kernels; the emulated device uses only the
 * costs. */
struct erg_op_code {
    uint32_t parts; /* bits 1 << enum erg_model_op_id, several if merged; 0: MoE, MLA (no device) */
    bool backward;
    bool weights;  /* a linear's weight gradient in its backward; false: its input gradient */
    int sequences; /* of the microbatch or nanobatch */
};

struct erg_op {
    enum erg_op_kind kind;
    int kernels;  /* number of kernels; each costs the launch gap */
    double flops; /* 0 for memory-bound ops */
    double bytes; /* HBM bytes read and written */
    double k;     /* GEMM: length of the inner dimension, elements; attention: of a sequence */
    double tiles; /* GEMM: output tiles, for wave quantisation */
    struct erg_op_code code;
    double heads; /* attention: query heads of all sequences together */
    int chunks;   /* attention: chunks of a sequence, two per context rank; 1: all of it */
    int head_dim; /* attention: elements of a head */
};

enum erg_comm_kind {
    ERG_COMM_NONE,
    ERG_COMM_ALLREDUCE,
    ERG_COMM_ALLGATHER_KV,
    ERG_COMM_REDUCESCATTER_KV,
    /*
     * Sequence parallelism: hidden states of a tensor group, whose ranks each have a share of the
     * rows.
     */
    ERG_COMM_ALLGATHER_HIDDEN,
    ERG_COMM_REDUCESCATTER_HIDDEN,
    ERG_COMM_NORM_HIDDEN, /* a reduce-scatter, a norm of the rank's rows, an all-gather of them */
    ERG_COMM_ALLTOALL,    /* rows of tokens to the ranks of their experts, or back */
};

enum { ERG_COMM_WORKS = 2 }; /* at most in a communication */

struct erg_comm {
    enum erg_comm_kind kind;
    double wire_bytes; /* one direction, per GPU; 0 = no communication */
    int group;         /* GPUs that take part */
    int part;          /* enum erg_model_op_id of the op whose result is sent */
    int sequences;     /* of its microbatch or nanobatch */
    bool library;      /* the vendor library's kernel instead of our own with its SM budget */
    /*
     * For ERG_COMM_NORM_HIDDEN: its computation, forward and backward separately, and wire bytes
     * and `part` of its all-gather.
     */
    struct erg_op works[ERG_COMM_WORKS];
    int work_count;
    double gather_bytes;
    int gather_part;
};

struct erg_task {
    const struct erg_op *ops;
    size_t op_count;
    struct erg_comm comm;
};

struct erg_launch {
    size_t slot; /* the communication starts just before ops[slot]; op_count = after all compute */
    int sms;     /* SMs (thread blocks) of the communication kernel; ignored for library kernels */
};

struct erg_step {
    struct erg_task task;
    struct erg_launch launch;
    bool instruction; /* part of an instruction through all layers of the device */
};

#endif
