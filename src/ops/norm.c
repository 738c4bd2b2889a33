/* RMS norm and sums of tensors on the host. */
#include "ops/element.h"

#include <math.h>

void ERG_OPS(add_bias)(size_t tokens, size_t hidden, const erg_element *a, const erg_element *b,
                       const erg_element *bias, erg_element *out)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < hidden; i++) {
            float sum = wide(a[t * hidden + i]) + wide(b[t * hidden + i]);
            out[t * hidden + i] = rounded(bias ? sum + wide(bias[i]) : sum);
        }
}

void ERG_OPS(add_runs)(size_t runs, size_t count, const erg_element *x, size_t x_stride,
                       erg_element *to, size_t to_stride)
{
    for (size_t i = 0; i < runs; i++)
        ERG_OPS(add_bias)(1, count, to + i * to_stride, x + i * x_stride, NULL, to + i * to_stride);
}

void ERG_OPS(norm_forward)(size_t tokens, size_t hidden, float eps, const erg_element *residual,
                           const erg_element *x, const erg_element *x_bias,
                           const erg_element *weight, erg_element *sum, erg_element *out,
                           float *inv_rms)
{
    if (x)
        ERG_OPS(add_bias)(tokens, hidden, residual, x, x_bias, sum);
    for (size_t t = 0; t < tokens; t++) {
        const erg_element *row = (x ? sum : residual) + t * hidden;
        float squares = 0;
        for (size_t i = 0; i < hidden; i++)
            squares += wide(row[i]) * wide(row[i]);
        inv_rms[t] = 1 / sqrtf(squares / (float)hidden + eps);
        for (size_t i = 0; i < hidden; i++)
            out[t * hidden + i] = rounded(wide(row[i]) * inv_rms[t] * wide(weight[i]));
    }
}

/* With n = sum x inv_rms: d sum = inv_rms (d_n - n mean(d_n n)), where d_n = d_out weight. */
void ERG_OPS(norm_backward)(size_t tokens, size_t hidden, const erg_element *sum,
                            const erg_element *weight, const float *inv_rms,
                            const erg_element *d_out, const erg_element *d_sum, erg_element *d_in,
                            float *d_weight)
{
    for (size_t t = 0; t < tokens; t++) {
        const size_t row = t * hidden;
        float dot = 0;
        for (size_t i = 0; i < hidden; i++) {
            float n = wide(sum[row + i]) * inv_rms[t];
            float d = wide(d_out[row + i]);
            d_weight[i] += d * n;
            dot += d * wide(weight[i]) * n;
        }
        float mean = dot / (float)hidden;
        for (size_t i = 0; i < hidden; i++) {
            float n = wide(sum[row + i]) * inv_rms[t];
            float d_n = wide(d_out[row + i]) * wide(weight[i]);
            float other = d_sum ? wide(d_sum[row + i]) : 0;
            d_in[row + i] = rounded(other + inv_rms[t] * (d_n - n * mean));
        }
    }
}
