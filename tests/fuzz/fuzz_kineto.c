/* libFuzzer: any bytes as a trace of kernels, whose times must make sense. */
#include "as_file.h"

#include "trace/kernel_import.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err;
    struct erg_kernel_lanes lanes;
    const char *path = as_file(data, size);
    if (erg_kernel_import(&lanes, &path, 1, ERG_KERNEL_RULE_ERGON, NULL, &err) == 0)
        for (size_t i = 0; i < lanes.count; i++) {
            const struct erg_kernel_time *time = &lanes.items[i].time;
            if (time->compute_ns + time->exposed_ns + time->idle_ns !=
                time->end_ns - time->begin_ns)
                abort();
        }
    else if (!*err.message)
        abort();
    erg_kernel_lanes_release(&lanes);
    return 0;
}
