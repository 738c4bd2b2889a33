#include "cluster/schedule/asked.h"

static bool runs(const struct erg_scheduler *scheduler, int job, int shape, enum erg_plans plans)
{
    return shape >= 0 && erg_speed_feasible(erg_scheduler_speed(scheduler, job, plans, shape));
}

int erg_asked_shape(const struct erg_scheduler *scheduler, int job, int type, enum erg_plans plans)
{
    int shape = erg_speeds_best(scheduler->speeds, type, scheduler->jobs[job].request->gpus);
    return runs(scheduler, job, shape, plans) ? shape : -1;
}

int erg_asked_type(const struct erg_scheduler *scheduler, int job, enum erg_plans plans)
{
    int wanted = scheduler->jobs[job].request->type, best = -1;
    double best_speed = 0;
    for (int type = 0; type < (int)scheduler->fleet->types_count; type++) {
        int shape = erg_asked_shape(scheduler, job, type, plans);
        if (shape < 0 || (wanted >= 0 && type != wanted))
            continue;
        double speed = erg_scheduler_speed(scheduler, job, plans, shape)->samples_per_s;
        if (speed > best_speed) {
            best_speed = speed;
            best = type;
        }
    }
    return best;
}

int erg_relaxed_shape(const struct erg_scheduler *scheduler, int job, int shape,
                      enum erg_plans plans)
{
    const struct erg_gpu_shape *tight = &scheduler->speeds->shapes[shape];
    if (tight->gpus_per_node % 2 != 0)
        return -1;
    int relaxed = erg_speeds_shape(scheduler->speeds, tight->type, tight->nodes * 2,
                                   tight->gpus_per_node / 2);
    return runs(scheduler, job, relaxed, plans) ? relaxed : -1;
}

bool erg_fit_relaxed(struct erg_scheduler *scheduler, int job, int shape, enum erg_plans plans,
                     enum erg_node_order order)
{
    for (; shape >= 0; shape = erg_relaxed_shape(scheduler, job, shape, plans))
        if (erg_scheduler_fit(scheduler, job, shape, order, 0))
            return true;
    return false;
}
