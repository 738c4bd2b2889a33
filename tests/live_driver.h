/*
 * A controller of a live scheduler for tests: jobs of a world (cluster_world.h) that train, restart
 * and report as the fleet's file and the world's speeds say.
 */
#ifndef ERGON_TESTS_LIVE_DRIVER_H
#define ERGON_TESTS_LIVE_DRIVER_H

#include "cluster/schedule/control.h"
#include "cluster_world.h"

#include <limits.h>

/* What a job really does. */
struct real_job {
    int id; /* of the scheduler; -1: not submitted yet */
    double done, saved;
    double resume_s, since_s, iteration_s; /* INFINITY: has no GPUs */
    double ended_s;                        /* NAN: it has not */
    double had_gpu_s;
    int gpus;
};

struct driver {
    struct world *world;
    struct erg_speeds *speeds;
    struct erg_scheduler *scheduler;
    struct real_job jobs[200];
    double now_s;
    long decisions;
    void (*check)(struct driver *driver); /* after each decision; NULL: none */
    long restart_at;                      /* decision before which the controller dies; 0: never */
};

/* The rows of the world's own table. */
static inline int fill_from_world(void *context, struct erg_speeds *speeds, int workload,
                                  const struct erg_trace_workload *what, struct erg_error *err)
{
    const struct world *world = context;
    (void)err;
    for (int w = 0; w < 3; w++) {
        if (world->workloads[w].batch != what->batch ||
            strcmp(world->workloads[w].family, what->family) != 0)
            continue;
        for (int shape = 0; shape < speeds->shapes_count; shape++) {
            const struct erg_speed *speed = erg_speed_at(world->speeds, w, shape);
            if (erg_speed_feasible(speed))
                erg_speeds_set(speeds, workload, shape, speed->samples_per_s, speed->iteration_s);
        }
    }
    return 0;
}

static inline void make_scheduler(struct driver *driver, const char *policy)
{
    struct erg_error err;
    driver->speeds = erg_speeds_new(&driver->world->fleet, 0, counts, 4);
    struct erg_live_setup setup = {.fleet = &driver->world->fleet,
                                   .speeds = driver->speeds,
                                   .source = {fill_from_world, driver->world},
                                   .tariff = driver->world->simulation.tariff,
                                   .power_cap_w = driver->world->simulation.power_cap_w};
    assert_ok(erg_policy_find(&setup.policy, policy, &err), &err);
    driver->scheduler = erg_scheduler_new_live(&setup);
}

static inline void make_driver(struct driver *driver, struct world *world, const char *policy)
{
    *driver = (struct driver){.world = world};
    for (size_t i = 0; i < world->trace.count; i++)
        driver->jobs[i] = (struct real_job){.id = -1, .iteration_s = INFINITY, .ended_s = NAN};
    make_scheduler(driver, policy);
}

static inline void release_driver(struct driver *driver)
{
    erg_scheduler_free(driver->scheduler);
    erg_speeds_free(driver->speeds);
}

static inline struct erg_new_job new_job(const struct world *world, size_t index)
{
    const struct erg_trace_job *job = &world->jobs[index];
    const struct erg_trace_workload *workload = &world->workloads[job->workload];
    double first_s = world->trace.first_submit_s;
    return (struct erg_new_job){.name = job->id,
                                .family = workload->family,
                                .size = workload->size,
                                .batch = workload->batch,
                                .tenant = "",
                                .submitted_s = job->submit_s - first_s,
                                .deadline_s = job->deadline_s - first_s,
                                .iterations = job->iterations,
                                .type = job->type,
                                .gpus = job->gpus};
}

static inline void submit(struct driver *driver, size_t index)
{
    struct erg_error err;
    struct erg_new_job what = new_job(driver->world, index);
    assert_ok(erg_scheduler_add_job(driver->scheduler, &what, &driver->jobs[index].id, &err), &err);
    if (!erg_scheduler_arrive(driver->scheduler, driver->jobs[index].id))
        driver->jobs[index].ended_s = INFINITY;
}

static inline double left_of(const struct driver *driver, size_t index)
{
    return driver->world->jobs[index].iterations - driver->jobs[index].done;
}

static inline double end_of(const struct driver *driver, size_t index)
{
    const struct real_job *job = &driver->jobs[index];
    if (isinf(job->iteration_s))
        return INFINITY;
    return fmax(job->resume_s, driver->now_s) + left_of(driver, index) * job->iteration_s;
}

/* What all did until now, and what they say of it. */
static inline void pass(struct driver *driver, double now_s)
{
    driver->now_s = now_s;
    erg_scheduler_advance(driver->scheduler, now_s);
    for (size_t i = 0; i < driver->world->trace.count; i++) {
        struct real_job *job = &driver->jobs[i];
        job->had_gpu_s += job->gpus * (now_s - job->since_s);
        double trained_s = now_s - fmax(job->since_s, job->resume_s);
        if (!isinf(job->iteration_s) && trained_s > 0)
            job->done += trained_s / job->iteration_s;
        job->since_s = now_s;
        if (!isinf(job->iteration_s) && now_s >= job->resume_s)
            erg_scheduler_report(driver->scheduler, job->id,
                                 &(struct erg_progress_report){.at_s = now_s,
                                                               .iteration = job->done,
                                                               .checkpoint = job->saved,
                                                               .iteration_s = job->iteration_s,
                                                               .due_s = 1e9});
    }
}

static inline size_t index_of(const struct driver *driver, int id)
{
    size_t index = 0;
    while (driver->jobs[index].id != id)
        index++;
    return index;
}

/* Does what was decided about a job. */
static inline void obey(struct driver *driver, int id, bool moved)
{
    struct real_job *real = &driver->jobs[index_of(driver, id)];
    const struct erg_cluster_job *job = &driver->scheduler->jobs[id];
    int gpus = erg_placement_gpus(&job->placement);
    real->gpus = gpus;
    if (gpus == 0) {
        real->iteration_s = INFINITY;
        real->saved = real->done;
        if (job->state == ERG_JOB_REJECTED)
            real->ended_s = INFINITY;
        return;
    }
    const struct erg_speed *speed = erg_scheduler_speed(driver->scheduler, id, job->shape);
    real->iteration_s =
        speed->iteration_s * speed->points[erg_scheduler_point(driver->scheduler, id)].slowdown;
    if (moved) {
        const struct erg_reconfiguration *costs = &driver->world->fleet.reconfiguration;
        real->saved = real->done;
        real->resume_s = driver->now_s + costs->fixed_s + gpus * costs->per_gpu_s;
    }
}

/* The controller dies, and another one finds the jobs as they are. */
static inline void restart(struct driver *driver)
{
    struct erg_scheduler *old = driver->scheduler;
    struct erg_speeds *speeds = driver->speeds;
    json_t *saved = erg_scheduler_save(old);
    make_scheduler(driver, old->policy->name);
    erg_scheduler_advance(driver->scheduler, driver->now_s);
    for (size_t i = 0; i < driver->world->trace.count; i++) {
        struct real_job *real = &driver->jobs[i];
        if (real->id >= 0 && !isnan(real->ended_s))
            real->id = INT_MAX; /* the new scheduler knows nothing of it */
        if (real->id < 0 || real->id == INT_MAX)
            continue;
        const struct erg_cluster_job *was = &old->jobs[real->id];
        struct erg_new_job what = new_job(driver->world, i);
        struct erg_error err;
        int id;
        assert_ok(erg_scheduler_add_job(driver->scheduler, &what, &id, &err), &err);
        erg_scheduler_recall(driver->scheduler, id, real->had_gpu_s, was->reconfigurations);
        if (was->placement.count > 0)
            assert_true(erg_scheduler_adopt(driver->scheduler, id, &was->placement, was->point));
        else
            assert_true(erg_scheduler_arrive(driver->scheduler, id));
        real->id = id;
        erg_scheduler_report(driver->scheduler, id,
                             &(struct erg_progress_report){.at_s = driver->now_s,
                                                           .iteration = real->done,
                                                           .checkpoint = real->done,
                                                           .iteration_s = NAN,
                                                           .due_s = 1e9});
    }
    erg_scheduler_load(driver->scheduler, saved);
    json_decref(saved);
    erg_scheduler_free(old);
    erg_speeds_free(speeds);
}

static inline void decide(struct driver *driver)
{
    struct erg_error err;
    struct erg_placement *before =
        calloc(driver->scheduler->jobs_count + 1, sizeof *before); /* by id */
    const int *changed;
    size_t count;
    for (size_t i = 0; i < driver->scheduler->jobs_count; i++)
        erg_placement_assign(&before[i], &driver->scheduler->jobs[i].placement);
    assert_ok(erg_scheduler_decide(driver->scheduler, &changed, &count, &err), &err);
    for (size_t i = 0; i < count; i++)
        obey(driver, changed[i],
             !erg_placement_equal(&before[changed[i]],
                                  &driver->scheduler->jobs[changed[i]].placement));
    for (size_t i = 0; i < driver->world->trace.count; i++) /* the cap may slow others down */
        if (driver->jobs[i].gpus > 0)
            obey(driver, driver->jobs[i].id, false);
    for (size_t i = 0; i < driver->scheduler->jobs_count; i++)
        erg_placement_release(&before[i]);
    free(before);
    driver->decisions++;
    if (driver->check)
        driver->check(driver);
}

/* One moment; false where nothing is to come. */
static inline bool step(struct driver *driver, double most_s)
{
    const struct world *world = driver->world;
    double next_s = erg_scheduler_due(driver->scheduler);
    bool comes = false;
    for (size_t i = 0; i < world->trace.count; i++) {
        const struct real_job *job = &driver->jobs[i];
        comes |= isnan(job->ended_s);
        if (isnan(job->ended_s))
            next_s =
                fmin(next_s, job->id < 0 ? world->jobs[i].submit_s - world->trace.first_submit_s
                                         : end_of(driver, i));
    }
    if (!comes || isinf(next_s) || next_s > most_s)
        return false;
    pass(driver, next_s);
    for (size_t i = 0; i < world->trace.count; i++)
        if (driver->jobs[i].id >= 0 && isnan(driver->jobs[i].ended_s) &&
            left_of(driver, i) < 1e-6) {
            driver->jobs[i].ended_s = next_s;
            driver->jobs[i].iteration_s = INFINITY;
            driver->jobs[i].gpus = 0;
            erg_scheduler_end(driver->scheduler, driver->jobs[i].id);
        }
    for (size_t i = 0; i < world->trace.count; i++)
        if (driver->jobs[i].id < 0 &&
            world->jobs[i].submit_s - world->trace.first_submit_s <= next_s)
            submit(driver, i);
    if (driver->restart_at > 0 && driver->decisions == driver->restart_at)
        restart(driver);
    if (erg_scheduler_urgent(driver->scheduler) || erg_scheduler_due(driver->scheduler) <= next_s)
        decide(driver);
    return true;
}

/* ---- by hand, without a trainer ---- */

static inline int add_by_hand(struct driver *driver, const char *name, int workload,
                              double iterations, int type, int gpus)
{
    struct erg_error err;
    const struct erg_trace_workload *what = &driver->world->workloads[workload];
    int job;
    assert_ok(erg_scheduler_add_job(driver->scheduler,
                                    &(struct erg_new_job){.name = name,
                                                          .family = what->family,
                                                          .size = what->size,
                                                          .batch = what->batch,
                                                          .tenant = name,
                                                          .submitted_s = driver->scheduler->now_s,
                                                          .deadline_s = INFINITY,
                                                          .iterations = iterations,
                                                          .type = type,
                                                          .gpus = gpus},
                                    &job, &err),
              &err);
    return job;
}

static inline void decide_by_hand(struct driver *driver)
{
    struct erg_error err;
    assert_ok(erg_scheduler_decide(driver->scheduler, NULL, NULL, &err), &err);
}

#endif
