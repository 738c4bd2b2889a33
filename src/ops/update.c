/* The update of weights on the host: AdamW, and rounding to elements. */
#include "ops/element.h"

#include <assert.h>
#include <math.h>

void ERG_OPS(adamw)(size_t count, bool decays, const struct erg_ops_update *update,
                    const float *gradient, float *master, float *m, float *v, erg_element *weight)
{
    const struct erg_ops_update u = *update;
    assert(u.correction1 > 0 && u.correction2 > 0);
    const float kept = decays ? 1 - u.rate * u.decay : 1, step = u.rate / u.correction1;
    for (size_t i = 0; i < count; i++) {
        float g = u.factor * gradient[i];
        m[i] = u.beta1 * m[i] + (1 - u.beta1) * g;
        v[i] = u.beta2 * v[i] + (1 - u.beta2) * g * g;
        master[i] = master[i] * kept - step * m[i] / (sqrtf(v[i]) / u.correction2 + u.eps);
        weight[i] = rounded(master[i]);
    }
}

void ERG_OPS(to_element)(size_t count, const float *from, erg_element *to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = rounded(from[i]);
}
