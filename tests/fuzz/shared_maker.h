/* A trace maker of the example's fleet and profiles, which are loaded once for all inputs. */
#ifndef ERGON_TESTS_FUZZ_SHARED_MAKER_H
#define ERGON_TESTS_FUZZ_SHARED_MAKER_H

#include "cluster/traces/maker.h"

#include <math.h>
#include <stdlib.h>

#define EXAMPLE ERGON_TEST_SOURCE_DIR "/examples/cluster"

static inline const struct erg_fleet *shared_fleet(void)
{
    static struct erg_fleet *fleet;
    struct erg_error err;
    if (!fleet && erg_fleet_load(&fleet, EXAMPLE "/cluster.yaml", &err) != 0)
        abort();
    return fleet;
}

/* Without the jobs of the last input. */
static inline struct erg_trace_maker *shared_maker(void)
{
    static struct erg_trace_maker maker;
    struct erg_error err;
    if (!maker.trace &&
        erg_trace_maker_init(&maker, shared_fleet(), EXAMPLE "/profiles", &err) != 0)
        abort();
    struct erg_job_trace *trace = maker.trace;
    while (trace->count > 0)
        free(trace->jobs[--trace->count].id);
    while (trace->tenants_count > 0)
        free(trace->tenants[--trace->tenants_count]);
    return &maker;
}

/* What was made of an input must be able to run. */
static inline void check_made(const struct erg_trace_maker *maker)
{
    for (size_t i = 0; i < maker->trace->count; i++) {
        const struct erg_trace_job *job = &maker->trace->jobs[i];
        if (!(job->iterations >= 1 && job->iterations <= 1e12) || !(job->submit_s >= 0) ||
            isinf(erg_trace_maker_iteration(maker, job->workload, job->type, job->gpus)))
            abort();
    }
}

#endif
