/* Clock groups: lock one SM clock on all GPUs that measure together. */
#include "device/clock_group.h"

#include "base/memory.h"
#include "telemetry/clocks.h"

#include <stdlib.h>
#include <string.h>

struct erg_clock_group {
    struct erg_clocks *clocks;
    size_t *members, count;
    int clock_mhz; /* 0: unlocked, -1: unknown */
};

static int unlock(struct erg_clock_group *group, struct erg_error *err)
{
    int status = 0;
    for (size_t i = 0; i < group->count; i++)
        if (erg_clocks_reset(group->clocks, group->members[i], err))
            status = -1;
    group->clock_mhz = status;
    return status;
}

static int lock_all(struct erg_clock_group *group, int clock_mhz, struct erg_error *err)
{
    for (size_t i = 0; i < group->count; i++)
        if (erg_clocks_lock(group->clocks, group->members[i], clock_mhz, NULL, err)) {
            struct erg_error ignored; /* the guardian tries again at the end */
            unlock(group, &ignored);
            return -1;
        }
    group->clock_mhz = clock_mhz;
    return 0;
}

int erg_clock_group_open(struct erg_clock_group **out, struct erg_gpus *gpus, const size_t *members,
                         size_t count, struct erg_error *err)
{
    struct erg_clocks *clocks;
    if (erg_clocks_open(&clocks, gpus, err))
        return -1;
    struct erg_clock_group *group = erg_xcalloc(1, sizeof *group);
    group->clocks = clocks;
    group->members = erg_xcalloc(count, sizeof *group->members);
    group->count = count;
    memcpy(group->members, members, count * sizeof *members);
    for (size_t i = 0; i < count; i++)
        if (erg_clocks_try(clocks, members[i], err)) {
            struct erg_error ignored;
            erg_clock_group_close(group, &ignored);
            return -1;
        }
    *out = group;
    return 0;
}

int erg_clock_group_set(struct erg_clock_group *group, int clock_mhz, struct erg_error *err)
{
    if (clock_mhz == group->clock_mhz)
        return 0;
    if (!(clock_mhz ? lock_all(group, clock_mhz, err) : unlock(group, err)))
        return 0;
    err->status = ERG_FAILED;
    return -1;
}

int erg_clock_group_close(struct erg_clock_group *group, struct erg_error *err)
{
    if (!group)
        return 0;
    int status = erg_clocks_close(group->clocks, err);
    free(group->members);
    free(group);
    return status;
}
