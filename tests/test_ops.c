/*
 * The operations against what they are by definition: forward against a few lines of double
 * arithmetic, backward against the finite differences of those lines. Inputs are bf16 numbers, so
 * that both sides see the same; shapes are odd.
 */
#include "base/memory.h"
#include "base/random.h"
#include "check.h"
#include "ops/ops.h"

/* A differentiable function of many numbers, in double. */
struct function {
    size_t inputs, outputs;
    void (*evaluate)(const void *shape, const double *in, double *out);
    const void *shape;
};

/* One rounding to bf16, relative, and a little for sums that cancel. */
static const double bf16_relative = 1.0 / 256, float_relative = 1e-4;

static erg_bf16 *random_bf16(struct erg_rng *rng, size_t count, double scale)
{
    erg_bf16 *values = erg_xcalloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = erg_bf16_round((float)(scale * erg_rng_normal(rng)));
    return values;
}

/* Appends bf16 numbers to an array of doubles; returns its new end. */
static double *widen(double *to, const erg_bf16 *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        *to++ = erg_bf16_float(from[i]);
    return to;
}

/* The gradient of the sum over outputs of seed x output. The caller frees. */
static double *differences(const struct function *f, const double *in, const erg_bf16 *seed)
{
    const double step = 1e-5;
    double *at = erg_xcalloc(f->inputs, sizeof *at), *out = erg_xcalloc(f->outputs, sizeof *out);
    double *gradient = erg_xcalloc(f->inputs, sizeof *gradient);
    memcpy(at, in, f->inputs * sizeof *at);
    for (size_t i = 0; i < f->inputs; i++)
        for (int side = -1; side <= 1; side += 2) {
            at[i] = in[i] + side * step;
            f->evaluate(f->shape, at, out);
            at[i] = in[i];
            for (size_t j = 0; j < f->outputs; j++)
                gradient[i] += side * erg_bf16_float(seed[j]) * out[j] / (2 * step);
        }
    free(at), free(out);
    return gradient;
}

static void assert_bf16s(const erg_bf16 *actual, const double *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_near(erg_bf16_float(actual[i]), expected[i],
                    bf16_relative * fabs(expected[i]) + 1e-5);
}

static void assert_floats(const float *actual, const double *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_near(actual[i], expected[i], float_relative * fabs(expected[i]) + 1e-5);
}

static void test_bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    const float cases[][2] = {
        {1, 1},
        {1 + 0x1p-8F, 1},                        /* half way: to the even one below */
        {1 + 3 * 0x1p-8F, 1 + 0x1p-6F},          /* half way: to the even one above */
        {1 + 0x1p-8F + 0x1p-20F, 1 + 0x1p-7F},   /* just above half way */
        {-1 - 0x1p-8F - 0x1p-20F, -1 - 0x1p-7F}, /* the same below zero */
        {0x1.fffffep127F, INFINITY},             /* beyond the largest bf16 */
        {-INFINITY, -INFINITY},
        {0x1p-133F, 0x1p-133F}, /* the smallest subnormal */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float rounded = erg_bf16_float(erg_bf16_round(cases[i][0]));
        if (rounded != cases[i][1])
            fail_msg("%a rounds to %a, expected %a", cases[i][0], rounded, cases[i][1]);
    }
    assert_true(isnan(erg_bf16_float(erg_bf16_round(NAN))));
}

static void test_embedding_is_split_over_the_vocabulary(void **state)
{
    (void)state;
    enum { TOKENS = 5, HIDDEN = 3, ROWS = 4 };
    const int32_t ids[TOKENS] = {6, 1, 6, 0, 7};
    erg_bf16 table[2 * ROWS * HIDDEN], out[TOKENS * HIDDEN];
    for (int i = 0; i < 2 * ROWS * HIDDEN; i++)
        table[i] = erg_bf16_round((float)i + 1);
    double sums[TOKENS * HIDDEN] = {0};
    for (size_t rank = 0; rank < 2; rank++) {
        erg_ops_embedding_forward(TOKENS, HIDDEN, rank * ROWS, ROWS, ids,
                                  table + rank * ROWS * HIDDEN, out);
        for (size_t i = 0; i < TOKENS * HIDDEN; i++)
            sums[i] += erg_bf16_float(out[i]);
    }
    for (size_t i = 0; i < TOKENS * HIDDEN; i++)
        assert_near(sums[i], ids[i / HIDDEN] * HIDDEN + (double)(i % HIDDEN) + 1, 0);

    int32_t order[TOKENS];
    erg_ops_embedding_order(TOKENS, ids, order);
    const int32_t expected[TOKENS] = {3, 1, 0, 2, 4};
    assert_memory_equal(order, expected, sizeof order);

    /* The second rank, ids 4 to 7: token 4 is alone, tokens 0 and 2 add up. */
    float d_table[ROWS * HIDDEN] = {0};
    d_table[2 * HIDDEN] = 100;
    erg_ops_embedding_backward(TOKENS, HIDDEN, ROWS, ROWS, ids, order, table, d_table);
    const float d_expected[ROWS * HIDDEN] = {0, 0, 0, 0, 0, 0, 108, 10, 12, 13, 14, 15};
    assert_memory_equal(d_table, d_expected, sizeof d_table);
}

struct norm_shape {
    size_t tokens, hidden;
    double eps;
};

/* in: rows, then the weight; out: rows. */
static void evaluate_norm(const void *context, const double *in, double *out)
{
    const struct norm_shape *s = context;
    const double *weight = in + s->tokens * s->hidden;
    for (size_t t = 0; t < s->tokens; t++) {
        double squares = 0;
        for (size_t i = 0; i < s->hidden; i++)
            squares += in[t * s->hidden + i] * in[t * s->hidden + i];
        double rms = sqrt(squares / (double)s->hidden + s->eps);
        for (size_t i = 0; i < s->hidden; i++)
            out[t * s->hidden + i] = in[t * s->hidden + i] / rms * weight[i];
    }
}

static void test_norm(void **state)
{
    (void)state;
    const struct norm_shape shape = {.tokens = 3, .hidden = 7, .eps = 0.01};
    const size_t hidden = shape.hidden, count = shape.tokens * hidden;
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    erg_bf16 *residual = random_bf16(&rng, count, 1), *x = random_bf16(&rng, count, 1);
    erg_bf16 *weight = random_bf16(&rng, hidden, 1), *d_out = random_bf16(&rng, count, 1);
    erg_bf16 *d_sum = random_bf16(&rng, count, 1), *out = random_bf16(&rng, count, 1);
    erg_bf16 *sum = random_bf16(&rng, count, 1), *d_in = random_bf16(&rng, count, 1);
    float inv_rms[3];
    erg_ops_norm_forward(shape.tokens, hidden, 0.01F, residual, x, weight, sum, out, inv_rms);
    for (size_t i = 0; i < count; i++)
        assert_true(sum[i] == erg_bf16_round(erg_bf16_float(residual[i]) + erg_bf16_float(x[i])));

    const struct function f = {count + hidden, count, evaluate_norm, &shape};
    double in[28], expected[21];
    widen(widen(in, sum, count), weight, hidden);
    evaluate_norm(&shape, in, expected);
    assert_bf16s(out, expected, count);

    double *gradient = differences(&f, in, d_out);
    float d_weight[7] = {[2] = 5};
    erg_ops_norm_backward(shape.tokens, hidden, sum, weight, inv_rms, d_out, NULL, d_in, d_weight);
    assert_bf16s(d_in, gradient, count);
    d_weight[2] -= 5; /* gradients of weights are added to what was there */
    assert_floats(d_weight, gradient + count, hidden);

    /* What reached the sum by other ways is added; in place. */
    for (size_t i = 0; i < count; i++)
        gradient[i] += erg_bf16_float(d_sum[i]);
    erg_ops_norm_backward(shape.tokens, hidden, sum, weight, inv_rms, d_out, d_sum, d_sum,
                          d_weight);
    assert_bf16s(d_sum, gradient, count);

    /* Without x it is the norm of the residual; with x in place it is the same as before. */
    erg_ops_norm_forward(shape.tokens, hidden, 0.01F, residual, x, weight, residual, d_in, inv_rms);
    assert_memory_equal(d_in, out, count * sizeof *out);
    erg_ops_norm_forward(shape.tokens, hidden, 0.01F, sum, NULL, weight, NULL, d_in, inv_rms);
    assert_memory_equal(d_in, out, count * sizeof *out);
    free(residual), free(x), free(weight), free(d_out), free(d_sum), free(out), free(sum);
    free(d_in), free(gradient);
}

static void test_rope_table(void **state)
{
    (void)state;
    const int32_t positions[2] = {0, 3};
    float table[8];
    erg_ops_rope_table(2, positions, 4, 10000, table);
    const double expected[8] = {1, 0, 1, 0, cos(3), sin(3), cos(0.03), sin(0.03)};
    assert_floats(table, expected, 8);
    float counted[16];
    erg_ops_rope_table(4, NULL, 4, 10000, counted);
    assert_memory_equal(table + 4, counted + 12, 4 * sizeof *table);
}

struct rope_shape {
    struct erg_ops_qkv qkv;
    double eps;
    bool norm;
    const float *table;
};

/* in: packed rows, weight of queries, weight of keys; out: queries and keys of each row. */
static void evaluate_rope(const void *context, const double *in, double *out)
{
    const struct rope_shape *s = context;
    const struct erg_ops_qkv *qkv = &s->qkv;
    const size_t d = qkv->head_dim, heads = qkv->query_heads + qkv->kv_heads;
    const double *weights = in + qkv->tokens * erg_ops_qkv_row(qkv);
    for (size_t t = 0; t < qkv->tokens; t++)
        for (size_t h = 0; h < heads; h++) {
            const double *head = in + t * erg_ops_qkv_row(qkv) + h * d;
            const double *weight = weights + (h < qkv->query_heads ? 0 : d);
            const float *angles = s->table + t % qkv->sequence * d;
            double squares = 0, n[8];
            for (size_t i = 0; i < d; i++)
                squares += head[i] * head[i];
            for (size_t i = 0; i < d; i++)
                n[i] = s->norm ? head[i] / sqrt(squares / (double)d + s->eps) * weight[i] : head[i];
            for (size_t i = 0; i < d / 2; i++) {
                double c = angles[2 * i], sine = angles[2 * i + 1];
                out[(t * heads + h) * d + i] = n[i] * c - n[i + d / 2] * sine;
                out[(t * heads + h) * d + i + d / 2] = n[i + d / 2] * c + n[i] * sine;
            }
        }
}

static void check_rope(bool norm)
{
    enum { TOKENS = 6, HEADS = 5, D = 6, ROW = 7 * D }; /* 3 query heads, 2 kv heads */
    float table[3 * D];
    const struct rope_shape shape = {
        .qkv = {.tokens = TOKENS, .sequence = 3, .query_heads = 3, .kv_heads = 2, .head_dim = D},
        .eps = 0.01,
        .norm = norm,
        .table = table,
    };
    const struct erg_ops_qkv *qkv_shape = &shape.qkv;
    erg_ops_rope_table(3, NULL, D, 100, table);
    struct erg_rng rng;
    erg_rng_seed(&rng, 2);
    erg_bf16 *qkv = random_bf16(&rng, TOKENS * ROW, 1), *weights = random_bf16(&rng, 2 * D, 1);
    erg_bf16 *seed = random_bf16(&rng, TOKENS * HEADS * D, 1), out[TOKENS * HEADS * D];
    const erg_bf16 *q_weight = norm ? weights : NULL, *k_weight = norm ? weights + D : NULL;
    erg_ops_rope_forward(qkv_shape, 0.01F, q_weight, k_weight, table, qkv, out, HEADS * D);

    const struct function f = {TOKENS * ROW + 2 * D, TOKENS * HEADS * D, evaluate_rope, &shape};
    double in[TOKENS * ROW + 2 * D], expected[TOKENS * HEADS * D];
    widen(widen(in, qkv, TOKENS * ROW), weights, 2 * D);
    evaluate_rope(&shape, in, expected);
    assert_bf16s(out, expected, TOKENS * HEADS * D);

    /* Gradients come packed; those of values pass through. */
    double *gradient = differences(&f, in, seed);
    erg_bf16 d_qkv[TOKENS * ROW], d_rotated[TOKENS * ROW];
    float d_weights[2 * D] = {0};
    for (size_t i = 0; i < TOKENS * ROW; i++) {
        bool value = i % ROW >= HEADS * D;
        d_qkv[i] = value ? erg_bf16_round(7) : seed[i / ROW * HEADS * D + i % ROW];
        if (value)
            gradient[i] = 7;
    }
    memcpy(d_rotated, d_qkv, sizeof d_qkv);
    for (size_t i = 0; norm && i < TOKENS * ROW; i++) /* from another tensor */
        if (i % ROW < HEADS * D)
            d_qkv[i] = 0;
    erg_ops_rope_backward(qkv_shape, 0.01F, q_weight, k_weight, table, qkv,
                          norm ? d_rotated : d_qkv, d_qkv, d_weights, d_weights + D);
    assert_bf16s(d_qkv, gradient, TOKENS * ROW);
    assert_floats(d_weights, gradient + TOKENS * ROW, 2 * D);

    if (!norm) { /* in place, and values stay */
        erg_bf16 first_value = qkv[HEADS * D];
        erg_ops_rope_forward(qkv_shape, 0, NULL, NULL, table, qkv, qkv, ROW);
        assert_memory_equal(qkv + ROW, out + HEADS * D, HEADS * D * sizeof *out);
        assert_int_equal(qkv[HEADS * D], first_value);
    }
    free(qkv), free(weights), free(seed), free(gradient);
}

static void test_rope(void **state)
{
    (void)state;
    check_rope(false);
}

static void test_rope_with_norm_per_head(void **state)
{
    (void)state;
    check_rope(true);
}

/* in: q, k, v in rows without gaps; out: [batch, queries, heads, d]. */
static void evaluate_attention(const void *context, const double *in, double *out)
{
    const struct erg_ops_attention *s = context;
    const size_t d = s->head_dim, q_row = s->query_heads * d, kv_row = s->kv_heads * d;
    const double *keys = in + s->batch * s->queries * q_row;
    const double *values = keys + s->batch * s->keys * kv_row;
    for (size_t n = 0; n < s->batch * s->queries * s->query_heads; n++) {
        size_t h = n % s->query_heads, i = n / s->query_heads % s->queries;
        size_t b = n / s->query_heads / s->queries, kv = h * s->kv_heads / s->query_heads;
        double total = 0, *to = out + n * d;
        memset(to, 0, d * sizeof *to);
        for (size_t j = 0; j < s->keys && (!s->causal || j + s->queries <= i + s->keys); j++) {
            double score = 0;
            for (size_t c = 0; c < d; c++)
                score += in[n * d + c] * keys[(b * s->keys + j) * kv_row + kv * d + c];
            double weight = exp(score / sqrt((double)d));
            total += weight;
            for (size_t c = 0; c < d; c++)
                to[c] += weight * values[(b * s->keys + j) * kv_row + kv * d + c];
        }
        for (size_t c = 0; c < d; c++)
            to[c] /= total;
    }
}

/* Copies rows of `width` elements to rows of `row` elements. */
static void spread(erg_bf16 *to, size_t row, const erg_bf16 *from, size_t width, size_t rows)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * row, from + i * width, width * sizeof *to);
}

static void check_attention(size_t queries, size_t keys, bool causal)
{
    enum { D = 6, GAP = 5 };
    const struct erg_ops_attention dense = {
        .batch = 2,
        .queries = queries,
        .keys = keys,
        .query_heads = 4,
        .kv_heads = 2,
        .head_dim = D,
        .q_row = 4 * D,
        .k_row = 2 * D,
        .v_row = 2 * D,
        .out_row = 4 * D,
        .causal = causal,
    };
    struct erg_ops_attention packed = dense;
    packed.q_row += GAP, packed.k_row += 2 * GAP, packed.v_row += 3 * GAP;
    const size_t q_count = 2 * queries * 4 * D, kv_count = 2 * keys * 2 * D;
    struct erg_rng rng;
    erg_rng_seed(&rng, 3);
    erg_bf16 *all = random_bf16(&rng, q_count + 2 * kv_count, 1);
    erg_bf16 *d_out = random_bf16(&rng, q_count, 1), *out = erg_xcalloc(q_count, sizeof *out);
    erg_bf16 *q = erg_xcalloc(2 * queries * packed.q_row, sizeof *q);
    erg_bf16 *k = erg_xcalloc(2 * keys * packed.k_row, sizeof *k);
    erg_bf16 *v = erg_xcalloc(2 * keys * packed.v_row, sizeof *v);
    spread(q, packed.q_row, all, dense.q_row, 2 * queries);
    spread(k, packed.k_row, all + q_count, dense.k_row, 2 * keys);
    spread(v, packed.v_row, all + q_count + kv_count, dense.v_row, 2 * keys);
    float *stats = erg_xcalloc(2 * 4 * queries, sizeof *stats);
    erg_ops_attention_forward(&packed, q, k, v, out, stats);

    const struct function f = {q_count + 2 * kv_count, q_count, evaluate_attention, &dense};
    double *in = erg_xcalloc(f.inputs, sizeof *in), *expected = erg_xcalloc(q_count, sizeof *in);
    widen(in, all, f.inputs);
    evaluate_attention(&dense, in, expected);
    assert_bf16s(out, expected, q_count);
    if (causal &&
        queries ==
            keys) { /* the first query sees one key, so its sum of exp is that of one score */
        double score = 0;
        for (size_t c = 0; c < D; c++)
            score += in[c] * in[q_count + c] / sqrt(D);
        assert_near(stats[0], score, 1e-5);
    }

    double *gradient = differences(&f, in, d_out);
    erg_ops_attention_backward(&packed, q, k, v, out, stats, d_out, q, k, v);
    erg_bf16 *d_all = erg_xcalloc(f.inputs, sizeof *d_all);
    for (size_t i = 0; i < 2 * queries; i++)
        memcpy(d_all + i * dense.q_row, q + i * packed.q_row, dense.q_row * sizeof *q);
    for (size_t i = 0; i < 2 * keys; i++) {
        memcpy(d_all + q_count + i * dense.k_row, k + i * packed.k_row, dense.k_row * sizeof *k);
        memcpy(d_all + q_count + kv_count + i * dense.v_row, v + i * packed.v_row,
               dense.v_row * sizeof *v);
    }
    /* The backward pass knows the output only in bf16: an absolute error of its size times d_out.
     */
    for (size_t i = 0; i < f.inputs; i++)
        assert_near(erg_bf16_float(d_all[i]), gradient[i], 0.02);
    free(all), free(d_out), free(out), free(q), free(k), free(v), free(stats), free(in);
    free(expected), free(gradient), free(d_all);
}

static void test_attention(void **state)
{
    (void)state;
    check_attention(5, 5, true);
    check_attention(3, 7, true);
    check_attention(3, 7, false);
}

struct linear_shape {
    size_t tokens, inputs, outputs;
};

/* in: x, then the weight; out: y. */
static void evaluate_linear(const void *context, const double *in, double *out)
{
    const struct linear_shape *s = context;
    const double *weight = in + s->tokens * s->inputs;
    for (size_t n = 0; n < s->tokens * s->outputs; n++) {
        out[n] = 0;
        for (size_t i = 0; i < s->inputs; i++)
            out[n] += in[n / s->outputs * s->inputs + i] * weight[n % s->outputs * s->inputs + i];
    }
}

static void test_linear(void **state)
{
    (void)state;
    enum { TOKENS = 5, INPUTS = 7, OUTPUTS = 3, X = TOKENS * INPUTS, Y = TOKENS * OUTPUTS };
    const struct linear_shape shape = {TOKENS, INPUTS, OUTPUTS};
    struct erg_rng rng;
    erg_rng_seed(&rng, 4);
    erg_bf16 *x = random_bf16(&rng, X, 1), *weight = random_bf16(&rng, OUTPUTS * INPUTS, 1);
    erg_bf16 *d_y = random_bf16(&rng, Y, 1), y[Y], d_x[X];
    float d_weight[OUTPUTS * INPUTS] = {[1] = 3};
    const struct function f = {X + OUTPUTS * INPUTS, Y, evaluate_linear, &shape};
    double in[X + OUTPUTS * INPUTS], expected[Y];
    widen(widen(in, x, X), weight, OUTPUTS * INPUTS);
    evaluate_linear(&shape, in, expected);
    erg_ops_linear_forward(TOKENS, INPUTS, OUTPUTS, x, weight, y);
    assert_bf16s(y, expected, Y);
    double *gradient = differences(&f, in, d_y);
    erg_ops_linear_input_gradient(TOKENS, INPUTS, OUTPUTS, d_y, weight, d_x);
    assert_bf16s(d_x, gradient, X);
    gradient[X + 1] += 3;
    erg_ops_linear_weight_gradient(TOKENS, INPUTS, OUTPUTS, x, d_y, d_weight);
    assert_floats(d_weight, gradient + X, OUTPUTS * INPUTS);
    free(x), free(weight), free(d_y), free(gradient);
}

static void evaluate_swiglu(const void *context, const double *in, double *out)
{
    const size_t *shape = context, width = shape[1];
    for (size_t n = 0; n < shape[0] * width; n++) {
        double gate = in[n / width * 2 * width + n % width];
        out[n] = gate / (1 + exp(-gate)) * in[(n / width * 2 + 1) * width + n % width];
    }
}

static void test_swiglu(void **state)
{
    (void)state;
    enum { TOKENS = 3, WIDTH = 5, COUNT = TOKENS * WIDTH };
    const size_t shape[2] = {TOKENS, WIDTH};
    struct erg_rng rng;
    erg_rng_seed(&rng, 5);
    erg_bf16 *gate_up = random_bf16(&rng, 2 * COUNT, 2), *d_out = random_bf16(&rng, COUNT, 1);
    erg_bf16 out[COUNT];
    const struct function f = {2 * COUNT, COUNT, evaluate_swiglu, shape};
    double in[2 * COUNT], expected[COUNT];
    widen(in, gate_up, 2 * COUNT);
    evaluate_swiglu(shape, in, expected);
    erg_ops_swiglu_forward(TOKENS, WIDTH, gate_up, out);
    assert_bf16s(out, expected, COUNT);
    double *gradient = differences(&f, in, d_out);
    erg_ops_swiglu_backward(TOKENS, WIDTH, gate_up, d_out, gate_up);
    assert_bf16s(gate_up, gradient, 2 * COUNT);
    free(gate_up), free(d_out), free(gradient);
}

struct loss_shape {
    size_t tokens, vocab;
    const int32_t *targets;
};

/* in: logits; out: each token's loss. */
static void evaluate_loss(const void *context, const double *in, double *out)
{
    const struct loss_shape *s = context;
    for (size_t t = 0; t < s->tokens; t++) {
        const double *row = in + t * s->vocab;
        double sum = 0;
        for (size_t i = 0; i < s->vocab; i++)
            sum += exp(row[i]);
        out[t] = s->targets[t] < 0 ? 0 : log(sum) - row[s->targets[t]];
    }
}

static void test_loss_is_split_over_the_vocabulary(void **state)
{
    (void)state;
    enum { TOKENS = 5, COLUMNS = 4, VOCAB = 3 * COLUMNS };
    const int32_t targets[TOKENS] = {3, 0, 11, -1, 4};
    const struct loss_shape shape = {TOKENS, VOCAB, targets};
    const float scale = 0.25F; /* four tokens count */
    struct erg_rng rng;
    erg_rng_seed(&rng, 6);
    erg_bf16 *logits = random_bf16(&rng, TOKENS * VOCAB, 3), seed[TOKENS], part[TOKENS * COLUMNS];
    for (int t = 0; t < TOKENS; t++)
        seed[t] = erg_bf16_round(scale);
    const struct function f = {TOKENS * VOCAB, TOKENS, evaluate_loss, &shape};
    double in[TOKENS * VOCAB], losses[TOKENS], mean = 10;
    widen(in, logits, TOKENS * VOCAB);
    evaluate_loss(&shape, in, losses);
    for (int t = 0; t < TOKENS; t++)
        mean += losses[t] / 4;

    float stats[3 * TOKENS * 3], log_sum[TOKENS], loss = 10;
    for (size_t rank = 0; rank < 3; rank++) {
        for (size_t t = 0; t < TOKENS; t++)
            memcpy(part + t * COLUMNS, logits + t * VOCAB + rank * COLUMNS, COLUMNS * sizeof *part);
        erg_ops_loss_stats(TOKENS, COLUMNS, rank * COLUMNS, targets, part,
                           stats + rank * TOKENS * 3);
    }
    erg_ops_loss_combine(TOKENS, 3, targets, stats, scale, log_sum, &loss);
    assert_near(loss, mean, 1e-5);

    double *gradient = differences(&f, in, seed);
    for (size_t rank = 0; rank < 3; rank++) {
        double expected[TOKENS * COLUMNS];
        for (size_t t = 0; t < TOKENS; t++) {
            memcpy(part + t * COLUMNS, logits + t * VOCAB + rank * COLUMNS, COLUMNS * sizeof *part);
            memcpy(expected + t * COLUMNS, gradient + t * VOCAB + rank * COLUMNS,
                   COLUMNS * sizeof *expected);
        }
        erg_ops_loss_backward(TOKENS, COLUMNS, rank * COLUMNS, targets, log_sum, scale, part);
        assert_bf16s(part, expected, TOKENS * COLUMNS);
    }
    free(logits), free(gradient);
}

static void test_loss_of_large_logits(void **state)
{
    (void)state;
    const int32_t target = 1;
    erg_bf16 logits[3] = {erg_bf16_round(1024), erg_bf16_round(1024), erg_bf16_round(-1024)};
    float stats[3], log_sum, loss = 0;
    erg_ops_loss_stats(1, 3, 0, &target, logits, stats);
    erg_ops_loss_combine(1, 1, &target, stats, 1, &log_sum, &loss);
    assert_near(loss, log(2), 1e-4);
    erg_ops_loss_backward(1, 3, 0, &target, &log_sum, 1, logits);
    assert_near(erg_bf16_float(logits[0]), 0.5, 0.002);
    assert_near(erg_bf16_float(logits[1]), -0.5, 0.002);
    assert_near(erg_bf16_float(logits[2]), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_rounds_to_nearest_even),
        cmocka_unit_test(test_embedding_is_split_over_the_vocabulary),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_rope_table),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rope_with_norm_per_head),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_loss_is_split_over_the_vocabulary),
        cmocka_unit_test(test_loss_of_large_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
