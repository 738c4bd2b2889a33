/* Partitions of layers over stages, and the sizes of stages that suit them. */
#include "layout/grid/grid_plan.h"

#include <math.h>
#include <string.h>

#define LEAST_SHARE 0.7 /* the least part of an equal share for every stage */
#define TOLERANCE 0.9   /* eta: kept ones are at most 1 / (1 - eta) times as bad as the best */

double erg_grid_stage_sizes(const double *fractions, size_t stages, long gpus, long *sizes)
{
    /* least[s][r]: the least sum over stages from s on that share r GPUs. */
    double least[ERG_GRID_MAX_STAGES + 1][ERG_GRID_MAX_STAGES + 1];
    for (long left = 0; left <= gpus; left++)
        least[stages][left] = left == 0 ? 0 : INFINITY;
    for (size_t s = stages; s-- > 0;) {
        for (long left = 0; left <= gpus; left++) {
            least[s][left] = INFINITY;
            for (long size = 1; size <= left; size *= 2) {
                double off = fractions[s] - (double)size;
                least[s][left] = fmin(least[s][left], off * off + least[s + 1][left - size]);
            }
        }
    }
    if (!isfinite(least[0][gpus]))
        return INFINITY;
    long left = gpus;
    for (size_t s = 0; s < stages; s++) {
        for (sizes[s] = 1;; sizes[s] *= 2) {
            double off = fractions[s] - (double)sizes[s];
            if (sizes[s] <= left && off * off + least[s + 1][left - sizes[s]] == least[s][left])
                break;
        }
        left -= sizes[s];
    }
    return sqrt(least[0][gpus]);
}

struct cut_walk {
    const struct erg_grid_problem *problem;
    struct erg_grid_partitions *partitions;
    struct erg_grid_partition partition;
    double fractions[ERG_GRID_MAX_STAGES]; /* of stages */
    double least;                          /* of a stage */
};

/* All ways to cut the layers from first[stage] on into stages, from `stage` on. */
static void cut(struct cut_walk *walk, size_t stage)
{
    const struct erg_grid_problem *problem = walk->problem;
    size_t layers = problem->layers->count, begin = walk->partition.first[stage];
    bool last = stage + 1 == problem->stages;
    walk->fractions[stage] = 0;
    for (size_t end = begin + 1; end + (problem->stages - 1 - stage) <= layers; end++) {
        /* Summed from scratch: a running sum would round differently. */
        double fraction = 0;
        for (size_t i = begin; i < end; i++)
            fraction += problem->fractions[i];
        if ((last && end < layers) || fraction < walk->least)
            continue;
        walk->fractions[stage] = fraction;
        walk->partition.first[stage + 1] = end;
        if (!last) {
            cut(walk, stage + 1);
            continue;
        }
        walk->partition.imbalance = erg_grid_stage_sizes(walk->fractions, problem->stages,
                                                         problem->gpus, walk->partition.sizes);
        if (isfinite(walk->partition.imbalance))
            ERG_PUSH(walk->partitions, items, walk->partition);
    }
}

void erg_grid_partitions(const struct erg_grid_problem *problem,
                         struct erg_grid_partitions *partitions)
{
    struct cut_walk walk = {.problem = problem, .partitions = partitions};
    double sum = 0, best = INFINITY;
    size_t kept = 0;
    *partitions = (struct erg_grid_partitions){0};
    for (size_t i = 0; i < problem->layers->count; i++)
        sum += problem->fractions[i];
    walk.least =
        (double)(rintl(10 * (long double)(LEAST_SHARE * sum / (double)problem->stages)) / 10);
    cut(&walk, 0);
    for (size_t i = 0; i < partitions->count; i++)
        best = fmin(best, partitions->items[i].imbalance);
    for (size_t i = 0; i < partitions->count; i++) {
        double imbalance = partitions->items[i].imbalance;
        if (imbalance == 0 || best / imbalance >= 1 - TOLERANCE)
            partitions->items[kept++] = partitions->items[i];
    }
    partitions->count = kept;
}

void erg_grid_place(const long *sizes, size_t stages, long gpus_per_node, long *first_gpu)
{
    long next = 0, begun = 0, left = 0; /* GPU of the next free node; of the partly used node */
    long gpus = 0;
    for (size_t s = 0; s < stages; s++) {
        gpus += sizes[s];
        if (sizes[s] >= gpus_per_node) {
            first_gpu[s] = next;
            next += sizes[s];
            continue;
        }
        bool straddles = left > 0 && sizes[s] == 2 * left && begun + left == next;
        if (sizes[s] > left && !straddles) {
            begun = next;
            left = gpus_per_node;
            next += gpus_per_node;
        }
        first_gpu[s] = begun;
        begun += sizes[s];
        left -= sizes[s];
        if (straddles) {
            left += gpus_per_node;
            next += gpus_per_node;
        }
    }
    if (next <= (gpus + gpus_per_node - 1) / gpus_per_node * gpus_per_node)
        return;
    /* A node has GPUs left that no later stage could use: number the stages consecutively. */
    first_gpu[0] = 0;
    for (size_t s = 1; s < stages; s++)
        first_gpu[s] = first_gpu[s - 1] + sizes[s - 1];
}
