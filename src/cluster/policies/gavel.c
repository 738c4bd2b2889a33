/*
 * Gavel: how much of the time each job should spend on each type of GPU, by a linear program.
 *
 * Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
 * Workloads", OSDI 2020: the policies of sections 4.1 (max-min fairness) and 4.2 (maximum total
 * throughput), the rounds of section 5. A job has the number of GPUs that it asked for and any
 * type. y[j,t] is the share of time that job j spends on type t:
 *
 *     sum over t of y[j,t] <= 1 for each job, sum over j of gpus[j] y[j,t] <= GPUs of type t
 *
 * gavel maximizes the sum of speeds; gavel-fair the least of all jobs' speeds, each relative to the
 * job's speed with equal shares of all types, times its GPUs: a job that needs twice as many has
 * them half of the time. Which jobs run in a round follows from the quotients of y[j,t] and the
 * share of its time that a job has had on that type: the largest ones first.
 *
 * Departures: rounds last 6 minutes, or as long as 20 restarts of one GPU, if that is longer, so
 * that taking turns does not cost more than a twentieth. GPUs that the shares leave free go to jobs
 * that can use them, in the order of submission. Shares are computed again at a round before which
 * jobs came or went.
 */
#include "cluster/policies/policies.h"
#include "cluster/policies/program.h"
#include "cluster/policies/remembered.h"
#include "cluster/schedule/asked.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

#define ROUND_S 360.0
#define RESTARTS_PER_ROUND 20
/* The weight of the sum of speeds in gavel-fair: it breaks ties and uses GPUs that the slowest job
 * cannot. */
#define SUM_WEIGHT 1e-3

struct gavel {
    bool fair;
    int types;
    struct erg_program program;
    int *jobs; /* those that have not ended, in the order of submission */
    size_t count;
    bool changed;       /* since the shares were computed */
    double *shares;     /* [job][type] */
    double *received_s; /* [job][type]: seconds with GPUs */
    double *seen_s;     /* by job: seconds since it arrived, in rounds */
    double decided_s, length_s;
    double *solution;
    size_t solution_capacity;
    struct {
        struct turn {
            double urgency;
            int job, type;
        } * items;
        size_t count, capacity;
    } turns;
    int *turn_of; /* by job: the type on which it will run; -1: none */
};

static size_t cell(const struct gavel *gavel, int job, int type)
{
    return (size_t)job * (size_t)gavel->types + (size_t)type;
}

/* Jobs that are present, with their time so far: assigned to their present type, or the one that
 * they would request, as far as known. load() may correct it. */
static void take_over(struct gavel *gavel, const struct erg_scheduler *scheduler)
{
    int *jobs;
    size_t count = erg_scheduler_told(scheduler, &jobs);
    for (size_t i = 0; i < count; i++) {
        const struct erg_cluster_job *job = &scheduler->jobs[jobs[i]];
        int type = job->shape >= 0 ? scheduler->speeds->shapes[job->shape].type
                                   : erg_asked_type(scheduler, job->id);
        if (type >= 0)
            gavel->received_s[cell(gavel, job->id, type)] =
                erg_scheduler_attained(scheduler, job->id) / job->request->gpus;
        gavel->seen_s[job->id] = scheduler->now_s - job->submitted_s;
        gavel->jobs[gavel->count++] = job->id;
    }
    gavel->changed = true;
    free(jobs);
}

static void *open_gavel(const struct erg_scheduler *scheduler, const void *rules)
{
    struct gavel *gavel = erg_xcalloc(1, sizeof *gavel);
    size_t jobs = scheduler->jobs_room, types = scheduler->fleet->types_count;
    gavel->fair = rules != NULL;
    gavel->types = (int)types;
    gavel->jobs = erg_xcalloc(jobs, sizeof *gavel->jobs);
    gavel->shares = erg_xcalloc(jobs * types, sizeof *gavel->shares);
    gavel->received_s = erg_xcalloc(jobs * types, sizeof *gavel->received_s);
    gavel->seen_s = erg_xcalloc(jobs, sizeof *gavel->seen_s);
    gavel->turn_of = erg_xcalloc(jobs, sizeof *gavel->turn_of);
    gavel->decided_s = -INFINITY;
    gavel->length_s = fmax(ROUND_S, RESTARTS_PER_ROUND * erg_scheduler_cost(scheduler, -1, -1, 1));
    take_over(gavel, scheduler);
    return gavel;
}

static void close_gavel(void *state)
{
    struct gavel *gavel = state;
    erg_program_release(&gavel->program);
    free(gavel->jobs);
    free(gavel->shares);
    free(gavel->received_s);
    free(gavel->seen_s);
    free(gavel->turn_of);
    free(gavel->solution);
    free(gavel->turns.items);
    free(gavel);
}

static json_t *save_gavel(const void *state, const struct erg_scheduler *scheduler)
{
    const struct gavel *gavel = state;
    json_t *jobs = json_object();
    for (size_t i = 0; i < gavel->count; i++) {
        int job = gavel->jobs[i];
        json_object_set_new(
            jobs, scheduler->jobs[job].request->id,
            erg_json_pack("{s:f,s:o}", "seen_s", gavel->seen_s[job], "received_s",
                          erg_remembered_array(gavel->received_s + cell(gavel, job, 0),
                                               (size_t)gavel->types)));
    }
    return erg_json_pack("{s:f,s:o}", "decided_s", gavel->decided_s, "jobs", jobs);
}

static void load_gavel(void *state, const struct erg_scheduler *scheduler, const json_t *saved)
{
    struct gavel *gavel = state;
    const json_t *jobs = json_object_get(saved, "jobs");
    gavel->decided_s = erg_remembered_time(saved, "decided_s", scheduler, gavel->decided_s);
    for (size_t i = 0; i < gavel->count; i++) {
        int job = gavel->jobs[i];
        const json_t *had = json_object_get(jobs, scheduler->jobs[job].request->id);
        gavel->seen_s[job] = erg_json_number_or(had, "seen_s", gavel->seen_s[job]);
        erg_remembered_read_array(json_object_get(had, "received_s"),
                                  gavel->received_s + cell(gavel, job, 0), (size_t)gavel->types);
    }
}

/* A job's mean speed if it spent time on all types in proportion to their GPUs. */
static double equal_speed(const struct gavel *gavel, const struct erg_scheduler *scheduler, int job)
{
    double sum = 0;
    for (int type = 0; type < gavel->types; type++) {
        const struct erg_gpu_type *gpus = &scheduler->fleet->types[type];
        sum += erg_asked_speed(scheduler, job, type) * gpus->nodes * gpus->gpus_per_node;
    }
    return sum / scheduler->fleet->gpus;
}

static void admit(struct gavel *gavel, struct erg_scheduler *scheduler,
                  const struct erg_occasion *occasion)
{
    size_t kept = 0;
    for (size_t i = 0; i < gavel->count; i++)
        if (scheduler->jobs[gavel->jobs[i]].state != ERG_JOB_ENDED)
            gavel->jobs[kept++] = gavel->jobs[i];
    gavel->changed |= kept < gavel->count;
    gavel->count = kept;
    for (size_t i = 0; i < occasion->arrived_count; i++) {
        int job = occasion->arrived[i];
        if (equal_speed(gavel, scheduler, job) > 0) {
            gavel->jobs[gavel->count++] = job;
            gavel->changed = true;
        } else {
            erg_scheduler_reject(scheduler, job);
        }
    }
    if (occasion->events & (ERG_EVENT_FAILURE | ERG_EVENT_REPAIR))
        gavel->changed = true;
}

/* The GPU time of jobs since the last decision. */
static void keep_accounts(struct gavel *gavel, const struct erg_scheduler *scheduler)
{
    for (size_t i = 0; i < gavel->count; i++) {
        const struct erg_cluster_job *job = &scheduler->jobs[gavel->jobs[i]];
        double passed_s =
            fmin(scheduler->now_s - job->submitted_s, scheduler->now_s - gavel->decided_s);
        gavel->seen_s[job->id] += passed_s;
        if (job->shape >= 0)
            gavel->received_s[cell(gavel, job->id, scheduler->speeds->shapes[job->shape].type)] +=
                passed_s;
    }
}

/* The program: rows of types, then of jobs' time, then of jobs' speeds (gavel-fair). */
static void formulate(struct gavel *gavel, const struct erg_scheduler *scheduler)
{
    struct erg_program *program = &gavel->program;
    int jobs = (int)gavel->count;
    erg_program_reset(program);
    for (int type = 0; type < gavel->types; type++)
        erg_program_row(program, 0, erg_occupancy_up(scheduler->occupancy, type));
    for (int i = 0; i < jobs; i++)
        erg_program_row(program, 0, 1);
    for (int i = 0; i < jobs && gavel->fair; i++)
        erg_program_row(program, 0, INFINITY);
    for (int i = 0; i < jobs; i++) {
        int job = gavel->jobs[i];
        int gpus = scheduler->jobs[job].request->gpus;
        double unit = gavel->fair ? equal_speed(gavel, scheduler, job) / gpus : 1;
        for (int type = 0; type < gavel->types; type++) {
            double speed = erg_asked_speed(scheduler, job, type) / unit;
            if (speed <= 0)
                continue;
            erg_program_column(program, gavel->fair ? SUM_WEIGHT * speed / jobs : speed, 1);
            erg_program_entry(program, type, gpus);
            erg_program_entry(program, gavel->types + i, 1);
            if (gavel->fair)
                erg_program_entry(program, gavel->types + jobs + i, speed);
        }
    }
    if (gavel->fair && jobs > 0) {
        erg_program_column(program, 1, INFINITY); /* the least speed */
        for (int i = 0; i < jobs; i++)
            erg_program_entry(program, gavel->types + jobs + i, -1);
    }
}

static int solve(struct gavel *gavel, const struct erg_scheduler *scheduler, struct erg_error *err)
{
    formulate(gavel, scheduler);
    if (gavel->solution_capacity < gavel->program.columns.count) {
        gavel->solution_capacity = gavel->program.columns.capacity;
        gavel->solution =
            erg_xrealloc(gavel->solution, gavel->solution_capacity, sizeof *gavel->solution);
    }
    if (erg_program_solve(&gavel->program, false, 0, gavel->solution, err) != 0)
        return -1;
    size_t column = 0;
    for (size_t i = 0; i < gavel->count; i++)
        for (int type = 0; type < gavel->types; type++) {
            bool runs = erg_asked_speed(scheduler, gavel->jobs[i], type) > 0;
            gavel->shares[cell(gavel, gavel->jobs[i], type)] = runs ? gavel->solution[column++] : 0;
        }
    gavel->changed = false;
    return 0;
}

static int compare_turns(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->urgency != y->urgency)
        return x->urgency > y->urgency ? -1 : 1;
    return x->job != y->job ? x->job - y->job : x->type - y->type;
}

/* Chooses the jobs that run in the round, and their types. */
static void take_turns(struct gavel *gavel, const struct erg_scheduler *scheduler)
{
    int *left = erg_xcalloc((size_t)gavel->types, sizeof *left);
    gavel->turns.count = 0;
    for (int type = 0; type < gavel->types; type++)
        left[type] = erg_occupancy_up(scheduler->occupancy, type);
    for (size_t i = 0; i < gavel->count; i++) {
        int job = gavel->jobs[i];
        gavel->turn_of[job] = -1;
        for (int type = 0; type < gavel->types; type++) {
            double share = gavel->shares[cell(gavel, job, type)];
            if (share < 1e-6)
                continue;
            /* A job without any time counts as if it had had a second. */
            double had =
                fmax(1, gavel->received_s[cell(gavel, job, type)]) / fmax(1, gavel->seen_s[job]);
            ERG_PUSH(&gavel->turns, items, (struct turn){share / had, job, type});
        }
    }
    if (gavel->turns.count > 0)
        qsort(gavel->turns.items, gavel->turns.count, sizeof *gavel->turns.items, compare_turns);
    for (size_t i = 0; i < gavel->turns.count; i++) {
        const struct turn *turn = &gavel->turns.items[i];
        int gpus = scheduler->jobs[turn->job].request->gpus;
        if (gavel->turn_of[turn->job] < 0 && gpus <= left[turn->type]) {
            gavel->turn_of[turn->job] = turn->type;
            left[turn->type] -= gpus;
        }
    }
    free(left);
}

static void apply(struct gavel *gavel, struct erg_scheduler *scheduler)
{
    for (size_t i = 0; i < gavel->count; i++) {
        const struct erg_cluster_job *job = &scheduler->jobs[gavel->jobs[i]];
        if (job->shape < 0 || scheduler->speeds->shapes[job->shape].type == gavel->turn_of[job->id])
            continue;
        if (gavel->turn_of[job->id] < 0)
            erg_scheduler_suspend(scheduler, job->id);
        else
            erg_scheduler_lift(scheduler, job->id);
    }
    for (int gpus = scheduler->speeds->gpus_most; gpus > 0; gpus--)
        for (size_t i = 0; i < gavel->count; i++) {
            const struct erg_cluster_job *job = &scheduler->jobs[gavel->jobs[i]];
            if (job->request->gpus == gpus && job->shape < 0 && gavel->turn_of[job->id] >= 0)
                erg_asked_fit(scheduler, job->id, gavel->turn_of[job->id], ERG_LEAST_FREE);
        }
}

static void use_rest(const struct gavel *gavel, struct erg_scheduler *scheduler)
{
    for (size_t i = 0; i < gavel->count; i++) {
        const struct erg_cluster_job *job = &scheduler->jobs[gavel->jobs[i]];
        if (job->shape < 0 && erg_asked_fit_anywhere(scheduler, job->id, ERG_LEAST_FREE) < 0 &&
            job->state == ERG_JOB_RUNNING)
            erg_scheduler_suspend(scheduler, job->id);
    }
}

static int decide_gavel(void *state, struct erg_scheduler *scheduler,
                        const struct erg_occasion *occasion, struct erg_error *err)
{
    struct gavel *gavel = state;
    admit(gavel, scheduler, occasion);
    if (scheduler->now_s >= gavel->decided_s + gavel->length_s) {
        keep_accounts(gavel, scheduler);
        if (gavel->changed && solve(gavel, scheduler, err) != 0)
            return -1;
        take_turns(gavel, scheduler);
        apply(gavel, scheduler);
        gavel->decided_s = scheduler->now_s;
    }
    use_rest(gavel, scheduler);
    if (gavel->count > 0)
        erg_scheduler_wake(scheduler, gavel->decided_s + gavel->length_s);
    return 0;
}

const struct erg_policy erg_policy_gavel = {
    .name = "gavel",
    .summary = "shares of time on each type by a linear program, for the most throughput",
    .events = ERG_EVENTS_OF_JOBS,
    .open = open_gavel,
    .decide = decide_gavel,
    .close = close_gavel,
    .save = save_gavel,
    .load = load_gavel,
};

const struct erg_policy erg_policy_gavel_fair = {
    .name = "gavel-fair",
    .summary = "the same, for the least of all jobs' speeds",
    .events = ERG_EVENTS_OF_JOBS,
    .rules = "fair",
    .open = open_gavel,
    .decide = decide_gavel,
    .close = close_gavel,
    .save = save_gavel,
    .load = load_gavel,
};
