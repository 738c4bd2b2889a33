/* The table of speeds of workloads on shapes of GPUs. */
#include "cluster/speed_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The largest number of GPUs of a node. */
static int node_gpus_most(const struct erg_fleet *fleet)
{
    int most = 0;
    for (unsigned t = 0; t < fleet->types_count; t++)
        most = fleet->types[t].gpus_per_node > most ? fleet->types[t].gpus_per_node : most;
    return most;
}

static size_t best_index(const struct erg_speeds *speeds, int type, int gpus)
{
    return (size_t)type * (size_t)(speeds->gpus_most + 1) + (size_t)gpus;
}

static size_t shape_index(const struct erg_speeds *speeds, int type, int nodes, int gpus_per_node)
{
    return ((size_t)type * (size_t)(speeds->gpus_most + 1) + (size_t)nodes) *
               (size_t)(speeds->node_gpus_most + 1) +
           (size_t)gpus_per_node;
}

static void add_shape(struct erg_speeds *speeds, int type, int nodes, int gpus_per_node)
{
    int index = speeds->shapes_count++;
    speeds->shapes =
        erg_xrealloc(speeds->shapes, (size_t)speeds->shapes_count, sizeof *speeds->shapes);
    speeds->shapes[index] = (struct erg_gpu_shape){type, nodes, gpus_per_node};
    speeds->shape_of[shape_index(speeds, type, nodes, gpus_per_node)] = index;
    int *best = &speeds->best[best_index(speeds, type, nodes * gpus_per_node)];
    if (*best < 0)
        *best = index;
}

static int *indices(size_t count)
{
    int *items = erg_xmalloc(count * sizeof *items);
    for (size_t i = 0; i < count; i++)
        items[i] = -1;
    return items;
}

static size_t cell_index(const struct erg_speeds *speeds, int workload, int shape)
{
    return (size_t)workload * (size_t)speeds->shapes_count + (size_t)shape;
}

/* Nothing can run yet. */
static void empty_row(struct erg_speeds *speeds, int workload)
{
    for (int shape = 0; shape < speeds->shapes_count; shape++) {
        const struct erg_gpu_type *type = &speeds->fleet->types[speeds->shapes[shape].type];
        speeds->cells[cell_index(speeds, workload, shape)] = (struct erg_speed){
            .samples_per_s = ERG_SPEED_NONE,
            .iteration_s = INFINITY,
            .busy = 1,
            .inferred = 1,
            .points = type->points,
            .points_count = (int)type->points_count,
        };
    }
}

struct erg_speeds *erg_speeds_new(const struct erg_fleet *fleet, size_t workloads,
                                  const int *counts, size_t counts_count)
{
    struct erg_speeds *speeds = erg_xcalloc(1, sizeof *speeds);
    int types = (int)fleet->types_count;
    speeds->fleet = fleet;
    speeds->gpus_most = counts_count ? counts[counts_count - 1] : 0;
    speeds->node_gpus_most = node_gpus_most(fleet);
    speeds->best = indices(best_index(speeds, types, 0));
    speeds->shape_of = indices(shape_index(speeds, types, 0, 0));
    for (int type = 0; type < types; type++) {
        const struct erg_gpu_type *gpus = &fleet->types[type];
        for (size_t i = 0; i < counts_count; i++)
            for (int nodes = 1; nodes <= counts[i] && nodes <= gpus->nodes; nodes++)
                if (counts[i] % nodes == 0 && counts[i] / nodes <= gpus->gpus_per_node)
                    add_shape(speeds, type, nodes, counts[i] / nodes);
    }
    speeds->workloads = speeds->workloads_room = (int)workloads;
    speeds->cells = erg_xcalloc(workloads * (size_t)speeds->shapes_count, sizeof *speeds->cells);
    for (int workload = 0; workload < speeds->workloads; workload++)
        empty_row(speeds, workload);
    return speeds;
}

int erg_speeds_add(struct erg_speeds *speeds)
{
    int workload = speeds->workloads++;
    if (speeds->workloads > speeds->workloads_room) {
        speeds->workloads_room =
            (int)erg_grow_capacity((size_t)speeds->workloads_room, (size_t)speeds->workloads);
        speeds->cells = erg_xrealloc(speeds->cells,
                                     (size_t)speeds->workloads_room * (size_t)speeds->shapes_count,
                                     sizeof *speeds->cells);
    }
    empty_row(speeds, workload);
    return workload;
}

void erg_speeds_free(struct erg_speeds *speeds)
{
    if (!speeds)
        return;
    free(speeds->cells);
    free(speeds->shapes);
    free(speeds->best);
    free(speeds->shape_of);
    free(speeds->measured.items);
    erg_arena_release(&speeds->points);
    free(speeds);
}

int erg_speeds_shape(const struct erg_speeds *speeds, int type, int nodes, int gpus_per_node)
{
    if (nodes < 1 || nodes > speeds->gpus_most || gpus_per_node < 1 ||
        gpus_per_node > speeds->node_gpus_most)
        return -1;
    return speeds->shape_of[shape_index(speeds, type, nodes, gpus_per_node)];
}

int erg_speeds_best(const struct erg_speeds *speeds, int type, int gpus)
{
    if (gpus < 1 || gpus > speeds->gpus_most)
        return -1;
    return speeds->best[best_index(speeds, type, gpus)];
}

int erg_shape_gpus(const struct erg_gpu_shape *shape)
{
    return shape->nodes * shape->gpus_per_node;
}

const struct erg_speed *erg_speed_at(const struct erg_speeds *speeds, int workload, int shape)
{
    return &speeds->cells[cell_index(speeds, workload, shape)];
}

void erg_speeds_set(struct erg_speeds *speeds, int workload, int shape, double samples_per_s,
                    double iteration_s)
{
    struct erg_speed *speed = &speeds->cells[cell_index(speeds, workload, shape)];
    speed->samples_per_s = samples_per_s;
    speed->iteration_s = samples_per_s > 0 ? iteration_s : INFINITY;
    speed->inferred = isnan(speed->inferred) ? NAN : 1;
}

void erg_speeds_set_points(struct erg_speeds *speeds, int workload, int shape,
                           const struct erg_operating_point *points, size_t count)
{
    struct erg_speed *speed = &speeds->cells[cell_index(speeds, workload, shape)];
    struct erg_operating_point *copy = erg_arena_alloc(&speeds->points, count * sizeof *copy);
    memcpy(copy, points, count * sizeof *copy);
    speed->points = copy;
    speed->points_count = (int)count;
}

/* The frontier of a cell in which GPUs compute only for a share of an iteration. */
static void set_busy(struct erg_speeds *speeds, int workload, int shape, double busy)
{
    const struct erg_gpu_type *type = &speeds->fleet->types[speeds->shapes[shape].type];
    struct erg_operating_point *points = erg_xcalloc(type->points_count, sizeof *points);
    for (unsigned p = 0; p < type->points_count; p++) {
        double computing = busy * type->points[p].slowdown, waiting = 1 - busy;
        points[p].slowdown = 1 + busy * (type->points[p].slowdown - 1);
        points[p].power_w =
            (computing * type->points[p].power_w + waiting * type->waiting_power_w) /
            (computing + waiting);
    }
    erg_speeds_set_points(speeds, workload, shape, points, type->points_count);
    speeds->cells[cell_index(speeds, workload, shape)].busy = busy;
    free(points);
}

static double gpu_speed(const struct erg_speeds *speeds, int workload, int shape)
{
    return erg_speed_at(speeds, workload, shape)->samples_per_s /
           erg_shape_gpus(&speeds->shapes[shape]);
}

void erg_speeds_find_waiting_of(struct erg_speeds *speeds, int workload)
{
    double best = 0;
    for (int shape = 0; shape < speeds->shapes_count; shape++) {
        int index = speeds->shapes[shape].type;
        const struct erg_gpu_type *type = &speeds->fleet->types[index];
        const struct erg_speed *speed = erg_speed_at(speeds, workload, shape);
        double own = gpu_speed(speeds, workload, shape);
        /* Shapes of a type are contiguous, by increasing numbers of GPUs, the best locality
         * first. */
        best = shape > 0 && speeds->shapes[shape - 1].type == index ? fmax(best, own) : own;
        bool has_own = speed->points != type->points;
        if (type->waiting_power_w > 0 && erg_speed_feasible(speed) && !has_own)
            set_busy(speeds, workload, shape, own / best);
    }
}

void erg_speeds_find_waiting(struct erg_speeds *speeds)
{
    for (int workload = 0; workload < speeds->workloads; workload++)
        erg_speeds_find_waiting_of(speeds, workload);
}

bool erg_speed_feasible(const struct erg_speed *speed)
{
    return speed->samples_per_s > 0;
}

double erg_speed_slowdown(const struct erg_speed *speed, int point, double least)
{
    return fmax(speed->points[point].slowdown, 1 + speed->busy * (least - 1));
}

double erg_speed_power(const struct erg_speed *speed, double idle_w, double slowdown)
{
    const struct erg_operating_point *points = speed->points;
    int next = 0; /* the first point that is as slow */
    while (next < speed->points_count && points[next].slowdown < slowdown)
        next++;
    if (next < speed->points_count && points[next].slowdown == slowdown)
        return points[next].power_w;
    double fast = 1 / points[next - 1].slowdown, fast_w = points[next - 1].power_w;
    double slow = next < speed->points_count ? 1 / points[next].slowdown : 0;
    double slow_w = next < speed->points_count ? points[next].power_w : fmin(idle_w, fast_w);
    return slow_w + (1 / slowdown - slow) / (fast - slow) * (fast_w - slow_w);
}

bool erg_speeds_runnable(const struct erg_speeds *speeds, int workload, int type)
{
    for (int shape = 0; shape < speeds->shapes_count; shape++)
        if ((type < 0 || speeds->shapes[shape].type == type) &&
            erg_speed_feasible(erg_speed_at(speeds, workload, shape)))
            return true;
    return false;
}
