/* Realiser: rounds the plans of the exact solver to measured options, on all cores. */
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

/* So much is kept of continuous plans, or this many of them if that is more. */
enum { MOST_KEPT = 16 << 20, LEAST_KEPT = 8 };

/* The least predicted saving of a mixture of two neighbours, as a share of a plan's energy. */
static const double worth_mixing = 2e-4;

/* A plan costing less than the first beyond the continuous plan is good enough, more is poor. */
static const double good_loss = 0.0015, poor_loss = 0.003;

struct wanted {
    size_t plan; /* of the iteration */
    double deadline_s;
    bool will_run;
    struct timecost_plan continuous;
    uint16_t *choice, *mixed; /* per place; mixed NULL: no mixture promises more */
    double time_s, cost_j;    /* of the choice */
};

/*
 * All plans together look at instructions some million times: a plan is searched longer where there
 * are few, or where pipelines are short, where fewer instructions share the slack.
 */
static struct rounding_effort choose_effort(const struct realiser *realiser,
                                            const struct wanted *wanted)
{
    static const size_t all_looks = 7000000; /* instructions */
    if (realiser->request->tries)
        return (struct rounding_effort){.least = 16, .most = 16};
    const struct erg_iteration *iteration = realiser->iteration;
    size_t count = iteration->schedule.count;
    size_t fewest = wanted->will_run ? 256 : 24, most = 1024;
    size_t looks = all_looks / (count * realiser->expected);
    looks = looks < fewest ? fewest : looks > most ? most : looks;
    double planned_j = iteration->plans[wanted->plan].planned_energy_j;
    return (struct rounding_effort){.least = wanted->will_run ? 32 : 8,
                                    .most = looks,
                                    .utmost = 2 * looks,
                                    .enough_j = planned_j * (1 + good_loss),
                                    .poor_j = planned_j * (1 + poor_loss)};
}

static struct rounding *new_rounding(const struct realiser *realiser)
{
    return erg_rounding_new(&realiser->iteration->schedule, realiser->tables, &realiser->cycles,
                            realiser->request->seed);
}

static int choose(void *context, size_t i, struct erg_error *err)
{
    struct realiser *realiser = context;
    struct wanted *wanted = &realiser->wanted.items[i];
    if (erg_interrupt_check(err) != 0)
        return -1;
    struct rounding_effort effort = choose_effort(realiser, wanted);
    struct rounding *rounding = new_rounding(realiser);
    wanted->choice = erg_xcalloc(rounding->count, sizeof *wanted->choice);
    erg_rounding_round(rounding, &wanted->continuous, wanted->deadline_s, &effort, wanted->choice);
    erg_rounding_measure(rounding, wanted->choice, &wanted->time_s, &wanted->cost_j);
    erg_rounding_free(rounding);
    erg_progress("choosing options", 1 + atomic_fetch_add(&realiser->done, 1), realiser->expected);
    return 0;
}

/*
 * Between two plans on the hull of all, one at first and the other from some moment on costs hardly
 * more than their mean: neighbours that lie well help those between them, whose continuous plan
 * lies within wide gaps between options.
 */
static int mix(void *context, size_t i, struct erg_error *err)
{
    struct realiser *realiser = context;
    const struct erg_frontier *hull = &realiser->hull;
    struct wanted *items = realiser->wanted.items, *wanted = &items[i];
    size_t slower = 0;
    while (slower < hull->count && hull->points[slower].time_s <= wanted->deadline_s)
        slower++;
    if (slower == 0 || slower == hull->count)
        return 0;
    const struct erg_point *a = &hull->points[slower - 1], *b = &hull->points[slower];
    double part = (wanted->deadline_s - a->time_s) / (b->time_s - a->time_s);
    double promised_j = a->energy_j + part * (b->energy_j - a->energy_j);
    double planned_j = realiser->iteration->plans[wanted->plan].planned_energy_j;
    if (wanted->cost_j - promised_j < worth_mixing * planned_j)
        return 0;
    if (erg_interrupt_check(err) != 0)
        return -1;
    struct rounding_effort effort = choose_effort(realiser, wanted);
    struct rounding *rounding = new_rounding(realiser);
    wanted->mixed = erg_xcalloc(rounding->count, sizeof *wanted->mixed);
    memcpy(wanted->mixed, wanted->choice, rounding->count * sizeof *wanted->mixed);
    erg_rounding_mix(rounding, &wanted->continuous, wanted->deadline_s, &effort,
                     items[a->recipe].choice, items[b->recipe].choice, wanted->mixed);
    erg_rounding_free(rounding);
    return 0;
}

static void find_hull(struct realiser *realiser)
{
    for (size_t i = 0; i < realiser->wanted.count; i++) {
        const struct wanted *wanted = &realiser->wanted.items[i];
        erg_frontier_add(&realiser->hull, wanted->time_s, wanted->cost_j, (int64_t)i);
    }
    erg_frontier_hull(&realiser->hull);
}

static void store_plans(struct realiser *realiser)
{
    const struct erg_schedule *schedule = &realiser->iteration->schedule;
    struct rounding *rounding = new_rounding(realiser);
    for (size_t i = 0; i < realiser->wanted.count; i++) {
        const struct wanted *wanted = &realiser->wanted.items[i];
        struct erg_iteration_plan *plan = &realiser->iteration->plans[wanted->plan];
        erg_rounding_options(rounding, wanted->mixed ? wanted->mixed : wanted->choice,
                             plan->option);
        erg_iteration_evaluate(schedule, realiser->request->tables, plan->option, NULL,
                               &plan->time_s, &plan->energy_j);
        assert(plan->time_s <= wanted->deadline_s * (1 + 4 * ROUNDING_MARGIN));
        plan->time_s = fmin(plan->time_s, wanted->deadline_s);
    }
    erg_rounding_free(rounding);
}

static void forget_wanted(struct realiser *realiser)
{
    for (size_t i = 0; i < realiser->wanted.count; i++) {
        struct wanted *wanted = &realiser->wanted.items[i];
        erg_timecost_plan_free(&wanted->continuous);
        free(wanted->choice);
        free(wanted->mixed);
    }
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

int erg_realiser_finish(struct realiser *realiser, struct erg_error *err)
{
    size_t count = realiser->wanted.count;
    if (count && !realiser->cycles.table_count)
        erg_rounding_cycles_init(&realiser->cycles, &realiser->iteration->schedule,
                                 realiser->tables);
    int result = erg_parallel_for(count, 0, choose, realiser, err);
    if (result == 0) {
        find_hull(realiser);
        result = erg_parallel_for(count, 0, mix, realiser, err);
        erg_frontier_release(&realiser->hull);
    }
    if (result == 0 && count)
        store_plans(realiser);
    forget_wanted(realiser);
    return result;
}

void erg_realiser_want(struct realiser *realiser, const struct timecost_plan *continuous,
                       double planned_time_s, double planned_energy_j, double deadline_s,
                       bool will_run)
{
    const struct timecost_problem *problem = realiser->problem;
    struct erg_iteration_plan *plan = add_plan(realiser);
    plan->planned_time_s = planned_time_s;
    plan->planned_energy_j = planned_energy_j;
    struct wanted wanted = {.plan = realiser->iteration->plan_count - 1,
                            .deadline_s = deadline_s,
                            .will_run = will_run,
                            .continuous = erg_timecost_plan_new(problem)};
    erg_timecost_plan_copy(&wanted.continuous, continuous, problem);
    ERG_PUSH(&realiser->wanted, items, wanted);
    size_t kept = realiser->wanted.count * erg_timecost_plan_bytes(problem);
    if (kept > MOST_KEPT && realiser->wanted.count >= LEAST_KEPT)
        erg_realiser_finish(realiser, NULL); /* if it is interrupted, so is the sweep */
}

void erg_realiser_release(struct realiser *realiser)
{
    forget_wanted(realiser);
    free(realiser->wanted.items);
    erg_rounding_cycles_release(&realiser->cycles);
}
