/* Cross-entropy loss on the host, over vocabularies that are split among ranks. */
#include "ops/element.h"

#include <math.h>

void ERG_OPS(loss_stats)(size_t tokens, size_t columns, size_t valid, size_t first,
                         const int32_t *targets, const erg_element *logits, float *stats)
{
    for (size_t t = 0; t < tokens; t++) {
        const erg_element *row = logits + t * columns;
        float largest = -INFINITY, sum = 0;
        for (size_t i = 0; i < valid; i++)
            largest = fmaxf(largest, wide(row[i]));
        for (size_t i = 0; i < valid; i++)
            sum += expf(wide(row[i]) - largest);
        size_t target = (size_t)targets[t] - first; /* wraps to something huge below first */
        stats[3 * t] = largest;
        stats[3 * t + 1] = sum;
        stats[3 * t + 2] = target < valid ? wide(row[target]) : -INFINITY;
    }
}

void ERG_OPS(loss_backward)(size_t tokens, size_t columns, size_t valid, size_t first,
                            const int32_t *targets, const float *log_sum, const float *scale,
                            erg_element *logits)
{
    for (size_t t = 0; t < tokens; t++) {
        size_t target = (size_t)targets[t] - first;
        float factor = targets[t] < 0 ? 0 : *scale;
        for (size_t i = 0; i < columns; i++) {
            erg_element *logit = logits + t * columns + i;
            float softmax = i < valid ? expf(wide(*logit) - log_sum[t]) : 0;
            *logit = rounded(factor * (softmax - (i == target ? 1 : 0)));
        }
    }
}
