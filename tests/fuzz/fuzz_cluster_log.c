/* libFuzzer: any bytes as a log of another cluster. What is made of it must be able to run. */
#include "cluster/traces/import.h"
#include "shared_maker.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_trace_maker *maker = shared_maker();
    struct erg_trace_import import;
    struct erg_error err;
    if (erg_trace_import_text(&import, maker, "fuzz", (const char *)data, size, 1, &err) == 0)
        check_made(maker);
    return 0;
}
