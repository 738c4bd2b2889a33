/*
 * The time of an iteration of a job on given GPUs, from shapes alone, without running anything.
 * Computation follows from the operations of the model (grid_model.h) and the limits of the GPU,
 * communication from a network (grid.h), the pipeline from the published formula (grid.h).
 *
 * The model, per stage and microbatch of m samples in shape (d, t), where x = m / (d t) is a GPU's
 * share of the samples' work:
 *   forward = matmul FLOPs x / (matmul_efficiency P)
 *           + convolution FLOPs (x + convolution_rows / (rows t)) / (convolution_efficiency
 *             P), since a kernel with few rows of output leaves SMs idle
 *           + (traffic x + weights) / (memory_efficiency bandwidth) + operations x kernel_s
 *   backward = 3 x that: the forward pass again (rematerialization), two gradients, and the sum of
 *             gradients over microbatches read and written
 *   both, without the passes over weights, (gpus / 2)^scaling_loss times as long beyond two GPUs of
 *           the job: the measured cost of scaling that neither network nor formula explains
 *   collectives by the network's model: sums over tensor groups, exchanges of experts, and
 *           gradients once an iteration; sends, too, in parallel on all GPUs of a stage
 *   update = 7 passes over the weights
 * Memory: 4 tensors of weights, the inputs of layers of all microbatches in flight, and all
 * activations of the largest layer.
 */
#ifndef ERG_LAYOUT_GRID_ESTIMATE_H
#define ERG_LAYOUT_GRID_ESTIMATE_H

#include "ergon/error.h"
#include "layout/grid/grid_model.h"
#include "layout/grid/grid_plan.h"

#include <stdbool.h>

struct erg_estimate_constants {
    double matmul_efficiency, convolution_efficiency, memory_efficiency;
    double convolution_rows;
    double scaling_loss;
    double kernel_s; /* launch and gap of an operation */
};

/* A job on GPUs of an allocation; memory that it points to must stay valid. */
struct erg_estimate_request {
    const char *name; /* name of the model in messages */
    const struct erg_grid_ops *ops;
    double element_bytes; /* of weights and activations */
    double skew;          /* grid_plan.h */
    long batch;           /* samples of an iteration, over ERG_GRID_MICROBATCHES microbatches */
    struct erg_allocation allocation;
    struct erg_estimate_constants constants;
    double flops, memory_bandwidth; /* of a GPU: FLOP/s, bytes/s */
    double memory_bytes;            /* memory that a job may use */
    struct erg_grid_network network;
};

/* The values that are equal for all plans. */
struct erg_estimate_setting {
    struct erg_estimate_request request;
    double microbatch; /* samples */
    struct erg_grid_layer layers[ERG_GRID_MAX_STAGES];
    size_t layer_count;
};

/* GPU counts are powers of two up to 16; a batch has at least a sample for each microbatch. */
int erg_estimate_setting_init(struct erg_estimate_setting *setting,
                              const struct erg_estimate_request *request, struct erg_error *err);

struct erg_grid_estimate {
    struct erg_iteration_time time;
    struct erg_grid_plan plan;
    bool shared_experts; /* the replicas of a stage share its experts */
    double memory_bytes; /* of the fullest GPU */
    bool fits;
};

/* Forward computation of one microbatch on one GPU of a stage of these layers. */
double erg_estimate_forward_s(const struct erg_estimate_setting *setting,
                              const struct erg_grid_layer *layer, struct erg_shape shape);

/* Estimates one plan, regardless of memory; fails if the network lacks one of its groups. */
int erg_estimate_plan(const struct erg_estimate_setting *setting, const struct erg_grid_plan *plan,
                      bool shares_experts, struct erg_grid_estimate *estimate,
                      struct erg_error *err);

/* The fastest of the tried plans that fit; ERG_INFEASIBLE if none fits into memory. */
struct erg_estimate_best {
    struct erg_grid_estimate best;
    bool found, priced;
    double least_bytes;       /* of plans that do not fit */
    struct erg_error missing; /* groups unknown to the network */
};
void erg_estimate_try(const struct erg_estimate_setting *setting, const struct erg_grid_plan *plan,
                      bool shares_experts, struct erg_estimate_best *best);
int erg_estimate_take(const struct erg_estimate_setting *setting,
                      const struct erg_estimate_best *best, struct erg_grid_estimate *estimate,
                      struct erg_error *err);

/*
 * The proxy plan of the published planner: among the grids of 1, 2, 4, … stages, planned without
 * any timing (grid_plan.h), the plan with the least estimated time that fits.
 */
int erg_estimate_proxy(const struct erg_estimate_setting *setting,
                       struct erg_grid_estimate *estimate, struct erg_error *err);

/*
 * The plan of the grid with that number of stages, and those of its Pareto set (grid_plan.h).
 * ERG_INFEASIBLE if it has none; plans need not fit, but whether they do is reported.
 */
struct erg_grid_estimates {
    struct erg_grid_estimate plan;
    struct erg_grid_estimate set[ERG_GRID_SET_PLANS];
    size_t set_count;
};
int erg_estimate_grid(const struct erg_estimate_setting *setting, size_t stages,
                      struct erg_grid_estimates *estimates, struct erg_error *err);

#endif
