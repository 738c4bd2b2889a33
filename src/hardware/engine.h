/*
 * Engines: the performance of a training software on a kind of GPU and cluster when it runs whole
 * layers, as data files data/engines/NAME.yaml. Constants and their origin: the files' comments.
 * The model that uses them, and the factor of each: layout/time/time.h. `ergon fit` fits them to
 * measured iterations.
 *
 * An engine serves layouts as a stack (hardware.h) serves partitions: the time of a layout does not
 * depend on the order of its kernels, so overlap is given as the share that stays exposed.
 */
#ifndef ERG_HARDWARE_ENGINE_H
#define ERG_HARDWARE_ENGINE_H

#include "ergon/error.h"
#include "hardware/hardware.h"

#include <stdbool.h>
#include <stddef.h>

/* Where an engine does not say what FSDP keeps per parameter. */
#define ERG_FSDP_BYTES 16

struct erg_engine {
    char *name;
    double peak_flops; /* of the datasheet, dense 16 bit: what efficiencies and MFU refer to */

    /* Compute: shares of the peak and of the HBM bandwidth that kernels reach. */
    double gemm_efficiency;
    double whole_head_efficiency;  /* of the head's products, relative to gemm_efficiency, where one
                                    * GPU holds the whole vocabulary */
    double expert_gemm_efficiency; /* of the products of experts */
    double attention_efficiency, attention_backward_efficiency;
    double memory_efficiency;
    /* HBM bytes per score (query, key and head) of an attention that keeps them all in memory, the
     * masked ones too; 0: it is fused and skips masked scores. */
    double score_forward_bytes, score_backward_bytes;
    /* The number of heads (of all sequences on a GPU) in a block of that attention's softmax
     * kernel; 0: any number. If the heads are not a multiple of it, the softmax is several kernels,
     * which cost these further bytes per score in each direction, and this further time of the
     * host. */
    double softmax_heads, unfused_score_bytes, unfused_host_factor;
    double activation_factor; /* bytes of the activation, relative to one fused kernel */
    double loss_bytes;        /* per logit, forward and backward; 0: those of the op list */
    bool fused_kernels;       /* as of a stack */
    bool grouped_gemm;        /* the products of all experts of a GPU are one kernel */

    /* The fixed cost of a layer in the forward pass; the backward pass costs twice that. */
    double layer_overhead_s; /* the GPU's: gaps between kernels */
    double host_layer_s;     /* the host's: it launches the kernels while the GPU runs others */
    double host_wait_s;      /* of that, for each further GPU that a collective waits for */
    double host_head_s;      /* the host's for the head and all that is done once a microbatch */
    double host_blend;       /* from 0, where a pass takes the longer of the GPU's time and the
                              * host's, to 1, where it takes both: each waits for the other by turns */

    /* Communication: shares of the links that collectives reach. */
    double link_efficiency, network_efficiency;
    double collective_latency_s;
    bool sequence_parallel; /* norms and residuals on each rank's share of the tokens */
    bool static_memory; /* it is ergon's own training, whose buffers are all taken when it begins
                         * (layout/memory/static_memory.h) */
    int64_t offload_least_bytes; /* of that: smaller tensors stay; a job's training may say it */
    /* Shares of the transfers that nothing hides; tensor_*_context: with context parallelism. */
    double tensor_forward, tensor_backward, tensor_forward_context, tensor_backward_context;
    /* The exchange of keys and values; grouped: with fewer key heads than query heads. */
    double context_exposed, context_exposed_grouped;
    /* The exchange of a mixture of experts: rows to their experts and back. */
    double expert_exposed;
    /* A message between stages, when all are busy, and while the pipeline fills and drains. */
    double pipeline_exposed, pipeline_ends_exposed;
    double gradient_bytes; /* that a ring of many carries per parameter and direction */

    /* Bytes per parameter that the optimizer's step reads and writes: for all of a GPU's
     * parameters, and for its share of those that are sharded over the group that sums gradients.
     */
    double optimizer_bytes, optimizer_sharded_bytes;
    /* The bytes that FSDP keeps per parameter, before sharding: 16 are weights, gradients and two
     * moments in fp32, 12 the same with weights and gradients in bf16. 0: ERG_FSDP_BYTES. */
    double fsdp_bytes;

    /* Offloading: bytes/s of a GPU to host memory, one direction; the seconds by which a second of
     * copying delays concurrent passes. */
    double host_link_bandwidth, offload_interference;

    unsigned followers; /* private: numbers that the file leaves to another one */
};

/* As erg_gpu_load(): by name in the catalogue, or by path. */
int erg_engine_load(struct erg_engine **engine, const char *name, struct erg_error *err);
void erg_engine_free(struct erg_engine *engine);

/*
 * Fails unless the engine was made for such a GPU: its peak must be within a fifth of the GPU's at
 * its highest clock (which is up to a tenth above the clock of datasheets). The message names both,
 * and those engines of the catalogue that would do.
 */
int erg_engine_check_gpu(const struct erg_engine *engine, const struct erg_gpu *gpu,
                         struct erg_error *err);

/* All numbers of an engine's file; ends with a NULL key. */
extern const struct erg_quantity erg_engine_numbers[];

double erg_engine_get(const struct erg_engine *engine, const struct erg_quantity *number);
/* Sets a number as if the file had this value: numbers that the file leaves to this one follow it.
 * In the struct's unit, as erg_engine_get(). */
void erg_engine_set(struct erg_engine *engine, const struct erg_quantity *number, double value);

/*
 * Writes the file of `source` (name or path, as for loading) to `path` with other numbers in place:
 * for each key of `keys`, ended by NULL, the engine's value and the comment on the same line.
 * `heading`: comment lines, without "#", that replace those above the first key.
 */
int erg_engine_write(const struct erg_engine *engine, const char *source, const char *path,
                     const char *heading, const char *const *keys, const char *const *comments,
                     struct erg_error *err);

#endif
