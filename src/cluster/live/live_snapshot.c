/* Snapshots of a resource manager, released. */
#include "cluster/live/live_engine.h"

#include <stdlib.h>

void erg_live_snapshot_release(struct erg_live_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->jobs_count; i++)
        erg_placement_release(&snapshot->jobs[i].placement);
    free(snapshot->jobs);
    free(snapshot->nodes);
    erg_arena_release(&snapshot->strings);
    *snapshot = (struct erg_live_snapshot){0};
}
