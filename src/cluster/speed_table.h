/*
 * Speeds: how fast each workload runs on each shape of GPUs, and at what power.
 *
 * A shape is a GPU type, a number of nodes, and the same number of GPUs on each of them. Since
 * speeds are looked up often, they are one dense table by workload and shape, filled once from a
 * source (a folder of profiles, estimates, measured frontiers). Readers do not depend on the
 * source.
 */
#ifndef ERG_CLUSTER_SPEED_TABLE_H
#define ERG_CLUSTER_SPEED_TABLE_H

#include "base/memory.h"
#include "cluster/fleet.h"
#include "cluster/job_trace.h"

#include <stdbool.h>

struct erg_gpu_shape {
    int type; /* index in the fleet */
    int nodes, gpus_per_node;
};

int erg_shape_gpus(const struct erg_gpu_shape *shape);

/* Published profiles treat longer iterations as impossible. */
#define ERG_ITERATION_MOST_S 300

/* The speed that published planners use for a combination that cannot run. */
#define ERG_SPEED_NONE (-1e9)

struct erg_speed {
    double samples_per_s; /* 0 or less: the workload cannot run so; published planners compute with
                           * the negative number */
    double iteration_s;   /* at the fastest operating point; INFINITY if it cannot run */
    double busy;          /* share of it in which GPUs compute, which the clock affects */
    double inferred; /* iteration_s relative to the source's, by measurements of the workload on
                      * other shapes; NaN: the cell is measured itself */
    /* The frontier: iteration_s x slowdown, mean power of one GPU; the fleet's points or the
     * table's. */
    const struct erg_operating_point *points; /* at least one */
    int points_count;
};

struct erg_speeds {
    const struct erg_fleet *fleet; /* borrowed for the life of the speeds */
    int gpus_most;                 /* of any shape */
    int node_gpus_most;            /* of any node */
    struct erg_gpu_shape *shapes;  /* by type, then GPUs, then nodes: the best locality first */
    int shapes_count;
    int *best;     /* [type][GPUs]: the shape with fewest nodes, or -1 */
    int *shape_of; /* [type][nodes][GPUs per node]: index of the shape, or -1 */
    int workloads;
    int workloads_room;      /* allocated */
    struct erg_speed *cells; /* [workload][shape] */
    struct erg_arena points; /* of cells that have their own */
    struct {
        struct erg_measured_speed *items;
        size_t count, capacity;
    } measured;
};

/* Measurements of a cell at one of its operating points. */
struct erg_measured_speed {
    int workload, shape, point;
    double iteration_s; /* the mean */
    double count;       /* the number of measurements */
    double profile_s;   /* the profile's value before any measurement */
};

/*
 * A table in which nothing can run yet, with all shapes of the given GPU counts (increasing) that
 * fit the fleet's nodes: 8 GPUs on nodes of 4 have the shapes 2x4, 4x2 and 8x1.
 */
struct erg_speeds *erg_speeds_new(const struct erg_fleet *fleet, size_t workloads,
                                  const int *counts, size_t counts_count);
void erg_speeds_free(struct erg_speeds *speeds);

/* Fills one cell, for sources. A speed of 0 or less: the workload cannot run so. */
void erg_speeds_set(struct erg_speeds *speeds, int workload, int shape, double samples_per_s,
                    double iteration_s);

/* Gives a cell its own operating points instead of those of its GPU type. They are copied; the
 * first must be the fastest. */
void erg_speeds_set_points(struct erg_speeds *speeds, int workload, int shape,
                           const struct erg_operating_point *points, size_t count);

/* Adds a workload, which cannot run anywhere yet; returns its index. Cells move. */
int erg_speeds_add(struct erg_speeds *speeds);

/*
 * Adds measured iterations at an operating point, the mean of `count`. The mean of all measurements
 * there, limited to between a quarter and four times the profile's time, replaces the cell's value
 * for that point; the cell's other points change by the factor of the nearest measured point, and
 * stay in their order. Later measurements weigh at least a twentieth.
 *
 * Most of a profile's error is the same on all shapes of a GPU type, and some of it on all types.
 * So cells of the workload without a measurement change as well: by the geometric mean F of the
 * factors measured on the same type, otherwise, with measurements on n types, by the product of
 * their F to the power of 1 / (n + 1), which is the best estimate if the common part of the error
 * and that of a type vary alike. Otherwise a job that is slower than its profile would try all
 * other shapes in turn, since each of them still looked faster.
 *
 * Returns true if a cell changed by more than a hundredth; cells that cannot run do not change.
 */
bool erg_speeds_measure(struct erg_speeds *speeds, int workload, int shape, int point,
                        double iteration_s, double count);

/* How many times slower than the fastest point a point is by the profile, without measurements. */
double erg_speeds_profile_slowdown(const struct erg_speeds *speeds, int workload, int shape,
                                   int point);

/* A measurement, limited to these bounds. */
double erg_speeds_clip(const struct erg_speeds *speeds, int workload, int shape, int point,
                       double iteration_s);

/*
 * Estimates how long GPUs wait, for sources with times only, after all cells are filled. The
 * GPU-seconds that a workload computes for a sample are nearly the same on any number of GPUs. The
 * reference of a shape is the shape of the same type, with as many or fewer GPUs, on which a GPU
 * does the most work. All GPU-seconds per sample beyond the reference's are waits: for transfers,
 * for other stages, for the host. A clock does not change waits. So with a busy share b, an
 * operating point with slowdown s takes 1 + b (s - 1) times as long, and the mean power is between
 * the point's and the waiting power. This is an upper bound of computation: if GPUs wait on the
 * reference, too, clocks matter less. Types without a waiting power stay unchanged, and so do cells
 * with their own points.
 */
void erg_speeds_find_waiting(struct erg_speeds *speeds);
void erg_speeds_find_waiting_of(struct erg_speeds *speeds, int workload);

/*
 * The published profiles: DIR/prof_optimal.csv (model, param_num, global_batch, gpu_type,
 * num_nodes, gpus_per_node, iter_time_s: seconds, -1 if the search found nothing).
 *
 * In addition to the published columns it may have gpu_power_w, the mean power of one GPU in an
 * iteration. Rows of one model on the same GPUs are then a frontier, in which slower rows have less
 * power: they replace the type's operating points.
 *
 * Times follow the published rules: the exact shape; else the best locality of the same number of
 * GPUs, at 0.9 of its speed for each halving of GPUs per node; else the next larger model of the
 * family that has the shape, 1.8 times as fast for each size between. Times above 300 s are
 * invalid.
 *
 * Rows for GPU types or nodes that the fleet lacks are ignored. Fails if files, columns or numbers
 * are wrong, or if rows contradict each other. A workload without a row is not an error here: see
 * erg_speeds_runnable().
 */
int erg_speeds_load(struct erg_speeds **speeds, const char *folder, const struct erg_fleet *fleet,
                    const struct erg_job_trace *trace, struct erg_error *err);

/*
 * The same folder for workloads that arrive one by one: it provides tables without workloads, and
 * fills the row of erg_speeds_add() if it contains the workload.
 */
struct erg_profile_source;
int erg_profile_source_open(struct erg_profile_source **source, const char *folder,
                            const struct erg_fleet *fleet, struct erg_error *err);
void erg_profile_source_close(struct erg_profile_source *source);
struct erg_speeds *erg_profile_source_table(const struct erg_profile_source *source);
int erg_profile_source_fill(void *source, struct erg_speeds *speeds, int workload,
                            const struct erg_trace_workload *what, struct erg_error *err);

/* The shape's index; -1 if the table lacks it. */
int erg_speeds_shape(const struct erg_speeds *speeds, int type, int nodes, int gpus_per_node);

/* The shape of the given number of GPUs on the fewest nodes, or -1. */
int erg_speeds_best(const struct erg_speeds *speeds, int type, int gpus);

const struct erg_speed *erg_speed_at(const struct erg_speeds *speeds, int workload, int shape);

bool erg_speed_feasible(const struct erg_speed *speed);

/* How many times slower a job is at an operating point than at its fastest. Computation is slowed
 * down by at least `least`. */
double erg_speed_slowdown(const struct erg_speed *speed, int point, double least);

/*
 * Power of one GPU that takes `slowdown` (at least 1) times as long as at the fastest point.
 * Between two points it alternates between them; below the slowest it alternates between that and
 * idle. So power is linear in speed.
 */
double erg_speed_power(const struct erg_speed *speed, double idle_w, double slowdown);

/* Returns true if the workload can run on any shape of a type (-1: of any type). */
bool erg_speeds_runnable(const struct erg_speeds *speeds, int workload, int type);

#endif
