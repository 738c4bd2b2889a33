/*
 * The energy of an iteration of a layout, item by item, in closed form, at any clock.
 *
 * Work comes from the time model: FLOPs and the bytes of memory-bound kernels are derived from its
 * seconds, so that both models agree; the bytes of matrix products, attention and communication
 * come from the same op lists (model/model.h). Power constants are those of the GPU's file, used as
 * the emulated device uses them (device/emulated/power.h): with v the voltage at clock f and r = f
 * / highest clock, one GPU draws
 *
 *   v^2 e_flop per FLOP + e_hbm(v) per HBM byte + e_wire per byte that it sends
 *   + static power + v^2 r (active power + spin power of a collective's blocks)  while it works,
 *   blocking power  while it waits: for other stages, messages, copies and the sums of gradients.
 *
 * A collective inside a layer counts as work, exposed or not, as on the emulated device. A message
 * between stages and the sum of gradients cost their bytes, and their time counts as waiting.
 *
 * Clock. A pass (forward or backward of one layer, its balanced recomputation, the head) takes
 *
 *   products x F / f + memory-bound x i(f) / i(F) + the rest, at least the host's time,
 *
 * where i is 1 down to the clock below which the SMs cannot saturate the HBM, and F the clock at
 * which the engine's rates hold. Exposed communication and the gaps between kernels do not depend
 * on the clock here; on the emulated device communication depends on it slightly.
 *
 * Cap. The emulated device's regulator keeps the mean power of a pass under the GPU's cap. An
 * engine's rates are measured: if its GPUs were at the cap, its rates hold at the clock that the
 * cap allowed. So F of each pass is the clock that the cap allows at the engine's time. At the
 * highest clock an iteration takes the time model's time, no pass exceeds the cap, and a lower
 * clock costs time only below F. Rates that were not measured under the cap (of an engine that was
 * counted, or measured on another board) hold at `rates_mhz` instead, and there the cap slows
 * passes that exceed it.
 *
 * FSDP. Gathers and scatters cost their bytes and the power of their blocks; a pass of a layer
 * waits if it is shorter than them. Bytes sent while it computes count towards its cap.
 *
 * Not modelled: the embedding, as in the time model; heat (static power is that at the reference
 * temperature); hosts, network adapters and switches. A byte on the network costs the GPU as much
 * as a byte on its links.
 *
 * Source: the emulated device's power model (its constants' origins are in data/gpus).
 */
#ifndef ERG_LAYOUT_ENERGY_H
#define ERG_LAYOUT_ENERGY_H

#include "layout/time/time.h"

enum erg_layout_energy_item {
    /* The energy of FLOPs and bytes. */
    ERG_LAYOUT_ENERGY_LINEAR, /* matrix products of the layers */
    ERG_LAYOUT_ENERGY_ATTENTION,
    ERG_LAYOUT_ENERGY_MEMORY, /* memory-bound kernels of the layers */
    ERG_LAYOUT_ENERGY_WIRES,  /* tensor and context groups, messages between stages */
    ERG_LAYOUT_ENERGY_RECOMPUTE,
    ERG_LAYOUT_ENERGY_OFFLOAD,
    ERG_LAYOUT_ENERGY_HEAD,
    ERG_LAYOUT_ENERGY_GRADIENTS,
    ERG_LAYOUT_ENERGY_OPTIMIZER,
    /* Seconds, by kind of work. */
    ERG_LAYOUT_ENERGY_ACTIVE,  /* while it works, beyond static power */
    ERG_LAYOUT_ENERGY_STATIC,  /* while it works */
    ERG_LAYOUT_ENERGY_WAITING, /* at blocking power */
    ERG_LAYOUT_ENERGY_ITEMS,
};
const char *erg_layout_energy_item_name(enum erg_layout_energy_item item); /* "linear", … */

/* Joules of one iteration, over all GPUs. */
struct erg_layout_energy {
    double items[ERG_LAYOUT_ENERGY_ITEMS];
    double total_j;     /* their sum */
    double time_s;      /* of the iteration at this clock */
    double power_w;     /* mean, of all GPUs together */
    double gpu_power_w; /* mean, of one GPU of the layout */
    double clock_mhz;   /* the lowest that the cap allows for a pass of a layer */
};

struct erg_layout_energy_request {
    struct erg_time_request time;
    const struct erg_gpu *gpu;
    double rates_mhz; /* 0: the rates were measured under the GPU's cap; see above */
};

enum erg_layout_pass {
    ERG_PASS_FORWARD, /* of a layer */
    ERG_PASS_BACKWARD,
    ERG_PASS_NORMS, /* their recomputed part, and that of the activation */
    ERG_PASS_ACTIVATION,
    ERG_PASS_HEAD, /* both directions */
    /* These are of a layer without experts, if other layers have them. */
    ERG_PASS_DENSE_FORWARD,
    ERG_PASS_DENSE_BACKWARD,
    ERG_PASS_DENSE_NORMS,
    ERG_PASS_DENSE_ACTIVATION,
    ERG_PASSES,
};

/* The pass of a layer of either kind. */
static inline enum erg_layout_pass erg_layout_pass_of(enum erg_layout_pass pass, bool dense)
{
    return dense ? pass + (ERG_PASS_DENSE_FORWARD - ERG_PASS_FORWARD) : pass;
}

/* The work of the passes for one microbatch on one GPU, independent of the clock. */
struct erg_layout_work {
    struct erg_pass_work {
        double product_s, memory_s, fixed_s; /* at the clock of the rates */
        double host_s, host_blend;           /* see erg_time_paced() */
        double flops[2]; /* of products and attention, in FLOPs of products with the same energy */
        double bytes[3]; /* HBM bytes of products, attention, memory-bound kernels */
        double wire_bytes, spin_sm_s;
        double rates_mhz, rates_dither; /* the clock at which the seconds hold */
        double cap_mhz;                 /* clock at which it draws the cap's power */
    } passes[ERG_PASSES];
    int pass_count;       /* ERG_PASSES, or those before ERG_PASS_DENSE_FORWARD; others are zero */
    double message_bytes; /* of a chunk, one way */
    /* FSDP: the network's work during a forward pass of a layer, during a backward pass, and for a
     * microbatch outside layers. */
    struct erg_layout_network {
        double time_s[2], bytes[2];
        double beside_bytes[2]; /* the part sent while the pass computes, also in its wire_bytes */
        double ends_bytes;
    } network;
};

/*
 * The work of a layout without FSDP. `parts` belong to the same layout. Takes about as long as
 * their computation.
 */
void erg_layout_work_unsharded(struct erg_layout_work *work,
                               const struct erg_layout_energy_request *request,
                               const struct erg_time_parts *parts, const struct erg_layout *layout,
                               long gpus);
/* The work of a layout, with FSDP's during the passes. */
void erg_layout_work_of(struct erg_layout_work *work,
                        const struct erg_layout_energy_request *request,
                        const struct erg_time_parts *parts, const struct erg_layout *layout,
                        long gpus);

/*
 * Recomputes the clocks at which passes draw the cap's power, for a GPU that differs from the
 * work's GPU only in the static power or the cap of request->gpu: for example a hotter one, or one
 * with a lower limit. The clocks at which the seconds hold do not change.
 */
void erg_layout_work_recap(struct erg_layout_work *work,
                           const struct erg_layout_energy_request *request);

/* The costs of the passes at one clock. Takes well below a microsecond. */
struct erg_layout_costs {
    struct erg_pass_cost {
        double time_s;
        double items[ERG_LAYOUT_ENERGY_STATIC + 1]; /* J of one GPU */
        double total_j;                             /* their sum, and that of waiting */
        double clock_mhz;                           /* clock that the cap allows */
        double wait_s; /* part of time_s, at blocking power: waits for gathered weights */
    } passes[ERG_PASSES];
    double hbm_byte_j, wire_byte_j; /* wires: including their traffic in HBM */
    double message_j;               /* of a chunk, one way */
    double memory_slowdown; /* of memory-bound kernels: their time over that at the highest clock */
    double active_w, static_w, blocking_w;
    struct erg_layout_network network;
    double network_active_j[2]; /* of its blocks */
};

void erg_layout_costs_at(struct erg_layout_costs *costs,
                         const struct erg_layout_energy_request *request,
                         const struct erg_layout_work *work, double clock_mhz);

/* Consecutive stages on GPUs of one kind. */
struct erg_layout_energy_place {
    const struct erg_layout_energy_request *request; /* of the kind */
    const struct erg_time_place *time;
    const struct erg_layout_costs *costs;
};

/* All stages of a layout, in the order of its places. Takes a fraction of a microsecond with equal
 * stages in one place. */
void erg_layout_energy_compose(struct erg_layout_energy *energy,
                               const struct erg_layout_energy_place *places, size_t count,
                               const struct erg_layout *layout, double uneven_s);

/* The same for GPUs of one kind, at their highest clock, by the closed form alone. */
void erg_layout_energy_whole(struct erg_layout_energy *energy,
                             const struct erg_layout_energy_request *request,
                             const struct erg_layout *layout);

/* ---- FSDP (fsdp_energy.c) ---- */

/* Finds the clock at which the cap acts on a pass, and the clock at which its seconds hold. */
void erg_layout_find_clocks(struct erg_pass_work *pass,
                            const struct erg_layout_energy_request *request);
/* The cost of the network's work during passes at a clock. */
void erg_layout_network_costs(struct erg_layout_costs *costs, const struct erg_gpu *gpu,
                              const struct erg_layout_work *work, double clock_mhz);
/*
 * Adds FSDP's work during passes of layers, and their waits for it; `again`: with a recomputed
 * forward pass, which gathers nothing.
 */
void erg_layout_add_network(struct erg_pass_cost *sum, const struct erg_layout_costs *costs,
                            double layers, bool backward, bool again);

/* ---- parts, for the frontier ---- */

/* The cost of one direction of one microbatch for a GPU with a chunk of `layers` layers, `dense` of
 * them without experts in a model whose others have them; with `head`, the head's share of that
 * direction: a third forward, two thirds backward. */
struct erg_pass_cost erg_layout_chunk_cost(const struct erg_layout_energy_request *request,
                                           const struct erg_time_parts *parts,
                                           const struct erg_layout_costs *costs, long layers,
                                           long dense, bool backward, bool head,
                                           enum erg_recompute recompute, double offload);

/* The cost of copying a chunk's activations out or in: compute is slower during the copies, and the
 * HBM is read or written. It is part of erg_layout_chunk_cost(). */
struct erg_pass_cost erg_layout_copy_cost(const struct erg_layout_energy_request *request,
                                          const struct erg_time_parts *parts,
                                          const struct erg_layout_costs *costs, long layers,
                                          enum erg_recompute recompute, double offload);

/* Trained parameters of a stage on one GPU: without experts, and of its experts. */
double erg_layout_stage_parameters(const struct erg_time_request *request,
                                   const struct erg_time_parts *parts,
                                   const struct erg_layout *layout, long stage);
double erg_layout_stage_experts(const struct erg_time_request *request,
                                const struct erg_time_parts *parts, const struct erg_layout *layout,
                                long stage);

/* The cost after the pipeline, over all GPUs: waits for copies, sums of gradients, the
 * optimizer. */
struct erg_layout_tail {
    double time_s;
    double items[ERG_LAYOUT_ENERGY_ITEMS];
    double total_j;
};
void erg_layout_tail(struct erg_layout_tail *tail, const struct erg_layout_energy_place *places,
                     size_t count, const struct erg_layout *layout);

#endif
