/*
 * The operations at a model's two ends, embeddings and the loss, split over the vocabulary.
 * test_ops_vocabulary32.c compiles this once more, with floats.
 */
#include "ops_world.h"

static void test_embedding_is_split_over_the_vocabulary(void **state)
{
    (void)state;
    enum { TOKENS = 5, HIDDEN = 3, ROWS = 4 };
    const int32_t ids[TOKENS] = {6, 1, 6, 0, 7};
    erg_element table[2 * ROWS * HIDDEN], out[TOKENS * HIDDEN];
    for (int i = 0; i < 2 * ROWS * HIDDEN; i++)
        table[i] = rounded((float)i + 1);
    double sums[TOKENS * HIDDEN] = {0};
    for (size_t rank = 0; rank < 2; rank++) {
        ERG_OPS(embedding_forward)
        (TOKENS, HIDDEN, rank * ROWS, ROWS, ids, table + rank * ROWS * HIDDEN, out);
        for (size_t i = 0; i < TOKENS * HIDDEN; i++)
            sums[i] += wide(out[i]);
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
    ERG_OPS(embedding_backward)(TOKENS, HIDDEN, ROWS, ROWS, ids, order, table, d_table);
    const float d_expected[ROWS * HIDDEN] = {0, 0, 0, 0, 0, 0, 108, 10, 12, 13, 14, 15};
    assert_memory_equal(d_table, d_expected, sizeof d_table);
}

static void test_learned_positions(void **state)
{
    (void)state;
    enum { TOKENS = 6, SEQUENCE = 3, HIDDEN = 5, COUNT = TOKENS * HIDDEN, ROWS = 4 };
    const int32_t positions[SEQUENCE] = {3, 0, 2};
    struct erg_rng rng;
    erg_rng_seed(&rng, 8);
    erg_element *table = random_elements(&rng, ROWS * HIDDEN, 1), x[COUNT], counted[COUNT];
    erg_element *before = random_elements(&rng, COUNT, 1);
    memcpy(x, before, sizeof x);
    memcpy(counted, before, sizeof x);
    ERG_OPS(position_forward)(TOKENS, SEQUENCE, HIDDEN, positions, table, x);
    ERG_OPS(position_forward)(TOKENS, SEQUENCE, HIDDEN, NULL, table, counted);
    float d_table[ROWS * HIDDEN] = {[1] = 9}, d_counted[ROWS * HIDDEN] = {0};
    double d_expected[2][ROWS * HIDDEN] = {{[1] = 9}};
    for (size_t i = 0; i < COUNT; i++) {
        size_t place = i / HIDDEN % SEQUENCE, c = i % HIDDEN, row = (size_t)positions[place];
        assert_true(x[i] == rounded(wide(before[i]) + wide(table[row * HIDDEN + c])));
        assert_true(counted[i] == rounded(wide(before[i]) + wide(table[place * HIDDEN + c])));
        d_expected[0][row * HIDDEN + c] += wide(before[i]);
        d_expected[1][place * HIDDEN + c] += wide(before[i]);
    }
    ERG_OPS(position_backward)(TOKENS, SEQUENCE, HIDDEN, positions, before, d_table);
    ERG_OPS(position_backward)(TOKENS, SEQUENCE, HIDDEN, NULL, before, d_counted);
    assert_floats(d_table, d_expected[0], ROWS * HIDDEN);
    assert_floats(d_counted, d_expected[1], ROWS * HIDDEN);
    free(table), free(before);
}

struct loss_shape {
    size_t tokens, vocab;
    const int32_t *targets;
};

/* in: logits, of which those of the vocabulary's words count; out: each token's loss. */
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

/* Three ranks of 4 columns; the vocabulary ends with column `vocab`, what follows is padding. */
static void check_loss(size_t vocab)
{
    enum { TOKENS = 5, COLUMNS = 4, ALL = 3 * COLUMNS };
    const int32_t targets[TOKENS] = {3, 0, (int32_t)vocab - 1, -1, 4};
    const struct loss_shape shape = {TOKENS, vocab, targets};
    const float scale = 0.25F; /* four tokens count */
    struct erg_rng rng;
    erg_rng_seed(&rng, 6);
    erg_element *logits = random_elements(&rng, TOKENS * ALL, 3), seed[TOKENS];
    erg_element part[TOKENS * COLUMNS];
    for (int t = 0; t < TOKENS; t++)
        seed[t] = rounded(scale);
    const struct function f = {TOKENS * vocab, TOKENS, evaluate_loss, &shape};
    double in[TOKENS * ALL], losses[TOKENS], mean = 10;
    for (size_t t = 0; t < TOKENS; t++)
        widen(in + t * vocab, logits + t * ALL, vocab);
    evaluate_loss(&shape, in, losses);
    for (int t = 0; t < TOKENS; t++)
        mean += losses[t] / 4;

    float stats[3 * TOKENS * 3], log_sum[TOKENS], loss = 10;
    for (size_t rank = 0; rank < 3; rank++) {
        size_t first = rank * COLUMNS, left = vocab > first ? vocab - first : 0;
        for (size_t t = 0; t < TOKENS; t++)
            memcpy(part + t * COLUMNS, logits + t * ALL + first, COLUMNS * sizeof *part);
        ERG_OPS(loss_stats)
        (TOKENS, COLUMNS, left < COLUMNS ? left : COLUMNS, first, targets, part,
         stats + rank * TOKENS * 3);
    }
    erg_ops_loss_combine(TOKENS, 3, targets, stats, &scale, log_sum, &loss);
    assert_near(loss, mean, 1e-5);

    double *gradient = differences(&f, in, seed);
    for (size_t rank = 0; rank < 3; rank++) {
        double expected[TOKENS * COLUMNS];
        size_t first = rank * COLUMNS, left = vocab > first ? vocab - first : 0;
        for (size_t t = 0; t < TOKENS; t++) {
            memcpy(part + t * COLUMNS, logits + t * ALL + first, COLUMNS * sizeof *part);
            for (size_t i = 0; i < COLUMNS; i++)
                expected[t * COLUMNS + i] = i < left ? gradient[t * vocab + first + i] : 0;
        }
        ERG_OPS(loss_backward)
        (TOKENS, COLUMNS, left < COLUMNS ? left : COLUMNS, first, targets, log_sum, &scale, part);
        assert_elements(part, expected, TOKENS * COLUMNS);
        for (size_t i = 0; i < TOKENS * COLUMNS; i++)
            assert_true(i % COLUMNS < left || wide(part[i]) == 0);
    }
    free(logits), free(gradient);
}

static void test_loss_is_split_over_the_vocabulary(void **state)
{
    (void)state;
    check_loss(12);
}

static void test_padding_of_the_vocabulary_counts_for_nothing(void **state)
{
    (void)state;
    check_loss(10);
    check_loss(7); /* the last rank has nothing but padding */
}

static void test_loss_of_large_logits(void **state)
{
    (void)state;
    const int32_t target = 1;
    erg_element logits[3] = {rounded(1024), rounded(1024), rounded(-1024)};
    const float scale = 1;
    float stats[3], log_sum, loss = 0;
    ERG_OPS(loss_stats)(1, 3, 3, 0, &target, logits, stats);
    erg_ops_loss_combine(1, 1, &target, stats, &scale, &log_sum, &loss);
    assert_near(loss, log(2), 1e-4);
    ERG_OPS(loss_backward)(1, 3, 3, 0, &target, &log_sum, &scale, logits);
    assert_near(wide(logits[0]), 0.5, 0.002);
    assert_near(wide(logits[1]), -0.5, 0.002);
    assert_near(wide(logits[2]), 0, 0);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding_is_split_over_the_vocabulary),
        cmocka_unit_test(test_learned_positions),
        cmocka_unit_test(test_loss_is_split_over_the_vocabulary),
        cmocka_unit_test(test_padding_of_the_vocabulary_counts_for_nothing),
        cmocka_unit_test(test_loss_of_large_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
