/* What the replays of Gavel and Sia have in common: how a decision is carried out. */
#include "tables.h"

/* On the best locality of these GPUs or, where there is no room, on twice its nodes. */
static bool place(struct erg_scheduler *scheduler, const struct replay_change *change,
                  const struct erg_speeds *speeds)
{
    int shape = change->shape, workload = scheduler->jobs[change->job].request->workload;
    if (shape < 0 || !erg_speed_feasible(erg_speed_at(speeds, workload, shape)))
        return false;
    if (erg_scheduler_fit(scheduler, change->job, shape, ERG_MOST_FREE, 0))
        return true;
    const struct erg_gpu_shape *tight = &speeds->shapes[shape];
    int relaxed =
        tight->gpus_per_node % 2 == 0
            ? erg_speeds_shape(speeds, tight->type, tight->nodes * 2, tight->gpus_per_node / 2)
            : -1;
    return relaxed >= 0 && erg_speed_feasible(erg_speed_at(speeds, workload, relaxed)) &&
           erg_scheduler_fit(scheduler, change->job, relaxed, ERG_MOST_FREE, 0);
}

bool replay_apply(struct erg_scheduler *scheduler, const struct replay_change *changes, int count,
                  const struct replay_change *admitted, const struct erg_speeds *speeds)
{
    struct erg_placement old[REPLAY_CHANGES_MOST] = {0};
    bool placed = true;
    for (int i = 0; i < count; i++) {
        erg_placement_assign(&old[i], &scheduler->jobs[changes[i].job].placement);
        erg_scheduler_lift(scheduler, changes[i].job);
    }
    for (int i = 0; i < count && placed; i++)
        placed = place(scheduler, &changes[i], speeds);
    placed = placed && place(scheduler, admitted, speeds);
    for (int i = 0; i < count && !placed; i++)
        if (scheduler->jobs[changes[i].job].shape >= 0)
            erg_scheduler_lift(scheduler, changes[i].job);
    for (int i = 0; i < count; i++) {
        if (!placed)
            erg_scheduler_place(scheduler, changes[i].job, &old[i], 0);
        erg_placement_release(&old[i]);
    }
    return placed;
}
