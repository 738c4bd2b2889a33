/*
 * gpu_metrics: the table that an AMD GPU's firmware fills and the driver passes on.
 *
 * Little endian. It begins with its size in bytes and two revisions. The first one is 1 for GPUs
 * with their own memory; those in CPUs (2, 3) count no energy. All bits of a value that a GPU does
 * not fill are ones.
 */
#include "telemetry/amdgpu_internal.h"

#include <string.h>

enum { XGMI_LINKS = 8 };

/* Offsets in bytes; 0: absent. */
static const struct layout {
    uint8_t revision; /* the second one */
    uint16_t size;    /* at least */
    uint16_t energy;
    uint16_t throttle;       /* reasons, in bits that are the same for all GPUs */
    uint16_t received, sent; /* KiB over each XGMI link: read and written data */
    uint16_t ticks, power, socket, regulators, memory; /* 32 bits */
} layouts[] = {
    {.revision = 1, .size = 40, .energy = 24},
    {.revision = 2, .size = 40, .energy = 24},
    {.revision = 3, .size = 120, .energy = 24, .throttle = 112},
    {.revision = 4, .size = 232, .energy = 24, .received = 104, .sent = 168},
    {.revision = 5, .size = 304, .energy = 88, .received = 176, .sent = 240},
    {6, 256, 16, 0, 128, 192, 32, 40, 44, 48, 52},
    {7, 264, 24, 0, 136, 200, 40, 48, 52, 56, 60},
    {8, 264, 24, 0, 136, 200, 40, 48, 52, 56, 60},
};

/* Causes of throttling, from bit to bit. */
static const struct throttler {
    int first, last;
    int64_t reason;
} throttlers[] = {
    {0, 7, ERG_REASON_SW_POWER_CAP},   /* package power over different times */
    {16, 23, ERG_REASON_SW_POWER_CAP}, /* current */
    {32, 45, ERG_REASON_SW_THERMAL},   /* temperatures of the GPU, its memory and regulators */
    {46, 47, ERG_REASON_HW_THERMAL},   /* PROCHOT, from outside */
};

static uint64_t number_at(const unsigned char *bytes, size_t at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)bytes[at + i] << 8 * i;
    return value;
}

/* A value, or -1 if the GPU does not fill it. */
static int64_t filled(const unsigned char *bytes, size_t at, size_t size)
{
    if (!at)
        return -1;
    uint64_t value = number_at(bytes, at, size), ones = UINT64_MAX >> (64 - 8 * size);
    return value == ones || value > INT64_MAX ? -1 : (int64_t)value;
}

/* Units of 2^-16 J in mJ, without overflow. A GPU that never counts leaves 0. */
static int64_t energy_mj(int64_t units)
{
    if (units <= 0 || units >> 16 > INT64_MAX / 1000 - 1)
        return -1;
    return (units >> 16) * 1000 + ((units & 0xffff) * 1000 >> 16);
}

static int64_t sum_of_links(const unsigned char *bytes, size_t at)
{
    int64_t sum = 0;
    bool any = false;
    for (int i = 0; i < XGMI_LINKS; i++) {
        int64_t kib = filled(bytes, at ? at + 8 * (size_t)i : 0, 8);
        if (kib < 0 || kib > (INT64_MAX - sum) / 1024)
            continue;
        any = true;
        sum += kib * 1024;
    }
    return any ? sum : -1;
}

static int64_t reasons_of(int64_t status)
{
    if (status < 0)
        return -1;
    int64_t reasons = 0;
    for (size_t i = 0; i < sizeof throttlers / sizeof *throttlers; i++)
        for (int bit = throttlers[i].first; bit <= throttlers[i].last; bit++)
            if (status >> bit & 1)
                reasons |= throttlers[i].reason;
    return reasons;
}

bool erg_amdgpu_table_decode(struct amdgpu_table *table, const unsigned char *bytes, size_t length)
{
    if (length < 4 || number_at(bytes, 0, 2) > length || bytes[2] != 1)
        return false;
    const struct layout *layout = NULL;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].revision == bytes[3])
            layout = &layouts[i];
    if (!layout || number_at(bytes, 0, 2) < layout->size)
        return false;
    *table = (struct amdgpu_table){
        .energy_mj = energy_mj(filled(bytes, layout->energy, 8)),
        .sent_bytes = sum_of_links(bytes, layout->sent),
        .received_bytes = sum_of_links(bytes, layout->received),
        .reasons = reasons_of(filled(bytes, layout->throttle, 8)),
        .ticks = filled(bytes, layout->ticks, 4),
        .limited_ticks = {filled(bytes, layout->power, 4), -1},
    };
    const size_t heat[] = {layout->socket, layout->regulators, layout->memory};
    for (size_t i = 0; i < sizeof heat / sizeof *heat; i++) {
        int64_t ticks = filled(bytes, heat[i], 4);
        if (ticks > table->limited_ticks[AMDGPU_LIMIT_HEAT])
            table->limited_ticks[AMDGPU_LIMIT_HEAT] = ticks;
    }
    return true;
}
