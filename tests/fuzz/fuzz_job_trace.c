/* libFuzzer: any bytes as a trace of jobs for a small fleet. What is accepted must make sense. */
#include "cluster/job_trace.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static char big[] = "big", small[] = "small";
    struct erg_gpu_type types[2] = {
        {.name = big, .nodes = 2, .gpus_per_node = 4, .memory_bytes = 80e9},
        {.name = small, .nodes = 2, .gpus_per_node = 2, .memory_bytes = 24e9, .first_node = 2}};
    const struct erg_fleet fleet = {.types = types, .types_count = 2, .nodes = 4, .gpus = 12};
    struct erg_job_trace *trace;
    struct erg_error err;
    if (erg_job_trace_parse(&trace, "fuzz.csv", (const char *)data, size, &fleet, &err) != 0)
        return 0;
    for (size_t i = 0; i < trace->count; i++) {
        const struct erg_trace_job *job = &trace->jobs[i];
        if (!(job->iterations >= 1) || job->gpus < 1 || job->type < -1 || job->type > 1 ||
            !(job->submit_s >= trace->first_submit_s) || job->workload < 0 ||
            (size_t)job->workload >= trace->workloads_count || job->tenant < 0 ||
            (size_t)job->tenant >= trace->tenants_count)
            abort();
    }
    erg_job_trace_free(trace);
    return 0;
}
