/*
 * Models and systems of Calculon (Isaev et al., "Calculon: a methodology and tool for high-level
 * co-design of systems and large language models", SC 2023), read from its JSON files and written
 * as the files that ergon reads: a Hugging Face config, a GPU, an engine and a job.
 *
 * A model has the keys hidden, feedforward, seq_size, attn_heads, attn_size and num_blocks. It is a
 * GPT: two linears in the MLP, LayerNorm, biases. Calculon does not model its embeddings but counts
 * 51200 words; ergon uses the same number.
 *
 * ergon takes from a system
 *   matrix.float16 (or bfloat16): tflops, and the efficiency at the size of the model's products;
 *   mem1: GiB, GBps, and the efficiency at the size of the model's hidden states;
 *   mem2: GiB and GBps as host memory behind the host link, the efficiency of the largest copies;
 *   processing_mode: whether the bytes of products are moved during their FLOPs or after them;
 *   networks[0]: the links within a node, whose number of GPUs is its size; networks[1], if
 *   present: those between nodes; bandwidth (GB/s of a GPU, one direction), efficiency and latency.
 * Sizes are those of one sequence whose layers are split over a node, as far as heads and MLP can
 * be. Attention writes its scores to memory, with the bytes of Calculon's layers.
 *
 * ergon ignores these keys, since its time model lacks them or executions give them:
 *   vector: kernels outside products are bound by memory bandwidth here;
 *   networks: ops (rings are assumed: no reduction in switches), must_be_filled, processor_usage,
 *     and all after the second;
 *   the cost of the host and of gaps between kernels, which Calculon lacks, too.
 * So times are lower bounds of Calculon's own and, even more, of measured ones. Constants that
 * Calculon's systems lack, such as power and clocks, come from the catalogue's GPU that is nearest
 * to the system.
 */
#ifndef ERG_LAYOUT_EXCHANGE_CALCULON_H
#define ERG_LAYOUT_EXCHANGE_CALCULON_H

#include "base/text.h"
#include "ergon/error.h"
#include "hardware/hardware.h"

#include <stdbool.h>
#include <stddef.h>

struct erg_calculon_model {
    long hidden, feedforward, sequence, heads, head_dim, blocks;
};

struct erg_calculon_network {
    double bandwidth; /* bytes/s of a GPU, one direction */
    double efficiency, latency_s;
    long size; /* GPUs that it connects */
};

/*
 * Shares of a peak by the size of an operation: shares[i] applies from sizes[i] on, and sizes fall.
 */
enum { ERG_CALCULON_MOST_ROWS = 32 };
struct erg_calculon_efficiency {
    double sizes[ERG_CALCULON_MOST_ROWS], shares[ERG_CALCULON_MOST_ROWS];
    size_t count; /* at least 1 */
};
double erg_calculon_share(const struct erg_calculon_efficiency *efficiency, double size);

struct erg_calculon_system {
    double peak_flops;                       /* 16 bit */
    struct erg_calculon_efficiency products; /* by FLOPs */
    struct {
        double bytes, bandwidth;
        struct erg_calculon_efficiency efficiency; /* by bytes */
    } memory, host; /* of a GPU; host.bytes 0: none, INFINITY: no limit */
    bool roofline;  /* bytes are moved during the FLOPs; false: after them */
    struct erg_calculon_network networks[2];
    size_t network_count; /* 1 or 2 */
};

/* Parses a file's text; `name` is the file's name in messages, which also name the key. */
int erg_calculon_model_parse(struct erg_calculon_model *model, const char *name, const char *text,
                             size_t length, struct erg_error *err);
int erg_calculon_system_parse(struct erg_calculon_system *system, const char *name,
                              const char *text, size_t length, struct erg_error *err);

/* The documents to write and their names. */
struct erg_calculon_import {
    const struct erg_calculon_model *model;
    const struct erg_calculon_system *system;
    const char *model_name, *system_name;
    long gpus;  /* whole nodes, at least one */
    long batch; /* sequences of an iteration */
};

/* The catalogue's GPU nearest to the system in peak, memory and link; free it. */
int erg_calculon_base_gpu(struct erg_gpu **gpu, const struct erg_calculon_system *system,
                          struct erg_error *err);

/*
 * Writes config.json, gpu.yaml, engine.yaml and job.yaml into `folder`, which it creates. `base`
 * gives values that a system lacks. erg_job_load() of job.yaml reads and checks all of these files.
 */
int erg_calculon_write(const struct erg_calculon_import *import, const struct erg_gpu *base,
                       const char *folder, struct erg_error *err);

#endif
