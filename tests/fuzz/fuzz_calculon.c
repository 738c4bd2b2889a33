/* libFuzzer: any text as a model or a system of Calculon. */
#include "layout/exchange/calculon.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err;
    struct erg_calculon_model model;
    struct erg_calculon_system system;
    if (erg_calculon_model_parse(&model, "fuzz", (const char *)data, size, &err) == 0 &&
        (model.hidden < 1 || model.heads < 1 || model.blocks < 1))
        abort();
    if (erg_calculon_system_parse(&system, "fuzz", (const char *)data, size, &err) == 0 &&
        (system.network_count < 1 || !(system.peak_flops > 0) || !(system.memory.bytes > 0)))
        abort();
    return 0;
}
