/* The file of a live cluster: any bytes are refused, or are a fleet whose nodes all have names. */
#include "as_file.h"

#include "cluster/live/live_file.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_live_file *live;
    struct erg_error err;
    if (erg_live_file_load(&live, as_file(data, size), &err) != 0)
        return 0;
    if (live->fleet.nodes < 1 || live->nodes.count != (size_t)live->fleet.nodes || !live->policy ||
        *live->slurm.spool != '/' || !(live->slurm.poll_s > 0) || !(live->power_cap_w > 0))
        abort();
    for (size_t i = 0; i < live->nodes.count; i++)
        if (!*live->nodes.items[i])
            abort();
    erg_live_file_free(live);
    return 0;
}
