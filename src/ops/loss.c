/* Cross-entropy loss on the host, over vocabularies that are split among ranks. */
#include "ops/ops.h"

#include <math.h>

void erg_ops_loss_stats(size_t tokens, size_t columns, size_t first, const int32_t *targets,
                        const erg_bf16 *logits, float *stats)
{
    for (size_t t = 0; t < tokens; t++) {
        const erg_bf16 *row = logits + t * columns;
        float largest = -INFINITY, sum = 0;
        for (size_t i = 0; i < columns; i++)
            largest = fmaxf(largest, erg_bf16_float(row[i]));
        for (size_t i = 0; i < columns; i++)
            sum += expf(erg_bf16_float(row[i]) - largest);
        size_t target = (size_t)targets[t] - first; /* wraps to something huge below first */
        stats[3 * t] = largest;
        stats[3 * t + 1] = sum;
        stats[3 * t + 2] = target < columns ? erg_bf16_float(row[target]) : -INFINITY;
    }
}

void erg_ops_loss_combine(size_t tokens, size_t ranks, const int32_t *targets, const float *stats,
                          float scale, float *log_sum, float *loss)
{
    float total = 0;
    for (size_t t = 0; t < tokens; t++) {
        float largest = -INFINITY, sum = 0, target = -INFINITY;
        for (size_t r = 0; r < ranks; r++)
            largest = fmaxf(largest, stats[3 * (r * tokens + t)]);
        for (size_t r = 0; r < ranks; r++) {
            const float *of_rank = stats + 3 * (r * tokens + t);
            sum += of_rank[1] * expf(of_rank[0] - largest);
            target = fmaxf(target, of_rank[2]);
        }
        log_sum[t] = largest + logf(sum);
        if (targets[t] >= 0)
            total += log_sum[t] - target;
    }
    *loss += scale * total;
}

void erg_ops_loss_backward(size_t tokens, size_t columns, size_t first, const int32_t *targets,
                           const float *log_sum, float scale, erg_bf16 *logits)
{
    for (size_t t = 0; t < tokens; t++) {
        size_t target = (size_t)targets[t] - first;
        float factor = targets[t] < 0 ? 0 : scale;
        for (size_t i = 0; i < columns; i++) {
            erg_bf16 *logit = logits + t * columns + i;
            float softmax = expf(erg_bf16_float(*logit) - log_sum[t]);
            *logit = erg_bf16_round(factor * (softmax - (i == target ? 1 : 0)));
        }
    }
}
