/* Keeps the power cap under any policy. */
#include "cluster/simulate/simulation_internal.h"

#include "base/memory.h"

#include <math.h>

static const struct erg_speed *speed_of(const struct simulator *sim,
                                        const struct erg_cluster_job *job)
{
    return erg_speed_at(sim->simulation->speeds, job->request->workload, job->shape);
}

/* The power of running jobs. */
static void list_draws(struct simulator *sim)
{
    const struct erg_scheduler *scheduler = sim->scheduler;
    sim->draws.count = 0;
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct job_meter *meter = &sim->meter.jobs[id];
        ERG_PUSH(&sim->draws, items,
                 (struct erg_power_draw){
                     .speed = speed_of(sim, &scheduler->jobs[id]),
                     .point = scheduler->jobs[id].point,
                     .gpus = meter->gpus,
                     .share = meter->share,
                     .idle_w = meter->idle_w / meter->gpus,
                 });
    }
}

void erg_simulator_throttle(struct simulator *sim)
{
    struct erg_scheduler *scheduler = sim->scheduler;
    double before = scheduler->throttle;
    if (isinf(sim->simulation->power_cap_w))
        return;
    list_draws(sim);
    scheduler->throttle = erg_throttle_for(sim->draws.items, sim->draws.count, sim->meter.idle_w,
                                           sim->simulation->power_cap_w);
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        const struct erg_speed *speed = speed_of(sim, job);
        if (erg_speed_slowdown(speed, job->point, before) !=
            erg_speed_slowdown(speed, job->point, scheduler->throttle))
            erg_simulator_pace(sim, id);
    }
}
