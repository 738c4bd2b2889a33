/*
 * Attention on the host: forward and backward. Sums of many keys, or of many elements of a head,
 * grow side by side, which the compiler makes vectors of; each is added up in order.
 */
#include "base/memory.h"
#include "ops/element.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One query head of one sequence: where its rows start, and how many keys query i sees. */
struct head {
    size_t q, k, v, out, stats;
};

static struct head head_of(const struct erg_ops_attention *s, size_t b, size_t h)
{
    assert(h < s->query_heads && s->query_heads % s->kv_heads == 0);
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

/* Keys or values of one head as floats, by key and by element. */
struct widened {
    float *by_key;     /* [keys, d] */
    float *by_element; /* [d, keys] */
};

static struct widened widened_of(const struct erg_ops_attention *s)
{
    assert(!s->causal || s->keys >= s->queries);
    size_t count = s->keys * s->head_dim + 1;
    return (struct widened){erg_xcalloc(count, sizeof(float)), erg_xcalloc(count, sizeof(float))};
}

static void widened_release(struct widened *widened)
{
    free(widened->by_key);
    free(widened->by_element);
}

static void widen_head(struct widened *to, const struct erg_ops_attention *s,
                       const erg_element *from, size_t row)
{
    for (size_t j = 0; j < s->keys; j++)
        for (size_t c = 0; c < s->head_dim; c++)
            to->by_key[j * s->head_dim + c] = to->by_element[c * s->keys + j] =
                wide(from[j * row + c]);
}

static float dot(size_t count, const erg_element *a, const erg_element *b)
{
    float sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += wide(a[i]) * wide(b[i]);
    return sum;
}

/* sums[count] += factor * row[count] */
static inline void add_scaled(size_t count, float *restrict sums, float factor,
                              const float *restrict row)
{
    for (size_t i = 0; i < count; i++)
        sums[i] += factor * row[i];
}

/* dots[j] = a . key j, of the first `count` keys. */
static void dots_of(const struct erg_ops_attention *s, size_t count, const erg_element *a,
                    const struct widened *keys, float *dots)
{
    memset(dots, 0, count * sizeof *dots);
    for (size_t c = 0; c < s->head_dim; c++)
        add_scaled(count, dots, wide(a[c]), keys->by_element + c * s->keys);
}

/* One query; weights [keys] and sums [d] are for its use. */
static void forward_query(const struct erg_ops_attention *s, size_t count, const erg_element *q,
                          const struct widened *k, const struct widened *v, float *weights,
                          float *sums, erg_element *out, float *stat)
{
    const size_t d = s->head_dim;
    const float scale = 1 / sqrtf((float)d);
    float largest = -INFINITY, total = 0;
    dots_of(s, count, q, k, weights);
    for (size_t j = 0; j < count; j++) {
        weights[j] *= scale;
        largest = weights[j] > largest ? weights[j] : largest;
    }
    memset(sums, 0, d * sizeof *sums);
    for (size_t j = 0; j < count; j++) {
        weights[j] = expf(weights[j] - largest);
        total += weights[j];
        add_scaled(d, sums, weights[j], v->by_key + j * d);
    }
    for (size_t c = 0; c < d; c++)
        out[c] = rounded(sums[c] / total);
    *stat = largest + logf(total);
}

void ERG_OPS(attention_forward)(const struct erg_ops_attention *s, const erg_element *q,
                                const erg_element *k, const erg_element *v, erg_element *out,
                                float *stats)
{
    const size_t group = s->query_heads / s->kv_heads;
    struct widened keys = widened_of(s), values = widened_of(s);
    float *weights = erg_xcalloc(s->keys + s->head_dim, sizeof *weights);
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->query_heads; h++) {
            const struct head at = head_of(s, b, h);
            if (h % group == 0) {
                widen_head(&keys, s, k + at.k, s->k_row);
                widen_head(&values, s, v + at.v, s->v_row);
            }
            for (size_t i = 0; i < s->queries; i++)
                forward_query(s, visible(s, i), q + at.q + i * s->q_row, &keys, &values, weights,
                              weights + s->keys, out + at.out + i * s->out_row,
                              &stats[at.stats + i]);
        }
    free(weights);
    widened_release(&keys);
    widened_release(&values);
}

/* The buffers of the backward pass of one kv head's group. */
struct backward {
    struct widened k, v;
    float *d_k, *d_v;          /* sums [keys, d] */
    float *scores, *d_weights; /* [keys], of one query */
    float *q, *d_out, *d_q;    /* [d], of one query; d_q: a sum */
};

/* d_q of one query head; d_k and d_v are added to the sums of its group. */
static void backward_head(const struct erg_ops_attention *s, const struct head *at,
                          struct backward *work, const erg_element *q, const erg_element *out,
                          const float *stats, const erg_element *d_out, erg_element *d_q)
{
    const size_t d = s->head_dim;
    const float scale = 1 / sqrtf((float)d);
    for (size_t i = 0; i < s->queries; i++) {
        const erg_element *qi = q + at->q + i * s->q_row, *d_oi = d_out + at->out + i * s->out_row;
        float d_row = dot(d, d_oi, out + at->out + i * s->out_row);
        for (size_t c = 0; c < d; c++) {
            work->q[c] = wide(qi[c]);
            work->d_out[c] = wide(d_oi[c]);
            work->d_q[c] = 0;
        }
        dots_of(s, visible(s, i), qi, &work->k, work->scores);
        dots_of(s, visible(s, i), d_oi, &work->v, work->d_weights);
        for (size_t j = 0; j < visible(s, i); j++) {
            float weight = expf(scale * work->scores[j] - stats[at->stats + i]);
            float d_score = scale * weight * (work->d_weights[j] - d_row);
            add_scaled(d, work->d_q, d_score, work->k.by_key + j * d);
            add_scaled(d, work->d_k + j * d, d_score, work->q);
            add_scaled(d, work->d_v + j * d, weight, work->d_out);
        }
        for (size_t c = 0; c < d; c++)
            d_q[at->q + i * s->q_row + c] = rounded(work->d_q[c]);
    }
}

void ERG_OPS(attention_backward)(const struct erg_ops_attention *s, const erg_element *q,
                                 const erg_element *k, const erg_element *v, const erg_element *out,
                                 const float *stats, const erg_element *d_out, erg_element *d_q,
                                 erg_element *d_k, erg_element *d_v)
{
    const size_t d = s->head_dim, group = s->query_heads / s->kv_heads, sums = s->keys * d;
    float *memory = erg_xcalloc(2 * sums + 2 * s->keys + 3 * d, sizeof *memory);
    float *by_key = memory + 2 * sums, *by_element = by_key + 2 * s->keys;
    struct backward work = {.k = widened_of(s),
                            .v = widened_of(s),
                            .d_k = memory,
                            .d_v = memory + sums,
                            .scores = by_key,
                            .d_weights = by_key + s->keys,
                            .q = by_element,
                            .d_out = by_element + d,
                            .d_q = by_element + 2 * d};
    for (size_t b = 0; b < s->batch; b++)
        for (size_t kv = 0; kv < s->kv_heads; kv++) {
            struct head at = head_of(s, b, kv * group);
            widen_head(&work.k, s, k + at.k, s->k_row);
            widen_head(&work.v, s, v + at.v, s->v_row);
            memset(memory, 0, 2 * sums * sizeof *memory);
            for (size_t h = kv * group; h < (kv + 1) * group; h++) {
                at = head_of(s, b, h);
                backward_head(s, &at, &work, q, out, stats, d_out, d_q);
            }
            for (size_t j = 0; j < s->keys; j++)
                for (size_t c = 0; c < d; c++) {
                    d_k[at.k + j * s->k_row + c] = rounded(work.d_k[j * d + c]);
                    d_v[at.v + j * s->v_row + c] = rounded(work.d_v[j * d + c]);
                }
        }
    widened_release(&work.k);
    widened_release(&work.v);
    free(memory);
}
