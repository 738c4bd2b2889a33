/* The worth of each job's progress; ergon.c explains it. */
#include "cluster/policies/ergon_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

#define RANK_POWER 0.7
#define LONG_SHARE 0.25 /* of the remaining work is in long jobs */
/* The weight of a job doubles for each of these multiples of the length of long jobs, or of its own
 * length, by which it is late; the smaller number of doublings counts. */
#define AGEING_BY_LONG 2
#define AGEING_BY_OWN 10
#define TENANT_MEMORY_S (24 * 3600.0)
#define TENANT_WEIGHT_MOST 4.0

void erg_bidders_keep_accounts(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    double passed_s = isinf(ergon->decided_s) ? 0 : scheduler->now_s - ergon->decided_s;
    for (size_t tenant = 0; tenant < scheduler->trace->tenants_count; tenant++)
        ergon->tenant_used_s[tenant] *= exp(-passed_s / TENANT_MEMORY_S);
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        ergon->tenant_used_s[job->request->tenant] +=
            passed_s * erg_shape_gpus(&scheduler->speeds->shapes[job->shape]);
    }
    ergon->decided_s = scheduler->now_s;
}

static double urgency(const struct erg_scheduler *scheduler, const struct ergon_bidder *bidder)
{
    double deadline_s = scheduler->jobs[bidder->job].deadline_s;
    if (isinf(deadline_s) || deadline_s < scheduler->now_s)
        return 1;
    double slack_s = deadline_s - scheduler->now_s - bidder->needed_s;
    return slack_s < 0 ? 1 : 1 + exp(-slack_s / (bidder->needed_s + ERGON_HORIZON_S));
}

/* The factor on the weights of a tenant's jobs; 1 for all if there is one tenant. */
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
    const struct ergon_bidder *x = a, *y = b;
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
        const struct erg_menu *menu = erg_menu_of(ergon->menus, scheduler, id);
        ERG_PUSH(&ergon->bidders, items,
                 (struct ergon_bidder){.job = id,
                                       .remaining = remaining,
                                       .needed_s = remaining * menu->fastest_s,
                                       .work = samples / menu->unit});
    }
}

/* The time that all GPUs need for all work. */
static double backlog(const struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    double work = 0;
    for (size_t i = 0; i < ergon->bidders.count; i++)
        work += ergon->bidders.items[i].work;
    return work / scheduler->fleet->gpus;
}

/*
 * Jobs that need longer, at their fastest, than all GPUs for all work: the last of them to end runs
 * alone at the end, while the GPUs that it does not use idle. The longest is critical, others in
 * proportion to their length.
 */
static void find_critical(struct ergon *ergon, const struct erg_scheduler *scheduler,
                          double backlog_s)
{
    double gpus = scheduler->fleet->gpus, longest_s = 0;
    for (size_t i = 0; i < ergon->bidders.count; i++)
        longest_s = fmax(longest_s, ergon->bidders.items[i].needed_s);
    double all_s = fmax(backlog_s, ERGON_HORIZON_S);
    for (size_t i = 0; i < ergon->bidders.count; i++) {
        struct ergon_bidder *bidder = &ergon->bidders.items[i];
        double idle = 1 - erg_menu_of(ergon->menus, scheduler, bidder->job)->fastest_gpus / gpus;
        if (bidder->needed_s <= all_s)
            continue;
        bidder->critical = idle * bidder->needed_s / longest_s;
        bidder->rest_w = pow(bidder->critical, ergon->taste->critical_power) * ergon->fleet_idle_w;
    }
}

/* The length, at its fastest, of the shortest of the jobs that have LONG_SHARE of the remaining
 * work. */
static double long_length(const struct ergon *ergon, double work)
{
    double length_s = 0, left = LONG_SHARE * work;
    for (size_t i = 0; i < ergon->bidders.count && left > 0; i++) {
        left -= ergon->bidders.items[i].work;
        length_s = ergon->bidders.items[i].needed_s;
    }
    return fmax(1, length_s);
}

/* The doublings of a late job's weight. A job is late if it has been here for longer than its
 * finished work takes at its fastest. */
static double age(struct ergon *ergon, const struct erg_scheduler *scheduler,
                  const struct ergon_bidder *bidder)
{
    enum { MOST = 500 }; /* within a double's range */
    const struct erg_cluster_job *job = &scheduler->jobs[bidder->job];
    double fastest_s = erg_menu_of(ergon->menus, scheduler, bidder->job)->fastest_s;
    double done_s = (job->iterations - bidder->remaining) * fastest_s;
    double late_s = scheduler->now_s - job->submitted_s - done_s;
    double double_s =
        fmin(AGEING_BY_LONG * ergon->long_s, AGEING_BY_OWN * job->iterations * fastest_s);
    return fmax(0, fmin(late_s / double_s, MOST));
}

void erg_bidders_weigh(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    ergon->bidders.count = 0;
    list_bidders(ergon, scheduler, scheduler->running.first);
    list_bidders(ergon, scheduler, scheduler->waiting.first);
    qsort(ergon->bidders.items, ergon->bidders.count, sizeof *ergon->bidders.items,
          compare_bidders);
    while (ergon->rank_weights.count < ergon->bidders.count) {
        double weight = pow((double)ergon->rank_weights.count + 1, RANK_POWER);
        ERG_PUSH(&ergon->rank_weights, items, weight);
    }
    double backlog_s = backlog(ergon, scheduler);
    ergon->long_s = long_length(ergon, backlog_s * scheduler->fleet->gpus);
    find_critical(ergon, scheduler, backlog_s);
    double most = ergon->rank_weights.items[ergon->bidders.count - 1]; /* the least work */
    double *shares = erg_xcalloc(scheduler->trace->tenants_count + 1, sizeof *shares);
    for (size_t i = 0; i < scheduler->trace->tenants_count; i++)
        shares[i] = share_weight(ergon, scheduler, (int)i);
    for (size_t i = 0; i < ergon->bidders.count; i++) {
        struct ergon_bidder *bidder = &ergon->bidders.items[i];
        double rank = fmax(ergon->rank_weights.items[i], most * bidder->critical);
        bidder->weight = rank * exp2(age(ergon, scheduler, bidder)) * urgency(scheduler, bidder) *
                         shares[scheduler->jobs[bidder->job].request->tenant];
    }
    free(shares);
}
