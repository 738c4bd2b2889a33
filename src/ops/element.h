/*
 * Elements: what tensors of an operation are made of, private to the files of ops/. They are
 * compiled twice, with bf16 numbers as erg_ops_NAME() and, by ops32.c, with floats as
 * erg_ops32_NAME().
 */
#ifndef ERG_OPS_ELEMENT_H
#define ERG_OPS_ELEMENT_H

#include "ops/ops.h"

#ifdef ERG_OPS_FLOAT
#define ERG_OPS(name) erg_ops32_##name
typedef float erg_element;

static inline float wide(erg_element value)
{
    return value;
}

static inline erg_element rounded(float value)
{
    return value;
}
#else
#define ERG_OPS(name) erg_ops_##name
typedef erg_bf16 erg_element;

static inline float wide(erg_element value)
{
    return erg_bf16_float(value);
}

static inline erg_element rounded(float value)
{
    return erg_bf16_round(value);
}
#endif

#endif
