/* What each job's progress is worth; ergon.c says why. */
#include "cluster/policies/ergon_internal.h"

#include "base/memory.h"
#include "cluster/schedule/asked.h"

#include <math.h>
#include <stdlib.h>

#define RANK_POWER 0.8
#define AGEING_S (66 * 3600.0)
#define AGEING_SHARE 0.07 /* of what all GPUs need for all work, if that is longer */
/* Of the share of the GPUs that would idle: a job that takes much of a small cluster takes it from
 * the others. */
#define IDLE_POWER 4
#define CATCHING_UP 10 /* seconds that a second at twice the speed asked for makes up for */
#define TENANT_MEMORY_S (24 * 3600.0)
#define TENANT_WEIGHT_MOST 4.0

static double asked_speed(struct ergon *ergon, const struct erg_scheduler *scheduler, int id)
{
    double *speed = &ergon->asked_speed[id];
    if (*speed == 0) {
        int type = erg_asked_type(scheduler, id, ERG_PLANS_ANY);
        int shape = type < 0 ? -1 : erg_asked_shape(scheduler, id, type, ERG_PLANS_ANY);
        *speed = shape < 0
                     ? NAN
                     : erg_scheduler_speed(scheduler, id, ERG_PLANS_ANY, shape)->samples_per_s;
    }
    return *speed;
}

/* A running job's speed over that on the GPUs that it asked for; 1 where it could not run on those.
 */
static double relative_speed(struct ergon *ergon, const struct erg_scheduler *scheduler, int id)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    const struct erg_speed *now = erg_scheduler_speed(scheduler, id, ERG_PLANS_ANY, job->shape);
    double asked = asked_speed(ergon, scheduler, id);
    return isnan(asked) ? 1 : now->samples_per_s / now->points[job->point].slowdown / asked;
}

void ergon_keep_accounts(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    double passed_s = isinf(ergon->decided_s) ? 0 : scheduler->now_s - ergon->decided_s;
    for (size_t tenant = 0; tenant < scheduler->trace->tenants_count; tenant++)
        ergon->tenant_used_s[tenant] *= exp(-passed_s / TENANT_MEMORY_S);
    for (int id = scheduler->waiting.first; id >= 0; id = scheduler->jobs[id].next)
        ergon->behind_s[id] += fmin(passed_s, scheduler->now_s - scheduler->jobs[id].submitted_s);
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        double lost_s = passed_s * (1 - relative_speed(ergon, scheduler, id));
        ergon->behind_s[id] =
            fmax(0, ergon->behind_s[id] + (lost_s < 0 ? CATCHING_UP * lost_s : lost_s));
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
        const struct ergon_menu *menu = ergon_menu_of(ergon, scheduler, id);
        ERG_PUSH(&ergon->bidders, items,
                 (struct ergon_bidder){.job = id,
                                       .remaining = remaining,
                                       .needed_s = remaining * menu->fastest_s,
                                       .work = samples / menu->unit});
    }
}

/* What all GPUs need for all work. */
static double backlog(const struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    double work = 0;
    for (size_t i = 0; i < ergon->bidders.count; i++)
        work += ergon->bidders.items[i].work;
    return work / scheduler->fleet->gpus;
}

/*
 * Jobs that need longer, at their fastest, than all GPUs for all work: whoever of them ends last is
 * alone at the end, and what it does not use idles then. The longest is critical, others as far as
 * they come near it.
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
        double idle = 1 - ergon_menu_of(ergon, scheduler, bidder->job)->fastest_gpus / gpus;
        if (bidder->needed_s > all_s)
            bidder->critical = pow(idle, IDLE_POWER) * bidder->needed_s / longest_s;
    }
}

void ergon_weigh(struct ergon *ergon, const struct erg_scheduler *scheduler)
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
    double ageing_s = fmax(AGEING_S, AGEING_SHARE * backlog_s);
    find_critical(ergon, scheduler, backlog_s);
    double most = ergon->rank_weights.items[ergon->bidders.count - 1]; /* of least work */
    double *shares = erg_xcalloc(scheduler->trace->tenants_count + 1, sizeof *shares);
    for (size_t i = 0; i < scheduler->trace->tenants_count; i++)
        shares[i] = share_weight(ergon, scheduler, (int)i);
    for (size_t i = 0; i < ergon->bidders.count; i++) {
        struct ergon_bidder *bidder = &ergon->bidders.items[i];
        double rank = fmax(ergon->rank_weights.items[i], most * bidder->critical);
        double age = fmin(ergon->behind_s[bidder->job] / ageing_s, 500);
        bidder->weight = rank * exp2(age) * urgency(scheduler, bidder) *
                         shares[scheduler->jobs[bidder->job].request->tenant];
    }
    free(shares);
}
