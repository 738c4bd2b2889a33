/* A simulation as a Chrome trace. */
#include "cluster/simulate/gpu_uses.h"
#include "cluster/simulate/results.h"

#include "base/memory.h"
#include "io/trace.h"

#include <stdio.h>
#include <stdlib.h>

/* A job is drawn on its first GPU of a node, which no other job has at that time. */
static int thread_of(const struct erg_gpu_use *use)
{
    return use->gpus.node * ERG_NODE_GPUS_MOST + __builtin_ctzll(use->gpus.gpus);
}

static int type_of(const struct erg_fleet *fleet, int node)
{
    int type = 0;
    while (type + 1 < (int)fleet->types_count && node >= fleet->types[type + 1].first_node)
        type++;
    return type;
}

static void add_use(struct erg_trace *trace, const struct erg_gpu_use *use,
                    const struct erg_simulation *simulation, bool *named)
{
    const struct erg_trace_job *job = &simulation->trace->jobs[use->job];
    const struct erg_trace_workload *workload = &simulation->trace->workloads[job->workload];
    int process = 1 + type_of(simulation->fleet, use->gpus.node), thread = thread_of(use);
    if (!named[thread]) {
        char name[64];
        snprintf(name, sizeof name, "node %d, GPU %d", use->gpus.node, thread % ERG_NODE_GPUS_MOST);
        erg_trace_name_thread(trace, process, thread, name);
        named[thread] = true;
    }
    const struct erg_trace_arg args[] = {
        {"model", workload->family, 0},
        {"size", workload->size, 0},
        {"batch", NULL, (double)workload->batch},
        {"gpus_of_node", NULL, __builtin_popcountll(use->gpus.gpus)},
        {"operating_point", NULL, use->point},
    };
    erg_trace_span(trace, process, thread, job->id, "job", use->from_s, use->to_s - use->from_s,
                   args, sizeof args / sizeof *args);
}

int erg_simulated_trace(const struct erg_simulated *result, const struct erg_simulation *simulation,
                        const char *path, struct erg_error *err)
{
    const struct erg_fleet *fleet = simulation->fleet;
    struct erg_trace *trace = erg_trace_new();
    struct erg_gpu_uses uses;
    bool *named = erg_xcalloc((size_t)fleet->nodes * ERG_NODE_GPUS_MOST, sizeof *named);
    erg_trace_name_process(trace, 0, "cluster");
    for (unsigned t = 0; t < fleet->types_count; t++)
        erg_trace_name_process(trace, 1 + (int)t, fleet->types[t].name);
    for (size_t i = 0; i < result->samples_count; i++) {
        const struct erg_cluster_sample *sample = &result->samples[i];
        const struct erg_trace_arg jobs[] = {{"running", NULL, sample->running},
                                             {"waiting", NULL, sample->waiting}};
        const struct erg_trace_arg rate = {"samples_per_s", NULL, sample->samples_per_s};
        const struct erg_trace_arg power = {"power_w", NULL, sample->power_w};
        erg_trace_counter(trace, 0, "jobs", sample->at_s, jobs, 2);
        erg_trace_counter(trace, 0, "throughput", sample->at_s, &rate, 1);
        erg_trace_counter(trace, 0, "power", sample->at_s, &power, 1);
    }
    erg_gpu_uses_read(&uses, result);
    for (size_t i = 0; i < uses.count; i++)
        add_use(trace, &uses.items[i], simulation, named);
    int status = erg_trace_write(trace, path, err);
    erg_gpu_uses_release(&uses);
    free(named);
    erg_trace_free(trace);
    return status;
}
