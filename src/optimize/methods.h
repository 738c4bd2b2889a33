/*
 * Methods: the ways of running the same iteration that `ergon optimize` compares.
 *
 *   sequential            microbatches one after the other, communication after compute, full
 *                         clock: what a training framework does today
 *   sequential+clocks     the same, every instruction at a planned clock
 *   nanobatching          two nanobatches, communication by the library as soon as it can start
 *   nanobatching+clocks   the same, every instruction at a planned clock
 *   ergon                 partitions under their schedules or sequential, whichever is better
 *                         for each instruction, at a planned clock
 *
 * Sources: Kareus section 6.1 (baselines), 5.3 (planning); the comparison is on one device with one
 * profiler.
 */
#ifndef ERG_OPTIMIZE_METHODS_H
#define ERG_OPTIMIZE_METHODS_H

#include "ergon/error.h"
#include "iteration/iteration.h"
#include "microbatch/microbatch.h"
#include "optimize/compare.h"

#include <stddef.h>

enum erg_method {
    ERG_METHOD_SEQUENTIAL,
    ERG_METHOD_SEQUENTIAL_CLOCKS,
    ERG_METHOD_NANOBATCHING,
    ERG_METHOD_NANOBATCHING_CLOCKS,
    ERG_METHOD_ERGON,
    ERG_METHOD_COUNT,
};

const char *erg_method_name(enum erg_method method);
const char *erg_method_label(enum erg_method method); /* the system known for it */
int erg_method_from_name(const char *name);           /* -1 for another name */

/* The method of that name as a user writes it: ERG_USAGE lists them and says which was meant. */
int erg_method_parse(const char *name, enum erg_method *method, struct erg_error *err);

/* From one GPU per stage as planned to all GPUs of the pipeline as it will be measured. */
struct erg_scale {
    double overhead;         /* of the stack: measured time = planned * (1 + overhead) */
    double blocking_power_w; /* of a GPU that waits, the mean over the stages */
    double static_power_w;   /* for the static share of the energy, likewise */
    const double *beyond_w;  /* [stages]: of a waiting GPU of each beyond the mean; NULL: none */
    int stages;
    int gpus_per_stage;
};

/* From what the GPUs of each stage draw waiting and at least, [stages]. `blocking_w` becomes what
 * they draw beyond the mean, 0 where all are alike, and has to outlive the scale. */
void erg_scale_set_powers(struct erg_scale *scale, double *blocking_w, const double *static_w);

/*
 * What an option of a stage costs by the solver, which knows one power of waiting, the mean. While
 * a stage works it does not wait, so what its own GPUs would draw beyond the mean until then is
 * taken off: over the iteration both come out right.
 */
double erg_scale_option_energy(const struct erg_scale *scale, size_t stage, double time_s,
                               double energy_j);

double erg_scale_time(const struct erg_scale *scale, double planned_s);
double erg_scale_energy(const struct erg_scale *scale, double planned_s, double planned_j);

struct erg_method_point {
    double time_s, energy_j;                 /* all GPUs of one pipeline, as it will be measured */
    double planned_time_s, planned_energy_j; /* as in struct erg_plan, scaled in the same way */
    double static_energy_j;
    const uint32_t *option; /* per instruction of the schedule: option of its table */
};

struct erg_method_result {
    struct erg_microbatch *tables; /* [2 * stages * chunks], as erg_table_index() */
    size_t table_count;
    struct erg_iteration iteration;
    uint32_t *full_clock; /* the plan of a method at full clock */
    /* Time up, energy strictly down; then `slower_count` slower ones for a pipeline that has to
     * wait for another one anyway: energy beyond blocking power strictly down. */
    struct erg_method_point *points;
    size_t point_count, slower_count;
    struct erg_versus versus;
};

/*
 * Plans `result->tables` (already filled) on the pipeline.
 * full_clock: the single point with every instruction at the highest clock of its table.
 * Otherwise the frontier through `points` deadlines and up to `slower_points` beyond it, with
 * further deadlines in measured seconds, and one plan refined to each energy budget in measured
 * joules.
 */
struct erg_method_request {
    struct erg_pipeline pipeline;
    struct erg_scale scale;
    uint64_t seed; /* of the search for better roundings */
    size_t points, slower_points;
    const double *deadlines_s;
    size_t deadline_count;
    const double *budgets_j;
    size_t budget_count;
};

int erg_method_plan(struct erg_method_result *result, const struct erg_method_request *request,
                    struct erg_error *err);
/*
 * Adds the plans of a method whose options `result` has among its own: searching among more options
 * may miss what a search among fewer has found. Plans with an option that it lacks are left out.
 */
void erg_method_adopt(struct erg_method_result *result, const struct erg_method_result *from,
                      const struct erg_method_request *request);
int erg_method_run_full_clock(struct erg_method_result *result,
                              const struct erg_method_request *request, struct erg_error *err);
void erg_method_release(struct erg_method_result *result);

/* When each instruction of a point starts, in planned seconds: [schedule.count]. */
void erg_method_starts(const struct erg_method_result *result, const struct erg_scale *scale,
                       size_t point, double *start_s);

/* The points as a frontier over (time, energy of all GPUs); recipe = index of the point. */
void erg_method_frontier(const struct erg_method_result *result, struct erg_frontier *frontier);

#endif
