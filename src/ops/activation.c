/* SwiGLU on the host: forward and backward. */
#include "ops/ops.h"

#include <math.h>

void erg_ops_swiglu_forward(size_t tokens, size_t width, const erg_bf16 *gate_up, erg_bf16 *out)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < width; i++) {
            float gate = erg_bf16_float(gate_up[2 * t * width + i]);
            float up = erg_bf16_float(gate_up[(2 * t + 1) * width + i]);
            out[t * width + i] = erg_bf16_round(gate / (1 + expf(-gate)) * up);
        }
}

void erg_ops_swiglu_backward(size_t tokens, size_t width, const erg_bf16 *gate_up,
                             const erg_bf16 *d_out, erg_bf16 *d_gate_up)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < width; i++) {
            float gate = erg_bf16_float(gate_up[2 * t * width + i]);
            float up = erg_bf16_float(gate_up[(2 * t + 1) * width + i]);
            float d = erg_bf16_float(d_out[t * width + i]);
            float sigmoid = 1 / (1 + expf(-gate));
            d_gate_up[2 * t * width + i] =
                erg_bf16_round(d * up * sigmoid * (1 + gate * (1 - sigmoid)));
            d_gate_up[(2 * t + 1) * width + i] = erg_bf16_round(d * gate * sigmoid);
        }
}
