/*
 * Hardware: GPUs, software stacks and clusters as data.
 *
 * A GPU is a file data/gpus/NAME.yaml, a software stack data/stacks/NAME.yaml; a new one is a
 * file, never a branch in the code. Constants and their origin: the files' comments.
 * The model that uses them: device/emulated.
 */
#ifndef ERG_HARDWARE_H
#define ERG_HARDWARE_H

#include "base/memory.h"
#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_gpu {
    char *name;          /* "A100-SXM4-40GB" */
    char **driver_names; /* as its driver calls it, which nvidia-smi shows */
    unsigned driver_names_count;
    char *confidence; /* how far the model of this GPU was checked, one sentence for people */

    /* Datasheet. */
    int sms;
    int clock_max_mhz, clock_min_mhz, clock_step_mhz; /* the clocks to which the hardware can be
                                                       * locked */
    double flops_per_sm_clock;                        /* dense bf16 FLOP per SM and clock */
    double memory_bandwidth;                          /* HBM bytes/s */
    double link_bandwidth;                            /* intra-node, one direction, bytes/s */
    double board_power_w;
    double memory_bytes;
    /* Dense bf16 FLOP/s as its maker states them, which MFU refers to: at a boost clock that may be
     * below the highest. Where the file does not say: erg_gpu_peak_flops(). */
    double stated_flops;
    /* This number of consecutive GPUs of a node are one board, whose power cap is that of all of
     * them together: one GPU may draw the power that the others leave. */
    int cap_group;
    double board_link_bandwidth; /* between the GPUs of a board, one direction, bytes/s; 0: that of
                                  * other links */

    /* The clocks a search considers. */
    int search_max_mhz, search_min_mhz, search_step_mhz;

    /* Compute model (dimensionless except where noted). */
    double gemm_efficiency;                       /* eg */
    double gemm_k0;                               /* k0, elements */
    double wave_weight;                           /* wq */
    int gemm_tile_m, gemm_tile_n;                 /* output tile of the library's GEMMs */
    double gemm_slack;                            /* share of waves tuned ones may leave idle */
    double attention_forward, attention_backward; /* ea */
    /* Tokens of a sequence that attention loses to its tiles' ends and diagonal. */
    double attention_k0, attention_backward_k0;
    double attention_tail;     /* tiles that a call's last SM works on while the others have none */
    double attention_diagonal; /* of chunks, forward: the computed share of masked scores */
    double attention_waves;    /* of chunks, backward: share of a last wave that is waited for */
    /* Share of an attention's time, with heads of 128, that depends on the number of scores and not
     * on the FLOPs of their products: exponentials, sums, conversions. */
    double attention_softmax, attention_backward_softmax;
    double memory_efficiency; /* em */
    double memory_issue;      /* fmem */
    double launch_gap_s;      /* tl */
    double head_gemm_factor;  /* heff: FLOPs of LM-head GEMMs count this much */

    /* Communication model. */
    double comm_sm_rate;    /* csm, bytes/s per SM; where ranks count, of an AllReduce of two */
    double comm_rank_power; /* that rate grows with (2 (n - 1) / n) to this power */
    double comm_gather, comm_scatter; /* that of keys and values over that of an AllReduce */
    double comm_link_factor;          /* clink of our grid kernels */
    double comm_latency_s;            /* ct0 */
    double comm_blend;                /* cp */
    double comm_clock_power;          /* calpha */
    double comm_contention;           /* chi */
    double comm_sm_share;             /* share: SM-equivalents taken from compute per block */
    double comm_hbm_per_wire;         /* hc, HBM bytes per wire byte */
    /* SMs that products and attention which leave it its own miss beyond those while it runs. */
    double comm_missed_sms;
    bool persistent_gemm; /* a GEMM owns every SM until it ends */
    /* The vendor library's collectives, if the stack does not override them. */
    double library_link_factor, library_sm_share;
    int library_blocks;

    /* Power model. */
    double static_power_w;    /* ps */
    double active_power_w;    /* pact */
    double energy_per_flop_j; /* efl */
    /* Energy of an attention's FLOP over that of a product's. */
    double attention_forward_energy, attention_backward_energy;
    double energy_per_hbm_byte_j;     /* ehb, at the highest clock */
    double hbm_voltage_share;         /* of it, what follows the voltage squared: on the chip */
    double energy_per_wire_byte_j;    /* elk */
    double spin_power_w;              /* psp, per SM */
    double voltage_knee_mhz;          /* f0 */
    double voltage_slope_per_ghz;     /* s */
    double voltage_slope_low_per_ghz; /* s0 */
    double power_cap_w;               /* cap: regulated mean */
    double cap_softness_mhz;          /* tau */
    double cap_dither_mhz;            /* sf */
    double blocking_power_w;          /* pblock: waiting in a peer receive */
    double idle_power_w;              /* pidle */

    /* Heat and sensors. */
    double thermal_resistance_k_per_w; /* Rth */
    double thermal_time_s;             /* tau_th */
    double ambient_c;                  /* Tamb */
    double reference_c;                /* Tref */
    double leak_per_k;                 /* leak */
    double sensor_period_s;            /* energy counter and power reading */
};

/* Properties of the software that runs the kernels, not of the GPU. */
struct erg_stack {
    char *name;                         /* "published-python", "ergon" */
    double join_grid_s, join_library_s; /* join of the two streams after a communication */
    double host_per_kernel_s;           /* thost */
    /* Its library's collectives; 0 = the value of the GPU's file. */
    double library_link_factor, library_sm_share;
    int library_blocks;
    double kv_exchange_factor; /* cpexp: sequential K/V exchange costs this times its bytes */
    double overhead;           /* ovh: measured = planned * (1 + ovh) in time */
    bool fused_kernels;        /* memory-bound neighbours are one kernel (model/model.h) */
    /* From the launch slot to the end of the step, products and attention leave the SMs of our
     * communication free, so it starts at once and runs concurrently. */
    bool leaves_sms;
    int tuned_beside_sms; /* how many were left free when products were tuned; 0: not known */
};

struct erg_cluster {
    int nodes, gpus_per_node;
    int gpus_used; /* nodes are filled one after the other, so only the last has others; 0 = all */
    char *gpu;     /* a name of the catalogue */
    char *chassis; /* likewise; how the GPUs of a node are cooled; NULL: not named, all alike */
    double intra_node_bandwidth; /* bytes/s, one direction, per GPU; 0 = the GPU's link */
    double inter_node_bandwidth; /* bytes/s, one direction, per node */
    double inter_node_latency_s;
    /* Network adapters of a node, each shared by equally many GPUs: a GPU that sends alone has the
     * whole adapter. 0 = each GPU always has its share of the node's bandwidth. */
    double adapters_per_node;
    double host_memory_bytes;     /* of a node; 0 = not known */
    double host_memory_bandwidth; /* bytes/s of a node, both directions together; 0 = not known */
    /* bytes/s, one direction, per GPU: of the part that copies to host memory and messages to other
     * nodes both use: the GPU's link to the switch with the adapter, or host memory; 0 = none. */
    double shared_link_bandwidth;
    /* Nodes of other kinds in the same cluster, which list no further kinds. Only layouts and jobs
     * use them. */
    struct erg_cluster *more;
    unsigned more_count;
    char *engine; /* of one of more: what trains there, a name of the catalogue; NULL: not named */
};

/* A number of such a file, for instance "gemm_efficiency" of an engine. */
struct erg_quantity {
    const char *key; /* path in the document */
    size_t offset;   /* of a double in the struct */
    double factor;   /* from the file's unit to that of the struct */
    double min, max; /* in the file's unit */
};

/*
 * Reads a catalogue entry: `name` is a file path when it contains '/' or ends in ".yaml", else a
 * name looked up (case-insensitively) in the data folders. The error for an unknown name lists the
 * known ones.
 */
/* Loads a GPU from a file, or finds it in the catalogue by its name or its driver's name. */
int erg_gpu_load(struct erg_gpu **gpu, const char *name, struct erg_error *err);
void erg_gpu_free(struct erg_gpu *gpu);

/*
 * Gives `gpu` the datasheet and the clocks of `board`, and its power cap in proportion; all other
 * constants stay those of `gpu`: constants of one GPU, for another one of its architecture (an H200
 * has an H100's processors and more memory). ERG_FAILED where their SMs do not do the same work in
 * a clock: their constants have nothing to do with each other.
 */
int erg_gpu_take_datasheet(struct erg_gpu *gpu, const struct erg_gpu *board, struct erg_error *err);

/* Dense bf16 FLOP/s of all SMs at the highest clock. */
static inline double erg_gpu_peak_flops(const struct erg_gpu *gpu)
{
    return gpu->flops_per_sm_clock * gpu->sms * gpu->clock_max_mhz * 1e6;
}

/* Moves every number that left it into the range that a GPU file may hold. */
void erg_gpu_clamp(struct erg_gpu *gpu);

/*
 * The catalogue's GPU whose name shares most words with that of a driver ("NVIDIA H200"), its first
 * word among them, or NULL.
 */
const char *erg_gpu_catalogue_name(const char *driver_name, struct erg_arena *arena);

/*
 * Writes a GPU as a catalogue file. `heading` is a comment (lines without "#"); each number's
 * comment comes from `origin`, by the offset of its member in the struct.
 */
int erg_gpu_write(const struct erg_gpu *gpu, const char *path, const char *heading,
                  const char *(*origin)(const void *context, size_t member), const void *context,
                  struct erg_error *err);
int erg_stack_load(struct erg_stack **stack, const char *name, struct erg_error *err);
void erg_stack_free(struct erg_stack *stack);

/*
 * Whether `board`, as a driver names it ("NVIDIA H100 80GB HBM3"), is this GPU: it has all words
 * with a digit of the GPU's name ("H100-SXM"), and is a PCIe or NVL board only if the GPU is.
 */
bool erg_gpu_is_board(const struct erg_gpu *gpu, const char *board);

/* Whether a run's name for its device, as CUDA reports it, means this GPU. A run on the host's CPU
 * reports "host", which matches only a GPU whose file lists it as a driver name. */
bool erg_gpu_is_device(const struct erg_gpu *gpu, const char *device);

/* A number that changes with any constant: measurements on emulated devices are kept under it. */
uint64_t erg_gpu_fingerprint(const struct erg_gpu *gpu);
uint64_t erg_stack_fingerprint(const struct erg_stack *stack);

/* Clusters are files of their own, or part of a job file with the same keys. */
int erg_cluster_load(struct erg_cluster **cluster, const char *path, struct erg_error *err);
void erg_cluster_free(struct erg_cluster *cluster);

/* The GPUs of its own nodes that are used. */
static inline long erg_cluster_gpus(const struct erg_cluster *cluster)
{
    return cluster->gpus_used ? cluster->gpus_used : (long)cluster->nodes * cluster->gpus_per_node;
}

/* Whether groups of `group` ranks that follow each other lie within nodes, when `gpus` ranks fill
 * nodes of `node_gpus` one after the other. */
static inline bool erg_nodes_hold_groups(long node_gpus, long group, long gpus)
{
    return group <= node_gpus && (gpus <= node_gpus || node_gpus % group == 0);
}

#endif
