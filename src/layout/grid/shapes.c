/* Shapes of stages by their communication, and the plan of a grid. */
#include "layout/grid/grid_plan.h"

#include <math.h>
#include <stdlib.h>

#define RESHARDING 1.1      /* a stage with another shape than the previous one */
#define RESHARDED_SHARE 0.2 /* 0.1 in each direction */
#define TOLERANCE 0.9

size_t erg_grid_shape_costs(const struct erg_grid_problem *problem, size_t first, size_t end,
                            long gpus, struct erg_shape_cost *costs)
{
    double outputs = 0, weights = 0;
    size_t count = 0;
    for (size_t i = first; i < end; i++) {
        const struct erg_planner_layer *layer = &problem->layers->items[i];
        weights += layer->weight_bytes;
        for (size_t k = 0; k < layer->op_count; k++)
            outputs += layer->ops[k].output_bytes;
    }
    for (long data = 1; data <= gpus && (double)data <= problem->layers->samples; data *= 2) {
        const long tensor = gpus / data;
        double d = (double)data, t = (double)tensor;
        costs[count++] =
            (struct erg_shape_cost){{data, tensor},
                                    outputs * (t - 1) / t,
                                    floor(weights * (d - 1) / d / ERG_GRID_MICROBATCHES)};
    }
    return count;
}

static bool same_shape(struct erg_shape a, struct erg_shape b)
{
    return a.data == b.data && a.tensor == b.tensor;
}

/* Chooses for each stage the shape that communicates least after the previous stage's shape. */
static void choose_shapes(const struct erg_grid_problem *problem,
                          const struct erg_grid_partition *partition, struct erg_shape_cost *chosen)
{
    for (size_t s = 0; s < problem->stages; s++) {
        struct erg_shape_cost costs[ERG_GRID_MAX_SHAPES];
        size_t count = erg_grid_shape_costs(problem, partition->first[s], partition->first[s + 1],
                                            partition->sizes[s], costs);
        double least = INFINITY;
        for (size_t i = 0; i < count; i++) {
            double cost = costs[i].per_stage + costs[i].additional;
            if (s > 0 && !same_shape(costs[i].shape, chosen[s - 1].shape))
                cost *= RESHARDING;
            if (cost < least) {
                least = cost;
                chosen[s] = costs[i];
            }
        }
    }
}

/* The communication of a partition, in bytes per microbatch. */
static double objective(const struct erg_grid_problem *problem,
                        const struct erg_grid_partition *partition)
{
    struct erg_shape_cost chosen[ERG_GRID_MAX_STAGES];
    double most = 0, additional = 0, resharded = 0;
    choose_shapes(problem, partition, chosen);
    for (size_t s = 0; s < problem->stages; s++) {
        most = fmax(most, chosen[s].per_stage);
        additional += chosen[s].additional;
        if (s > 0 && !same_shape(chosen[s].shape, chosen[s - 1].shape))
            resharded += chosen[s].per_stage;
    }
    return most + additional + RESHARDED_SHARE * resharded;
}

void erg_grid_keep_quiet(const struct erg_grid_problem *problem,
                         struct erg_grid_partitions *partitions)
{
    double best = INFINITY;
    size_t kept = 0;
    double *objectives = erg_xcalloc(partitions->count, sizeof *objectives);
    for (size_t i = 0; i < partitions->count; i++) {
        objectives[i] = objective(problem, &partitions->items[i]);
        best = fmin(best, objectives[i]);
    }
    for (size_t i = 0; i < partitions->count; i++)
        if (best == 0 || best / objectives[i] >= 1 - TOLERANCE)
            partitions->items[kept++] = partitions->items[i];
    partitions->count = kept;
    free(objectives);
}

int erg_grid_plan(const struct erg_grid_problem *problem, struct erg_grid_plan *plan,
                  struct erg_error *err)
{
    struct erg_grid_partitions partitions;
    struct erg_shape_cost chosen[ERG_GRID_MAX_STAGES];
    erg_grid_partitions(problem, &partitions);
    erg_grid_keep_quiet(problem, &partitions);
    if (partitions.count == 0) {
        free(partitions.items);
        return erg_fail(
            err, ERG_INFEASIBLE,
            "grid of %zu stages on %ld GPUs: no partition of the %zu layers gives every "
            "stage enough of the load",
            problem->stages, problem->gpus, problem->layers->count);
    }
    const struct erg_grid_partition *best = &partitions.items[0];
    for (size_t i = 1; i < partitions.count; i++)
        if (partitions.items[i].imbalance < best->imbalance)
            best = &partitions.items[i];
    choose_shapes(problem, best, chosen);
    *plan = (struct erg_grid_plan){.stages = problem->stages};
    for (size_t s = 0; s < problem->stages; s++) {
        plan->first[s + 1] = best->first[s + 1];
        plan->shapes[s] = chosen[s].shape;
    }
    free(partitions.items);
    return 0;
}
