/*
 * Sia: all jobs' types and numbers of GPUs by one integer program.
 *
 * Source: Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster
 * scheduling", SOSP 2023, section 3.4. A job's goodput on each configuration, over the least of its
 * configurations and times the GPUs of that, is g; for a job that runs, another configuration
 * counts less by the restart factor r = (age - restarts x cost) / (age + cost). The program is
 *
 *     minimize sum over jobs and configurations of x (r g)^p + lambda (1 - sum of x), p = -1/2,
 *     lambda = 1.1, at most one configuration for each job, no more GPUs of a type than there are.
 *
 * Departures: batches are what users asked for, so goodput is throughput. Decisions are made at
 * events, at most once a minute, and every ten minutes without any. Programs of up to 60 columns
 * are solved by Cbc, unless a market (market.h) proves by its bound that it is within 0.5 % of the
 * best; larger ones by the market alone, which comes within 1 or 2 % there in a thousandth of the
 * time. Jobs keep their GPUs where they keep their configuration; a job without contiguous GPUs for
 * it takes the best of the rest.
 */
#include "cluster/policies/ergon_internal.h"
#include "cluster/policies/policies.h"
#include "cluster/policies/program.h"
#include "cluster/policies/remembered.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

#define BETWEEN_S 60.0
#define AT_MOST_S 600.0
#define FAIRNESS_POWER (-0.5)
#define LAMBDA 1.1
#define RESTART_LEAST 0.01
#define GAP 5e-3
#define EXACT_COLUMNS 60

struct sia {
    struct erg_menu *menus; /* by workload; without choices: not made yet */
    size_t workloads;
    struct erg_market market; /* a bidder for each job, an offer for each choice of its menu */
    struct erg_program program;
    double *solution;
    size_t solution_capacity;
    struct {
        int *items;
        size_t count, capacity;
    } jobs;
    struct {
        struct erg_order *items;
        size_t count, capacity;
    } orders;
    double decided_s;
};

static void *open_sia(const struct erg_scheduler *scheduler, const void *rules)
{
    (void)rules;
    struct sia *sia = erg_xcalloc(1, sizeof *sia);
    sia->workloads = scheduler->workloads_room;
    sia->menus = erg_xcalloc(sia->workloads, sizeof *sia->menus);
    erg_market_init(&sia->market, (int)scheduler->fleet->types_count);
    sia->decided_s = -INFINITY;
    return sia;
}

static void close_sia(void *state)
{
    struct sia *sia = state;
    for (size_t i = 0; i < sia->workloads; i++)
        erg_menu_release(&sia->menus[i]);
    free(sia->menus);
    erg_market_release(&sia->market);
    erg_program_release(&sia->program);
    free(sia->solution);
    free(sia->jobs.items);
    free(sia->orders.items);
    free(sia);
}

static json_t *save_sia(const void *state, const struct erg_scheduler *scheduler)
{
    const struct sia *sia = state;
    (void)scheduler;
    return erg_json_pack("{s:f,s:o}", "decided_s", sia->decided_s, "prices",
                         erg_remembered_array(sia->market.prices, (size_t)sia->market.types));
}

static void load_sia(void *state, const struct erg_scheduler *scheduler, const json_t *saved)
{
    struct sia *sia = state;
    sia->decided_s = erg_remembered_time(saved, "decided_s", scheduler, sia->decided_s);
    erg_remembered_read_array(json_object_get(saved, "prices"), sia->market.prices,
                              (size_t)sia->market.types);
}

static bool has(const struct erg_scheduler *scheduler, int id, const struct erg_menu_choice *choice)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    if (job->shape < 0)
        return false;
    const struct erg_gpu_shape *shape = &scheduler->speeds->shapes[job->shape];
    return shape->type == choice->type && erg_shape_gpus(shape) == choice->gpus;
}

/* The objective with the opposite sign: the gain of each configuration for a job. */
static void bid(struct sia *sia, const struct erg_scheduler *scheduler, int id)
{
    const struct erg_menu *menu = erg_menu_of(sia->menus, scheduler, id);
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    const struct erg_menu_choice *least = &menu->choices.items[0];
    double age_s = scheduler->now_s - job->submitted_s;
    for (size_t i = 1; i < menu->choices.count; i++)
        if (menu->choices.items[i].samples_per_s < least->samples_per_s)
            least = &menu->choices.items[i];
    erg_market_bid(&sia->market);
    for (size_t i = 0; i < menu->choices.count; i++) {
        const struct erg_menu_choice *choice = &menu->choices.items[i];
        double goodput = least->gpus * choice->samples_per_s / least->samples_per_s;
        double cost_s = erg_scheduler_cost(scheduler, id, choice->type, choice->gpus);
        if (job->shape >= 0 && !has(scheduler, id, choice))
            goodput *= fmax(RESTART_LEAST,
                            (age_s - job->reconfigurations * cost_s) / fmax(1, age_s + cost_s));
        erg_market_offer(&sia->market, &(struct erg_offer){choice->type, choice->gpus,
                                                           LAMBDA - pow(goodput, FAIRNESS_POWER)});
    }
}

/* The same program for Cbc; its assignment replaces the market's. */
static int solve_exactly(struct sia *sia, struct erg_error *err)
{
    struct erg_program *program = &sia->program;
    struct erg_market *market = &sia->market;
    erg_program_reset(program);
    for (int type = 0; type < market->types; type++)
        erg_program_row(program, 0, market->supply[type]);
    for (size_t i = 0; i < market->bidders.count; i++) {
        int row = erg_program_row(program, 0, 1);
        for (size_t o = market->bidders.items[i].first; o < market->bidders.items[i].end; o++) {
            erg_program_column(program, market->offers.items[o].value, 1);
            erg_program_entry(program, market->offers.items[o].type, market->offers.items[o].gpus);
            erg_program_entry(program, row, 1);
        }
    }
    if (sia->solution_capacity < market->offers.count) {
        sia->solution_capacity = market->offers.capacity;
        sia->solution = erg_xrealloc(sia->solution, sia->solution_capacity, sizeof *sia->solution);
    }
    if (erg_program_solve(program, true, GAP, sia->solution, err) != 0)
        return -1;
    for (size_t i = 0; i < market->bidders.count; i++) {
        struct erg_bidder *bidder = &market->bidders.items[i];
        bidder->given = -1;
        for (size_t o = bidder->first; o < bidder->end; o++)
            if (sia->solution[o] > 0.5)
                bidder->given = (long)o;
    }
    return 0;
}

static int solve(struct sia *sia, const struct erg_scheduler *scheduler, struct erg_error *err)
{
    sia->jobs.count = 0;
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next)
        ERG_PUSH(&sia->jobs, items, id);
    for (int id = scheduler->waiting.first; id >= 0; id = scheduler->jobs[id].next)
        ERG_PUSH(&sia->jobs, items, id);
    erg_market_reset(&sia->market);
    for (int type = 0; type < sia->market.types; type++)
        sia->market.supply[type] = erg_occupancy_up(scheduler->occupancy, type);
    for (size_t i = 0; i < sia->jobs.count; i++)
        bid(sia, scheduler, sia->jobs.items[i]);
    erg_market_clear(&sia->market);
    if (sia->market.offers.count > EXACT_COLUMNS ||
        erg_market_value(&sia->market) >= (1 - GAP) * erg_market_bound(&sia->market))
        return 0;
    return solve_exactly(sia, err);
}

/* Gives the best remaining GPUs to a job without GPUs. */
static bool fit_rest(struct sia *sia, struct erg_scheduler *scheduler, size_t index)
{
    int id = sia->jobs.items[index];
    const struct erg_menu *menu = erg_menu_of(sia->menus, scheduler, id);
    size_t first = sia->market.bidders.items[index].first;
    long tried = -1;
    while ((tried = erg_order_next_offer(scheduler, &sia->market, index, tried)) >= 0)
        if (erg_order_fit(scheduler, &(struct erg_order){
                                         id, menu, &menu->choices.items[tried - (long)first], 0}))
            return true;
    return false;
}

static void apply(struct sia *sia, struct erg_scheduler *scheduler)
{
    sia->orders.count = 0;
    for (size_t i = 0; i < sia->jobs.count; i++) {
        int id = sia->jobs.items[i];
        const struct erg_bidder *bidder = &sia->market.bidders.items[i];
        const struct erg_menu *menu = erg_menu_of(sia->menus, scheduler, id);
        if (bidder->given < 0) {
            if (scheduler->jobs[id].state == ERG_JOB_RUNNING)
                erg_scheduler_suspend(scheduler, id);
            continue;
        }
        const struct erg_menu_choice *choice =
            &menu->choices.items[bidder->given - (long)bidder->first];
        ERG_PUSH(&sia->orders, items,
                 (struct erg_order){id, menu, has(scheduler, id, choice) ? NULL : choice, 0});
    }
    erg_orders_place(scheduler, sia->orders.items, sia->orders.count);
    for (size_t i = 0; i < sia->jobs.count; i++) {
        const struct erg_cluster_job *job = &scheduler->jobs[sia->jobs.items[i]];
        if (job->placement.count == 0 && !fit_rest(sia, scheduler, i) &&
            job->state == ERG_JOB_RUNNING)
            erg_scheduler_suspend(scheduler, job->id);
    }
}

static int decide_sia(void *state, struct erg_scheduler *scheduler,
                      const struct erg_occasion *occasion, struct erg_error *err)
{
    struct sia *sia = state;
    (void)occasion;
    if (scheduler->waiting.count + scheduler->running.count == 0)
        return 0;
    if (scheduler->now_s < sia->decided_s + BETWEEN_S) {
        erg_scheduler_wake(scheduler, sia->decided_s + BETWEEN_S);
        return 0;
    }
    if (solve(sia, scheduler, err) != 0)
        return -1;
    apply(sia, scheduler);
    sia->decided_s = scheduler->now_s;
    erg_scheduler_wake(scheduler, scheduler->now_s + AT_MOST_S);
    return 0;
}

const struct erg_policy erg_policy_sia = {
    .name = "sia",
    .summary = "types and numbers of GPUs of all jobs by an integer program",
    .events = ERG_EVENTS_OF_JOBS,
    .open = open_sia,
    .decide = decide_sia,
    .close = close_sia,
    .save = save_sia,
    .load = load_sia,
};
