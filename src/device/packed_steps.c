/* Steps as bytes: written by rank 0 of a device, read and checked by those that follow it. */
#include "device/packed_steps.h"

#include <string.h>

size_t erg_packed_steps_bytes(const struct erg_step *steps, size_t count)
{
    size_t bytes = count * sizeof *steps;
    for (size_t i = 0; i < count; i++)
        bytes += steps[i].task.op_count * sizeof *steps[i].task.ops;
    return bytes;
}

void erg_packed_steps_write(const struct erg_step *steps, size_t count, char *bytes)
{
    memcpy(bytes, steps, count * sizeof *steps);
    bytes += count * sizeof *steps;
    for (size_t i = 0; i < count; i++) {
        size_t size = steps[i].task.op_count * sizeof *steps[i].task.ops;
        memcpy(bytes, steps[i].task.ops, size);
        bytes += size;
    }
}

int erg_packed_steps_read(char *bytes, size_t size, size_t count, const struct erg_step **out,
                          struct erg_error *err)
{
    struct erg_step *steps = (struct erg_step *)(void *)bytes;
    size_t left = size;
    bool fits = count <= left / sizeof *steps;
    if (fits) {
        bytes += count * sizeof *steps;
        left -= count * sizeof *steps;
    }
    for (size_t i = 0; fits && i < count; i++) {
        struct erg_task *task = &steps[i].task;
        fits = task->op_count <= left / sizeof *task->ops && steps[i].launch.slot <= task->op_count;
        if (!fits)
            break;
        task->ops = (const struct erg_op *)(const void *)bytes;
        bytes += task->op_count * sizeof *task->ops;
        left -= task->op_count * sizeof *task->ops;
    }
    *out = steps;
    if (fits && left == 0)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "rank 0 sent %zu steps in %zu bytes, which do not match, expected a rank 0 of "
                    "the same ergon",
                    count, size);
}
