/* Failures and repairs of nodes during a simulation. */
#include "cluster/simulate/simulation_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* ---- the order of outages ---- */

static int compare_begins(const void *a, const void *b)
{
    const struct erg_outage *x = *(const struct erg_outage *const *)a;
    const struct erg_outage *y = *(const struct erg_outage *const *)b;
    if (x->from_s != y->from_s)
        return x->from_s < y->from_s ? -1 : 1;
    return x->node - y->node;
}

static int compare_ends(const void *a, const void *b)
{
    const struct erg_outage *x = *(const struct erg_outage *const *)a;
    const struct erg_outage *y = *(const struct erg_outage *const *)b;
    if (x->to_s != y->to_s)
        return x->to_s < y->to_s ? -1 : 1;
    return x->node - y->node;
}

void erg_simulator_sort_outages(struct outages *outages, const struct erg_simulation *simulation)
{
    size_t count = simulation->outages_count;
    outages->begins = erg_xcalloc(count, sizeof *outages->begins);
    outages->ends = erg_xcalloc(count, sizeof *outages->ends);
    for (size_t i = 0; i < count; i++)
        outages->begins[i] = outages->ends[i] = &simulation->outages[i];
    qsort(outages->begins, count, sizeof *outages->begins, compare_begins);
    qsort(outages->ends, count, sizeof *outages->ends, compare_ends);
}

/* ---- during the simulation ---- */

static void evict(struct simulator *sim, int id, int node)
{
    double iteration_s = sim->scheduler->works[id].iteration_s;
    erg_simulator_record(sim, ERG_RECORD_EVICT, id, node);
    erg_cluster_meter_undo(&sim->meter, id, erg_scheduler_evict(sim->scheduler, id), iteration_s);
    erg_simulator_refresh(sim, id);
}

static void fail_node(struct simulator *sim, int node)
{
    struct erg_occupancy *occupancy = sim->scheduler->occupancy;
    int gpus = sim->scheduler->fleet->types[occupancy->type_of[node]].gpus_per_node;
    for (int gpu = 0; gpu < gpus; gpu++) {
        int owner = erg_occupancy_owner(occupancy, node, gpu);
        if (owner >= 0)
            evict(sim, owner, node);
    }
    if (occupancy->off[node]) {
        erg_occupancy_switch(occupancy, node, false);
        erg_cluster_meter_switch(&sim->meter, node, false);
    }
    sim->scheduler->ready_s[node] = 0;
    erg_occupancy_fail(occupancy, node);
    erg_cluster_meter_node(&sim->meter, node, true);
    erg_simulator_record(sim, ERG_RECORD_FAILURE, -1, node);
    sim->scheduler->course->events |= ERG_EVENT_FAILURE;
}

static void repair_node(struct simulator *sim, int node)
{
    erg_occupancy_repair(sim->scheduler->occupancy, node);
    erg_cluster_meter_node(&sim->meter, node, false);
    erg_simulator_record(sim, ERG_RECORD_REPAIR, -1, node);
    sim->scheduler->course->events |= ERG_EVENT_REPAIR;
}

double erg_simulator_next_outage(const struct simulator *sim)
{
    const struct outages *outages = &sim->outages;
    size_t count = sim->simulation->outages_count;
    double begin_s = outages->begun < count ? outages->begins[outages->begun]->from_s : INFINITY;
    double end_s = outages->ended < count ? outages->ends[outages->ended]->to_s : INFINITY;
    return fmin(begin_s, end_s);
}

/* Repairs precede failures, so that a node with adjacent outages is not up in between. */
void erg_simulator_pass_outages(struct simulator *sim)
{
    struct outages *outages = &sim->outages;
    size_t count = sim->simulation->outages_count;
    double now_s = sim->scheduler->now_s;
    while (erg_simulator_next_outage(sim) <= now_s) {
        if (outages->ended < count && outages->ends[outages->ended]->to_s <= now_s)
            repair_node(sim, outages->ends[outages->ended++]->node);
        else
            fail_node(sim, outages->begins[outages->begun++]->node);
    }
}
