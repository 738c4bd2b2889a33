/* Operations only on floats, ids and positions, independent of the elements of tensors. */
#include "base/memory.h"
#include "model/model.h"
#include "ops/ops.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A radix sort by the digits of the ids, the lowest first: it runs in every training step, and
 * takes a tenth of the time of a comparison sort. */
void erg_ops_embedding_order(size_t tokens, const int32_t *ids, int32_t *order)
{
    enum { BITS = 11, DIGITS = 1 << BITS };
    int32_t *other = erg_xcalloc(tokens, sizeof *other), *from = order, *to = other;
    uint32_t bits = 0;
    for (size_t t = 0; t < tokens; t++) {
        order[t] = (int32_t)t;
        bits |= (uint32_t)ids[t];
    }
    for (unsigned shift = 0; shift < 32 && bits >> shift; shift += BITS) {
        size_t places[DIGITS] = {0}, first = 0;
        for (size_t t = 0; t < tokens; t++)
            places[(uint32_t)ids[t] >> shift & (DIGITS - 1)]++;
        for (size_t digit = 0; digit < DIGITS; digit++) {
            size_t count = places[digit];
            places[digit] = first;
            first += count;
        }
        for (size_t i = 0; i < tokens; i++)
            to[places[(uint32_t)ids[from[i]] >> shift & (DIGITS - 1)]++] = from[i];
        int32_t *swapped = from;
        from = to;
        to = swapped;
    }
    if (from != order)
        memcpy(order, from, tokens * sizeof *order);
    free(other);
}

/* Radians that element pair i turns by from one position to the next. */
static double frequency(size_t i, size_t head_dim, double theta, const struct erg_rope *rope)
{
    double plain = pow(theta, -2 * (double)i / (double)head_dim);
    if (!rope || (rope->scaling != ERG_ROPE_LINEAR && rope->scaling != ERG_ROPE_LLAMA3))
        return plain;
    if (rope->scaling == ERG_ROPE_LINEAR)
        return plain / rope->factor;
    /* Waves that go round often within the original positions stay; slow ones are scaled. */
    double rounds = (double)rope->positions * plain / (2 * acos(-1));
    double kept = fmin(fmax((rounds - rope->low) / (rope->high - rope->low), 0), 1);
    return (1 - kept) * plain / rope->factor + kept * plain;
}

void erg_ops_rope_table(size_t count, const int32_t *positions, size_t head_dim, double theta,
                        const struct erg_rope *rope, float *table)
{
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < head_dim / 2; i++) {
            double position = positions ? (double)positions[t] : (double)t;
            double angle = position * frequency(i, head_dim, theta, rope);
            float *pair = table + (t * (head_dim / 2) + i) * 2;
            pair[0] = (float)cos(angle);
            pair[1] = (float)sin(angle);
        }
}

void erg_ops_loss_combine(size_t tokens, size_t ranks, const int32_t *targets, const float *stats,
                          const float *scale, float *log_sum, float *loss)
{
    assert(ranks > 0);
    double total = 0; /* a float that sums thousands of tokens would lose digits */
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
            total += (double)log_sum[t] - target;
    }
    *loss += (float)(*scale * total);
}

void erg_ops_squares(size_t count, const float *gradient, double *sum)
{
    double total = 0;
    for (size_t i = 0; i < count; i++)
        total += (double)gradient[i] * gradient[i];
    *sum += total;
}
