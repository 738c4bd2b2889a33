/* The Pareto set of a grid's plans: balance against communication. */
#include "layout/grid/grid_plan.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RESHARDING 1.1
#define HIDDEN_SHARE 0.5 /* communication below this share of computation is insignificant */
/* If it is, this share of another plan's imbalance beats that plan. */
#define CLEARLY_BALANCED 0.1

/* The enumeration of the shapes of one partition. */
struct shape_walk {
    const struct erg_grid_problem *problem;
    const struct erg_grid_partition *partition;
    struct erg_shape_cost costs[ERG_GRID_MAX_STAGES][ERG_GRID_MAX_SHAPES];
    bool insignificant[ERG_GRID_MAX_STAGES][ERG_GRID_MAX_SHAPES];
    size_t counts[ERG_GRID_MAX_STAGES];
    struct erg_grid_plan_set *set;
};

static long gpus_of(struct erg_shape shape)
{
    return shape.data * shape.tensor;
}

static bool dominates(const struct erg_grid_candidate *p, const struct erg_grid_candidate *q)
{
    bool insignificant = p->insignificant && q->insignificant;
    for (size_t s = 0; s < p->plan.stages && insignificant; s++)
        insignificant = gpus_of(p->plan.shapes[s]) == gpus_of(q->plan.shapes[s]);
    if (insignificant)
        return p->imbalance <= CLEARLY_BALANCED * q->imbalance;
    return p->imbalance <= q->imbalance && p->communication <= q->communication;
}

static size_t stage_of(const struct erg_grid_plan *plan, size_t layer)
{
    size_t stage = 0;
    while (plan->first[stage + 1] <= layer)
        stage++;
    return stage;
}

/* Insertions, deletions and replacements between the stages of all layers in both plans. */
static size_t edit_distance(const struct erg_grid_plan *a, const struct erg_grid_plan *b)
{
    size_t layers = a->first[a->stages], row[ERG_GRID_MAX_STAGES + 1];
    for (size_t j = 0; j <= layers; j++)
        row[j] = j;
    for (size_t i = 1; i <= layers; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= layers; j++) {
            size_t replaced = diagonal + (stage_of(a, i - 1) != stage_of(b, j - 1));
            size_t shorter = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[layers];
}

static void drop(struct erg_grid_plan_set *set, size_t index)
{
    set->count--;
    memmove(&set->items[index], &set->items[index + 1], (set->count - index) * sizeof *set->items);
}

/* Drops the worse one of the two most similar plans. */
static void drop_one(struct erg_grid_plan_set *set)
{
    size_t least = SIZE_MAX, at[2] = {0, 1};
    double worst[2] = {0, 0}; /* sums of imbalance and of communication */
    for (size_t i = 0; i < set->count; i++) {
        for (size_t j = i + 1; j < set->count; j++) {
            const struct erg_grid_candidate *p = &set->items[i], *q = &set->items[j];
            size_t distance = edit_distance(&p->plan, &q->plan);
            double sums[2] = {p->imbalance + q->imbalance, p->communication + q->communication};
            if (distance > least ||
                (distance == least &&
                 (sums[0] < worst[0] || (sums[0] == worst[0] && sums[1] <= worst[1]))))
                continue;
            least = distance;
            at[0] = i;
            at[1] = j;
            memcpy(worst, sums, sizeof worst);
        }
    }
    const struct erg_grid_candidate *p = &set->items[at[0]], *q = &set->items[at[1]];
    bool first = p->imbalance > q->imbalance ||
                 (p->imbalance == q->imbalance && p->communication > q->communication);
    drop(set, first ? at[0] : at[1]);
}

static void offer(struct erg_grid_plan_set *set, const struct erg_grid_candidate *candidate)
{
    for (size_t i = 0; i < set->count; i++)
        if (dominates(&set->items[i], candidate))
            return;
    for (size_t i = set->count; i-- > 0;)
        if (dominates(candidate, &set->items[i]))
            drop(set, i);
    set->items[set->count++] = *candidate;
    if (set->count > ERG_GRID_SET_PLANS)
        drop_one(set);
}

/* Every shape of the stages from `stage` on. */
static void walk_shapes(const struct shape_walk *walk, size_t stage, size_t *chosen)
{
    size_t stages = walk->problem->stages;
    if (stage < stages) {
        for (chosen[stage] = 0; chosen[stage] < walk->counts[stage]; chosen[stage]++)
            walk_shapes(walk, stage + 1, chosen);
        return;
    }
    struct erg_grid_candidate candidate = {
        .plan.stages = stages, .imbalance = walk->partition->imbalance, .insignificant = true};
    double most = 0, additional = 0;
    for (size_t s = 0; s < stages; s++) {
        const struct erg_shape_cost *cost = &walk->costs[s][chosen[s]];
        const struct erg_shape *before = s > 0 ? &candidate.plan.shapes[s - 1] : &cost->shape;
        bool resharded = before->data != cost->shape.data || before->tensor != cost->shape.tensor;
        double factor = resharded ? RESHARDING : 1;
        candidate.plan.first[s + 1] = walk->partition->first[s + 1];
        candidate.plan.shapes[s] = cost->shape;
        candidate.insignificant = candidate.insignificant && walk->insignificant[s][chosen[s]];
        most = fmax(most, cost->per_stage * factor);
        additional += cost->additional * factor;
    }
    candidate.communication = (ERG_GRID_MICROBATCHES - 1) * (most + additional);
    offer(walk->set, &candidate);
}

/*
 * Shapes of a partition's stages, and whether their communication is hidden: the published look-up
 * mistakes bytes for elements.
 */
static int prepare(struct shape_walk *walk, const struct erg_grid_network *network,
                   const struct erg_allocation *allocation, struct erg_error *err)
{
    const struct erg_grid_partition *partition = walk->partition;
    long first_gpu[ERG_GRID_MAX_STAGES];
    erg_grid_place(partition->sizes, walk->problem->stages, allocation->gpus_per_node, first_gpu);
    for (size_t s = 0; s < walk->problem->stages; s++) {
        double load_s = 0;
        for (size_t i = partition->first[s]; i < partition->first[s + 1]; i++)
            load_s += walk->problem->loads[i];
        struct erg_comm_group group =
            erg_comm_group_of(first_gpu[s], 1, partition->sizes[s], allocation->gpus_per_node);
        walk->counts[s] =
            erg_grid_shape_costs(walk->problem, partition->first[s], partition->first[s + 1],
                                 partition->sizes[s], walk->costs[s]);
        for (size_t i = 0; i < walk->counts[s]; i++) {
            const struct erg_shape_cost *cost = &walk->costs[s][i];
            double seconds = 0;
            if (group.size > 1 &&
                network->time(network->context, allocation, ERG_ALL_REDUCE, group,
                              cost->per_stage + cost->additional, &seconds, err) != 0)
                return -1;
            walk->insignificant[s][i] = group.size == 1 || seconds < HIDDEN_SHARE * load_s;
        }
    }
    return 0;
}

int erg_grid_plan_set(const struct erg_grid_problem *problem,
                      const struct erg_grid_network *network,
                      const struct erg_allocation *allocation, struct erg_grid_plan_set *set,
                      struct erg_error *err)
{
    struct erg_grid_partitions partitions;
    int result = 0;
    set->count = 0;
    erg_grid_partitions(problem, &partitions);
    erg_grid_keep_quiet(problem, &partitions);
    for (size_t i = 0; i < partitions.count && result == 0; i++) {
        struct shape_walk walk = {
            .problem = problem, .partition = &partitions.items[i], .set = set};
        size_t chosen[ERG_GRID_MAX_STAGES];
        result = prepare(&walk, network, allocation, err);
        if (result == 0)
            walk_shapes(&walk, 0, chosen);
    }
    free(partitions.items);
    return result;
}
