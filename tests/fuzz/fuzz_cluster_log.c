/* libFuzzer: any bytes as a log of another cluster. What is made of it must be able to run. */
#include "cluster/traces/import.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_fleet *fleet;
    struct erg_trace_maker maker;
    struct erg_trace_import import;
    struct erg_error err;
    if (erg_fleet_load(&fleet, ERGON_TEST_SOURCE_DIR "/examples/cluster/cluster.yaml", &err) ||
        erg_trace_maker_init(&maker, fleet, ERGON_TEST_SOURCE_DIR "/examples/cluster/profiles",
                             &err))
        abort();
    if (erg_trace_import_text(&import, &maker, "fuzz", (const char *)data, size, 1, &err) == 0)
        for (size_t i = 0; i < maker.trace->count; i++) {
            const struct erg_trace_job *job = &maker.trace->jobs[i];
            if (!(job->iterations >= 1) || !(job->submit_s >= 0) ||
                isinf(erg_trace_maker_iteration(&maker, job->workload, job->type, job->gpus)))
                abort();
        }
    erg_trace_maker_release(&maker);
    erg_fleet_free(fleet);
    return 0;
}
