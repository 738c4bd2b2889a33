/* The request of a job as shapes of GPUs. */
#include "cluster/schedule/asked.h"

#include <math.h>

static bool runs(const struct erg_scheduler *scheduler, int job, int shape)
{
    return shape >= 0 && erg_speed_feasible(erg_scheduler_speed(scheduler, job, shape));
}

int erg_asked_shape(const struct erg_scheduler *scheduler, int job, int type)
{
    int shape = erg_speeds_best(scheduler->speeds, type, scheduler->jobs[job].request->gpus);
    return runs(scheduler, job, shape) ? shape : -1;
}

double erg_asked_speed(const struct erg_scheduler *scheduler, int job, int type)
{
    int shape = erg_asked_shape(scheduler, job, type);
    return shape < 0 ? 0 : erg_scheduler_speed(scheduler, job, shape)->samples_per_s;
}

int erg_asked_next_type(const struct erg_scheduler *scheduler, int job, int after)
{
    double after_speed = after < 0 ? INFINITY : erg_asked_speed(scheduler, job, after);
    double best_speed = 0;
    int best = -1;
    for (int type = 0; type < (int)scheduler->fleet->types_count; type++) {
        double speed = erg_asked_speed(scheduler, job, type);
        bool comes_later = speed < after_speed || (speed == after_speed && type > after);
        if (comes_later && speed > best_speed) {
            best_speed = speed;
            best = type;
        }
    }
    return best;
}

int erg_asked_type(const struct erg_scheduler *scheduler, int job)
{
    int wanted = scheduler->jobs[job].request->type;
    if (wanted < 0)
        return erg_asked_next_type(scheduler, job, -1);
    return erg_asked_speed(scheduler, job, wanted) > 0 ? wanted : -1;
}

/* The same number of GPUs on twice as many nodes, if the speed of the job there is known; -1:
 * none. */
static int relaxed_shape(const struct erg_scheduler *scheduler, int job, int shape)
{
    const struct erg_gpu_shape *tight = &scheduler->speeds->shapes[shape];
    if (tight->gpus_per_node % 2 != 0)
        return -1;
    int relaxed = erg_speeds_shape(scheduler->speeds, tight->type, tight->nodes * 2,
                                   tight->gpus_per_node / 2);
    return runs(scheduler, job, relaxed) ? relaxed : -1;
}

bool erg_asked_fit(struct erg_scheduler *scheduler, int job, int type, enum erg_node_order order)
{
    for (int shape = erg_asked_shape(scheduler, job, type); shape >= 0;
         shape = relaxed_shape(scheduler, job, shape))
        if (erg_scheduler_fit(scheduler, job, shape, order, 0))
            return true;
    return false;
}

int erg_asked_fit_anywhere(struct erg_scheduler *scheduler, int job, enum erg_node_order order)
{
    int gpus = scheduler->jobs[job].request->gpus, type = -1;
    while ((type = erg_asked_next_type(scheduler, job, type)) >= 0)
        if (gpus <= scheduler->occupancy->free_gpus[type] &&
            erg_asked_fit(scheduler, job, type, order))
            return type;
    return -1;
}
