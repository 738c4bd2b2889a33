/* libFuzzer: any bytes as the files of a run, its sessions up to an empty line and then its log,
 * for ergon fit. A row has a time, and a layout of the model. */
#include "train/log/run_row.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_fit_rows rows = {0};
    struct erg_cluster cluster;
    struct erg_error err;
    char *text = erg_xmalloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    char *metrics = strstr(text, "\n\n");
    if (metrics)
        *metrics = '\0';
    if (erg_run_row_parse(&rows, "run", text, metrics ? metrics + 2 : "", &cluster, &err) == 0 &&
        (!(rows.items[0].time_s > 0) || rows.items[0].run->steps < ERG_RUN_ROW_LEAST_STEPS ||
         erg_layout_check(&rows.items[0].layout, rows.items[0].model, &err) != 0))
        abort();
    erg_fit_rows_release(&rows);
    free(text);
    return 0;
}
