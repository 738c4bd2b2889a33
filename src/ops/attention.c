/* Attention on the host: forward and backward. */
#include "base/memory.h"
#include "ops/element.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One query head of one sequence: where its rows start, and how many keys query i sees. */
struct head {
    size_t q, k, v, out, stats;
};

static struct head head_of(const struct erg_ops_attention *s, size_t b, size_t h)
{
    size_t kv = h / (s->query_heads / s->kv_heads);
    return (struct head){
        .q = b * s->queries * s->q_row + h * s->head_dim,
        .k = b * s->keys * s->k_row + kv * s->head_dim,
        .v = b * s->keys * s->v_row + kv * s->head_dim,
        .out = b * s->queries * s->out_row + h * s->head_dim,
        .stats = (b * s->query_heads + h) * s->queries,
    };
}

static size_t visible(const struct erg_ops_attention *s, size_t query)
{
    return s->causal ? query + 1 + s->keys - s->queries : s->keys;
}

static float dot(size_t count, const erg_element *a, const erg_element *b)
{
    float sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += wide(a[i]) * wide(b[i]);
    return sum;
}

void ERG_OPS(attention_forward)(const struct erg_ops_attention *s, const erg_element *q,
                                const erg_element *k, const erg_element *v, erg_element *out,
                                float *stats)
{
    const size_t d = s->head_dim;
    const float scale = 1 / sqrtf((float)d);
    float *weights = erg_xcalloc(s->keys, sizeof *weights);
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->query_heads; h++) {
            const struct head at = head_of(s, b, h);
            for (size_t i = 0; i < s->queries; i++) {
                float largest = -INFINITY, total = 0;
                for (size_t j = 0; j < visible(s, i); j++) {
                    weights[j] = scale * dot(d, q + at.q + i * s->q_row, k + at.k + j * s->k_row);
                    largest = fmaxf(largest, weights[j]);
                }
                for (size_t j = 0; j < visible(s, i); j++)
                    total += weights[j] = expf(weights[j] - largest);
                for (size_t c = 0; c < d; c++) {
                    float sum = 0;
                    for (size_t j = 0; j < visible(s, i); j++)
                        sum += weights[j] * wide(v[at.v + j * s->v_row + c]);
                    out[at.out + i * s->out_row + c] = rounded(sum / total);
                }
                stats[at.stats + i] = largest + logf(total);
            }
        }
    free(weights);
}

/* d_q, d_k, d_v of one query head, added to sums of one kv head's group [keys, 2 d]: keys, values.
 */
static void backward_head(const struct erg_ops_attention *s, const struct head *at,
                          const erg_element *q, const erg_element *k, const erg_element *v,
                          const erg_element *out, const float *stats, const erg_element *d_out,
                          erg_element *d_q, float *row, float *d_kv)
{
    const size_t d = s->head_dim;
    const float scale = 1 / sqrtf((float)d);
    for (size_t i = 0; i < s->queries; i++) {
        const erg_element *qi = q + at->q + i * s->q_row, *d_oi = d_out + at->out + i * s->out_row;
        float d_row = dot(d, d_oi, out + at->out + i * s->out_row);
        memset(row, 0, d * sizeof *row);
        for (size_t j = 0; j < visible(s, i); j++) {
            const erg_element *kj = k + at->k + j * s->k_row;
            float weight = expf(scale * dot(d, qi, kj) - stats[at->stats + i]);
            float d_weight = dot(d, d_oi, v + at->v + j * s->v_row);
            float d_score = scale * weight * (d_weight - d_row);
            for (size_t c = 0; c < d; c++) {
                row[c] += d_score * wide(kj[c]);
                d_kv[2 * j * d + c] += d_score * wide(qi[c]);
                d_kv[(2 * j + 1) * d + c] += weight * wide(d_oi[c]);
            }
        }
        for (size_t c = 0; c < d; c++)
            d_q[at->q + i * s->q_row + c] = rounded(row[c]);
    }
}

void ERG_OPS(attention_backward)(const struct erg_ops_attention *s, const erg_element *q,
                                 const erg_element *k, const erg_element *v, const erg_element *out,
                                 const float *stats, const erg_element *d_out, erg_element *d_q,
                                 erg_element *d_k, erg_element *d_v)
{
    const size_t d = s->head_dim, group = s->query_heads / s->kv_heads;
    float *row = erg_xcalloc(d, sizeof *row);
    float *d_kv = erg_xcalloc(s->keys * 2 * d, sizeof *d_kv);
    for (size_t b = 0; b < s->batch; b++)
        for (size_t kv = 0; kv < s->kv_heads; kv++) {
            struct head at = {0};
            memset(d_kv, 0, s->keys * 2 * d * sizeof *d_kv);
            for (size_t h = kv * group; h < (kv + 1) * group; h++) {
                at = head_of(s, b, h);
                backward_head(s, &at, q, k, v, out, stats, d_out, d_q, row, d_kv);
            }
            for (size_t j = 0; j < s->keys; j++)
                for (size_t c = 0; c < d; c++) {
                    d_k[at.k + j * s->k_row + c] = rounded(d_kv[2 * j * d + c]);
                    d_v[at.v + j * s->v_row + c] = rounded(d_kv[(2 * j + 1) * d + c]);
                }
        }
    free(row);
    free(d_kv);
}
