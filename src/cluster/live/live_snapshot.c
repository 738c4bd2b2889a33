/* Snapshots of a resource manager: states and their names, and release. */
#include "cluster/live/live_engine.h"

#include <stdlib.h>

const char *erg_live_node_state_name(enum erg_live_node_state state)
{
    static const char *const names[] = {"up", "draining", "down", "off", "changing", "unknown"};
    return names[state];
}

bool erg_live_state_is_over(enum erg_live_state state)
{
    return state == ERG_LIVE_COMPLETED || state == ERG_LIVE_FAILED || state == ERG_LIVE_CANCELLED;
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
