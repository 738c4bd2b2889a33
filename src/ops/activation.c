/* SwiGLU and GELU on the host: forward and backward. */
#include "ops/element.h"

#include <math.h>

void ERG_OPS(swiglu_forward)(size_t tokens, size_t width, const erg_element *gate_up,
                             erg_element *out)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < width; i++) {
            float gate = wide(gate_up[2 * t * width + i]);
            float up = wide(gate_up[(2 * t + 1) * width + i]);
            out[t * width + i] = rounded(gate / (1 + expf(-gate)) * up);
        }
}

void ERG_OPS(swiglu_backward)(size_t tokens, size_t width, const erg_element *gate_up,
                              const erg_element *d_out, erg_element *d_gate_up)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < width; i++) {
            float gate = wide(gate_up[2 * t * width + i]);
            float up = wide(gate_up[(2 * t + 1) * width + i]);
            float d = wide(d_out[t * width + i]);
            float sigmoid = 1 / (1 + expf(-gate));
            d_gate_up[2 * t * width + i] = rounded(d * up * sigmoid * (1 + gate * (1 - sigmoid)));
            d_gate_up[(2 * t + 1) * width + i] = rounded(d * gate * sigmoid);
        }
}

/* GELU is x p(x); p, and its derivative. */
static float gelu_share(bool tanh_form, float x, float *slope)
{
    if (tanh_form) {
        const float root = 0.7978845608F, cubic = 0.044715F; /* sqrt(2 / pi) */
        float t = tanhf(root * (x + cubic * x * x * x));
        *slope = 0.5F * (1 - t * t) * root * (1 + 3 * cubic * x * x);
        return 0.5F * (1 + t);
    }
    *slope = 0.3989422804F * expf(-0.5F * x * x); /* the normal density */
    return 0.5F * (1 + erff(0.7071067812F * x));
}

void ERG_OPS(gelu_forward)(size_t tokens, size_t width, bool tanh_form, const erg_element *x,
                           erg_element *out)
{
    float slope;
    for (size_t i = 0; i < tokens * width; i++)
        out[i] = rounded(wide(x[i]) * gelu_share(tanh_form, wide(x[i]), &slope));
}

void ERG_OPS(gelu_backward)(size_t tokens, size_t width, bool tanh_form, const erg_element *x,
                            const erg_element *d_out, erg_element *d_x)
{
    for (size_t i = 0; i < tokens * width; i++) {
        float slope, share = gelu_share(tanh_form, wide(x[i]), &slope);
        d_x[i] = rounded(wide(d_out[i]) * (share + wide(x[i]) * slope));
    }
}
