/*
 * The operations of a layer and of its update against what they are by definition; shapes are odd.
 * test_ops32.c compiles this once more, with floats.
 */
#include "model/model.h"
#include "ops_world.h"

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
    erg_element *residual = random_elements(&rng, count, 1), *x = random_elements(&rng, count, 1);
    erg_element *weight = random_elements(&rng, hidden, 1),
                *d_out = random_elements(&rng, count, 1);
    erg_element *d_sum = random_elements(&rng, count, 1), *out = random_elements(&rng, count, 1);
    erg_element *sum = random_elements(&rng, count, 1), *d_in = random_elements(&rng, count, 1);
    float inv_rms[3];
    ERG_OPS(norm_forward)
    (shape.tokens, hidden, 0.01F, residual, x, NULL, weight, sum, out, inv_rms);
    for (size_t i = 0; i < count; i++)
        assert_true(sum[i] == rounded(wide(residual[i]) + wide(x[i])));

    const struct function f = {count + hidden, count, evaluate_norm, &shape};
    double in[28], expected[21];
    widen(widen(in, sum, count), weight, hidden);
    evaluate_norm(&shape, in, expected);
    assert_elements(out, expected, count);

    double *gradient = differences(&f, in, d_out);
    float d_weight[7] = {[2] = 5};
    ERG_OPS(norm_backward)(shape.tokens, hidden, sum, weight, inv_rms, d_out, NULL, d_in, d_weight);
    assert_elements(d_in, gradient, count);
    d_weight[2] -= 5; /* gradients of weights are added to what was there */
    assert_floats(d_weight, gradient + count, hidden);

    /* What reached the sum by other ways is added; in place. */
    for (size_t i = 0; i < count; i++)
        gradient[i] += wide(d_sum[i]);
    ERG_OPS(norm_backward)
    (shape.tokens, hidden, sum, weight, inv_rms, d_out, d_sum, d_sum, d_weight);
    assert_elements(d_sum, gradient, count);

    /* Without x it is the norm of the residual; with x in place it is the same as before. */
    ERG_OPS(norm_forward)
    (shape.tokens, hidden, 0.01F, residual, x, NULL, weight, residual, d_in, inv_rms);
    assert_memory_equal(d_in, out, count * sizeof *out);
    ERG_OPS(norm_forward)
    (shape.tokens, hidden, 0.01F, sum, NULL, NULL, weight, NULL, d_in, inv_rms);
    assert_memory_equal(d_in, out, count * sizeof *out);

    /* A bias of x is added before the one rounding, as the add alone does it. */
    ERG_OPS(norm_forward)(shape.tokens, hidden, 0.01F, x, d_out, weight, weight, sum, out, inv_rms);
    ERG_OPS(add_bias)(shape.tokens, hidden, x, d_out, weight, d_in);
    for (size_t i = 0; i < count; i++)
        assert_true(sum[i] == rounded(wide(x[i]) + wide(d_out[i]) + wide(weight[i % hidden])));
    assert_memory_equal(d_in, sum, count * sizeof *sum);
    widen(widen(in, sum, count), weight, hidden);
    evaluate_norm(&shape, in, expected);
    assert_elements(out, expected, count);
    free(residual), free(x), free(weight), free(d_out), free(d_sum), free(out), free(sum);
    free(d_in), free(gradient);
}

/* in: rows, weight, bias; out: rows. */
static void evaluate_layer_norm(const void *context, const double *in, double *out)
{
    const struct norm_shape *s = context;
    const double *weight = in + s->tokens * s->hidden, *bias = weight + s->hidden;
    for (size_t t = 0; t < s->tokens; t++) {
        const double *row = in + t * s->hidden;
        double mean = 0, variance = 0;
        for (size_t i = 0; i < s->hidden; i++)
            mean += row[i] / (double)s->hidden;
        for (size_t i = 0; i < s->hidden; i++)
            variance += (row[i] - mean) * (row[i] - mean) / (double)s->hidden;
        for (size_t i = 0; i < s->hidden; i++)
            out[t * s->hidden + i] =
                (row[i] - mean) / sqrt(variance + s->eps) * weight[i] + bias[i];
    }
}

static void test_layer_norm(void **state)
{
    (void)state;
    enum { TOKENS = 3, HIDDEN = 7, COUNT = TOKENS * HIDDEN };
    const struct norm_shape shape = {.tokens = TOKENS, .hidden = HIDDEN, .eps = 0.01};
    struct erg_rng rng;
    erg_rng_seed(&rng, 7);
    erg_element *residual = random_elements(&rng, COUNT, 1), *x = random_elements(&rng, COUNT, 1);
    erg_element *vectors = random_elements(&rng, 3 * HIDDEN, 1); /* weight, bias, bias of x */
    erg_element *d_out = random_elements(&rng, COUNT, 1), *d_sum = random_elements(&rng, COUNT, 1);
    erg_element sum[COUNT], out[COUNT], again[COUNT], d_in[COUNT];
    const erg_element *bias = vectors + HIDDEN, *x_bias = vectors + 2 * HIDDEN;
    float stats[2 * TOKENS], d_weight[HIDDEN] = {[2] = 5}, d_bias[HIDDEN] = {[3] = 7};
    ERG_OPS(layer_norm_forward)
    (TOKENS, HIDDEN, 0.01F, residual, x, x_bias, vectors, bias, sum, out, stats);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(sum[i] == rounded(wide(residual[i]) + wide(x[i]) + wide(x_bias[i % HIDDEN])));
    const struct function f = {COUNT + 2 * HIDDEN, COUNT, evaluate_layer_norm, &shape};
    double in[COUNT + 2 * HIDDEN], expected[COUNT];
    widen(widen(in, sum, COUNT), vectors, 2 * HIDDEN);
    evaluate_layer_norm(&shape, in, expected);
    assert_elements(out, expected, COUNT);

    double *gradient = differences(&f, in, d_out);
    ERG_OPS(layer_norm_backward)
    (TOKENS, HIDDEN, sum, vectors, stats, d_out, NULL, d_in, d_weight, d_bias);
    assert_elements(d_in, gradient, COUNT);
    d_weight[2] -= 5, d_bias[3] -= 7; /* added to what was there */
    assert_floats(d_weight, gradient + COUNT, HIDDEN);
    assert_floats(d_bias, gradient + COUNT + HIDDEN, HIDDEN);
    for (size_t i = 0; i < COUNT; i++)
        gradient[i] += wide(d_sum[i]);
    ERG_OPS(layer_norm_backward)
    (TOKENS, HIDDEN, sum, vectors, stats, d_out, d_sum, d_sum, d_weight, d_bias);
    assert_elements(d_sum, gradient, COUNT);

    /* Without x it is the norm of the residual; a mean that is far from 0 costs no digits. */
    ERG_OPS(layer_norm_forward)
    (TOKENS, HIDDEN, 0.01F, sum, NULL, NULL, vectors, bias, NULL, again, stats);
    assert_memory_equal(again, out, sizeof out);
    for (size_t i = 0; i < COUNT; i++)
        in[i] = wide(sum[i] = rounded(512 + 4 * (float)(i * i % 7)));
    evaluate_layer_norm(&shape, in, expected);
    ERG_OPS(layer_norm_forward)
    (TOKENS, HIDDEN, 0.01F, sum, NULL, NULL, vectors, bias, NULL, out, stats);
    assert_elements(out, expected, COUNT);
    free(residual), free(x), free(vectors), free(d_out), free(d_sum), free(gradient);
}

static void test_rope_table(void **state)
{
    (void)state;
    const int32_t positions[2] = {0, 3};
    float table[8];
    erg_ops_rope_table(2, positions, 4, 10000, NULL, table);
    const double expected[8] = {1, 0, 1, 0, cos(3), sin(3), cos(0.03), sin(0.03)};
    assert_floats(table, expected, 8);
    float counted[16];
    erg_ops_rope_table(4, NULL, 4, 10000, NULL, counted);
    assert_memory_equal(table + 4, counted + 12, 4 * sizeof *table);

    /* Far positions keep their digits. */
    const int32_t far = 131071;
    erg_ops_rope_table(1, &far, 4, 500000, NULL, table);
    assert_near(table[2], cos(131071 / sqrt(500000)), 1e-6);
    assert_near(table[3], sin(131071 / sqrt(500000)), 1e-6);
}

/* Frequencies that are scaled, by the angles of position 1. */
static void test_rope_scaling(void **state)
{
    (void)state;
    enum { D = 16 };
    const int32_t one = 1;
    float table[D];
    struct erg_rope rope = {.scaling = ERG_ROPE_LINEAR, .factor = 4};
    erg_ops_rope_table(1, &one, D, 10000, &rope, table);
    for (int i = 0; i < D / 2; i++)
        assert_near(table[2 * i + 1], sin(pow(10000, -2.0 * i / D) / 4), 1e-7);

    /* Llama 3's: what is said in the model's own words, wavelengths. */
    rope = (struct erg_rope){
        .scaling = ERG_ROPE_LLAMA3, .factor = 8, .positions = 256, .low = 1, .high = 4};
    erg_ops_rope_table(1, &one, D, 10000, &rope, table);
    int kept = 0, between = 0, scaled = 0;
    for (int i = 0; i < D / 2; i++) {
        double f = pow(10000, -2.0 * i / D), wavelength = 2 * acos(-1) / f, expected = f;
        if (wavelength > 256.0 / 1) {
            expected = f / 8;
            scaled++;
        } else if (wavelength >= 256.0 / 4) {
            double smooth = (256 / wavelength - 1) / (4 - 1);
            expected = (1 - smooth) * f / 8 + smooth * f;
            between++;
        } else {
            kept++;
        }
        assert_near(table[2 * i + 1], sin(expected), 1e-7);
    }
    assert_true(kept > 0 && between > 0 && scaled > 0);
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
    erg_ops_rope_table(3, NULL, D, 100, NULL, table);
    struct erg_rng rng;
    erg_rng_seed(&rng, 2);
    erg_element *qkv = random_elements(&rng, TOKENS * ROW, 1),
                *weights = random_elements(&rng, 2 * D, 1);
    erg_element *seed = random_elements(&rng, TOKENS * HEADS * D, 1), out[TOKENS * HEADS * D];
    const erg_element *q_weight = norm ? weights : NULL, *k_weight = norm ? weights + D : NULL;
    ERG_OPS(rope_forward)(qkv_shape, 0.01F, q_weight, k_weight, table, qkv, out, HEADS * D);

    const struct function f = {TOKENS * ROW + 2 * D, TOKENS * HEADS * D, evaluate_rope, &shape};
    double in[TOKENS * ROW + 2 * D], expected[TOKENS * HEADS * D];
    widen(widen(in, qkv, TOKENS * ROW), weights, 2 * D);
    evaluate_rope(&shape, in, expected);
    assert_elements(out, expected, TOKENS * HEADS * D);

    /* Gradients come packed; those of values pass through. */
    double *gradient = differences(&f, in, seed);
    erg_element d_qkv[TOKENS * ROW], d_rotated[TOKENS * ROW];
    float d_weights[2 * D] = {0};
    for (size_t i = 0; i < TOKENS * ROW; i++) {
        bool value = i % ROW >= HEADS * D;
        d_qkv[i] = value ? rounded(7) : seed[i / ROW * HEADS * D + i % ROW];
        if (value)
            gradient[i] = 7;
    }
    memcpy(d_rotated, d_qkv, sizeof d_qkv);
    for (size_t i = 0; norm && i < TOKENS * ROW; i++) /* from another tensor */
        if (i % ROW < HEADS * D)
            d_qkv[i] = 0;
    ERG_OPS(rope_backward)
    (qkv_shape, 0.01F, q_weight, k_weight, table, qkv, norm ? d_rotated : d_qkv, d_qkv, d_weights,
     d_weights + D);
    assert_elements(d_qkv, gradient, TOKENS * ROW);
    assert_floats(d_weights, gradient + TOKENS * ROW, 2 * D);

    if (!norm) { /* in place, and values stay */
        erg_element first_value = qkv[HEADS * D];
        ERG_OPS(rope_forward)(qkv_shape, 0, NULL, NULL, table, qkv, qkv, ROW);
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
static void spread(erg_element *to, size_t row, const erg_element *from, size_t width, size_t rows)
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
    erg_element *all = random_elements(&rng, q_count + 2 * kv_count, 1);
    erg_element *d_out = random_elements(&rng, q_count, 1),
                *out = erg_xcalloc(q_count, sizeof *out);
    erg_element *q = erg_xcalloc(2 * queries * packed.q_row, sizeof *q);
    erg_element *k = erg_xcalloc(2 * keys * packed.k_row, sizeof *k);
    erg_element *v = erg_xcalloc(2 * keys * packed.v_row, sizeof *v);
    spread(q, packed.q_row, all, dense.q_row, 2 * queries);
    spread(k, packed.k_row, all + q_count, dense.k_row, 2 * keys);
    spread(v, packed.v_row, all + q_count + kv_count, dense.v_row, 2 * keys);
    float *stats = erg_xcalloc(2 * 4 * queries, sizeof *stats);
    ERG_OPS(attention_forward)(&packed, q, k, v, out, stats);

    const struct function f = {q_count + 2 * kv_count, q_count, evaluate_attention, &dense};
    double *in = erg_xcalloc(f.inputs, sizeof *in), *expected = erg_xcalloc(q_count, sizeof *in);
    widen(in, all, f.inputs);
    evaluate_attention(&dense, in, expected);
    assert_elements(out, expected, q_count);
    if (causal &&
        queries ==
            keys) { /* the first query sees one key, so its sum of exp is that of one score */
        double score = 0;
        for (size_t c = 0; c < D; c++)
            score += in[c] * in[q_count + c] / sqrt(D);
        assert_near(stats[0], score, 1e-5);
    }

    double *gradient = differences(&f, in, d_out);
    ERG_OPS(attention_backward)(&packed, q, k, v, out, stats, d_out, q, k, v);
    erg_element *d_all = erg_xcalloc(f.inputs, sizeof *d_all);
    for (size_t i = 0; i < 2 * queries; i++)
        memcpy(d_all + i * dense.q_row, q + i * packed.q_row, dense.q_row * sizeof *q);
    for (size_t i = 0; i < 2 * keys; i++) {
        memcpy(d_all + q_count + i * dense.k_row, k + i * packed.k_row, dense.k_row * sizeof *k);
        memcpy(d_all + q_count + kv_count + i * dense.v_row, v + i * packed.v_row,
               dense.v_row * sizeof *v);
    }
    /* The backward pass knows the output only as elements: an absolute error of its size times
     * d_out.
     */
    for (size_t i = 0; i < f.inputs; i++)
        assert_near(wide(d_all[i]), gradient[i], sizeof(erg_element) == 2 ? 0.02 : 1e-4);
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

/* in: x, the weight, the bias; out: y. */
static void evaluate_linear(const void *context, const double *in, double *out)
{
    const struct linear_shape *s = context;
    const double *weight = in + s->tokens * s->inputs, *bias = weight + s->inputs * s->outputs;
    for (size_t n = 0; n < s->tokens * s->outputs; n++) {
        out[n] = bias[n % s->outputs];
        for (size_t i = 0; i < s->inputs; i++)
            out[n] += in[n / s->outputs * s->inputs + i] * weight[n % s->outputs * s->inputs + i];
    }
}

static void test_linear(void **state)
{
    (void)state;
    enum {
        TOKENS = 5,
        INPUTS = 7,
        OUTPUTS = 3,
        X = TOKENS * INPUTS,
        Y = TOKENS * OUTPUTS,
        W = INPUTS * OUTPUTS
    };
    const struct linear_shape shape = {TOKENS, INPUTS, OUTPUTS};
    struct erg_rng rng;
    erg_rng_seed(&rng, 4);
    erg_element *x = random_elements(&rng, X, 1), *weight = random_elements(&rng, W + OUTPUTS, 1);
    erg_element *d_y = random_elements(&rng, Y, 1), *bias = weight + W, y[Y], d_x[X];
    float d_weight[W] = {[1] = 3}, d_bias[OUTPUTS] = {[2] = 4};
    const struct function f = {X + W + OUTPUTS, Y, evaluate_linear, &shape};
    double in[X + W + OUTPUTS], expected[Y];
    widen(widen(in, x, X), weight, W + OUTPUTS);
    evaluate_linear(&shape, in, expected);
    ERG_OPS(linear_forward)(TOKENS, INPUTS, OUTPUTS, x, weight, bias, y);
    assert_elements(y, expected, Y);
    double *gradient = differences(&f, in, d_y);
    ERG_OPS(linear_input_gradient)(TOKENS, INPUTS, OUTPUTS, d_y, weight, d_x);
    assert_elements(d_x, gradient, X);
    gradient[X + 1] += 3;
    ERG_OPS(linear_weight_gradient)(TOKENS, INPUTS, OUTPUTS, x, d_y, d_weight);
    assert_floats(d_weight, gradient + X, W);
    gradient[X + W + 2] += 4;
    ERG_OPS(bias_gradient)(TOKENS, OUTPUTS, d_y, d_bias);
    assert_floats(d_bias, gradient + X + W, OUTPUTS);

    memset(in + X + W, 0, OUTPUTS * sizeof *in);
    evaluate_linear(&shape, in, expected);
    ERG_OPS(linear_forward)(TOKENS, INPUTS, OUTPUTS, x, weight, NULL, y);
    assert_elements(y, expected, Y);
    free(x), free(weight), free(d_y), free(gradient);
}

/* The bits of the three products of a linear layer are those of plain loops that add term by term.
 */
static void check_order_of_terms(size_t tokens, size_t inputs, size_t outputs)
{
    struct erg_rng rng;
    erg_rng_seed(&rng, tokens + 100 * inputs + 10000 * outputs);
    size_t most = tokens * inputs + inputs * outputs + tokens * outputs;
    erg_element *x = random_elements(&rng, tokens * inputs, 1);
    erg_element *weight = random_elements(&rng, inputs * outputs, 1);
    erg_element *d_y = random_elements(&rng, tokens * outputs, 1);
    erg_element *bias = random_elements(&rng, outputs, 1), *out = erg_xcalloc(most, sizeof *out);
    float *d_weight = erg_xcalloc(inputs * outputs, sizeof *d_weight);
    ERG_OPS(linear_forward)(tokens, inputs, outputs, x, weight, bias, out);
    for (size_t n = 0; n < tokens * outputs; n++) {
        size_t t = n / outputs, o = n % outputs;
        float sum = 0;
        for (size_t i = 0; i < inputs; i++)
            sum += wide(x[t * inputs + i]) * wide(weight[o * inputs + i]);
        assert_true(out[n] == rounded(sum + wide(bias[o])));
    }
    ERG_OPS(linear_input_gradient)(tokens, inputs, outputs, d_y, weight, out);
    for (size_t n = 0; n < tokens * inputs; n++) {
        size_t t = n / inputs, i = n % inputs;
        float sum = 0;
        for (size_t o = 0; o < outputs; o++)
            sum += wide(d_y[t * outputs + o]) * wide(weight[o * inputs + i]);
        assert_true(out[n] == rounded(sum));
    }
    for (size_t n = 0; n < inputs * outputs; n++)
        d_weight[n] = (float)n;
    ERG_OPS(linear_weight_gradient)(tokens, inputs, outputs, x, d_y, d_weight);
    for (size_t n = 0; n < inputs * outputs; n++) {
        size_t o = n / inputs, i = n % inputs;
        float sum = 0;
        for (size_t t = 0; t < tokens; t++)
            sum += wide(d_y[t * outputs + o]) * wide(x[t * inputs + i]);
        assert_true(d_weight[n] == (float)n + sum);
    }
    free(x), free(weight), free(d_y), free(bias), free(out), free(d_weight);
}

static void test_linear_adds_in_order(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 5, 6, 7, 8, 9, 16, 31};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (size_t i = 0; i < SIZES * SIZES * SIZES; i++)
        check_order_of_terms(sizes[i % SIZES], sizes[i / SIZES % SIZES], sizes[i / SIZES / SIZES]);
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
    erg_element *gate_up = random_elements(&rng, 2 * COUNT, 2),
                *d_out = random_elements(&rng, COUNT, 1);
    erg_element out[COUNT];
    const struct function f = {2 * COUNT, COUNT, evaluate_swiglu, shape};
    double in[2 * COUNT], expected[COUNT];
    widen(in, gate_up, 2 * COUNT);
    evaluate_swiglu(shape, in, expected);
    ERG_OPS(swiglu_forward)(TOKENS, WIDTH, gate_up, out);
    assert_elements(out, expected, COUNT);
    double *gradient = differences(&f, in, d_out);
    ERG_OPS(swiglu_backward)(TOKENS, WIDTH, gate_up, d_out, gate_up);
    assert_elements(gate_up, gradient, 2 * COUNT);
    free(gate_up), free(d_out), free(gradient);
}

/* in: x; out: GELU, by the form with tanh or by erf. */
struct gelu_shape {
    size_t count;
    bool tanh_form;
};

static void evaluate_gelu(const void *context, const double *in, double *out)
{
    const struct gelu_shape *s = context;
    for (size_t i = 0; i < s->count; i++) {
        double x = in[i];
        out[i] = s->tanh_form
                     ? 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)))
                     : 0.5 * x * erfc(-x / sqrt(2));
    }
}

static void check_gelu(bool tanh_form)
{
    enum { TOKENS = 7, WIDTH = 5, COUNT = TOKENS * WIDTH };
    const struct gelu_shape shape = {COUNT, tanh_form};
    struct erg_rng rng;
    erg_rng_seed(&rng, 9);
    erg_element *x = random_elements(&rng, COUNT, 2), *d_out = random_elements(&rng, COUNT, 1);
    erg_element out[COUNT];
    x[3] = rounded(30), x[4] = rounded(-30), x[5] = rounded(0);
    const struct function f = {COUNT, COUNT, evaluate_gelu, &shape};
    double in[COUNT], expected[COUNT];
    widen(in, x, COUNT);
    evaluate_gelu(&shape, in, expected);
    ERG_OPS(gelu_forward)(TOKENS, WIDTH, tanh_form, x, out);
    assert_elements(out, expected, COUNT);
    double *gradient = differences(&f, in, d_out);
    ERG_OPS(gelu_backward)(TOKENS, WIDTH, tanh_form, x, d_out, d_out);
    assert_elements(d_out, gradient, COUNT);
    free(x), free(d_out), free(gradient);
}

static void test_gelu(void **state)
{
    (void)state;
    check_gelu(true);
    check_gelu(false);
}

static void test_adamw(void **state)
{
    (void)state;
    enum { COUNT = 9, UPDATES = 3 };
    const double rate = 0.01, decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, factor = 0.5;
    struct erg_rng rng;
    erg_rng_seed(&rng, 10);
    for (int decays = 0; decays < 2; decays++) {
        float master[COUNT], m[COUNT] = {0}, v[COUNT] = {0}, gradient[COUNT];
        double w[COUNT], m_wide[COUNT] = {0}, v_wide[COUNT] = {0};
        erg_element weight[COUNT];
        for (int i = 0; i < COUNT; i++)
            w[i] = master[i] = (float)erg_rng_normal(&rng);
        for (int t = 1; t <= UPDATES; t++) {
            const struct erg_ops_update update = {
                .rate = (float)rate,
                .decay = (float)decay,
                .beta1 = (float)beta1,
                .beta2 = (float)beta2,
                .eps = (float)eps,
                .correction1 = (float)(1 - pow(beta1, t)),
                .correction2 = (float)sqrt(1 - pow(beta2, t)),
                .factor = (float)factor,
            };
            for (int i = 0; i < COUNT; i++) {
                gradient[i] = i == 4 ? 0 : (float)erg_rng_normal(&rng); /* 0: only decay */
                double g = factor * gradient[i];
                m_wide[i] = beta1 * m_wide[i] + (1 - beta1) * g;
                v_wide[i] = beta2 * v_wide[i] + (1 - beta2) * g * g;
                w[i] *= 1 - rate * decay * decays;
                w[i] -= rate * (m_wide[i] / (1 - pow(beta1, t))) /
                        (sqrt(v_wide[i] / (1 - pow(beta2, t))) + eps);
            }
            ERG_OPS(adamw)(COUNT, decays, &update, gradient, master, m, v, weight);
        }
        for (int i = 0; i < COUNT; i++) {
            assert_near(master[i], w[i], 1e-6);
            assert_near(m[i], m_wide[i], 1e-6 * fabs(m_wide[i]) + 1e-7);
            assert_near(v[i], v_wide[i], 2e-6 * fabs(v_wide[i]));
            assert_true(weight[i] == rounded(master[i]));
        }
        ERG_OPS(to_element)(COUNT, gradient, weight);
        for (int i = 0; i < COUNT; i++)
            assert_true(weight[i] == rounded(gradient[i]));
    }
}

static void test_squares(void **state)
{
    (void)state;
    const float gradient[4] = {1e-20F, 3, -4, 1e20F};
    double sum = 0.5;
    erg_ops_squares(3, gradient, &sum);
    assert_near(sum, 25.5, 1e-15);
    erg_ops_squares(1, gradient + 3, &sum); /* beyond float's range */
    assert_near(sum, 1e40, 1e33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_rounds_to_nearest_even),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_rope_table),
        cmocka_unit_test(test_rope_scaling),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rope_with_norm_per_head),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_adds_in_order),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_squares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
