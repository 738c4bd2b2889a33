/* Linear layers on the host: the product, and its gradients of input and weight. */
#include "ops/ops.h"

void erg_ops_linear_forward(size_t tokens, size_t inputs, size_t outputs, const erg_bf16 *x,
                            const erg_bf16 *weight, erg_bf16 *y)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t o = 0; o < outputs; o++) {
            float sum = 0;
            for (size_t i = 0; i < inputs; i++)
                sum += erg_bf16_float(x[t * inputs + i]) * erg_bf16_float(weight[o * inputs + i]);
            y[t * outputs + o] = erg_bf16_round(sum);
        }
}

void erg_ops_linear_input_gradient(size_t tokens, size_t inputs, size_t outputs,
                                   const erg_bf16 *d_y, const erg_bf16 *weight, erg_bf16 *d_x)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < inputs; i++) {
            float sum = 0;
            for (size_t o = 0; o < outputs; o++)
                sum +=
                    erg_bf16_float(d_y[t * outputs + o]) * erg_bf16_float(weight[o * inputs + i]);
            d_x[t * inputs + i] = erg_bf16_round(sum);
        }
}

void erg_ops_linear_weight_gradient(size_t tokens, size_t inputs, size_t outputs, const erg_bf16 *x,
                                    const erg_bf16 *d_y, float *d_weight)
{
    for (size_t o = 0; o < outputs; o++)
        for (size_t i = 0; i < inputs; i++) {
            float sum = 0;
            for (size_t t = 0; t < tokens; t++)
                sum += erg_bf16_float(x[t * inputs + i]) * erg_bf16_float(d_y[t * outputs + o]);
            d_weight[o * inputs + i] += sum;
        }
}
