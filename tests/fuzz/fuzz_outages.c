/* libFuzzer: any bytes as outages of the example's fleet. Each is of a node, and ends after it
 * began. */
#include "as_file.h"
#include "cluster/simulate/outages.h"
#include "shared_maker.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_outages outages = {0};
    struct erg_error err;
    if (erg_outages_load(&outages, as_file(data, size), shared_fleet(), &err) == 0)
        for (size_t i = 0; i < outages.count; i++)
            if (outages.items[i].node < 0 || outages.items[i].node >= shared_fleet()->nodes ||
                !(outages.items[i].from_s >= 0) ||
                !(outages.items[i].to_s >= outages.items[i].from_s))
                abort();
    erg_outages_release(&outages);
    return 0;
}
