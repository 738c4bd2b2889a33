#include "cluster/schedule/asked.h"

#include <math.h>

static bool runs(const struct erg_scheduler *scheduler, int job, int shape, enum erg_plans plans)
{
    return shape >= 0 && erg_speed_feasible(erg_scheduler_speed(scheduler, job, plans, shape));
}

int erg_asked_shape(const struct erg_scheduler *scheduler, int job, int type, enum erg_plans plans)
{
    int shape = erg_speeds_best(scheduler->speeds, type, scheduler->jobs[job].request->gpus);
    return runs(scheduler, job, shape, plans) ? shape : -1;
}

/* Samples/s of what a job asked for, on a type; 0: it cannot run so. */
static double asked_speed(const struct erg_scheduler *scheduler, int job, int type,
                          enum erg_plans plans)
{
    int shape = erg_asked_shape(scheduler, job, type, plans);
    return shape < 0 ? 0 : erg_scheduler_speed(scheduler, job, plans, shape)->samples_per_s;
}

int erg_asked_next_type(const struct erg_scheduler *scheduler, int job, enum erg_plans plans,
                        int after)
{
    double after_speed = after < 0 ? INFINITY : asked_speed(scheduler, job, after, plans);
    double best_speed = 0;
    int best = -1;
    for (int type = 0; type < (int)scheduler->fleet->types_count; type++) {
        double speed = asked_speed(scheduler, job, type, plans);
        bool comes_later = speed < after_speed || (speed == after_speed && type > after);
        if (comes_later && speed > best_speed) {
            best_speed = speed;
            best = type;
        }
    }
    return best;
}

int erg_asked_type(const struct erg_scheduler *scheduler, int job, enum erg_plans plans)
{
    int wanted = scheduler->jobs[job].request->type;
    if (wanted < 0)
        return erg_asked_next_type(scheduler, job, plans, -1);
    return asked_speed(scheduler, job, wanted, plans) > 0 ? wanted : -1;
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
