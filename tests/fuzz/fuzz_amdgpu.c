/* The table of an AMD GPU: any bytes are decoded within their length, and nothing is negative but
 * what is not there. */
#include "telemetry/amdgpu_internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct amdgpu_table table;
    if (!erg_amdgpu_table_decode(&table, data, size))
        return 0;
    const int64_t values[] = {
        table.energy_mj,
        table.sent_bytes,
        table.received_bytes,
        table.reasons,
        table.ticks,
        table.limited_ticks[AMDGPU_LIMIT_POWER],
        table.limited_ticks[AMDGPU_LIMIT_HEAT],
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i] < -1)
            abort();
    return 0;
}
