/* Layer norm on the host, with the residual add before it. */
#include "ops/element.h"

#include <math.h>

void ERG_OPS(layer_norm_forward)(size_t tokens, size_t hidden, float eps,
                                 const erg_element *residual, const erg_element *x,
                                 const erg_element *x_bias, const erg_element *weight,
                                 const erg_element *bias, erg_element *sum, erg_element *out,
                                 float *stats)
{
    if (x)
        ERG_OPS(add_bias)(tokens, hidden, residual, x, x_bias, sum);
    for (size_t t = 0; t < tokens; t++) {
        const erg_element *row = (x ? sum : residual) + t * hidden;
        float total = 0, squares = 0;
        for (size_t i = 0; i < hidden; i++)
            total += wide(row[i]);
        const float mean = total / (float)hidden;
        for (size_t i = 0; i < hidden; i++)
            squares += (wide(row[i]) - mean) * (wide(row[i]) - mean);
        const float inverse = 1 / sqrtf(squares / (float)hidden + eps);
        for (size_t i = 0; i < hidden; i++)
            out[t * hidden + i] =
                rounded((wide(row[i]) - mean) * inverse * wide(weight[i]) + wide(bias[i]));
        stats[2 * t] = mean;
        stats[2 * t + 1] = inverse;
    }
}

/* With n = (sum - mean) inverse: d sum = inverse (d_n - mean(d_n) - n mean(d_n n)), where
 * d_n = d_out weight. */
void ERG_OPS(layer_norm_backward)(size_t tokens, size_t hidden, const erg_element *sum,
                                  const erg_element *weight, const float *stats,
                                  const erg_element *d_out, const erg_element *d_sum,
                                  erg_element *d_in, float *d_weight, float *d_bias)
{
    for (size_t t = 0; t < tokens; t++) {
        const size_t row = t * hidden;
        const float mean = stats[2 * t], inverse = stats[2 * t + 1];
        float total = 0, product = 0;
        for (size_t i = 0; i < hidden; i++) {
            float n = (wide(sum[row + i]) - mean) * inverse;
            float d = wide(d_out[row + i]);
            d_weight[i] += d * n;
            d_bias[i] += d;
            total += d * wide(weight[i]);
            product += d * wide(weight[i]) * n;
        }
        total /= (float)hidden;
        product /= (float)hidden;
        for (size_t i = 0; i < hidden; i++) {
            float n = (wide(sum[row + i]) - mean) * inverse;
            float d_n = wide(d_out[row + i]) * wide(weight[i]);
            float other = d_sum ? wide(d_sum[row + i]) : 0;
            d_in[row + i] = rounded(other + inverse * (d_n - total - n * product));
        }
    }
}
