/* RMS norm and sums of tensors on the host. */
#include "ops/ops.h"

#include <math.h>

void erg_ops_add(size_t count, const erg_bf16 *a, const erg_bf16 *b, erg_bf16 *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = erg_bf16_round(erg_bf16_float(a[i]) + erg_bf16_float(b[i]));
}

void erg_ops_add_runs(size_t runs, size_t count, const erg_bf16 *x, size_t x_stride, erg_bf16 *to,
                      size_t to_stride)
{
    for (size_t i = 0; i < runs; i++)
        erg_ops_add(count, to + i * to_stride, x + i * x_stride, to + i * to_stride);
}

void erg_ops_norm_forward(size_t tokens, size_t hidden, float eps, const erg_bf16 *residual,
                          const erg_bf16 *x, const erg_bf16 *weight, erg_bf16 *sum, erg_bf16 *out,
                          float *inv_rms)
{
    for (size_t t = 0; t < tokens; t++) {
        const erg_bf16 *row = residual + t * hidden;
        if (x) {
            erg_ops_add(hidden, row, x + t * hidden, sum + t * hidden);
            row = sum + t * hidden;
        }
        float squares = 0;
        for (size_t i = 0; i < hidden; i++)
            squares += erg_bf16_float(row[i]) * erg_bf16_float(row[i]);
        inv_rms[t] = 1 / sqrtf(squares / (float)hidden + eps);
        for (size_t i = 0; i < hidden; i++)
            out[t * hidden + i] =
                erg_bf16_round(erg_bf16_float(row[i]) * inv_rms[t] * erg_bf16_float(weight[i]));
    }
}

/* With n = sum x inv_rms: d sum = inv_rms (d_n - n mean(d_n n)), where d_n = d_out weight. */
void erg_ops_norm_backward(size_t tokens, size_t hidden, const erg_bf16 *sum,
                           const erg_bf16 *weight, const float *inv_rms, const erg_bf16 *d_out,
                           const erg_bf16 *d_sum, erg_bf16 *d_in, float *d_weight)
{
    for (size_t t = 0; t < tokens; t++) {
        const size_t row = t * hidden;
        float dot = 0;
        for (size_t i = 0; i < hidden; i++) {
            float n = erg_bf16_float(sum[row + i]) * inv_rms[t];
            float d = erg_bf16_float(d_out[row + i]);
            d_weight[i] += d * n;
            dot += d * erg_bf16_float(weight[i]) * n;
        }
        float mean = dot / (float)hidden;
        for (size_t i = 0; i < hidden; i++) {
            float n = erg_bf16_float(sum[row + i]) * inv_rms[t];
            float d_n = erg_bf16_float(d_out[row + i]) * erg_bf16_float(weight[i]);
            float other = d_sum ? erg_bf16_float(d_sum[row + i]) : 0;
            d_in[row + i] = erg_bf16_round(other + inv_rms[t] * (d_n - n * mean));
        }
    }
}
