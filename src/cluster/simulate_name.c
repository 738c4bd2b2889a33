/* Jobs that cannot run, named with their lines of the trace, so that none is dropped silently. */
#include "cluster/simulate_internal.h"

#include "base/log.h"

#include <math.h>

/* Whether a job runs on as many GPUs as it asked for, of the type that it asked for. */
static bool runs_as_asked(const struct simulator *sim, const struct erg_trace_job *request)
{
    const struct erg_speeds *speeds = sim->simulation->speeds;
    for (int shape = 0; shape < speeds->shapes_count; shape++)
        if (erg_shape_gpus(&speeds->shapes[shape]) == request->gpus &&
            (request->type < 0 || speeds->shapes[shape].type == request->type) &&
            erg_speed_feasible(erg_speed_at(speeds, ERG_PLANS_ANY, request->workload, shape)))
            return true;
    return false;
}

static void name_unfit(const struct simulator *sim, const struct erg_trace_job *request,
                       const char *fate)
{
    const struct erg_simulation *simulation = sim->simulation;
    const struct erg_trace_workload *workload = &simulation->trace->workloads[request->workload];
    erg_log(ERG_LOG_WARNING,
            "%s:%zu: policy %s %s job '%s', which asks for %d GPUs of %s%s: no profile of %s %s at "
            "batch %ld fits those",
            simulation->trace->path, request->line, simulation->policy->name, fate, request->id,
            request->gpus, request->type < 0 ? "any type" : "type ",
            request->type < 0 ? "" : simulation->fleet->types[request->type].name, workload->family,
            workload->size, workload->batch);
}

void simulator_name_rejected(const struct simulator *sim, int id)
{
    const struct erg_trace_job *request = sim->scheduler->jobs[id].request;
    if (erg_speeds_runnable(sim->simulation->speeds, request->workload, -1) &&
        !runs_as_asked(sim, request))
        name_unfit(sim, request, "turns away");
}

void simulator_name_waiting(const struct simulator *sim)
{
    const struct erg_scheduler *scheduler = sim->scheduler;
    for (int id = scheduler->waiting.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_trace_job *request = scheduler->jobs[id].request;
        if (!runs_as_asked(sim, request) && isnan(scheduler->jobs[id].started_s))
            name_unfit(sim, request, "never runs");
        else if (isinf(sim->simulation->until_s))
            erg_log(ERG_LOG_WARNING,
                    "%s:%zu: policy %s leaves job '%s' waiting when nothing else can happen any "
                    "more",
                    sim->simulation->trace->path, request->line, sim->simulation->policy->name,
                    request->id);
    }
}
