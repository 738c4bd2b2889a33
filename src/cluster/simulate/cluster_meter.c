/* The meters of a simulation: integrals of power, throughput and use, and their summary. */
#include "cluster/simulate/cluster_meter_internal.h"

#include "base/memory.h"
#include "base/statistics.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void init_families(struct meter *meter)
{
    const struct erg_job_trace *trace = meter->simulation->trace;
    meter->families = erg_xcalloc(trace->workloads_count, sizeof *meter->families);
    meter->family_of = erg_xcalloc(trace->workloads_count, sizeof *meter->family_of);
    for (size_t i = 0; i < trace->workloads_count; i++) {
        const char *name = trace->workloads[i].family;
        size_t at = 0;
        while (at < meter->families_count && strcmp(meter->families[at].result.name, name) != 0)
            at++;
        if (at == meter->families_count)
            meter->families[meter->families_count++].result.name = name;
        meter->family_of[i] = at;
    }
}

void erg_cluster_meter_init(struct meter *meter, const struct erg_simulation *simulation,
                            const struct erg_scheduler *scheduler)
{
    size_t count = scheduler->jobs_count;
    *meter = (struct meter){
        .simulation = simulation,
        .scheduler = scheduler,
        .results = erg_xcalloc(count, sizeof *meter->results),
        .jobs = erg_xcalloc(count, sizeof *meter->jobs),
        .power_w = erg_fleet_idle_power(simulation->fleet),
        .idle_w = erg_fleet_idle_power(simulation->fleet),
    };
    init_families(meter);
}

void erg_cluster_meter_release(struct meter *meter)
{
    free(meter->results);
    free(meter->jobs);
    free(meter->families);
    free(meter->family_of);
}

/* Adds the cost and the emissions of the present power during an interval, times a factor, rate by
 * rate. */
static void pay_rates(struct meter *meter, double at_s, double end_s, double times)
{
    double until_s;
    for (; at_s < end_s; at_s = until_s) {
        const struct erg_rate *rate = erg_tariff_at(meter->simulation->tariff, at_s, &until_s);
        assert(until_s > at_s); /* otherwise the loop would not end */
        double kwh = times * meter->power_w * (fmin(until_s, end_s) - at_s) / 3.6e6;
        meter->cost_usd += kwh * rate->usd_per_kwh;
        meter->co2_g += kwh * rate->g_co2_per_kwh;
    }
}

/* Many periods of the tariff are added at once. */
static void pay(struct meter *meter, double now_s)
{
    enum { MANY = 1000 };
    double at_s = meter->now_s, period_s = meter->simulation->tariff->period_s;
    double periods = floor((now_s - at_s) / period_s);
    if (periods > MANY) {
        pay_rates(meter, at_s, at_s + period_s, periods);
        at_s += periods * period_s;
    }
    pay_rates(meter, at_s, now_s, 1);
}

/* Free GPUs, and those on partly used nodes. */
static void add_free(struct meter *meter, double passed_s)
{
    const struct erg_occupancy *occupancy = meter->scheduler->occupancy;
    const struct erg_fleet *fleet = meter->simulation->fleet;
    int free = 0, whole = 0;
    for (unsigned type = 0; type < fleet->types_count; type++) {
        free += occupancy->free_gpus[type];
        whole += occupancy->idle_nodes[type] * fleet->types[type].gpus_per_node;
    }
    meter->free_gpu_s += free * passed_s;
    meter->pieces_gpu_s += (free - whole) * passed_s;
}

void erg_cluster_meter_advance(struct meter *meter, double now_s)
{
    double passed_s = now_s - meter->now_s;
    if (meter->simulation->tariff)
        pay(meter, now_s);
    if (passed_s > 0) {
        meter->energy_j += meter->power_w * passed_s;
        meter->jobs_s +=
            (meter->scheduler->waiting.count + meter->scheduler->running.count) * passed_s;
        meter->busy_gpu_s += meter->busy_gpus * passed_s;
        add_free(meter, passed_s);
        meter->up_gpu_s += (meter->simulation->fleet->gpus - meter->down_gpus) * passed_s;
        meter->off_gpu_s += meter->off_gpus * passed_s;
        meter->throttled_s += meter->scheduler->throttle > 1 ? passed_s : 0;
        meter->peak_power_w = fmax(meter->peak_power_w, meter->power_w);
        meter->peak_samples_per_s = fmax(meter->peak_samples_per_s, meter->samples_per_s);
        /* With a least speed of 0 all time counts, including speeds just below 0 by rounding. */
        double least = meter->scheduler->accounting->throughput_least;
        if (least <= 0 || meter->samples_per_s >= least) {
            meter->counted_s += passed_s;
            meter->counted_samples += meter->samples_per_s * passed_s;
        }
    }
    meter->now_s = now_s;
}

/* Adds a job's work since its last event to its result. */
static void settle(struct meter *meter, int id)
{
    struct job_meter *job = &meter->jobs[id];
    struct erg_job_result *result = &meter->results[id];
    double passed_s = meter->now_s - job->since_s;
    result->energy_j += job->power_w * passed_s;
    result->gpu_s += job->gpus * passed_s;
    result->lost_s += job->gpus * passed_s * (1 - job->share);
    if (meter->scheduler->jobs[id].state != ERG_JOB_FUTURE && job->gpus == 0)
        result->queued_s += passed_s;
    job->since_s = meter->now_s;
}

/* Changes the samples/s of a family's jobs by this much. */
static void change_family(struct meter *meter, struct family_meter *family, double by)
{
    double passed_s = meter->now_s - family->since_s;
    if (passed_s > 0)
        family->result.peak_throughput =
            fmax(family->result.peak_throughput, family->samples_per_s);
    family->samples += family->samples_per_s * passed_s;
    family->since_s = meter->now_s;
    family->samples_per_s += by;
}

static struct family_meter *family_of(const struct meter *meter, int id)
{
    return &meter->families[meter->family_of[meter->scheduler->jobs[id].request->workload]];
}

void erg_cluster_meter_update(struct meter *meter, int id)
{
    const struct erg_cluster_job *job = &meter->scheduler->jobs[id];
    struct job_meter *now = &meter->jobs[id], before = *now;
    settle(meter, id);
    now->gpus = erg_placement_gpus(&job->placement);
    now->power_w = now->samples_per_s = now->share = 0;
    if (now->gpus > 0) {
        const struct erg_speeds *speeds = meter->simulation->speeds;
        const struct erg_speed *speed = erg_speed_at(speeds, job->request->workload, job->shape);
        int type = speeds->shapes[job->shape].type;
        double idle_w = meter->simulation->fleet->types[type].idle_power_w, until_s;
        double slowdown = erg_speed_slowdown(speed, job->point, meter->scheduler->throttle);
        double busy_w = erg_speed_power(speed, idle_w, slowdown);
        now->share = meter->scheduler->accounting->share(&meter->scheduler->works[id], meter->now_s,
                                                         &until_s);
        now->power_w = now->gpus * (idle_w + now->share * (busy_w - idle_w));
        now->samples_per_s = now->share * speed->samples_per_s / slowdown;
        now->idle_w = now->gpus * idle_w;
    } else {
        now->idle_w = 0;
    }
    if (job->state == ERG_JOB_ENDED)
        meter->results[id].jobs_present =
            (meter->jobs_s - now->jobs_before_s) / (meter->now_s - job->submitted_s);
    meter->busy_gpus += now->gpus - before.gpus;
    meter->power_w += (now->power_w - now->idle_w) - (before.power_w - before.idle_w);
    meter->samples_per_s += now->samples_per_s - before.samples_per_s;
    change_family(meter, family_of(meter, id), now->samples_per_s - before.samples_per_s);
    if (meter->busy_gpus == 0)
        meter->samples_per_s = 0; /* not the rounding error */
}

void erg_cluster_meter_submit(struct meter *meter, int id)
{
    meter->jobs[id].since_s = meter->now_s;
    meter->jobs[id].jobs_before_s = meter->jobs_s;
}

void erg_cluster_meter_undo(struct meter *meter, int id, double iterations, double iteration_s)
{
    meter->results[id].undone_s += iterations * iteration_s * meter->jobs[id].gpus;
}

void erg_cluster_meter_node(struct meter *meter, int node, bool down)
{
    const struct erg_gpu_type *type =
        &meter->simulation->fleet->types[meter->scheduler->occupancy->type_of[node]];
    int sign = down ? 1 : -1;
    meter->down_gpus += sign * type->gpus_per_node;
    meter->power_w -= sign * type->gpus_per_node * type->idle_power_w;
    meter->idle_w -= sign * type->gpus_per_node * type->idle_power_w;
}

void erg_cluster_meter_switch(struct meter *meter, int node, bool off)
{
    const struct erg_gpu_type *type =
        &meter->simulation->fleet->types[meter->scheduler->occupancy->type_of[node]];
    int gpus = (off ? 1 : -1) * type->gpus_per_node;
    meter->off_gpus += gpus;
    meter->power_w -= gpus * (type->idle_power_w - type->off_power_w);
    meter->idle_w -= gpus * (type->idle_power_w - type->off_power_w);
}

/* The smallest value that at least a share of all values do not exceed; NAN without values. Values
 * are sorted. */
static double quantile(const double *values, size_t count, double share)
{
    if (count == 0)
        return NAN;
    double at = share * (double)(count - 1);
    size_t low = (size_t)at, high = low + 1 < count ? low + 1 : low;
    return values[low] + (at - (double)low) * (values[high] - values[low]);
}

/* Time that a job would take alone on its requested GPUs; NAN if it cannot run there. */
static double alone_s(const struct meter *meter, const struct erg_cluster_job *job)
{
    const struct erg_speeds *speeds = meter->simulation->speeds;
    double best_s = INFINITY;
    for (int type = 0; type < (int)meter->simulation->fleet->types_count; type++) {
        int shape = erg_speeds_best(speeds, type, job->request->gpus);
        if (shape < 0 || (job->request->type >= 0 && job->request->type != type))
            continue;
        best_s = fmin(best_s, erg_speed_at(speeds, job->request->workload, shape)->iteration_s);
    }
    return isinf(best_s) ? NAN : best_s * job->iterations;
}

/* JCT divided by the time in an equal share of the cluster; NAN if undefined. */
static double finish_time_fairness(const struct meter *meter, int id, double alone)
{
    const struct erg_job_result *result = &meter->results[id];
    double gpus = meter->scheduler->jobs[id].request->gpus;
    double share_gpus = meter->simulation->fleet->gpus / result->jobs_present;
    return (result->ended_s - result->submitted_s) / (alone * fmax(1, gpus / share_gpus));
}

static void close_job(struct meter *meter, int id)
{
    const struct erg_cluster_job *job = &meter->scheduler->jobs[id];
    struct erg_job_result *result = &meter->results[id];
    if (job->state == ERG_JOB_WAITING || job->state == ERG_JOB_RUNNING)
        settle(meter, id);
    result->state = job->state;
    result->runnable = erg_speeds_runnable(meter->simulation->speeds, job->request->workload, -1);
    result->submitted_s = job->state == ERG_JOB_FUTURE ? NAN : job->submitted_s;
    result->started_s = job->started_s;
    if (job->state != ERG_JOB_ENDED)
        result->ended_s = NAN;
    result->iterations = job->iterations;
    result->remaining = job->state == ERG_JOB_ENDED ? 0
                        : job->state == ERG_JOB_FUTURE
                            ? job->iterations
                            : erg_scheduler_remaining(meter->scheduler, id);
    result->reconfigurations = job->reconfigurations;
}

/* Returns true if a job that has not ended is known to never end. */
static bool never_ends(const struct meter *meter, const struct erg_cluster_job *job)
{
    return job->state == ERG_JOB_REJECTED || isinf(meter->simulation->until_s);
}

static void summarize(const struct meter *meter, struct erg_summary *summary)
{
    size_t count = meter->scheduler->jobs_count, finished = 0, slowdowns = 0, with_deadline = 0;
    double *jcts = erg_xcalloc(count, sizeof *jcts);
    double jct_s = 0, system_s = 0, queue_s = 0, slowdown = 0, lost_s = 0, met = 0, used_s = 0;
    double unfairness = 0, undone_s = 0;
    summary->worst_finish_time_fairness = NAN; /* fmax() ignores NAN */
    for (size_t i = 0; i < count; i++) {
        const struct erg_cluster_job *job = &meter->scheduler->jobs[i];
        const struct erg_job_result *result = &meter->results[i];
        if (job->state == ERG_JOB_FUTURE)
            continue;
        bool ended = job->state == ERG_JOB_ENDED;
        double until_s = ended ? result->ended_s : meter->now_s;
        summary->submitted_jobs++;
        summary->rejected_jobs += job->state == ERG_JOB_REJECTED;
        summary->unrunnable_jobs += !result->runnable;
        summary->reconfigurations += result->reconfigurations;
        system_s += until_s - result->submitted_s;
        queue_s += result->queued_s;
        lost_s += result->lost_s;
        undone_s += result->undone_s;
        used_s += result->gpu_s;
        if (!isinf(job->deadline_s) &&
            (ended || meter->now_s > job->deadline_s || never_ends(meter, job))) {
            with_deadline++;
            met += ended && result->ended_s <= job->deadline_s;
        }
        if (!ended)
            continue;
        double alone = alone_s(meter, job);
        jcts[finished++] = until_s - result->submitted_s;
        jct_s += until_s - result->submitted_s;
        if (alone > 0) {
            double fairness = finish_time_fairness(meter, (int)i, alone);
            slowdown += (until_s - result->submitted_s) / alone;
            unfairness += fairness;
            summary->worst_finish_time_fairness =
                fmax(summary->worst_finish_time_fairness, fairness);
            slowdowns++;
        }
    }
    qsort(jcts, finished, sizeof *jcts, erg_compare_doubles);
    double submitted = (double)summary->submitted_jobs;
    summary->finished_jobs = (long)finished;
    summary->mean_jct_s = jct_s / (double)finished;
    summary->median_jct_s = quantile(jcts, finished, 0.5);
    summary->p99_jct_s = quantile(jcts, finished, 0.99);
    summary->mean_time_in_system_s = system_s / submitted;
    summary->mean_queue_s = queue_s / submitted;
    summary->mean_slowdown = slowdown / (double)slowdowns;
    summary->mean_finish_time_fairness = unfairness / (double)slowdowns;
    summary->mean_throughput = meter->counted_samples / meter->counted_s;
    summary->peak_throughput = meter->peak_samples_per_s;
    summary->utilization = meter->busy_gpu_s / meter->up_gpu_s;
    summary->goodput = (used_s - lost_s - undone_s) / meter->up_gpu_s;
    summary->fragmentation = meter->pieces_gpu_s / meter->free_gpu_s;
    summary->reconfiguration_gpu_s = lost_s;
    summary->undone_gpu_s = undone_s;
    summary->deadlines_met = met / (double)with_deadline;
    /* For an empty interval, the power at that moment; NAN if neither the cluster nor the profiles
     * contain powers. */
    const double peak_w = meter->peak_power_w > 0 ? meter->peak_power_w : meter->power_w;
    const bool drawn = peak_w > 0;
    summary->energy_j = drawn ? meter->energy_j : NAN;
    summary->peak_power_w = drawn ? peak_w : NAN;
    summary->throttled_s = isfinite(meter->simulation->power_cap_w) ? meter->throttled_s : NAN;
    summary->off_gpu_s = meter->simulation->fleet->saves_power ? meter->off_gpu_s : NAN;
    summary->wake_ups = meter->simulation->fleet->saves_power ? (double)meter->wake_ups : NAN;
    summary->cost_usd = meter->simulation->tariff && drawn ? meter->cost_usd : NAN;
    summary->co2_kg = meter->simulation->tariff && drawn ? meter->co2_g / 1e3 : NAN;
    summary->simulated_s = meter->now_s;
    free(jcts);
}

/* Moves the families of submitted jobs to the front. */
static size_t close_families(struct meter *meter, struct erg_family_result *results)
{
    size_t count = 0;
    for (size_t i = 0; i < meter->scheduler->jobs_count; i++) {
        struct erg_family_result *family = &family_of(meter, (int)i)->result;
        family->submitted_jobs += meter->scheduler->jobs[i].state != ERG_JOB_FUTURE;
        family->finished_jobs += meter->scheduler->jobs[i].state == ERG_JOB_ENDED;
    }
    for (size_t i = 0; i < meter->families_count; i++) {
        struct family_meter *family = &meter->families[i];
        change_family(meter, family, 0);
        family->result.mean_throughput = family->samples / meter->now_s;
        if (family->result.submitted_jobs > 0)
            results[count++] = family->result;
    }
    return count;
}

void erg_cluster_meter_finish(struct meter *meter, struct erg_simulated *result)
{
    for (size_t i = 0; i < meter->scheduler->jobs_count; i++)
        close_job(meter, (int)i);
    result->summary = (struct erg_summary){0};
    summarize(meter, &result->summary);
    result->jobs = meter->results;
    meter->results = NULL;
    result->families = erg_xcalloc(meter->families_count, sizeof *result->families);
    result->families_count = close_families(meter, result->families);
}
