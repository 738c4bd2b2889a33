/* What no policy can beat: every job alone on the whole cluster. */
#ifndef ERGON_BENCH_CLUSTER_BOUNDS_H
#define ERGON_BENCH_CLUSTER_BOUNDS_H

#include "base/memory.h"
#include "cluster/simulate/simulation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static inline int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A job's time alone on the shape that is fastest for it, with one start. */
static inline double alone_s(const struct erg_simulation *simulation,
                             const struct erg_trace_job *job)
{
    double best_s = INFINITY, iterations = fmax(1, floor(job->iterations * simulation->work));
    for (int shape = 0; shape < simulation->speeds->shapes_count; shape++) {
        const struct erg_speed *speed = erg_speed_at(simulation->speeds, job->workload, shape);
        int gpus = erg_shape_gpus(&simulation->speeds->shapes[shape]);
        double start_s = erg_fleet_restart_cost(simulation->fleet, true, gpus);
        best_s = fmin(best_s, start_s + iterations * speed->iteration_s);
    }
    return best_s;
}

/* What no policy can beat for a job, if it had the cluster for itself from its first moment on. */
struct alone {
    double samples; /* until the end of the run */
    double extra_j; /* of one, beyond what its GPUs draw without it */
};

/* Watts of a GPU that no job has, at the least. */
static inline double base_power(const struct erg_fleet *fleet, int type)
{
    return fleet->saves_power ? fleet->types[type].off_power_w : fleet->types[type].idle_power_w;
}

static inline struct alone best_alone(const struct erg_simulation *simulation,
                                      const struct erg_trace_job *job, double left_s)
{
    struct alone best = {.extra_j = INFINITY};
    double batch = (double)simulation->trace->workloads[job->workload].batch, fastest = 0;
    double iterations = fmax(1, floor(job->iterations * simulation->work));
    for (int shape = 0; shape < simulation->speeds->shapes_count; shape++) {
        const struct erg_speed *speed = erg_speed_at(simulation->speeds, job->workload, shape);
        const struct erg_gpu_shape *gpus = &simulation->speeds->shapes[shape];
        if (!erg_speed_feasible(speed))
            continue;
        fastest = fmax(fastest, batch / speed->iteration_s);
        for (int p = 0; p < speed->points_count; p++) {
            double extra_w = speed->points[p].power_w - base_power(simulation->fleet, gpus->type);
            best.extra_j = fmin(best.extra_j, erg_shape_gpus(gpus) * extra_w * speed->iteration_s *
                                                  speed->points[p].slowdown / batch);
        }
    }
    best.samples = fmin(iterations * batch, fastest * left_s);
    return best;
}

static inline int compare_extra(const void *a, const void *b)
{
    const struct alone *x = a, *y = b;
    return (x->extra_j > y->extra_j) - (x->extra_j < y->extra_j);
}

/* Joules of a sample where as many are done as makes that least: all GPUs draw base power the whole
 * time, and who does more samples divides it by more. Or all are done. */
static inline double least_joules(struct alone *jobs, size_t count, double idle_j, bool all)
{
    double joules = idle_j, samples = 0;
    qsort(jobs, count, sizeof *jobs, compare_extra);
    for (size_t i = 0; i < count; i++) {
        if (!all && samples > 0 && jobs[i].extra_j > joules / samples)
            break;
        samples += jobs[i].samples;
        joules += jobs[i].samples * jobs[i].extra_j;
    }
    return joules / samples;
}

static inline double quantile_99(double *values, size_t count)
{
    double at = 0.99 * (double)(count - 1);
    size_t low = (size_t)at;
    qsort(values, count, sizeof *values, compare_doubles);
    return values[low] + (at - (double)low) * (values[low + (low + 1 < count)] - values[low]);
}

/* What no policy can beat. */
static inline void print_bounds(const struct erg_simulation *simulation)
{
    const struct erg_job_trace *trace = simulation->trace;
    double *jct_s = erg_xcalloc(trace->count, sizeof *jct_s);
    struct alone *alone = erg_xcalloc(trace->count, sizeof *alone);
    double jcts_s = 0, system_s = 0, samples = 0, end_s = 0;
    size_t finished = 0, submitted = 0;
    for (size_t i = 0; i < trace->count; i++) {
        double at_s = trace->jobs[i].submit_s - trace->first_submit_s;
        double left_s = simulation->until_s - at_s;
        double needed_s = alone_s(simulation, &trace->jobs[i]);
        if (left_s <= 0)
            continue;
        alone[submitted] = best_alone(simulation, &trace->jobs[i], left_s);
        samples += alone[submitted++].samples;
        system_s += fmin(needed_s, left_s);
        end_s = fmax(end_s, at_s + fmin(needed_s, left_s));
        if (needed_s <= left_s) {
            jct_s[finished++] = needed_s;
            jcts_s += needed_s;
        }
    }
    if (!isinf(simulation->until_s))
        end_s = simulation->until_s;
    double idle_j = 0;
    for (int t = 0; t < (int)simulation->fleet->types_count; t++) {
        const struct erg_gpu_type *type = &simulation->fleet->types[t];
        idle_j += end_s * type->nodes * type->gpus_per_node * base_power(simulation->fleet, t);
    }
    printf("%-15s %8zu %12.0f %15.0f %11.0f %10.0f %9.2f\n", "(each alone)", finished,
           jcts_s / (double)finished, system_s / (double)submitted, quantile_99(jct_s, finished),
           samples / end_s, least_joules(alone, submitted, idle_j, isinf(simulation->until_s)));
    free(alone);
    free(jct_s);
}

/* The least that a job alone on any shape at any operating point costs, where a second of its time
 * counts as so many watts beside the energy of its GPUs; its samples. */
static inline double least_cost(const struct erg_simulation *simulation,
                                const struct erg_trace_job *job, double second_w, double *samples)
{
    double iterations = fmax(1, floor(job->iterations * simulation->work)), least_j = INFINITY;
    *samples = iterations * (double)simulation->trace->workloads[job->workload].batch;
    for (int shape = 0; shape < simulation->speeds->shapes_count; shape++) {
        const struct erg_speed *speed = erg_speed_at(simulation->speeds, job->workload, shape);
        const struct erg_gpu_shape *of = &simulation->speeds->shapes[shape];
        int gpus = erg_shape_gpus(of);
        double idle_w = gpus * simulation->fleet->types[of->type].idle_power_w;
        double start_s = erg_fleet_restart_cost(simulation->fleet, true, gpus);
        for (int p = 0; erg_speed_feasible(speed) && p < speed->points_count; p++) {
            double run_s = iterations * speed->iteration_s * speed->points[p].slowdown;
            least_j = fmin(least_j, (second_w + idle_w) * start_s +
                                        (second_w + gpus * speed->points[p].power_w) * run_s);
        }
    }
    return least_j;
}

/*
 * Joules of a sample below which no policy can get that does all jobs with such a mean completion,
 * where what is not used draws nothing: by Lagrange, for any price of a second, what all jobs cost
 * at the least, less what their seconds cost.
 */
static inline double least_joules_at(const struct erg_simulation *simulation, double mean_jct_s)
{
    const struct erg_job_trace *trace = simulation->trace;
    double bound = 0;
    for (double second_w = 1; second_w < 1e6; second_w *= 1.05) {
        double cost_j = 0, samples = 0, of_job;
        for (size_t i = 0; i < trace->count; i++) {
            cost_j += least_cost(simulation, &trace->jobs[i], second_w, &of_job);
            samples += of_job;
        }
        bound = fmax(bound, (cost_j - second_w * mean_jct_s * (double)trace->count) / samples);
    }
    return bound;
}

#endif
