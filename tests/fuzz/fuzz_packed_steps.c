/* Steps as bytes: the first byte is their number; what is read lies inside the bytes, or is
 * refused. */
#include "base/memory.h"
#include "device/packed_steps.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    size_t count = data[0], bytes = size - 1;
    char *copy = erg_xmalloc(bytes);
    const struct erg_step *steps;
    volatile double sum = 0;
    memcpy(copy, data + 1, bytes);
    if (erg_packed_steps_read(copy, bytes, count, &steps, NULL) == 0)
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < steps[i].task.op_count; k++)
                sum = sum + steps[i].task.ops[k].flops; /* all of it can be read */
    free(copy);
    return 0;
}
