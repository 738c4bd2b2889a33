/* Finds jobs that are not served, during a simulation and at its end. */
#include "cluster/simulate/simulation_internal.h"

#include <math.h>

void erg_simulator_note_unserved(struct simulator *sim, int job, enum erg_unserved_fate fate)
{
    ERG_PUSH(&sim->unserved, items, (struct erg_unserved){job, fate});
}

/* Returns true if a job can run on its requested number of GPUs of its requested type. */
static bool runs_as_asked(const struct simulator *sim, const struct erg_trace_job *request)
{
    const struct erg_speeds *speeds = sim->simulation->speeds;
    for (int shape = 0; shape < speeds->shapes_count; shape++)
        if (erg_shape_gpus(&speeds->shapes[shape]) == request->gpus &&
            (request->type < 0 || speeds->shapes[shape].type == request->type) &&
            erg_speed_feasible(erg_speed_at(speeds, request->workload, shape)))
            return true;
    return false;
}

void erg_simulator_note_rejected(struct simulator *sim, int id)
{
    const struct erg_trace_job *request = sim->scheduler->jobs[id].request;
    if (erg_speeds_runnable(sim->simulation->speeds, request->workload, -1) &&
        !runs_as_asked(sim, request))
        erg_simulator_note_unserved(sim, id, ERG_UNSERVED_TURNED_AWAY);
}

void erg_simulator_note_waiting(struct simulator *sim)
{
    const struct erg_scheduler *scheduler = sim->scheduler;
    for (int id = scheduler->waiting.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        if (!runs_as_asked(sim, job->request) && isnan(job->started_s))
            erg_simulator_note_unserved(sim, id, ERG_UNSERVED_NEVER_RUN);
        else if (isinf(sim->simulation->until_s))
            erg_simulator_note_unserved(sim, id, ERG_UNSERVED_LEFT);
    }
}
