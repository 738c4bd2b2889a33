/*
 * How long an iteration of a job takes on given GPUs, from shapes alone: nothing of the job is run.
 *
 * A scheduler asks for one number per (model, batch, GPU type, nodes, GPUs per node) and gets it
 * with the plan behind it. Computation follows from the operations of the model (grid_model.h) and
 * the limits of the GPU; communication from measured tables (hardware/comm_table.h); the pipeline
 * from the published formula (grid.h).
 *
 * The model, per stage and microbatch of m samples in shape (d, t), x = m / (d t) of a sample's
 * work to a GPU:
 *   forward = matmul FLOPs x / (matmul_efficiency P16)
 *           + convolution FLOPs (x + convolution_rows / (rows t)) / (convolution_efficiency
 *             P32), since a kernel with few rows of output leaves SMs idle
 *           + (traffic x + weights) / (memory_efficiency bandwidth) + operations x kernel_s
 *   backward = 3 x that: the forward pass again (rematerialization), two gradients, and the sum of
 *             gradients over microbatches read and written
 *   both but for the passes over weights (gpus / 2)^scaling_loss times as long beyond two GPUs of
 *           the job: what spreading costs in measurements, and neither tables nor formula see
 *   collectives as the tables say: sums over tensor groups, exchanges of experts, and gradients
 *           once an iteration; sends too, of all GPUs of a stage side by side
 *   update = 7 passes over the weights
 * Memory: 4 tensors of weights, the inputs of layers of all microbatches in flight, and all
 * activations of the largest layer.
 *
 * Catalogue: data/estimators/NAME.yaml, with devices, models and the fitted constants.
 */
#ifndef ERG_LAYOUT_GRID_ESTIMATE_H
#define ERG_LAYOUT_GRID_ESTIMATE_H

#include "ergon/error.h"
#include "hardware/comm_table.h"
#include "hardware/engine.h"
#include "layout/grid/grid_model.h"
#include "layout/grid/grid_plan.h"

#include <stdbool.h>

struct erg_grid_device {
    char *type;                    /* as the communication tables call it */
    double half_flops, full_flops; /* FLOP/s in half precision (tensor cores) and in fp32 */
    double memory_bandwidth;       /* bytes/s */
    double memory_bytes;
};

/* Fitted to measured iterations (bench/bench_arena.c says to which). */
struct erg_estimate_constants {
    double matmul_efficiency, convolution_efficiency, memory_efficiency;
    double convolution_rows;
    double scaling_loss;
    double kernel_s;        /* launch and gap of an operation; set once, not fitted again */
    double memory_fraction; /* of the GPU's memory that a job may have; given */
};

struct erg_estimator {
    struct erg_estimate_constants constants;
    struct erg_grid_device *devices;
    unsigned devices_count;
    struct erg_grid_model *models;
    unsigned models_count;
};

/* A catalogue name ("arena") or a path. */
int erg_estimator_load(struct erg_estimator **estimator, const char *name, struct erg_error *err);
void erg_estimator_free(struct erg_estimator *estimator);

/* Fail with what there is where the estimator does not know it. */
int erg_estimator_model(const struct erg_estimator *estimator, const char *family, const char *size,
                        const struct erg_grid_model **model, struct erg_error *err);
int erg_estimator_device(const struct erg_estimator *estimator, const char *type,
                         const struct erg_grid_device **device, struct erg_error *err);

struct erg_estimate_job {
    const char *family, *size;
    long batch; /* samples of an iteration, over ERG_GRID_MICROBATCHES microbatches */
};

struct erg_grid_estimate {
    struct erg_iteration_time time;
    struct erg_grid_plan plan;
    bool shared_experts; /* the replicas of a stage share out its experts */
    double memory_bytes; /* of the fullest GPU */
    bool fits;           /* into memory_fraction of it */
};

/*
 * The fastest plan that fits: every number of stages, every shape that all stages have in common,
 * layers balanced by their forward time. GPU counts are powers of two up to 16. Status
 * ERG_INFEASIBLE where nothing fits into memory.
 */
int erg_estimate_job(const struct erg_estimator *estimator, const struct erg_comm_tables *tables,
                     const struct erg_estimate_job *job, const struct erg_allocation *allocation,
                     struct erg_grid_estimate *estimate, struct erg_error *err);

/*
 * The proxy plan of the published planner: of the grids of 1, 2, 4, … stages, planned without any
 * timing (plan.h), the one whose plan has the least estimated time of those that fit.
 */
int erg_estimate_proxy(const struct erg_estimator *estimator, const struct erg_comm_tables *tables,
                       const struct erg_estimate_job *job, const struct erg_allocation *allocation,
                       struct erg_grid_estimate *estimate, struct erg_error *err);

/*
 * The grid of so many stages: its plan, and those of its Pareto set (plan.h). ERG_INFEASIBLE where
 * it has none; whether each fits is said, not required.
 */
struct erg_grid_estimates {
    struct erg_grid_estimate plan;
    struct erg_grid_estimate set[ERG_GRID_SET_PLANS];
    size_t set_count;
};
int erg_estimate_grid(const struct erg_estimator *estimator, const struct erg_comm_tables *tables,
                      const struct erg_estimate_job *job, const struct erg_allocation *allocation,
                      size_t stages, struct erg_grid_estimates *estimates, struct erg_error *err);

/*
 * The estimator of one model on one kind of GPU whose software's limits an engine says: its shares
 * of the peak and of the memory's bandwidth, and its overhead of a layer. `memory_bytes`: what a
 * GPU has for tensors. The estimator borrows from all of them; it has `model` and `device`, which
 * must stay.
 */
struct erg_estimator erg_estimator_of(struct erg_grid_model *model, struct erg_grid_device *device,
                                      const struct erg_gpu *gpu, const struct erg_engine *engine,
                                      double memory_bytes);

/* One plan, whatever it needs; fails where the tables lack a group that it communicates over. */
int erg_estimate_plan(const struct erg_estimator *estimator, const struct erg_comm_tables *tables,
                      const struct erg_estimate_job *job, const struct erg_allocation *allocation,
                      const struct erg_grid_plan *plan, bool shared_experts,
                      struct erg_grid_estimate *estimate, struct erg_error *err);

#endif
