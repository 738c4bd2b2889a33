/*
 * Plans: the points of time and energy at which an iteration can run, one of them selected, with
 * the clock and mode of every instruction.
 *
 *     struct erg_plan *plan;
 *     struct erg_plan_goal goal = {.size = sizeof goal, .deadline_s = 5.2};
 *     struct erg_plan_info info = {.size = sizeof info};
 *     if (erg_plan_open(&plan, "plan.json", &err) || erg_plan_choose(plan, &goal, &err) ||
 *         erg_plan_info(plan, &info, &err)) ...
 *     erg_plan_free(plan);
 *
 * erg_optimize_job() and erg_layouts_plan() make plans; docs/formats/plan.md has their format. A
 * plan is checked completely when it is read. Times and energies of points are those of one
 * iteration on all GPUs of a pipeline; those of instructions are of one GPU. Unknown values are
 * NaN.
 */
#ifndef ERGON_PLAN_H
#define ERGON_PLAN_H

#include "ergon/error.h"
#include "ergon/passes.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_plan;

/* Reads a plan.json, or its text; `name` stands for the file in messages. The message of ERG_FAILED
 * names what is wrong, and where. */
int erg_plan_open(struct erg_plan **plan, const char *path, struct erg_error *err);
int erg_plan_open_text(struct erg_plan **plan, const char *name, const char *text, size_t length,
                       struct erg_error *err);
void erg_plan_free(struct erg_plan *plan); /* NULL is fine */

/* Texts live as long as the plan. */
struct erg_plan_info {
    size_t size;
    const char *name, *model; /* of the job; NULL: not known */
    const char *gpu;          /* of the first kind */
    int64_t kinds;            /* of GPUs */
    int64_t tensor, context, pipeline, data, virtual_stages;
    int64_t microbatch_size, microbatches, sequence;
    int64_t passes; /* instructions of each stage in an iteration */
    /* The selected point, counted from 0, and the rule that chose it. */
    const char *method, *rule;
    int64_t point;
    double time_s, energy_j;
    double static_energy_j;            /* of that */
    double step_time_s, step_energy_j; /* with the sums of gradients and the optimizer */
    int64_t points;                    /* of the frontier of that method */
};
int erg_plan_info(const struct erg_plan *plan, struct erg_plan_info *info, struct erg_error *err);

/* A method ("sequential", "sequential+clocks", "nanobatching", "nanobatching+clocks", "ergon") and
 * its points; 0 points: the plan lacks it. Index from 0; ERG_USAGE beyond the last. */
struct erg_plan_method_info {
    size_t size;
    const char *name, *label; /* the label is the published system; NULL: none */
    int64_t points;           /* of its frontier: time up, energy down */
    int64_t slower; /* slower points after them, for pipelines that wait for another one */
};
int erg_plan_method(const struct erg_plan *plan, size_t index, struct erg_plan_method_info *info,
                    struct erg_error *err);

struct erg_plan_point_info {
    size_t size;
    double time_s, energy_j, power_w; /* power: the mean of all GPUs of the pipeline */
    double static_energy_j;           /* of energy_j */
};

/* A point of a method (NULL: the selected one), index from 0, slower points included. */
int erg_plan_point(const struct erg_plan *plan, const char *method, size_t index,
                   struct erg_plan_point_info *info, struct erg_error *err);

/* The goal of an iteration. With only the size set: the selected point of the selected method, or
 * the fastest of another method. */
struct erg_plan_goal {
    size_t size;
    const char *method; /* NULL: the selected one */
    int64_t point;      /* this point, counted from 1; 0: by the members below */
    const char *pick;   /* "fastest", "least_energy" or "knee"; NULL: least energy with a deadline
                         * or a straggler, otherwise the fastest */
    double deadline_s, energy_j, power_w; /* bounds; 0: none */
    double straggler_s; /* the pipeline has to wait until this time; 0: it does not */
};

/* Selects the point that reaches the goal. The message of ERG_INFEASIBLE names the bound that binds
 * and what the nearest point needs. After a failure the selection is unchanged. */
int erg_plan_choose(struct erg_plan *plan, const struct erg_plan_goal *goal, struct erg_error *err);

/* One pass of a microbatch at the selected point, on one GPU. */
struct erg_plan_pass {
    size_t size;
    int64_t microbatch, chunk;
    int32_t direction; /* enum erg_direction */
    int32_t clock_mhz; /* 0: the GPU's own choice */
    double start_s, time_s, energy_j;
    const char *mode; /* "sequential", "nanobatch" or "overlap" */
};

/*
 * Expands the selected point: the passes of a stage in their order. Fills at most `capacity`
 * elements of passes[], all of the size in the first one; *count is the number of passes. With NULL
 * and a capacity of 0 it only counts.
 */
int erg_plan_passes(const struct erg_plan *plan, size_t stage, struct erg_plan_pass *passes,
                    size_t capacity, size_t *count, struct erg_error *err);

/*
 * The selected point as JSON, with the launch slot and SMs of every communication, as
 * ergon-show(1) prints it with --json; and as text for people, below a comparison of the plan's
 * methods, as it prints without. Each call makes a text that lives as long as the plan; NULL: out
 * of memory.
 */
const char *erg_plan_chosen_json(struct erg_plan *plan);
const char *erg_plan_chosen_text(struct erg_plan *plan);

/* Writes the whole plan as a file that erg_plan_open() reads, and as a page. */
int erg_plan_save(const struct erg_plan *plan, const char *path, struct erg_error *err);
int erg_plan_write_page(const struct erg_plan *plan, const char *path, struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
