/*
 * What the tests of iterations share: pipelines, tables of options, and solving them.
 */
#ifndef ERGON_TESTS_ITERATION_WORLD_H
#define ERGON_TESTS_ITERATION_WORLD_H

#include "base/memory.h"
#include "base/random.h"
#include "check.h"
#include "goals.h"
#include "iteration/iteration.h"

static inline struct erg_pipeline pipeline_1f1b(size_t stages, size_t microbatches)
{
    return (struct erg_pipeline){
        .stages = stages, .microbatches = microbatches, .chunks = 1, .blocking_power_w = 80};
}

/* Clock curves like those of a GPU: t = work / f + fixed, e rising with f, with some noise. The
 * work of the stages differs from its mean by up to `spread` of it. */
static inline struct erg_frontier *tables_within(uint64_t seed, size_t count, size_t options,
                                                 double spread)
{
    struct erg_frontier *tables = erg_xcalloc(count, sizeof *tables);
    struct erg_rng rng;
    erg_rng_seed(&rng, seed);
    for (size_t t = 0; t < count; t++) {
        double work = (t % 2 ? 0.09 : 0.05) * (1 - spread + 2 * spread * erg_rng_uniform(&rng));
        for (size_t o = 0; o < options; o++) {
            double f = 1 - 0.45 * (double)o / (double)(options > 1 ? options - 1 : 1);
            double time = work * (0.2 + 0.8 / f) * (1 + 0.002 * erg_rng_uniform(&rng));
            double power = 90 + 300 * f * f * f * (1 + 0.01 * erg_rng_uniform(&rng));
            erg_frontier_add(&tables[t], time, power * time, (int64_t)(1400 * f));
        }
    }
    return tables;
}

static inline struct erg_frontier *random_tables(uint64_t seed, size_t count, size_t options)
{
    return tables_within(seed, count, options, 0.2);
}

static inline void free_tables(struct erg_frontier *tables, size_t count)
{
    for (size_t t = 0; t < count; t++)
        erg_frontier_release(&tables[t]);
    free(tables);
}

static inline void solve(struct erg_iteration *iteration,
                         const struct erg_iteration_request *request)
{
    struct erg_error err;
    assert_ok(erg_iteration_solve(iteration, request, &err), &err);
}

/* The plan that is picked. */
static inline const struct erg_iteration_plan *pick(const struct erg_iteration *iteration,
                                                    struct erg_goal goal)
{
    struct erg_error err;
    size_t plan;
    assert_ok(erg_iteration_pick(iteration, &goal, &plan, &err), &err);
    return &iteration->plans[plan];
}

/* All assignments of a tiny pipeline: least energy for a deadline. */
static inline double exhaustive(const struct erg_schedule *schedule,
                                const struct erg_frontier *tables, double deadline_s)
{
    uint32_t option[12] = {0};
    double best = 1e300, time_s, energy_j;
    assert_true(schedule->count <= 12);
    for (;;) {
        erg_iteration_evaluate(schedule, tables, option, NULL, &time_s, &energy_j);
        if (time_s <= deadline_s && energy_j < best)
            best = energy_j;
        size_t i = 0;
        while (i < schedule->count &&
               ++option[i] ==
                   tables[erg_table_index(&schedule->pipeline, &schedule->instructions[i])].count)
            option[i++] = 0;
        if (i == schedule->count)
            return best;
    }
}

/* Losses against the planned energy at the same deadline, in per cent. */
struct losses {
    double mean, worst;
};

static inline struct losses losses_of(const struct erg_iteration_request *request)
{
    struct erg_iteration iteration;
    struct losses losses = {0};
    solve(&iteration, request);
    for (size_t i = 0; i < iteration.plan_count; i++) {
        const struct erg_iteration_plan *plan = &iteration.plans[i];
        double power_w = request->pipeline.blocking_power_w * (double)request->pipeline.stages;
        double held = plan->energy_j + power_w * (plan->planned_time_s - plan->time_s);
        double loss = 100 * (held / plan->planned_energy_j - 1);
        losses.mean += loss / (double)iteration.plan_count;
        losses.worst = fmax(losses.worst, loss);
    }
    erg_iteration_release(&iteration);
    return losses;
}

#endif
