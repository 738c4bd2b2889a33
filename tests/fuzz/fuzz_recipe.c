/* libFuzzer: any bytes as a recipe of jobs. What is drawn must be able to run. */
#include "as_file.h"
#include "cluster/traces/generate.h"
#include "shared_maker.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_trace_maker *maker = shared_maker();
    struct erg_error err;
    if (erg_trace_generate(maker, as_file(data, size), 1, &err) == 0)
        check_made(maker);
    return 0;
}
