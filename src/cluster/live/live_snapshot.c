/* Snapshots of a resource manager: looking a job up, and releasing one. */
#include "cluster/live/live_engine.h"

#include <stdlib.h>

const struct erg_live_job *erg_live_snapshot_find(const struct erg_live_snapshot *snapshot,
                                                  uint32_t id)
{
    for (size_t i = 0; i < snapshot->jobs_count; i++)
        if (snapshot->jobs[i].id == id)
            return &snapshot->jobs[i];
    return NULL;
}

void erg_live_snapshot_release(struct erg_live_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->jobs_count; i++)
        erg_placement_release(&snapshot->jobs[i].placement);
    free(snapshot->jobs);
    free(snapshot->nodes);
    erg_arena_release(&snapshot->strings);
    *snapshot = (struct erg_live_snapshot){0};
}
