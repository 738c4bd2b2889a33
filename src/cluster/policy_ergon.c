/*
 * ergon's own policy: a market for GPUs in which jobs bid with what their progress is worth now.
 *
 * What is maximized, at every decision, is the sum over jobs of
 *
 *     weight x speed x thrift x keep
 *
 * subject to the GPUs of each type and to the power cap, over all (type, number of GPUs, locality,
 * operating point) that a job can run on, and nothing at all.
 *
 * speed: in GPU equivalents, so that samples of different models add: a job's samples/s over what a
 *   GPU gives that workload at best, in the mean over the types that it runs on.
 * weight: rank^1/2, where the job with most work left has rank 1. Every job that has more work left
 *   waits for this one's, so an hour of its GPUs, saved, is saved as often as its rank says. If all
 *   jobs had speeds that are powers p of their GPUs, weights of rank^p would give the least mean
 *   time to completion for p near 1 (heSRPT, Berg, Vesilo and Harchol-Balter, 2020); the smaller
 *   exponent gives up a little of it for throughput. Weights by 1/work instead would give small
 *   jobs GPUs that hardly speed them up. Weights also rise with
 *   - waiting: they double for each AGEING_S that a job has waited, and fall again ten times as
 *     fast while it runs. Without bound, so that whatever else arrives, each job runs in the end.
 *   - a deadline that can still be met and is near: up to twice.
 *   - a tenant's share: by the square root of what a tenant is owed over what it had lately.
 * thrift: (least energy of a sample / energy of a sample)^0.3. It also chooses the operating point.
 * keep: the share of an hour, or of what the job has left if that is less, that remains after a
 *   restart. Staying counts as more than one hour of an hour by as much. So GPUs do not change
 * hands for less than it costs, and rarely those of jobs that are about to end.
 *
 * The market (market.h) finds prices of GPUs at which demand meets supply. Below a power cap, power
 * has a price too, found by bisection: high weights keep their clocks, others slow down. What the
 * market gave is placed large jobs first, moving small ones where GPUs are scattered; what cannot
 * be placed, and what is left, goes to waiting jobs by value, so that no GPU idles that a job could
 * use.
 *
 * Decisions are made at events, at most once a minute, and every half an hour without any.
 */
#include "cluster/ergon_internal.h"
#include "cluster/policies.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

#define RANK_POWER 0.5
#define AGEING_S (12 * 3600.0)
#define SERVICE_PER_WAITING 0.1 /* seconds of running that make up for one of waiting */
#define HORIZON_S 3600.0
#define BETWEEN_S 60.0   /* decisions, at least */
#define AT_MOST_S 1800.0 /* and at most */
#define TENANT_MEMORY_S (24 * 3600.0)
#define TENANT_WEIGHT_MOST 4.0

/* A job in this decision. */
struct bidder {
    int job;
    double work; /* left, in GPU-seconds */
    double weight;
    double remaining; /* iterations */
};

/* What stands behind an offer. */
struct bid {
    int choice; /* of the menu; -1: GPUs that the job has, though fewer of them were faster */
    bool stays; /* on the GPUs that it has */
    int point;
    double extra_w; /* beyond what its GPUs draw idle */
};

struct ergon {
    struct ergon_menu *menus; /* by workload; without choices: not made yet */
    size_t workloads;
    struct erg_market market; /* bidders in the order of `bidders`, offers in that of `bids` */
    struct {
        struct bidder *items;
        size_t count, capacity;
    } bidders;
    struct {
        struct bid *items;
        size_t count, capacity;
    } bids;
    struct ergon_order *orders;
    size_t orders_capacity;
    double *credit_s;      /* by job: waiting that running has not made up for */
    double *tenant_used_s; /* by tenant: GPU-seconds, forgotten at the pace of a day */
    double decided_s;      /* last; before the first decision -INFINITY */
    double power_price;    /* value of a watt */
};

static int open_ergon(void **state, const struct erg_scheduler *scheduler, struct erg_error *err)
{
    (void)err;
    struct ergon *ergon = erg_xcalloc(1, sizeof *ergon);
    ergon->workloads = scheduler->trace->workloads_count;
    ergon->menus = erg_xcalloc(ergon->workloads, sizeof *ergon->menus);
    erg_market_init(&ergon->market, (int)scheduler->fleet->types_count);
    ergon->credit_s = erg_xcalloc(scheduler->jobs_count, sizeof *ergon->credit_s);
    ergon->tenant_used_s =
        erg_xcalloc(scheduler->trace->tenants_count + 1, sizeof *ergon->tenant_used_s);
    ergon->decided_s = -INFINITY;
    *state = ergon;
    return 0;
}

static void close_ergon(void *state)
{
    struct ergon *ergon = state;
    for (size_t i = 0; i < ergon->workloads; i++)
        ergon_menu_release(&ergon->menus[i]);
    free(ergon->menus);
    erg_market_release(&ergon->market);
    free(ergon->bidders.items);
    free(ergon->bids.items);
    free(ergon->orders);
    free(ergon->credit_s);
    free(ergon->tenant_used_s);
    free(ergon);
}

static const struct ergon_menu *menu_of(struct ergon *ergon, const struct erg_scheduler *scheduler,
                                        int job)
{
    int workload = scheduler->jobs[job].request->workload;
    struct ergon_menu *menu = &ergon->menus[workload];
    if (menu->choices.count == 0)
        ergon_menu_make(menu, scheduler, workload);
    return menu;
}

/* What happened to waiting, running and tenants' shares since the last decision. */
static void keep_accounts(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    double passed_s = isinf(ergon->decided_s) ? 0 : scheduler->now_s - ergon->decided_s;
    for (size_t tenant = 0; tenant < scheduler->trace->tenants_count; tenant++)
        ergon->tenant_used_s[tenant] *= exp(-passed_s / TENANT_MEMORY_S);
    for (int id = scheduler->waiting.first; id >= 0; id = scheduler->jobs[id].next)
        ergon->credit_s[id] += fmin(passed_s, scheduler->now_s - scheduler->jobs[id].submitted_s);
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        ergon->credit_s[id] = fmax(0, ergon->credit_s[id] - passed_s / SERVICE_PER_WAITING);
        ergon->tenant_used_s[job->request->tenant] +=
            passed_s * erg_placement_gpus(&job->placement);
    }
    ergon->decided_s = scheduler->now_s;
}

static double urgency(const struct erg_scheduler *scheduler, const struct bidder *bidder,
                      const struct ergon_menu *menu)
{
    double deadline_s = scheduler->jobs[bidder->job].deadline_s, fastest_s = INFINITY;
    if (isinf(deadline_s) || deadline_s < scheduler->now_s)
        return 1;
    for (size_t i = 0; i < menu->choices.count; i++)
        fastest_s = fmin(fastest_s, menu->choices.items[i].iteration_s);
    double needed_s = bidder->remaining * fastest_s;
    double slack_s = deadline_s - scheduler->now_s - needed_s;
    return slack_s < 0 ? 1 : 1 + exp(-slack_s / (needed_s + HORIZON_S));
}

/* How much more a tenant's jobs weigh; 1 for all where there is one. */
static double share_weight(const struct ergon *ergon, const struct erg_scheduler *scheduler,
                           int tenant)
{
    size_t tenants = scheduler->trace->tenants_count;
    double total_s = 0;
    for (size_t i = 0; i < tenants; i++)
        total_s += ergon->tenant_used_s[i];
    if (tenants < 2 || total_s <= 0)
        return 1;
    double owed = total_s / (double)tenants;
    double weight = sqrt(owed / fmax(ergon->tenant_used_s[tenant], 1e-3 * owed));
    return fmax(1 / TENANT_WEIGHT_MOST, fmin(TENANT_WEIGHT_MOST, weight));
}

/* Most work first. */
static int compare_bidders(const void *a, const void *b)
{
    const struct bidder *x = a, *y = b;
    if (x->work != y->work)
        return x->work > y->work ? -1 : 1;
    return x->job - y->job;
}

static void list_bidders(struct ergon *ergon, const struct erg_scheduler *scheduler, int first)
{
    for (int id = first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_trace_job *request = scheduler->jobs[id].request;
        double remaining = erg_scheduler_remaining(scheduler, id);
        double samples = remaining * (double)scheduler->trace->workloads[request->workload].batch;
        ERG_PUSH(&ergon->bidders, items,
                 (struct bidder){.job = id,
                                 .remaining = remaining,
                                 .work = samples / menu_of(ergon, scheduler, id)->unit});
    }
}

static void weigh(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    ergon->bidders.count = 0;
    list_bidders(ergon, scheduler, scheduler->running.first);
    list_bidders(ergon, scheduler, scheduler->waiting.first);
    qsort(ergon->bidders.items, ergon->bidders.count, sizeof *ergon->bidders.items,
          compare_bidders);
    double *shares = erg_xcalloc(scheduler->trace->tenants_count + 1, sizeof *shares);
    for (size_t i = 0; i < scheduler->trace->tenants_count; i++)
        shares[i] = share_weight(ergon, scheduler, (int)i);
    for (size_t i = 0; i < ergon->bidders.count; i++) {
        struct bidder *bidder = &ergon->bidders.items[i];
        const struct ergon_menu *menu = menu_of(ergon, scheduler, bidder->job);
        double age = fmin(ergon->credit_s[bidder->job] / AGEING_S, 500);
        bidder->weight = pow((double)i + 1, RANK_POWER) * exp2(age) *
                         urgency(scheduler, bidder, menu) *
                         shares[scheduler->jobs[bidder->job].request->tenant];
    }
    free(shares);
}

/* The operating point that is worth most, less what its power costs. */
static double pick_point(const struct ergon *ergon, const struct bidder *bidder,
                         const struct ergon_menu *menu, const struct erg_speed *speed, int gpus,
                         double idle_w, double keep, int *point)
{
    double best = -INFINITY;
    for (int p = 0; p < speed->points_count; p++) {
        double merit = ergon_merit(menu, speed->samples_per_s, gpus, &speed->points[p]);
        double value = bidder->weight * keep * merit -
                       ergon->power_price * gpus * (speed->points[p].power_w - idle_w);
        if (value > best) {
            best = value;
            *point = p;
        }
    }
    return best;
}

/* Offers a choice on a shape, or to stay on that which the job has. */
static void offer(struct ergon *ergon, const struct erg_scheduler *scheduler,
                  const struct bidder *bidder, const struct ergon_menu *menu, int index, int shape,
                  double keep)
{
    const struct erg_speed *speed =
        erg_scheduler_speed(scheduler, bidder->job, ERG_PLANS_ANY, shape);
    bool stays = shape == scheduler->jobs[bidder->job].shape;
    int type = scheduler->speeds->shapes[shape].type, point = 0;
    int gpus = erg_shape_gpus(&scheduler->speeds->shapes[shape]);
    double idle_w = scheduler->fleet->types[type].idle_power_w, value;
    if (!stays && ergon->power_price == 0) {
        point = menu->choices.items[index].point;
        value = bidder->weight * keep * menu->choices.items[index].merit;
    } else {
        value = pick_point(ergon, bidder, menu, speed, gpus, idle_w, keep, &point);
    }
    ERG_PUSH(&ergon->bids, items,
             (struct bid){index, stays, point, gpus * (speed->points[point].power_w - idle_w)});
    erg_market_offer(&ergon->market, &(struct erg_offer){type, gpus, value});
}

static void bid(struct ergon *ergon, const struct erg_scheduler *scheduler,
                const struct bidder *bidder)
{
    const struct erg_cluster_job *job = &scheduler->jobs[bidder->job];
    const struct ergon_menu *menu = menu_of(ergon, scheduler, bidder->job);
    const struct erg_gpu_shape *now =
        job->shape >= 0 ? &scheduler->speeds->shapes[job->shape] : NULL;
    int same = -1; /* the choice of as many GPUs of the same type as it has */
    erg_market_bid(&ergon->market);
    for (size_t i = 0; i < menu->choices.count; i++) {
        const struct ergon_choice *choice = &menu->choices.items[i];
        int shape = menu->localities.items[choice->first_locality];
        if (now && choice->type == now->type && choice->gpus == erg_shape_gpus(now))
            same = (int)i;
        if (shape == job->shape)
            continue;
        /* A job never has so little left that GPUs are worth nothing to it. */
        double keep_s = fmax(1, fmin(HORIZON_S, bidder->remaining * choice->iteration_s));
        double cost_s = erg_scheduler_cost(scheduler, choice->gpus);
        offer(ergon, scheduler, bidder, menu, (int)i, shape, keep_s / (keep_s + cost_s));
    }
    if (now) {
        double cost_s = erg_scheduler_cost(scheduler, erg_shape_gpus(now));
        offer(ergon, scheduler, bidder, menu, same, job->shape, 1 + cost_s / HORIZON_S);
    }
}

/* One clearing at the present price of power. Returns the watts beyond those of idle GPUs. */
static double clear_market(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    struct erg_market *market = &ergon->market;
    double extra_w = 0;
    erg_market_reset(market);
    ergon->bids.count = 0;
    for (size_t i = 0; i < ergon->bidders.count; i++)
        bid(ergon, scheduler, &ergon->bidders.items[i]);
    erg_market_clear(market);
    for (size_t i = 0; i < market->bidders.count; i++)
        if (market->bidders.items[i].given >= 0)
            extra_w += ergon->bids.items[market->bidders.items[i].given].extra_w;
    return extra_w;
}

/* Watts that jobs may draw beyond what all GPUs draw idle. */
static double allowed_power(const struct erg_scheduler *scheduler)
{
    double allowed_w = scheduler->power_cap_w;
    for (unsigned t = 0; t < scheduler->fleet->types_count; t++) {
        const struct erg_gpu_type *type = &scheduler->fleet->types[t];
        allowed_w -= type->nodes * type->gpus_per_node * type->idle_power_w;
    }
    return allowed_w;
}

/* The lowest price of power, to a few percent, at which the cap is kept. */
static void clear_under_cap(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    enum { STEPS = 12 };
    double allowed_w = allowed_power(scheduler), low = 0, high = ergon->power_price;
    ergon->power_price = 0;
    if (clear_market(ergon, scheduler) <= allowed_w)
        return;
    if (high == 0)
        high = 1e-6;
    for (ergon->power_price = high; clear_market(ergon, scheduler) > allowed_w;
         ergon->power_price *= 2)
        low = ergon->power_price;
    high = ergon->power_price;
    for (int step = 0; step < STEPS && high > 1.02 * low; step++) {
        ergon->power_price = low > 0 ? sqrt(low * high) : high / 4;
        if (clear_market(ergon, scheduler) > allowed_w)
            low = ergon->power_price;
        else
            high = ergon->power_price;
    }
    /* Prices of GPUs depend a little on those before. */
    for (ergon->power_price = high; clear_market(ergon, scheduler) > allowed_w;)
        ergon->power_price *= 1.05;
}

static void count_supply(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    int *supply = ergon->market.supply;
    for (int type = 0; type < ergon->market.types; type++)
        supply[type] = scheduler->occupancy->free_gpus[type];
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        supply[scheduler->speeds->shapes[job->shape].type] += erg_placement_gpus(&job->placement);
    }
}

/* Does what the market decided, as far as GPUs lie together. */
static void apply(struct ergon *ergon, struct erg_scheduler *scheduler)
{
    size_t orders = 0;
    if (ergon->orders_capacity < ergon->bidders.count) {
        ergon->orders_capacity = ergon->bidders.capacity;
        ergon->orders = erg_xrealloc(ergon->orders, ergon->orders_capacity, sizeof *ergon->orders);
    }
    for (size_t i = ergon->bidders.count; i-- > 0;) { /* the largest weights first */
        int id = ergon->bidders.items[i].job;
        long given = ergon->market.bidders.items[i].given;
        if (given >= 0) {
            const struct bid *bid = &ergon->bids.items[given];
            const struct ergon_menu *menu = menu_of(ergon, scheduler, id);
            ergon->orders[orders++] = (struct ergon_order){
                id, menu, bid->stays ? NULL : &menu->choices.items[bid->choice], bid->point};
        } else if (scheduler->jobs[id].state == ERG_JOB_RUNNING) {
            erg_scheduler_suspend(scheduler, id);
        }
    }
    ergon_place(scheduler, ergon->orders, orders);
}

/* Gives a job without GPUs the best of what is free, within the power left. */
static bool fit_somewhere(struct ergon *ergon, struct erg_scheduler *scheduler, size_t index,
                          double *left_w)
{
    const struct erg_bidder *offers = &ergon->market.bidders.items[index];
    const struct erg_offer *all = ergon->market.offers.items;
    int id = ergon->bidders.items[index].job;
    const struct ergon_menu *menu = menu_of(ergon, scheduler, id);
    for (long tried = -1;;) { /* by falling value, then in the order of offers */
        long best = -1;
        for (long o = (long)offers->first; o < (long)offers->end; o++) {
            bool comes_later = tried < 0 || all[o].value < all[tried].value ||
                               (all[o].value == all[tried].value && o > tried);
            if (comes_later && (best < 0 || all[o].value > all[best].value) &&
                ergon->bids.items[o].choice >= 0 && all[o].value > 0 &&
                all[o].gpus <= scheduler->occupancy->free_gpus[all[o].type] &&
                ergon->bids.items[o].extra_w <= *left_w)
                best = o;
        }
        if (best < 0)
            return false;
        const struct bid *bid = &ergon->bids.items[best];
        struct ergon_order order = {id, menu, &menu->choices.items[bid->choice], bid->point};
        if (ergon_fit(scheduler, &order)) {
            *left_w -= bid->extra_w;
            return true;
        }
        tried = best;
    }
}

static double drawn_power(const struct erg_scheduler *scheduler)
{
    double extra_w = 0;
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        if (job->shape < 0)
            continue; /* lifted */
        const struct erg_speed *speed =
            erg_scheduler_speed(scheduler, id, ERG_PLANS_ANY, job->shape);
        int type = scheduler->speeds->shapes[job->shape].type;
        extra_w += erg_placement_gpus(&job->placement) *
                   (speed->points[job->point].power_w - scheduler->fleet->types[type].idle_power_w);
    }
    return extra_w;
}

/* What could not be placed, and what waits, on GPUs that are still free. */
static void use_rest(struct ergon *ergon, struct erg_scheduler *scheduler)
{
    int free = 0;
    for (int type = 0; type < ergon->market.types; type++)
        free += scheduler->occupancy->free_gpus[type];
    double left_w = isinf(scheduler->power_cap_w)
                        ? INFINITY
                        : allowed_power(scheduler) - drawn_power(scheduler);
    for (size_t i = ergon->bidders.count; i-- > 0;) {
        const struct erg_cluster_job *job = &scheduler->jobs[ergon->bidders.items[i].job];
        if (job->placement.count > 0)
            continue;
        if (free > 0 && fit_somewhere(ergon, scheduler, i, &left_w))
            free -= erg_placement_gpus(&job->placement);
        else if (job->state == ERG_JOB_RUNNING)
            erg_scheduler_suspend(scheduler, job->id);
    }
}

static int decide_ergon(void *state, struct erg_scheduler *scheduler,
                        const struct erg_occasion *occasion, struct erg_error *err)
{
    struct ergon *ergon = state;
    (void)occasion;
    (void)err;
    if (scheduler->waiting.count + scheduler->running.count == 0)
        return 0;
    if (scheduler->now_s < ergon->decided_s + BETWEEN_S) {
        erg_scheduler_wake(scheduler, ergon->decided_s + BETWEEN_S);
        return 0;
    }
    keep_accounts(ergon, scheduler);
    weigh(ergon, scheduler);
    count_supply(ergon, scheduler);
    if (isinf(scheduler->power_cap_w))
        clear_market(ergon, scheduler);
    else
        clear_under_cap(ergon, scheduler);
    apply(ergon, scheduler);
    use_rest(ergon, scheduler);
    erg_scheduler_wake(scheduler, scheduler->now_s + AT_MOST_S);
    return 0;
}

const struct erg_policy erg_policy_ergon = {
    .name = "ergon",
    .summary = "a market for GPUs: type, number, locality and operating point of all jobs together",
    .events = ERG_EVENT_ARRIVAL | ERG_EVENT_END | ERG_EVENT_FAILURE | ERG_EVENT_REPAIR,
    .open = open_ergon,
    .decide = decide_ergon,
    .close = close_ergon,
};
