/* libFuzzer: any bytes as a safetensors file; what is accepted can be read to its last element. */
#include "train/files/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err;
    struct erg_safetensors set = {0};
    int result = erg_safetensors_parse(&set, "model.safetensors", data, size, &err);
    for (size_t i = 0; result == 0 && i < set.count; i++) {
        const struct erg_safetensor *tensor = &set.items[i];
        if (erg_safetensors_find(&set, tensor->name) == NULL)
            abort();
        for (uint64_t k = 0; k < tensor->count; k++) {
            float value;
            if (erg_safetensor_read(tensor, k, 1, &value, &err) != 0)
                break;
        }
    }
    erg_safetensors_release(&set);
    return 0;
}
