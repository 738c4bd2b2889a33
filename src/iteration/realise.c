#include "iteration/realise_internal.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "iteration/rounding_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* So much is kept of continuous plans, or two for each core if that is more. */
enum { MOST_KEPT = 16 << 20 };

/*
 * Costing more than this beyond the continuous plan, a plan is searched again: sooner and more
 * often where a pipeline is so short that this is a matter of milliseconds. With few options, gaps
 * between them may cost more than that whatever the plan: so longer searches would hold up
 * everybody who has few.
 */
#define GOOD_LOSS 0.0025
#define FAIR_LOSS 0.003
static const size_t short_pipeline = 1024; /* instructions */
static const double many_options = 24;     /* a table, in the mean */

/* [short pipeline][many options]; `least` is of plans that may really run. */
static const struct rounding_effort efforts[2][2] = {
    {{.least = 2, .most = 5, .annealings = 4, .enough = FAIR_LOSS, .bearable = INFINITY},
     {.least = 2, .most = 10, .annealings = 9, .enough = FAIR_LOSS, .bearable = FAIR_LOSS}},
    {{.least = 8, .most = 14, .annealings = 1, .enough = GOOD_LOSS, .bearable = INFINITY},
     {.least = 8, .most = 20, .annealings = 2, .enough = GOOD_LOSS, .bearable = FAIR_LOSS}},
};

struct wanted {
    size_t plan; /* of the iteration */
    double deadline_s;
    bool will_run;
    struct timecost_plan continuous;
};

static double mean_options(const struct option_tables *tables)
{
    double sum = 0;
    for (size_t t = 0; t < tables->count; t++)
        sum += (double)tables->tables[t].count;
    return sum / (double)tables->count;
}

static struct rounding_effort choose_effort(const struct realiser *realiser, bool will_run)
{
    if (realiser->request->tries)
        return (struct rounding_effort){.least = 1, .most = 1};
    bool shorter = realiser->iteration->schedule.count <= short_pipeline;
    struct rounding_effort effort =
        efforts[shorter][mean_options(realiser->tables) >= many_options];
    if (!will_run)
        effort.least = 1;
    return effort;
}

static int realise(void *context, size_t i, struct erg_error *err)
{
    struct realiser *realiser = context;
    const struct wanted *wanted = &realiser->wanted.items[i];
    const struct erg_schedule *schedule = &realiser->iteration->schedule;
    struct erg_iteration_plan *plan = &realiser->iteration->plans[wanted->plan];
    if (erg_interrupt_check(err) != 0)
        return -1;
    struct rounding_effort effort = choose_effort(realiser, wanted->will_run);
    effort.planned_j = plan->planned_energy_j;
    struct rounding *rounding =
        rounding_new(schedule, realiser->problem, realiser->tables, realiser->request->seed);
    rounding_round(rounding, &wanted->continuous, wanted->deadline_s, &effort, plan->option);
    rounding_free(rounding);
    erg_iteration_evaluate(schedule, realiser->request->tables, plan->option, NULL, &plan->time_s,
                           &plan->energy_j);
    assert(plan->time_s <= wanted->deadline_s * (1 + 4 * ROUNDING_MARGIN));
    plan->time_s = fmin(plan->time_s, wanted->deadline_s);
    erg_progress("choosing options", 1 + atomic_fetch_add(&realiser->done, 1), realiser->expected);
    return 0;
}

static void forget_wanted(struct realiser *realiser)
{
    for (size_t i = 0; i < realiser->wanted.count; i++)
        timecost_plan_free(&realiser->wanted.items[i].continuous);
    realiser->wanted.count = 0;
}

static struct erg_iteration_plan *add_plan(struct realiser *realiser)
{
    struct erg_iteration *iteration = realiser->iteration;
    if (iteration->plan_count == realiser->plan_capacity) {
        realiser->plan_capacity =
            erg_grow_capacity(realiser->plan_capacity, iteration->plan_count + 1);
        iteration->plans =
            erg_xrealloc(iteration->plans, realiser->plan_capacity, sizeof *iteration->plans);
    }
    struct erg_iteration_plan *plan = &iteration->plans[iteration->plan_count++];
    *plan = (struct erg_iteration_plan){
        .option = erg_xcalloc(iteration->schedule.count, sizeof *plan->option)};
    return plan;
}

int realiser_finish(struct realiser *realiser, struct erg_error *err)
{
    int result = erg_parallel_for(realiser->wanted.count, 0, realise, realiser, err);
    forget_wanted(realiser);
    return result;
}

void realiser_want(struct realiser *realiser, const struct timecost_plan *continuous,
                   double planned_time_s, double planned_energy_j, double deadline_s, bool will_run)
{
    const struct timecost_problem *problem = realiser->problem;
    struct erg_iteration_plan *plan = add_plan(realiser);
    plan->planned_time_s = planned_time_s;
    plan->planned_energy_j = planned_energy_j;
    struct wanted wanted = {.plan = realiser->iteration->plan_count - 1,
                            .deadline_s = deadline_s,
                            .will_run = will_run,
                            .continuous = timecost_plan_new(problem)};
    timecost_plan_copy(&wanted.continuous, continuous, problem);
    ERG_PUSH(&realiser->wanted, items, wanted);
    size_t kept = realiser->wanted.count * timecost_plan_bytes(problem);
    if (kept > MOST_KEPT && realiser->wanted.count >= 2 * erg_thread_count())
        realiser_finish(realiser, NULL); /* if it is interrupted, so is the sweep */
}

void realiser_release(struct realiser *realiser)
{
    forget_wanted(realiser);
    free(realiser->wanted.items);
}
