/* Stage profiles: any bytes are either refused with a sentence or solved. */
#include "iteration/iteration.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct erg_profile profile;
    struct erg_error err = {0};
    if (erg_profile_parse(&profile, "fuzz.csv", (const char *)data, size, &err) != 0) {
        if (!err.message[0] || !err.status)
            abort();
        return 0;
    }
    struct erg_iteration_request request = {.pipeline = {.stages = profile.virtual_stages,
                                                         .microbatches = 3,
                                                         .chunks = 1,
                                                         .blocking_power_w = 50},
                                            .tables = profile.tables,
                                            .points = 4};
    struct erg_iteration iteration;
    if (erg_iteration_solve(&iteration, &request, &err) == 0) {
        for (size_t i = 0; i < iteration.plan_count; i++)
            if (!(iteration.plans[i].time_s > 0))
                abort();
        erg_iteration_release(&iteration);
    }
    erg_profile_release(&profile);
    return 0;
}
