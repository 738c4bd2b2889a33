/*
 * The planner of a grid: the layers and the shape of each stage, from the work of heavy operations
 * alone, without running or simulating any plan.
 *
 * 1. Every layer gets a fraction of the GPUs in proportion to its load (a roofline).
 * 2. Partitions of the layers, with all stage sizes (powers of two), are kept if the stage sizes
 *    are near the fractions, and then if they communicate little. The best balanced one is the
 *    grid's partition. Its stages use the shapes that communicate least.
 * A later search among real plans can be limited to the Pareto set.
 *
 * Source of the method and of all constants: Arena, as implemented. Deviations from exact
 * arithmetic that the published plans contain are kept: fractions have three decimals, the least
 * load of a stage one, and what data parallelism communicates is a whole number of bytes.
 */
#ifndef ERG_LAYOUT_GRID_PLAN_H
#define ERG_LAYOUT_GRID_PLAN_H

#include "base/memory.h"
#include "ergon/error.h"
#include "layout/grid/grid.h"
#include "layout/grid/grid_model.h"

#include <stdbool.h>
#include <stddef.h>

/* A matrix product or convolution, of one microbatch and in one direction. */
struct erg_heavy_op {
    double flops, bytes, output_bytes;
};

/* A pipeline layer for the planner, forward and backward together. */
struct erg_planner_layer {
    struct erg_heavy_op *ops;
    size_t op_count;
    double weight_bytes;
};

struct erg_planner_layers {
    struct erg_planner_layer *items;
    size_t count;
    double samples; /* of a microbatch: every replica of a stage has at least one */
    struct erg_arena arena;
};

/* The layers of a model, `count` runs of its operations, for microbatches of `samples`. */
void erg_planner_layers_init(struct erg_planner_layers *layers, const struct erg_grid_ops *ops,
                             const struct erg_grid_layer *cut, size_t count, double element_bytes,
                             double samples);
void erg_planner_layers_release(struct erg_planner_layers *layers);

struct erg_roofline {
    double peak_gflops, bandwidth_gb_s;
};

/* A grid of the planner: layers, their loads in seconds of one GPU, and fractions of the GPUs. */
struct erg_grid_problem {
    const struct erg_planner_layers *layers;
    double loads[ERG_GRID_MAX_STAGES], fractions[ERG_GRID_MAX_STAGES];
    long gpus;
    size_t stages;
};

/*
 * At most ERG_GRID_MAX_STAGES layers; gpus: a power of two up to the same limit. Layer l's load is
 * (1 + l skew) times its roofline time; skew is 0 except for convolutions, whose later layers reach
 * less of the roofline.
 */
void erg_grid_problem_init(struct erg_grid_problem *problem,
                           const struct erg_planner_layers *layers,
                           const struct erg_roofline *roofline, double skew, long gpus,
                           size_t stages);

/*
 * The stage sizes nearest to `fractions` (least sum of squared differences) among all ordered
 * powers of two with the sum `gpus`; among equally near ones the first in ascending order. Returns
 * the distance; infinity if there are none.
 */
double erg_grid_stage_sizes(const double *fractions, size_t stages, long gpus, long *sizes);

/* A partition of the layers over stages. */
struct erg_grid_partition {
    size_t first[ERG_GRID_MAX_STAGES + 1];
    long sizes[ERG_GRID_MAX_STAGES]; /* GPUs */
    double imbalance;                /* distance of fractions and sizes */
};

struct erg_grid_partitions {
    struct erg_grid_partition *items;
    size_t count, capacity;
};

/* Partitions that are balanced enough, in ascending order of their cuts; the caller frees items. */
void erg_grid_partitions(const struct erg_grid_problem *problem,
                         struct erg_grid_partitions *partitions);

/* Bytes that a stage in a shape communicates: within a microbatch, and per microbatch once an
 * iteration (gradients). */
struct erg_shape_cost {
    struct erg_shape shape;
    double per_stage, additional;
};

/*
 * The communication of layers [first, end) on `gpus` in every shape whose replicas all have
 * samples, fewest replicas first; returns the number of shapes (at most 5).
 */
enum { ERG_GRID_MAX_SHAPES = 5 };
size_t erg_grid_shape_costs(const struct erg_grid_problem *problem, size_t first, size_t end,
                            long gpus, struct erg_shape_cost *costs);

/* Keeps partitions that communicate little enough. */
void erg_grid_keep_quiet(const struct erg_grid_problem *problem,
                         struct erg_grid_partitions *partitions);

/* The grid's plan. ERG_INFEASIBLE if no partition has enough load in every stage. */
int erg_grid_plan(const struct erg_grid_problem *problem, struct erg_grid_plan *plan,
                  struct erg_error *err);

/*
 * The Pareto set: plans that no other one beats in imbalance and communication, at most 32. If
 * communication hides behind computation in both of two plans, one beats the other only with ten
 * times better balance.
 */
enum { ERG_GRID_SET_PLANS = 32 };
struct erg_grid_plan_set {
    struct erg_grid_candidate {
        struct erg_grid_plan plan;
        double imbalance, communication;
        bool insignificant; /* its communication is insignificant compared with its computation */
    } items[ERG_GRID_SET_PLANS + 1]; /* one more during construction of the set */
    size_t count;
};
int erg_grid_plan_set(const struct erg_grid_problem *problem,
                      const struct erg_grid_network *network,
                      const struct erg_allocation *allocation, struct erg_grid_plan_set *set,
                      struct erg_error *err);

/*
 * The places of the stages: first_gpu[s] of `stages` stages whose sizes add up to the GPUs of the
 * allocation. A stage of a node or more takes whole nodes; smaller ones fill a partly used node,
 * beyond its end if the next stage has twice the remaining GPUs.
 */
void erg_grid_place(const long *sizes, size_t stages, long gpus_per_node, long *first_gpu);

#endif
