/*
 * ops/context.h: ranks that hold two chunks of each sequence, gather keys and values, attend once
 * for each chunk and sum the gradients, get what one rank gets that holds the whole.
 */
#include "base/memory.h"
#include "base/random.h"
#include "check.h"
#include "ops/context.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

enum { SEQUENCE = 48, BATCH = 2, TOKENS = BATCH * SEQUENCE, HEADS = 4, GROUPS = 2, DIM = 8 };
enum { ROW = (HEADS + 2 * GROUPS) * DIM, WIDTH = HEADS * DIM, KV = GROUPS * DIM };

static void every_token_has_one_rank_and_work_is_equal(void **state)
{
    (void)state;
    for (size_t context = 1; context <= 8; context++) {
        size_t sequence = 2 * context * 3, local = sequence / context, work = 0;
        int seen[48] = {0};
        for (size_t rank = 0; rank < context; rank++) {
            int32_t positions[48];
            erg_context_positions(sequence, context, rank, positions);
            size_t visible = 0;
            for (size_t i = 0; i < local; i++) {
                assert_in_range(positions[i], 0, sequence - 1);
                seen[positions[i]]++;
                visible += (size_t)positions[i] + 1;
            }
            if (rank == 0)
                work = visible;
            assert_int_equal(visible, work);
        }
        for (size_t i = 0; i < sequence; i++)
            assert_int_equal(seen[i], 1);
    }
    struct erg_context_chunk high = erg_context_chunk(SEQUENCE, 2, 1, ERG_CONTEXT_HIGH);
    assert_int_equal(high.first, 24);
    assert_int_equal(high.count, 12);
    assert_int_equal(high.keys, 36);
}

static erg_bf16 *random_tensor(struct erg_rng *rng, size_t count)
{
    erg_bf16 *values = erg_xcalloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = erg_bf16_round((float)erg_rng_normal(rng));
    return values;
}

/* Packed rows of queries, keys and values through rotation and attention, and back. */
struct tensors {
    erg_bf16 *qkv, *out, *d_out, *d_qkv;
};

static void release(struct tensors *t)
{
    free(t->qkv), free(t->out), free(t->d_out), free(t->d_qkv);
}

static void run_whole(struct tensors *t)
{
    const struct erg_ops_qkv rope = {TOKENS, SEQUENCE, HEADS, GROUPS, DIM};
    const struct erg_ops_attention shape = {BATCH, SEQUENCE, SEQUENCE, HEADS, GROUPS, DIM,
                                            ROW,   ROW,      ROW,      WIDTH, true};
    float table[SEQUENCE * DIM], stats[TOKENS * HEADS];
    erg_bf16 *qkv = erg_xcalloc(TOKENS * ROW, sizeof *qkv);
    memcpy(qkv, t->qkv, TOKENS * ROW * sizeof *qkv);
    t->out = erg_xcalloc(TOKENS * WIDTH, sizeof *t->out);
    t->d_qkv = erg_xcalloc(TOKENS * ROW, sizeof *t->d_qkv);
    erg_ops_rope_table(SEQUENCE, NULL, DIM, 100, NULL, table);
    erg_ops_rope_forward(&rope, 0, NULL, NULL, table, qkv, qkv, ROW);
    erg_ops_attention_forward(&shape, qkv, qkv + WIDTH, qkv + WIDTH + KV, t->out, stats);
    erg_ops_attention_backward(&shape, qkv, qkv + WIDTH, qkv + WIDTH + KV, t->out, stats, t->d_out,
                               t->d_qkv, t->d_qkv + WIDTH, t->d_qkv + WIDTH + KV);
    erg_ops_rope_backward(&rope, 0, NULL, NULL, table, NULL, t->d_qkv, t->d_qkv, NULL, NULL);
    free(qkv);
}

/* One rank: its rows of the tensors, and its part in the gradients of all keys and values. */
struct rank {
    struct tensors own;
    int32_t positions[TOKENS];
    size_t local, index, context;
    float stats[TOKENS * HEADS], table[SEQUENCE * DIM];
    erg_bf16 *d_kv; /* [2][TOKENS, KV] */
};

static void take_rows(struct rank *r, const struct tensors *whole, size_t context, size_t index)
{
    *r = (struct rank){.local = SEQUENCE / context, .index = index, .context = context};
    size_t tokens = BATCH * r->local;
    r->own.qkv = erg_xcalloc(tokens * ROW, sizeof *r->own.qkv);
    r->own.d_out = erg_xcalloc(tokens * WIDTH, sizeof *r->own.d_out);
    r->own.out = erg_xcalloc(tokens * WIDTH, sizeof *r->own.out);
    r->own.d_qkv = erg_xcalloc(tokens * ROW, sizeof *r->own.d_qkv);
    r->d_kv = erg_xcalloc(2 * TOKENS * KV, sizeof *r->d_kv);
    erg_context_positions(SEQUENCE, context, index, r->positions);
    erg_ops_rope_table(r->local, r->positions, DIM, 100, NULL, r->table);
    for (size_t t = 0; t < tokens; t++) {
        size_t from = t / r->local * SEQUENCE + (size_t)r->positions[t % r->local];
        memcpy(r->own.qkv + t * ROW, whole->qkv + from * ROW, ROW * sizeof *whole->qkv);
        memcpy(r->own.d_out + t * WIDTH, whole->d_out + from * WIDTH, WIDTH * sizeof *whole->qkv);
    }
    const struct erg_ops_qkv rope = {tokens, r->local, HEADS, GROUPS, DIM};
    erg_ops_rope_forward(&rope, 0, NULL, NULL, r->table, r->own.qkv, r->own.qkv, ROW);
}

/* What a gather does. */
static void put_keys(const struct rank *r, erg_bf16 *kv)
{
    for (size_t t = 0; t < BATCH * r->local; t++)
        for (size_t which = 0; which < 2; which++) {
            size_t to = t / r->local * SEQUENCE + (size_t)r->positions[t % r->local];
            memcpy(kv + (which * TOKENS + to) * KV, r->own.qkv + t * ROW + WIDTH + which * KV,
                   KV * sizeof *kv);
        }
}

/* Both passes of all sequences, one sequence at a time: kv and out have rows of whole sequences. */
static void attend(struct rank *r, const erg_bf16 *kv)
{
    erg_bf16 *d_low = erg_xcalloc(2 * SEQUENCE * KV, sizeof *d_low);
    for (size_t b = 0; b < BATCH; b++)
        for (int half = ERG_CONTEXT_HIGH; half >= ERG_CONTEXT_LOW; half--) {
            struct erg_context_chunk chunk =
                erg_context_chunk(SEQUENCE, r->context, r->index, (enum erg_context_half)half);
            const struct erg_ops_attention shape = {
                1, chunk.count, chunk.keys, HEADS, GROUPS, DIM, ROW, KV, KV, WIDTH, true};
            size_t row = b * r->local + (size_t)half * chunk.count, at = b * SEQUENCE * KV;
            const erg_bf16 *q = r->own.qkv + row * ROW, *k = kv + at, *v = k + TOKENS * KV;
            erg_bf16 *out = r->own.out + row * WIDTH, *d_q = r->own.d_qkv + row * ROW;
            bool low = half == ERG_CONTEXT_LOW;
            erg_bf16 *d_k = low ? d_low : r->d_kv + at;
            erg_bf16 *d_v = low ? d_low + SEQUENCE * KV : d_k + TOKENS * KV;
            erg_ops_attention_forward(&shape, q, k, v, out, r->stats);
            erg_ops_attention_backward(&shape, q, k, v, out, r->stats, r->own.d_out + row * WIDTH,
                                       d_q, d_k, d_v);
            if (low) {
                erg_ops_add_runs(1, chunk.keys * KV, d_k, 0, r->d_kv + at, 0);
                erg_ops_add_runs(1, chunk.keys * KV, d_v, 0, r->d_kv + TOKENS * KV + at, 0);
            }
        }
    free(d_low);
}

/* What a scatter does, and the rotation after it. */
static void take_gradients(struct rank *ranks, struct rank *r)
{
    const struct erg_ops_qkv rope = {BATCH * r->local, r->local, HEADS, GROUPS, DIM};
    for (size_t t = 0; t < BATCH * r->local; t++)
        for (size_t i = 0; i < 2 * KV; i++) {
            size_t token = t / r->local * SEQUENCE + (size_t)r->positions[t % r->local];
            size_t at = (i / KV * TOKENS + token) * KV + i % KV;
            float sum = 0;
            for (size_t other = 0; other < r->context; other++)
                sum += erg_bf16_float(ranks[other].d_kv[at]);
            r->own.d_qkv[t * ROW + WIDTH + i] = erg_bf16_round(sum);
        }
    erg_ops_rope_backward(&rope, 0, NULL, NULL, r->table, NULL, r->own.d_qkv, r->own.d_qkv, NULL,
                          NULL);
}

static void check_rows(const struct rank *r, const erg_bf16 *rows, const erg_bf16 *whole,
                       size_t width, double allowed)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < BATCH * r->local * width; i++) {
        size_t t = i / width;
        size_t token = t / r->local * SEQUENCE + (size_t)r->positions[t % r->local];
        double want = erg_bf16_float(whole[token * width + i % width]);
        double got = erg_bf16_float(rows[i]);
        difference += (got - want) * (got - want);
        norm += want * want;
    }
    assert_true(norm > 0);
    if (!(sqrt(difference / norm) <= allowed))
        fail_msg("rank %zu of %zu is %.2e off, allowed %.0e", r->index, r->context,
                 sqrt(difference / norm), allowed);
}

static void check_context(size_t context)
{
    struct erg_rng rng;
    erg_rng_seed(&rng, 17);
    struct tensors whole = {.qkv = random_tensor(&rng, TOKENS * ROW),
                            .d_out = random_tensor(&rng, TOKENS * WIDTH)};
    run_whole(&whole);
    struct rank *ranks = erg_xcalloc(context, sizeof *ranks);
    erg_bf16 *kv = erg_xcalloc(2 * TOKENS * KV, sizeof *kv);
    for (size_t r = 0; r < context; r++) {
        take_rows(&ranks[r], &whole, context, r);
        put_keys(&ranks[r], kv);
    }
    for (size_t r = 0; r < context; r++)
        attend(&ranks[r], kv);
    for (size_t r = 0; r < context; r++) {
        take_gradients(ranks, &ranks[r]);
        /* A query sees the same keys in the same order; gradients are rounded more often. */
        check_rows(&ranks[r], ranks[r].own.out, whole.out, WIDTH, 0);
        check_rows(&ranks[r], ranks[r].own.d_qkv, whole.d_qkv, ROW, 1e-2);
    }
    for (size_t r = 0; r < context; r++) {
        release(&ranks[r].own);
        free(ranks[r].d_kv);
    }
    free(ranks), free(kv);
    release(&whole);
}

static void ranks_agree_with_the_whole(void **state)
{
    (void)state;
    check_context(2);
    check_context(3);
    check_context(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_has_one_rank_and_work_is_equal),
        cmocka_unit_test(ranks_agree_with_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
