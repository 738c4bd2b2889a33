/*
 * ergon's own policy: a market for GPUs in which jobs bid the present worth of their progress.
 *
 * Every decision maximises the sum over jobs of
 *
 *     weight x speed x thrift x keep
 *
 * subject to the GPUs of each type and to the power cap, over all (type, number of GPUs, locality,
 * operating point) on which a job can run, and over no GPUs.
 *
 * speed: in GPU equivalents, so that samples of different models can be added: a job's samples/s
 *   divided by the best of one GPU for that workload, the mean over the types on which it runs.
 * weight: rank^0.7, where the job with most work left has rank 1. Every job with more work left
 *   waits for this one, so an hour of its GPUs is saved as many times as its rank. If all jobs had
 *   speeds that are powers p of their GPUs, weights of rank^p would give the least mean time to
 *   completion for p near 1 (heSRPT, Berg, Vesilo and Harchol-Balter, 2020); the smaller exponent
 *   gives up a little of it for throughput. Weights by 1/work instead would give small jobs GPUs
 *   that hardly speed them up. Weights also rise with
 *   - being late: they double for each two lengths of long jobs by which a job has been here longer
 *     than its finished work takes at its fastest. Long jobs are those with a quarter of the
 *     remaining work. The weight has no bound, so each job runs in the end, regardless of arrivals.
 *     It also doubles for each ten lengths of the job itself: without that rule, with jobs for
 *     three times the cluster, short ones waited up to 25 times as long as in a share of their own;
 *     with it, 3.6 times at most.
 *   - being critical: a job that at its fastest needs longer than all GPUs need for all work ends
 *     last in any case, and the rest of the cluster idles in the end for as long as it is delayed.
 *     It weighs as much as the job with the least work, less where it takes much of the cluster
 *     itself; jobs that are nearly as long weigh less, the shorter they are. Idle GPUs count as
 *     energy of its samples, so slower clocks rarely save any. On Philly's trace run to its end
 *     that is 30 % more throughput and 8 % less energy for 2 % more mean completion.
 *   - a deadline that can still be met and is near: up to twice.
 *   - a tenant's share: by the square root of a tenant's due share divided by its recent share.
 * thrift: (least energy of a sample / energy of a sample)^0.1. It hardly affects the assignment of
 *   GPUs. The operating point of each offer maximises speed x (the same ratio)^0.3, which lowers
 *   clocks where most of an iteration is waiting; with a tariff, the exponent is multiplied by the
 *   present cost and emissions of energy relative to their mean. Then,
 *   - where all GPUs are taken, energy has a price: the power of GPUs beyond idle costs 0.31 of the
 *     GPUs' worth at the market's prices. A slower job then delays others, too, so the jobs with
 *     the least weight save energy, and jobs for which many others wait keep their clocks. (A
 *     common exponent that saves as much costs more than twice as much mean completion.) Long jobs
 *     keep their clocks, since the last jobs to end are among them. A clock changes only for more
 *     than 2 % of a job's worth: prices fluctuate by as much, and without this rule clocks change
 *     three to eight times as often;
 *   - as GPUs get free, the 0.3 rises to 5, since slower jobs then delay only themselves. To limit
 *     that delay, a job's time costs its part of five times the cluster's idle power: with many
 *     jobs the large ones slow down, and a few jobs on an empty cluster hardly do. The thrifty
 *     variant raises the 0.3 only to 2, but charges time only to the longest jobs.
 * keep: the share of an hour, or of the job's remaining time if that is less, that remains after a
 *   restart; for a job without GPUs the restart, which it needs in any case, is part of the
 *   remaining time. A job that stays gets a bonus of three times the loss, since a job that has to
 *   go comes back and displaces another one. So GPUs change hands only for more than the cost, jobs
 *   that are about to end keep theirs, and jobs that lost theirs shortly before their end are not
 *   worth least of all.
 *
 * The market (market.h) finds prices of GPUs at which demand meets supply. Under a power cap, power
 * has a price of its own, found by bisection, if the price of energy does not keep the cap. The
 * market's result is placed with large jobs first, and small ones move where free GPUs are
 * scattered. GPUs that were not sold or could not be placed go to waiting jobs by value, so that no
 * usable GPU idles; if the jobs then draw more than the cap, all clocks are lowered as under any
 * policy.
 *
 * Where nodes are switched off, this happens as soon as their idle energy equals the energy of
 * waking (linger()), and other nodes may use their power under a cap. Time still costs its part of
 * the idle power of all GPUs, otherwise jobs would end later than under policies that run at the
 * fastest clocks. Offers exclude the wait for nodes to wake: including it, up to the job's end or
 * for an hour, improved neither mean times nor energy, since the fastest GPUs are mostly worth the
 * wait.
 *
 * Decisions are made at events, at most once in 0.2 s per job, which is soon enough for jobs that
 * run for hours, and every half an hour without any.
 */
#include "cluster/policies/ergon_internal.h"
#include "cluster/policies/policies.h"
#include "cluster/policies/remembered.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

#define BETWEEN_S_PER_JOB 0.2
#define BETWEEN_S 60.0   /* decisions, at most, */
#define AT_MOST_S 1800.0 /* and where nothing happens */
#define CLOCK_THRIFT 0.3
#define FREE_SHARE 0.3   /* share of all GPUs that is enough for new jobs */
#define TAKEN_SHARE 0.01 /* of all GPUs: with more free ones, no job waits for a slower one */
#define ENERGY_SHARE 0.31

static void *open_ergon(const struct erg_scheduler *scheduler, const void *rules)
{
    struct ergon *ergon = erg_xcalloc(1, sizeof *ergon);
    ergon->workloads = scheduler->workloads_room;
    ergon->menus = erg_xcalloc(ergon->workloads, sizeof *ergon->menus);
    erg_market_init(&ergon->market, (int)scheduler->fleet->types_count);
    ergon->tenant_used_s = erg_xcalloc(scheduler->tenants_room + 1, sizeof *ergon->tenant_used_s);
    ergon->decided_s = -INFINITY;
    ergon->fleet_idle_w = erg_fleet_idle_power(scheduler->fleet);
    ergon->taste = rules;
    return ergon;
}

static void close_ergon(void *state)
{
    struct ergon *ergon = state;
    for (size_t i = 0; i < ergon->workloads; i++)
        erg_menu_release(&ergon->menus[i]);
    free(ergon->menus);
    erg_market_release(&ergon->market);
    free(ergon->bidders.items);
    free(ergon->bids.items);
    free(ergon->orders.items);
    free(ergon->rank_weights.items);
    free(ergon->tenant_used_s);
    free(ergon);
}

/* A trace without tenants has one of no name. */
static const char *tenant_name(const struct erg_scheduler *scheduler, size_t tenant)
{
    const char *name = scheduler->trace->tenants[tenant];
    return name ? name : "";
}

/* Prices and unsold GPUs, from which the next decision's market starts; and the use of tenants. */
static json_t *save_ergon(const void *state, const struct erg_scheduler *scheduler)
{
    const struct ergon *ergon = state;
    const struct erg_market *market = &ergon->market;
    json_t *tenants = json_object(), *left = json_array(), *supply = json_array();
    for (size_t i = 0; i < scheduler->trace->tenants_count; i++)
        json_object_set_new(tenants, tenant_name(scheduler, i),
                            erg_json_number(ergon->tenant_used_s[i]));
    for (int type = 0; type < market->types; type++) {
        json_array_append_new(left, json_integer(market->left[type]));
        json_array_append_new(supply, json_integer(market->supply[type]));
    }
    return erg_json_pack("{s:f,s:f,s:f,s:o,s:o,s:o,s:o}", "decided_s", ergon->decided_s,
                         "power_price", ergon->power_price, "rent_per_w", ergon->rent_per_w,
                         "prices", erg_remembered_array(market->prices, (size_t)market->types),
                         "left", left, "supply", supply, "tenant_used_s", tenants);
}

static void load_ergon(void *state, const struct erg_scheduler *scheduler, const json_t *saved)
{
    struct ergon *ergon = state;
    struct erg_market *market = &ergon->market;
    const json_t *left = json_object_get(saved, "left");
    const json_t *supply = json_object_get(saved, "supply");
    const json_t *tenants = json_object_get(saved, "tenant_used_s");
    ergon->decided_s = erg_remembered_time(saved, "decided_s", scheduler, ergon->decided_s);
    ergon->power_price = fmax(0, erg_json_number_or(saved, "power_price", 0));
    ergon->rent_per_w = fmax(0, erg_json_number_or(saved, "rent_per_w", 0));
    erg_remembered_read_array(json_object_get(saved, "prices"), market->prices,
                              (size_t)market->types);
    for (int type = 0; type < market->types; type++) {
        long most = scheduler->fleet->gpus;
        long had = (long)json_integer_value(json_array_get(supply, (size_t)type));
        long kept = (long)json_integer_value(json_array_get(left, (size_t)type));
        if (had < 0 || had > most || kept < 0 || kept > had)
            continue;
        market->supply[type] = (int)had;
        market->left[type] = (int)kept;
    }
    for (size_t i = 0; i < scheduler->trace->tenants_count; i++)
        ergon->tenant_used_s[i] =
            fmax(0, erg_json_number_or(tenants, tenant_name(scheduler, i), 0));
}

/* The share of all GPUs that no job took at the last clearing. */
static double free_share(const struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    double free = 0, all = 0;
    for (int type = 0; type < ergon->market.types; type++) {
        free += ergon->market.left[type];
        all += ergon->market.supply[type];
    }
    if (all == 0) { /* before the first clearing: as if all waiting jobs got their request */
        all = free = scheduler->fleet->gpus;
        for (int id = scheduler->waiting.first; id >= 0; id = scheduler->jobs[id].next)
            free -= scheduler->jobs[id].request->gpus;
    }
    return free / all;
}

/* The present cost and emissions of energy relative to their mean; 1 without a tariff. */
static double relative_cost(const struct erg_scheduler *scheduler)
{
    return scheduler->tariff ? erg_tariff_relative(scheduler->tariff, scheduler->now_s) : 1;
}

/*
 * How much speed to give up for energy by slower clocks. Energy counts in proportion to its present
 * cost and emissions. A slower job delays itself and, if no GPUs are free, also jobs that could
 * have had its GPUs: so clocks are lowered more if some are free.
 */
static double clock_thrift(const struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    enum { STEPS = 16 }; /* per unit: points are not picked again for a smaller change */
    double slack = fmax(0, fmin(1, free_share(ergon, scheduler) / FREE_SHARE));
    double thrift = CLOCK_THRIFT + slack * (ergon->taste->thrift_free - CLOCK_THRIFT);
    return rint(STEPS * thrift * relative_cost(scheduler)) / STEPS;
}

/* Value of a watt for its energy: where all GPUs are taken, this share of their worth. */
static double energy_price(const struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    double taken = 1 - free_share(ergon, scheduler) / TAKEN_SHARE;
    return ENERGY_SHARE * fmax(0, fmin(1, taken)) * relative_cost(scheduler) * ergon->rent_per_w;
}

/* Power for which a job's time counts: less if energy is expensive, as the price of time stays the
 * same. */
static double time_power(const struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    enum { STEPS = 4 }; /* per octave, as above */
    int jobs = scheduler->waiting.count + scheduler->running.count;
    double power_w = ergon->taste->idle_share * ergon->fleet_idle_w / jobs;
    power_w /= fmax(1, relative_cost(scheduler));
    return power_w > 0 ? exp2(rint(STEPS * log2(power_w)) / STEPS) : 0;
}

/* Carries out the market's decisions where GPUs are contiguous. */
static void apply(struct ergon *ergon, struct erg_scheduler *scheduler)
{
    ergon->orders.count = 0;
    for (size_t i = ergon->bidders.count; i-- > 0;) { /* the largest weights first */
        int id = ergon->bidders.items[i].job;
        long given = ergon->market.bidders.items[i].given;
        if (given >= 0) {
            const struct ergon_bid *bid = &ergon->bids.items[given];
            const struct erg_menu *menu = erg_menu_of(ergon->menus, scheduler, id);
            ERG_PUSH(&ergon->orders, items,
                     (struct erg_order){id, menu,
                                        bid->stays ? NULL : &menu->choices.items[bid->choice],
                                        bid->point});
        } else if (scheduler->jobs[id].state == ERG_JOB_RUNNING) {
            erg_scheduler_suspend(scheduler, id);
        }
    }
    erg_orders_place(scheduler, ergon->orders.items, ergon->orders.count);
}

/* Gives a job without GPUs the best free ones. */
static bool fit_somewhere(struct ergon *ergon, struct erg_scheduler *scheduler, size_t index)
{
    int id = ergon->bidders.items[index].job;
    const struct erg_menu *menu = erg_menu_of(ergon->menus, scheduler, id);
    long tried = -1;
    while ((tried = erg_order_next_offer(scheduler, &ergon->market, index, tried)) >= 0) {
        const struct ergon_bid *bid = &ergon->bids.items[tried];
        if (bid->choice < 0)
            continue;
        struct erg_order order = {id, menu, &menu->choices.items[bid->choice], bid->point};
        if (erg_order_fit(scheduler, &order))
            return true;
    }
    return false;
}

/* Places jobs that could not be placed and jobs that wait on GPUs that are still free. */
static void use_rest(struct ergon *ergon, struct erg_scheduler *scheduler)
{
    int free = 0;
    for (int type = 0; type < ergon->market.types; type++)
        free += scheduler->occupancy->free_gpus[type];
    for (size_t i = ergon->bidders.count; i-- > 0;) {
        const struct erg_cluster_job *job = &scheduler->jobs[ergon->bidders.items[i].job];
        if (job->placement.count > 0)
            continue;
        if (free > 0 && fit_somewhere(ergon, scheduler, i))
            free -= erg_placement_gpus(&job->placement);
        else if (job->state == ERG_JOB_RUNNING)
            erg_scheduler_suspend(scheduler, job->id);
    }
}

/* Below a cap that no job keeps at any operating point, the jobs with the largest weights run all
 * the same, on GPUs with the least power: the simulator, or a real cluster's power limits, lower
 * clocks further. */
static void run_one(struct ergon *ergon, struct erg_scheduler *scheduler)
{
    for (size_t i = ergon->bidders.count; i-- > 0 && scheduler->running.count == 0;) {
        const struct erg_bidder *offers = &ergon->market.bidders.items[i];
        const struct erg_menu *menu =
            erg_menu_of(ergon->menus, scheduler, ergon->bidders.items[i].job);
        const struct ergon_bid *least = NULL;
        for (size_t o = offers->first; o < offers->end; o++) {
            const struct ergon_bid *bid = &ergon->bids.items[o];
            if (bid->choice >= 0 && (!least || bid->extra_w < least->extra_w))
                least = bid;
        }
        if (least)
            erg_order_fit(scheduler,
                          &(struct erg_order){ergon->bidders.items[i].job, menu,
                                              &menu->choices.items[least->choice], least->point});
    }
}

static int decide_ergon(void *state, struct erg_scheduler *scheduler,
                        const struct erg_occasion *occasion, struct erg_error *err)
{
    struct ergon *ergon = state;
    (void)err;
    int jobs = scheduler->waiting.count + scheduler->running.count;
    if (jobs == 0)
        return 0;
    double next_s = ergon->decided_s + fmin(BETWEEN_S, jobs * BETWEEN_S_PER_JOB);
    if (scheduler->now_s < next_s && !(occasion->events & ERG_EVENT_TARIFF)) {
        erg_scheduler_wake(scheduler, next_s);
        return 0;
    }
    erg_bidders_keep_accounts(ergon, scheduler);
    ergon->clocking.thrift = clock_thrift(ergon, scheduler);
    ergon->energy_price = energy_price(ergon, scheduler);
    ergon->clocking.rest_w = time_power(ergon, scheduler);
    erg_bidders_weigh(ergon, scheduler);
    for (int type = 0; type < ergon->market.types; type++)
        ergon->market.supply[type] = erg_occupancy_up(scheduler->occupancy, type);
    erg_bids_clear(ergon, scheduler);
    apply(ergon, scheduler);
    use_rest(ergon, scheduler);
    run_one(ergon, scheduler);
    bool lasts = clock_thrift(ergon, scheduler) == ergon->clocking.thrift;
    erg_scheduler_wake(scheduler, scheduler->now_s + (lasts ? AT_MOST_S : BETWEEN_S));
    return 0;
}

/*
 * The ski rental rule: renting until the rent reaches the price costs at most twice the optimum
 * (Karlin, Manasse, Rudolph and Sleator, 1988): a node stays on until it has drawn as much as
 * waking it does.
 */
static double linger(const struct erg_scheduler *scheduler)
{
    return scheduler->fleet->power_saving.wake_s;
}

const struct erg_policy erg_policy_ergon = {
    .name = "ergon",
    .summary = "a market for GPUs: type, number, locality and operating point of all jobs together",
    .events = ERG_EVENTS_OF_JOBS | ERG_EVENT_TARIFF,
    .rules = &(const struct ergon_taste){.thrift_free = 5, .idle_share = 5, .critical_power = 1},
    .open = open_ergon,
    .decide = decide_ergon,
    .close = close_ergon,
    .save = save_ergon,
    .load = load_ergon,
    .linger = linger,
};

const struct erg_policy erg_policy_ergon_thrifty = {
    .name = "ergon-thrifty",
    .summary = "the same, with still slower clocks where GPUs are free",
    .events = ERG_EVENTS_OF_JOBS | ERG_EVENT_TARIFF,
    .rules = &(const struct ergon_taste){.thrift_free = 2, .idle_share = 0, .critical_power = 3},
    .open = open_ergon,
    .decide = decide_ergon,
    .close = close_ergon,
    .save = save_ergon,
    .load = load_ergon,
    .linger = linger,
};
