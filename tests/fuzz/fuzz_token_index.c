/* libFuzzer: any bytes as an index of Megatron's data, whose .bin has as many as the first say. */
#include "train/data/token_set.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err;
    struct erg_token_index index;
    uint64_t bin_bytes = 23610; /* of the file beside the one that it begins with */
    if (erg_token_index_parse(&index, "tokens.idx", data, size, bin_bytes, &err) != 0)
        return 0;
    if (index.tokens * index.token_bytes != bin_bytes)
        abort();
    return 0;
}
