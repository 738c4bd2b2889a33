/* Rotary position embedding on the host, with the norm of heads where there is one. */
#include "base/memory.h"
#include "ops/element.h"

#include <math.h>
#include <stdlib.h>

/* Turns a head forwards (direction 1) or backwards (-1). */
static void turn(size_t half, const float *angles, float direction, float *head)
{
    for (size_t i = 0; i < half; i++) {
        float cosine = angles[2 * i], sine = direction * angles[2 * i + 1];
        float low = head[i], high = head[half + i];
        head[i] = low * cosine - high * sine;
        head[half + i] = high * cosine + low * sine;
    }
}

static float inverse_rms(size_t count, float eps, const erg_element *values)
{
    float squares = 0;
    for (size_t i = 0; i < count; i++)
        squares += wide(values[i]) * wide(values[i]);
    return 1 / sqrtf(squares / (float)count + eps);
}

void ERG_OPS(rope_forward)(const struct erg_ops_qkv *shape, float eps, const erg_element *q_weight,
                           const erg_element *k_weight, const float *table, const erg_element *qkv,
                           erg_element *out, size_t out_row)
{
    const size_t d = shape->head_dim;
    float *head = erg_xcalloc(d, sizeof *head);
    for (size_t t = 0; t < shape->tokens; t++)
        for (size_t h = 0; h < shape->query_heads + shape->kv_heads; h++) {
            const erg_element *in = qkv + t * erg_ops_qkv_row(shape) + h * d;
            const erg_element *weight = h < shape->query_heads ? q_weight : k_weight;
            float scale = weight ? inverse_rms(d, eps, in) : 1;
            for (size_t i = 0; i < d; i++)
                head[i] = wide(in[i]) * scale * (weight ? wide(weight[i]) : 1);
            turn(d / 2, table + t % shape->sequence * d, 1, head);
            for (size_t i = 0; i < d; i++)
                out[t * out_row + h * d + i] = rounded(head[i]);
        }
    free(head);
}

/* The gradient through the norm of one head, as in norm.c. */
static void norm_head(size_t d, float eps, const erg_element *in, const erg_element *weight,
                      float *head, float *d_weight)
{
    float scale = inverse_rms(d, eps, in), dot = 0;
    for (size_t i = 0; i < d; i++) {
        float n = wide(in[i]) * scale;
        d_weight[i] += head[i] * n;
        head[i] *= wide(weight[i]);
        dot += head[i] * n;
    }
    for (size_t i = 0; i < d; i++)
        head[i] = scale * (head[i] - wide(in[i]) * scale * dot / (float)d);
}

void ERG_OPS(rope_backward)(const struct erg_ops_qkv *shape, float eps, const erg_element *q_weight,
                            const erg_element *k_weight, const float *table, const erg_element *qkv,
                            const erg_element *d_rotated, erg_element *d_qkv, float *d_q_weight,
                            float *d_k_weight)
{
    const size_t d = shape->head_dim;
    float *head = erg_xcalloc(d, sizeof *head);
    for (size_t t = 0; t < shape->tokens; t++)
        for (size_t h = 0; h < shape->query_heads + shape->kv_heads; h++) {
            size_t at = t * erg_ops_qkv_row(shape) + h * d;
            bool query = h < shape->query_heads;
            for (size_t i = 0; i < d; i++)
                head[i] = wide(d_rotated[at + i]);
            turn(d / 2, table + t % shape->sequence * d, -1, head);
            if (q_weight)
                norm_head(d, eps, qkv + at, query ? q_weight : k_weight, head,
                          query ? d_q_weight : d_k_weight);
            for (size_t i = 0; i < d; i++)
                d_qkv[at + i] = rounded(head[i]);
        }
    free(head);
}
