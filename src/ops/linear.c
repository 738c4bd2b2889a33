/*
 * Linear layers on the host: the product, and its gradients of input, weight and bias. The sums of
 * many outputs grow side by side, which the compiler makes vectors of; each is added up in order.
 */
#include "base/memory.h"
#include "ops/element.h"

#include <stdlib.h>
#include <string.h>

/* Floats of elements, rows * columns, or of their transpose. To be freed. */
static float *widened(const erg_element *from, size_t rows, size_t columns, bool transposed)
{
    float *to = erg_xmalloc((rows * columns + 1) * sizeof *to);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            to[transposed ? c * rows + r : r * columns + c] = wide(from[r * columns + c]);
    return to;
}

/* sums[count] += factor * row[count] */
static void add_scaled(float *restrict sums, const float *restrict row, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sums[i] += factor * row[i];
}

void ERG_OPS(linear_forward)(size_t tokens, size_t inputs, size_t outputs, const erg_element *x,
                             const erg_element *weight, const erg_element *bias, erg_element *y)
{
    float *columns = widened(weight, outputs, inputs, true);
    float *sums = erg_xmalloc((outputs + 1) * sizeof *sums);
    for (size_t t = 0; t < tokens; t++) {
        memset(sums, 0, outputs * sizeof *sums);
        for (size_t i = 0; i < inputs; i++)
            add_scaled(sums, columns + i * outputs, wide(x[t * inputs + i]), outputs);
        for (size_t o = 0; o < outputs; o++)
            y[t * outputs + o] = rounded(bias ? sums[o] + wide(bias[o]) : sums[o]);
    }
    free(sums);
    free(columns);
}

void ERG_OPS(linear_input_gradient)(size_t tokens, size_t inputs, size_t outputs,
                                    const erg_element *d_y, const erg_element *weight,
                                    erg_element *d_x)
{
    float *rows = widened(weight, outputs, inputs, false);
    float *sums = erg_xmalloc((inputs + 1) * sizeof *sums);
    for (size_t t = 0; t < tokens; t++) {
        memset(sums, 0, inputs * sizeof *sums);
        for (size_t o = 0; o < outputs; o++)
            add_scaled(sums, rows + o * inputs, wide(d_y[t * outputs + o]), inputs);
        for (size_t i = 0; i < inputs; i++)
            d_x[t * inputs + i] = rounded(sums[i]);
    }
    free(sums);
    free(rows);
}

void ERG_OPS(linear_weight_gradient)(size_t tokens, size_t inputs, size_t outputs,
                                     const erg_element *x, const erg_element *d_y, float *d_weight)
{
    float *rows = widened(x, tokens, inputs, false);
    float *sums = erg_xmalloc((inputs + 1) * sizeof *sums);
    for (size_t o = 0; o < outputs; o++) {
        memset(sums, 0, inputs * sizeof *sums);
        for (size_t t = 0; t < tokens; t++)
            add_scaled(sums, rows + t * inputs, wide(d_y[t * outputs + o]), inputs);
        for (size_t i = 0; i < inputs; i++)
            d_weight[o * inputs + i] += sums[i];
    }
    free(sums);
    free(rows);
}

void ERG_OPS(bias_gradient)(size_t tokens, size_t width, const erg_element *d_y, float *d_bias)
{
    float *sums = erg_xcalloc(width + 1, sizeof *sums);
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < width; i++)
            sums[i] += wide(d_y[t * width + i]);
    for (size_t i = 0; i < width; i++)
        d_bias[i] += sums[i];
    free(sums);
}
