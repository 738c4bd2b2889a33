/*
 * Tests of the operations: forward against a few lines of double arithmetic, backward against the
 * finite differences of those lines. Inputs are elements, so that both sides see the same.
 */
#ifndef ERGON_TESTS_OPS_WORLD_H
#define ERGON_TESTS_OPS_WORLD_H

#include "base/memory.h"
#include "base/random.h"
#include "check.h"
#include "ops/element.h"

/* A differentiable function of many numbers, in double. */
struct function {
    size_t inputs, outputs;
    void (*evaluate)(const void *shape, const double *in, double *out);
    const void *shape;
};

/* One rounding to an element, relative, and a little for sums that cancel. */
static const double float_relative = 1e-4;
static const double element_relative = sizeof(erg_element) == 2 ? 1.0 / 256 : float_relative;

static inline erg_element *random_elements(struct erg_rng *rng, size_t count, double scale)
{
    erg_element *values = erg_xcalloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = rounded((float)(scale * erg_rng_normal(rng)));
    return values;
}

/* Appends elements to an array of doubles; returns its new end. */
static inline double *widen(double *to, const erg_element *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        *to++ = wide(from[i]);
    return to;
}

/* The gradient of the sum over outputs of seed x output. The caller frees. */
static inline double *differences(const struct function *f, const double *in,
                                  const erg_element *seed)
{
    const double step = 1e-5;
    double *at = erg_xcalloc(f->inputs, sizeof *at), *out = erg_xcalloc(f->outputs, sizeof *out);
    double *gradient = erg_xcalloc(f->inputs, sizeof *gradient);
    memcpy(at, in, f->inputs * sizeof *at);
    for (size_t i = 0; i < f->inputs; i++)
        for (int side = -1; side <= 1; side += 2) {
            at[i] = in[i] + side * step;
            f->evaluate(f->shape, at, out);
            at[i] = in[i];
            for (size_t j = 0; j < f->outputs; j++)
                gradient[i] += side * wide(seed[j]) * out[j] / (2 * step);
        }
    free(at), free(out);
    return gradient;
}

static inline void assert_elements(const erg_element *actual, const double *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_near(wide(actual[i]), expected[i], element_relative * fabs(expected[i]) + 1e-5);
}

static inline void assert_floats(const float *actual, const double *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_near(actual[i], expected[i], float_relative * fabs(expected[i]) + 1e-5);
}

#endif
