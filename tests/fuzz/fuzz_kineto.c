/* libFuzzer: any bytes as a trace of kernels, whose times must make sense. */
#include "as_file.h"

#include "trace/kernel_import.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static int check(void *context, const struct erg_kernel_record *record, struct erg_error *err)
{
    (void)context;
    (void)err;
    if (record->end_ns < record->start_ns || !record->name ||
        (record->wait_ns != -1 && record->wait_ns < 0) ||
        record->wait_ns > record->end_ns - record->start_ns)
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err = {0};
    struct erg_kernel_lanes lanes;
    struct erg_kineto_about about;
    const char *path = as_file(data, size);
    if (erg_kineto_read(&about, path, check, NULL, &err) != 0) {
        if (!strstr(err.message, path))
            abort();
        return 0;
    }
    if (erg_kernel_import(&lanes, &path, 1, ERG_KERNEL_RULE_ERGON, NULL, &err) == 0)
        for (size_t i = 0; i < lanes.count; i++) {
            const struct erg_kernel_time *time = &lanes.items[i].time;
            if (time->compute_ns + time->exposed_ns + time->idle_ns !=
                time->end_ns - time->begin_ns)
                abort();
        }
    erg_kernel_lanes_release(&lanes);
    return 0;
}
