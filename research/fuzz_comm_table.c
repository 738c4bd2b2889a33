/* libFuzzer: any bytes as a table of measured communication. A curve that is found has samples. */
#include "as_file.h"
#include "comm_table.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    const struct erg_allocation allocation = {.gpu_type = "a100", .nodes = 2, .gpus_per_node = 4};
    struct comm_tables *tables;
    struct comm_curve curve;
    struct erg_error err;
    if (comm_tables_load(&tables, as_file(data, size), &err) != 0)
        return 0;
    for (int op = 0; op < ERG_COLLECTIVES; op++)
        if (comm_tables_find(tables, &allocation, (enum erg_grid_collective)op,
                             erg_comm_group_of(0, 1, 4, 4), &curve, &err) == 0 &&
            (curve.count < 1 || isnan(comm_time(&curve, 1e7))))
            abort();
    comm_tables_free(tables);
    return 0;
}
