/*
 * Methods of a plan (plan/plan.h): their option tables, and the points of their frontiers.
 *
 * Source: Kareus, evaluation: baselines, and its planner; the comparison is on one device with one
 * profiler.
 */
#ifndef ERG_OPTIMIZE_METHODS_H
#define ERG_OPTIMIZE_METHODS_H

#include "ergon/error.h"
#include "iteration/iteration.h"
#include "microbatch/microbatch.h"
#include "plan/plan.h"

#include <stddef.h>

struct erg_method_result {
    struct erg_microbatch *tables; /* [2 * stages * chunks], as erg_table_index() */
    size_t table_count;
    struct erg_iteration iteration;
    uint32_t *full_clock; /* the plan of a method at full clock */
    /* Time up, energy strictly down; then `slower_count` slower ones for a pipeline that has to
     * wait for another one anyway: energy beyond blocking power strictly down. */
    struct erg_plan_point *points;
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
 * Adds the plans of a method whose options `result` has among its own: a search among more options
 * may miss a plan that a search among fewer has found. Plans with an option that it lacks are left
 * out.
 */
void erg_method_adopt(struct erg_method_result *result, const struct erg_method_result *from,
                      const struct erg_method_request *request);
int erg_method_run_full_clock(struct erg_method_result *result,
                              const struct erg_method_request *request, struct erg_error *err);
void erg_method_release(struct erg_method_result *result);

#endif
