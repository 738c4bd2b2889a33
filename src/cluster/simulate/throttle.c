/* Keeping the power cap whatever the policy decides. */
#include "cluster/simulate/simulation_internal.h"

#include <math.h>

static const struct erg_speed *speed_of(const struct simulator *sim,
                                        const struct erg_cluster_job *job)
{
    return erg_speed_at(sim->simulation->speeds, job->request->workload, job->shape);
}

/* Watts of all GPUs where what they compute takes so many times as long at least. */
static double power_at(const struct simulator *sim, double slowdown)
{
    const struct erg_scheduler *scheduler = sim->scheduler;
    double power_w = sim->meter.idle_w;
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        const struct job_meter *meter = &sim->meter.jobs[id];
        const struct erg_speed *speed = speed_of(sim, job);
        double idle_w = meter->idle_w / meter->gpus;
        double own = erg_speed_slowdown(speed, job->point, slowdown);
        power_w += meter->gpus * meter->share * (erg_speed_power(speed, idle_w, own) - idle_w);
    }
    return power_w;
}

/*
 * The least slowdown that keeps the cap, or very little more. Power rises with speed, piece by
 * piece linearly, so a secant through both ends soon lies on the piece in question; halving the
 * interval in between makes sure that both ends come nearer.
 */
static double find_throttle(const struct simulator *sim)
{
    enum { STEPS_MOST = 100 };
    double cap_w = sim->simulation->power_cap_w, tolerance_w = 1e-7 * cap_w;
    double slow = 0, slow_w = sim->meter.idle_w; /* speed, with what keeps the cap */
    double fast = 1, fast_w = power_at(sim, 1);
    if (fast_w <= cap_w)
        return 1;
    for (int step = 0; step < STEPS_MOST && cap_w - slow_w > tolerance_w; step++) {
        double speed = step % 3 == 2 ? (slow + fast) / 2
                                     : slow + (fast - slow) * (cap_w - slow_w) / (fast_w - slow_w);
        double power_w = power_at(sim, 1 / speed);
        if (power_w <= cap_w) {
            slow = speed;
            slow_w = power_w;
        } else {
            fast = speed;
            fast_w = power_w;
        }
    }
    return 1 / slow;
}

void erg_simulator_throttle(struct simulator *sim)
{
    struct erg_scheduler *scheduler = sim->scheduler;
    double before = sim->meter.throttle;
    if (isinf(sim->simulation->power_cap_w))
        return;
    sim->meter.throttle = find_throttle(sim);
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        const struct erg_speed *speed = speed_of(sim, job);
        if (erg_speed_slowdown(speed, job->point, before) !=
            erg_speed_slowdown(speed, job->point, sim->meter.throttle))
            erg_simulator_pace(sim, id);
    }
}
