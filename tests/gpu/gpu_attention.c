/*
 * Attention by cuDNN against a naive fp32 reference, with every buffer full of NaN before.
 */
#include "attention_problem.h"
#include "base/thread.h"

static const double bound = 5e-3;       /* relative, per head */
static const double stats_bound = 2e-5; /* absolute */

/* The naive reference: one query head of one batch entry. */

struct reference {
    const struct problem *problem;
    size_t batch, kv_head;
    struct head { /* of each query head of the group */
        float *o, *stats, *dq, *dk, *dv;
    } * heads;
};

/* [tokens, head_dim] of one head as floats, or [head_dim, tokens] when transposed. */
static float *widen(const erg_bf16 *first, int64_t tokens, int64_t d, int64_t stride,
                    bool transpose)
{
    float *wide = erg_xcalloc((size_t)(tokens * d), sizeof *wide);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < d; c++)
            wide[transpose ? c * tokens + t : t * d + c] = erg_bf16_float(first[t * stride + c]);
    return wide;
}

/* y[0..n) += a x[0..n) */
static void add_scaled(float *restrict y, float a, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static size_t visible_keys(const struct erg_attention_shape *s, size_t query)
{
    size_t keys = (size_t)s->keys;
    if (s->mask == ERG_MASK_NONE)
        return keys;
    size_t last = s->mask == ERG_MASK_CAUSAL ? query : query + keys - (size_t)s->queries;
    return last + 1 < keys ? last + 1 : keys;
}

static int reference_head(void *context, size_t g, struct erg_error *err)
{
    (void)err;
    const struct reference *r = context;
    const struct problem *p = r->problem;
    const struct erg_attention_shape *s = &p->shape;
    size_t d = (size_t)s->head_dim, queries = (size_t)s->queries, keys = (size_t)s->keys;
    size_t head = r->kv_head * (size_t)(s->query_heads / s->kv_heads) + g;
    const erg_bf16 *q_at =
        p->in + p->q_at + r->batch * (size_t)s->q.batch + head * (size_t)s->q.head;
    size_t kv_offset = r->batch * (size_t)s->kv.batch + r->kv_head * (size_t)s->kv.head;
    const erg_bf16 *d_o_at = p->d_o + r->batch * (size_t)s->o.batch + head * (size_t)s->o.head;
    float *q = widen(q_at, s->queries, s->head_dim, s->q.token, false);
    float *d_o = widen(d_o_at, s->queries, s->head_dim, s->o.token, false);
    float *k = widen(p->in + p->k_at + kv_offset, s->keys, s->head_dim, s->kv.token, false);
    float *v = widen(p->in + p->v_at + kv_offset, s->keys, s->head_dim, s->kv.token, false);
    float *kt = widen(p->in + p->k_at + kv_offset, s->keys, s->head_dim, s->kv.token, true);
    float *vt = widen(p->in + p->v_at + kv_offset, s->keys, s->head_dim, s->kv.token, true);
    struct head *out = &r->heads[g];
    *out = (struct head){
        .o = erg_xcalloc(queries * d, sizeof(float)),
        .stats = erg_xcalloc(queries, sizeof(float)),
        .dq = erg_xcalloc(queries * d, sizeof(float)),
        .dk = erg_xcalloc(keys * d, sizeof(float)),
        .dv = erg_xcalloc(keys * d, sizeof(float)),
    };
    float *scores = erg_xcalloc(keys, sizeof *scores), *dp = erg_xcalloc(keys, sizeof *dp);
    float scale = (float)(1 / sqrt((double)d));
    for (size_t i = 0; i < queries; i++) {
        size_t n = visible_keys(s, i);
        double most = -INFINITY, sum = 0, delta = 0;
        memset(scores, 0, n * sizeof *scores);
        memset(dp, 0, n * sizeof *dp);
        for (size_t c = 0; c < d; c++) {
            add_scaled(scores, q[i * d + c] * scale, kt + c * keys, n);
            add_scaled(dp, d_o[i * d + c], vt + c * keys, n);
        }
        for (size_t j = 0; j < n; j++)
            most = fmax(most, scores[j]);
        for (size_t j = 0; j < n; j++)
            sum += exp(scores[j] - most);
        out->stats[i] = (float)(most + log(sum));
        for (size_t j = 0; j < n; j++) {
            scores[j] = (float)(exp(scores[j] - most) / sum); /* P from here on */
            add_scaled(out->o + i * d, scores[j], v + j * d, d);
        }
        for (size_t c = 0; c < d; c++)
            delta += (double)d_o[i * d + c] * out->o[i * d + c];
        for (size_t j = 0; j < n; j++) {
            float ds = scores[j] * (dp[j] - (float)delta) * scale;
            add_scaled(out->dv + j * d, scores[j], d_o + i * d, d);
            add_scaled(out->dk + j * d, ds, q + i * d, d);
            add_scaled(out->dq + i * d, ds, k + j * d, d);
        }
    }
    free(q), free(d_o), free(k), free(v), free(kt), free(vt), free(scores), free(dp);
    return 0;
}

/* |x - reference| / |reference| over one head; NaN when x has one. */
static double relative_error(const erg_bf16 *x, const float *reference, int64_t tokens, int64_t d,
                             int64_t stride)
{
    double difference = 0, norm = 0;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < d; c++) {
            double want = reference[t * d + c];
            double off = erg_bf16_float(x[t * stride + c]) - want;
            difference += off * off;
            norm += want * want;
        }
    return sqrt(difference / norm);
}

static double worse(double a, double b)
{
    return isnan(a) || isnan(b) ? (double)NAN : fmax(a, b);
}

struct errors {
    double o, stats, dq, dk, dv;
};

static void compare_group(struct errors *worst, const struct problem *p, size_t batch,
                          size_t kv_head, const erg_bf16 *o, const float *stats,
                          const erg_bf16 *grad)
{
    const struct erg_attention_shape *s = &p->shape;
    size_t group = (size_t)(s->query_heads / s->kv_heads);
    size_t kv_count = (size_t)(s->keys * s->head_dim);
    struct reference r = {p, batch, kv_head, erg_xcalloc(group, sizeof *r.heads)};
    gpu_ok(erg_parallel_for(group, 0, reference_head, &r, &gpu_error));
    for (size_t g = 0; g < group; g++) {
        size_t head = kv_head * group + g;
        size_t row = (batch * (size_t)s->query_heads + head) * (size_t)s->queries;
        const struct head *want = &r.heads[g];
        worst->o = worse(worst->o,
                         relative_error(o + batch * (size_t)s->o.batch + head * (size_t)s->o.head,
                                        want->o, s->queries, s->head_dim, s->o.token));
        worst->dq = worse(worst->dq, relative_error(grad + p->q_at + batch * (size_t)s->q.batch +
                                                        head * (size_t)s->q.head,
                                                    want->dq, s->queries, s->head_dim, s->q.token));
        for (size_t i = 0; i < (size_t)s->queries; i++)
            worst->stats = worse(worst->stats, fabs((double)stats[row + i] - want->stats[i]));
        if (g > 0) {
            add_scaled(r.heads[0].dk, 1, want->dk, kv_count);
            add_scaled(r.heads[0].dv, 1, want->dv, kv_count);
        }
    }
    size_t offset = batch * (size_t)s->kv.batch + kv_head * (size_t)s->kv.head;
    worst->dk = worse(worst->dk, relative_error(grad + p->k_at + offset, r.heads[0].dk, s->keys,
                                                s->head_dim, s->kv.token));
    worst->dv = worse(worst->dv, relative_error(grad + p->v_at + offset, r.heads[0].dv, s->keys,
                                                s->head_dim, s->kv.token));
    for (size_t g = 0; g < group; g++) {
        struct head *h = &r.heads[g];
        free(h->o), free(h->stats), free(h->dq), free(h->dk), free(h->dv);
    }
    free(r.heads);
}

/* The first and the last group of heads, which between them see every stride. */
static void check_numbers(struct erg_cudnn *cudnn, const struct erg_attention_shape *shape)
{
    static const char *const masks[] = {"no mask", "causal", "causal, last queries"};
    struct problem p;
    problem_init(&p, cudnn, shape, 7);
    forward(&p, 0, NULL);
    backward(&p, 0, NULL);
    erg_bf16 *o = gpu_download(p.on.o, p.o_count * sizeof *o);
    float *stats = gpu_download(p.on.stats, p.rows * sizeof *stats);
    erg_bf16 *grad = gpu_download(p.on_grad, p.in_count * sizeof *grad);
    printf("-- batch %d, heads %d/%d of %d, tokens %d/%d, %s\n", (int)shape->batch,
           (int)shape->query_heads, (int)shape->kv_heads, (int)shape->head_dim, (int)shape->queries,
           (int)shape->keys, masks[shape->mask]);
    struct errors worst = {0};
    compare_group(&worst, &p, 0, 0, o, stats, grad);
    if (shape->batch * shape->kv_heads > 1)
        compare_group(&worst, &p, (size_t)shape->batch - 1, (size_t)shape->kv_heads - 1, o, stats,
                      grad);
    judge("O", worst.o, bound);
    judge("stats", worst.stats, stats_bound);
    judge("dQ", worst.dq, bound);
    judge("dK", worst.dk, bound);
    judge("dV", worst.dv, bound);
    free(o), free(stats), free(grad);
    problem_release(&p);
}

static void check_all_numbers(struct erg_cudnn *cudnn)
{
    static const int64_t heads[][2] = {{32, 8}, {24, 8}, {16, 8}, {32, 32}, {4, 1}};
    static const int64_t tokens[] = {256, 1000, 4096};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
            struct erg_attention_shape s = erg_attention_packed(
                tokens[t] > 1000 ? 1 : 2, heads[h][0], heads[h][1], 128, tokens[t]);
            check_numbers(cudnn, &s);
        }
    /* What context parallelism needs. */
    static const struct {
        int64_t queries, keys;
        enum erg_attention_mask mask;
    } chunks[] = {
        {1024, 1024, ERG_MASK_NONE},       {512, 1536, ERG_MASK_NONE},
        {500, 1300, ERG_MASK_NONE},        {512, 512, ERG_MASK_CAUSAL_LAST},
        {512, 1536, ERG_MASK_CAUSAL_LAST}, {500, 1300, ERG_MASK_CAUSAL_LAST},
    };
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct erg_attention_shape s =
            chunk(2, 24, 8, chunks[i].queries, chunks[i].keys, chunks[i].mask);
        check_numbers(cudnn, &s);
    }
}

/* dQ without atomics: right, and the same bits in every run. */
static void check_repeatable(struct erg_cudnn *cudnn)
{
    for (int causal_last = 0; causal_last < 2; causal_last++) {
        struct erg_attention_shape s = causal_last
                                           ? chunk(2, 24, 8, 512, 1536, ERG_MASK_CAUSAL_LAST)
                                           : erg_attention_packed(2, 24, 8, 128, 2048);
        s.repeatable = true;
        check_numbers(cudnn, &s);
        struct problem p;
        problem_init(&p, cudnn, &s, 8);
        size_t bytes = p.in_count * sizeof(erg_bf16), same = 0;
        forward(&p, 0, NULL);
        backward(&p, 0, NULL);
        void *first = gpu_download(p.on_grad, bytes);
        for (int run = 0; run < 10; run++) {
            backward(&p, 0, NULL);
            void *again = gpu_download(p.on_grad, bytes);
            same += !memcmp(first, again, bytes);
            free(again);
        }
        printf("%s repeatable backward: %zu of 10 runs with the same bits\n",
               same == 10 ? "ok    " : "FAILED", same);
        gpu_failures += same != 10;
        free(first);
        problem_release(&p);
    }
}

int main(void)
{
    struct erg_cuda cuda = gpu_open();
    struct erg_cudnn *cudnn = open_cudnn(&cuda, "");
    check_all_numbers(cudnn);
    check_repeatable(cudnn);
    erg_cudnn_close(cudnn);
    return gpu_result();
}
