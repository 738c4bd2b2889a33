/* Stage profiles: any bytes are either refused with a sentence or solved. */
#include "iteration/iteration.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Solves and releases; the time of the slowest plan, 0 after a failure. */
static double solve(const struct erg_iteration_request *request)
{
    struct erg_error err = {0};
    struct erg_iteration iteration;
    double slowest_s = 0;
    if (erg_iteration_solve(&iteration, request, &err) != 0)
        return 0;
    for (size_t i = 0; i < iteration.plan_count; i++) {
        if (!(iteration.plans[i].time_s > 0))
            abort();
        slowest_s = iteration.plans[i].time_s;
    }
    erg_iteration_release(&iteration);
    return slowest_s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct erg_profile profile;
    struct erg_error err = {0};
    if (erg_profile_parse(&profile, "fuzz.csv", (const char *)data, size, &err) != 0) {
        if (!err.message[0] || !err.status)
            abort();
        return 0;
    }
    /* The whole range, and one deadline that is searched hard: doing that for all of the range
     * takes seconds under sanitizers, which look like a hang. */
    struct erg_iteration_request request = {.pipeline = {.stages = profile.virtual_stages,
                                                         .microbatches = 3,
                                                         .chunks = 1,
                                                         .blocking_power_w = 50},
                                            .tables = profile.tables,
                                            .points = 4,
                                            .tries = true};
    const double deadline_s = solve(&request);
    request.points = 0;
    request.tries = false;
    request.deadlines_s = &deadline_s;
    request.deadline_count = 1;
    if (deadline_s > 0) {
        const double met_s = solve(&request);
        if (!(met_s > 0 && met_s <= deadline_s)) /* a plan just met it */
            abort();
    }
    erg_profile_release(&profile);
    return 0;
}
