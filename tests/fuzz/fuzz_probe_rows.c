/* libFuzzer: any bytes as the rows of a probe. */
#include "as_file.h"
#include "probe/probe.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_probe_rows rows = {0};
    struct erg_error err;
    char gpu[64];
    if (erg_probe_rows_load(&rows, as_file(data, size), &err) == 0)
        for (size_t i = 0; i < rows.count; i++) {
            erg_probe_row_gpu(&rows.items[i], gpu, sizeof gpu);
            if (rows.items[i].gpus < 1 || !isfinite(rows.items[i].time_s))
                abort();
        }
    erg_probe_rows_release(&rows);
    return 0;
}
