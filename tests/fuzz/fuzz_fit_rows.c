/* libFuzzer: any bytes as the rows of ergon fit. Each has a time. */
#include "as_file.h"
#include "layout/time/fit.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_fit_rows rows = {0};
    struct erg_error err;
    if (erg_fit_rows_load(&rows, as_file(data, size), &err) == 0)
        for (size_t i = 0; i < rows.count; i++)
            if (!(rows.items[i].time_s > 0))
                abort();
    erg_fit_rows_release(&rows);
    return 0;
}
