/* Describes jobs that are not served. */
#include "cluster/unserved.h"

#include "cluster/speed_table.h"

const char *const erg_unserved_names[ERG_UNSERVED_FATES] = {
    [ERG_UNSERVED_NOWHERE] = "nowhere",
    [ERG_UNSERVED_TURNED_AWAY] = "turned_away",
    [ERG_UNSERVED_NEVER_RUN] = "never_run",
    [ERG_UNSERVED_LEFT] = "left_waiting",
};

void erg_unserved_text(struct erg_text *out, const struct erg_unserved *unserved,
                       const struct erg_job_trace *trace, const struct erg_fleet *fleet,
                       const char *policy)
{
    const struct erg_trace_job *job = &trace->jobs[unserved->job];
    const struct erg_trace_workload *workload = &trace->workloads[job->workload];
    erg_text_printf(out, "%s:%zu: ", trace->path, job->line);
    if (unserved->fate == ERG_UNSERVED_LEFT) {
        erg_text_printf(out,
                        "policy %s leaves job '%s' waiting, and no further event will start it",
                        policy, job->id);
        return;
    }
    if (unserved->fate == ERG_UNSERVED_NOWHERE)
        erg_text_printf(out, "job '%s' can never run", job->id);
    else
        erg_text_printf(out, "policy %s %s job '%s', which asks for %d GPU%s of %s%s", policy,
                        unserved->fate == ERG_UNSERVED_TURNED_AWAY ? "rejects" : "never runs",
                        job->id, job->gpus, erg_plural((size_t)job->gpus),
                        job->type < 0 ? "any type" : "type ",
                        job->type < 0 ? "" : fleet->types[job->type].name);
    erg_text_printf(out, ": no profile of %s %s at batch %ld fits %s in at most %d s an iteration",
                    workload->family, workload->size, workload->batch,
                    unserved->fate == ERG_UNSERVED_NOWHERE ? "any GPUs of this cluster" : "those",
                    ERG_ITERATION_MOST_S);
}
