/*
 * bf16: the upper half of an IEEE single, stored as 16 bits; all arithmetic is done in float.
 */
#ifndef ERG_OPS_BF16_H
#define ERG_OPS_BF16_H

#include <stdint.h>
#include <string.h>

typedef uint16_t erg_bf16;

static inline float erg_bf16_float(erg_bf16 value)
{
    uint32_t bits = (uint32_t)value << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* To the nearest, ties to even; NaN stays NaN. */
static inline erg_bf16 erg_bf16_round(float wide)
{
    uint32_t bits;
    memcpy(&bits, &wide, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (erg_bf16)((bits >> 16) | 0x40);
    return (erg_bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#endif
