/* Switches off nodes without jobs, and wakes them for the next job. */
#include "cluster/simulate/simulation_internal.h"

#include <math.h>

void erg_simulator_wake_nodes(struct simulator *sim)
{
    struct erg_scheduler *scheduler = sim->scheduler;
    struct erg_occupancy *occupancy = scheduler->occupancy;
    if (!scheduler->fleet->saves_power)
        return;
    for (int node = 0; node < scheduler->fleet->nodes; node++) {
        if (!occupancy->off[node] || erg_occupancy_idle(occupancy, node))
            continue;
        erg_occupancy_switch(occupancy, node, false);
        scheduler->ready_s[node] = scheduler->now_s + scheduler->fleet->power_saving.wake_s;
        erg_cluster_meter_switch(&sim->meter, node, false);
        sim->meter.wake_ups++;
        erg_simulator_record(sim, ERG_RECORD_WAKE, -1, node);
    }
}

/* The time for which a node that has just become idle stays on. */
static double lingers(const struct simulator *sim)
{
    const struct erg_policy *policy = sim->simulation->policy;
    double after_s = sim->scheduler->fleet->power_saving.after_s;
    return policy->linger ? fmax(0, fmin(after_s, policy->linger(sim->scheduler))) : after_s;
}

void erg_simulator_switch_off(struct simulator *sim)
{
    struct erg_occupancy *occupancy = sim->scheduler->occupancy;
    if (!sim->scheduler->fleet->saves_power)
        return;
    /* Schedules the switch-off of nodes that became idle, and cancels it for nodes that got
     * jobs. */
    double due_s = sim->scheduler->now_s + lingers(sim);
    for (int node = 0; node < sim->scheduler->fleet->nodes; node++) {
        bool waits = sim->switching.slot_of[node] >= 0;
        if (waits && !erg_occupancy_idle(occupancy, node))
            erg_event_heap_set(&sim->switching, node, INFINITY);
        else if (!waits && !occupancy->off[node] && erg_occupancy_idle(occupancy, node))
            erg_event_heap_set(&sim->switching, node, due_s);
    }
    while (erg_event_heap_next(&sim->switching) <= sim->scheduler->now_s) {
        int node = erg_event_heap_pop(&sim->switching);
        erg_occupancy_switch(occupancy, node, true);
        erg_cluster_meter_switch(&sim->meter, node, true);
        erg_simulator_record(sim, ERG_RECORD_OFF, -1, node);
    }
}
