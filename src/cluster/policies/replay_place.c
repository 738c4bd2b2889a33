/* What the replays of Gavel and Sia have in common: how a decision is carried out. */
#include "cluster/policies/replay_internal.h"
#include "cluster/schedule/asked.h"

/* On the best locality of these GPUs or, where there is no room, on twice its nodes. */
static bool place(struct erg_scheduler *scheduler, const struct replay_change *change,
                  enum erg_plans plans)
{
    if (change->shape < 0 ||
        !erg_speed_feasible(erg_scheduler_speed(scheduler, change->job, plans, change->shape)))
        return false;
    if (erg_scheduler_fit(scheduler, change->job, change->shape, ERG_MOST_FREE, 0))
        return true;
    int relaxed = erg_relaxed_shape(scheduler, change->job, change->shape, plans);
    return relaxed >= 0 && erg_scheduler_fit(scheduler, change->job, relaxed, ERG_MOST_FREE, 0);
}

bool replay_apply(struct erg_scheduler *scheduler, const struct replay_change *changes, int count,
                  const struct replay_change *admitted, enum erg_plans plans)
{
    struct erg_placement old[REPLAY_CHANGES_MOST] = {0};
    bool placed = true;
    for (int i = 0; i < count; i++) {
        erg_placement_assign(&old[i], &scheduler->jobs[changes[i].job].placement);
        erg_scheduler_lift(scheduler, changes[i].job);
    }
    for (int i = 0; i < count && placed; i++)
        placed = place(scheduler, &changes[i], plans);
    placed = placed && place(scheduler, admitted, plans);
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
