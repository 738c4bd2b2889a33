/* layout/memory_cache: the rules of the emulated allocator, one by one. */
#include "check.h"

#include "base/random.h"
#include "layout/memory/cache.h"

static const int64_t MiB = 1 << 20;

static int64_t held_of(struct erg_memory_cache *cache, int64_t bytes, uint32_t *block)
{
    int64_t held;
    *block = erg_memory_cache_take(cache, 0, bytes, &held);
    return held;
}

static void new_segments(void **state)
{
    (void)state;
    const struct {
        int64_t bytes, held, reserved;
    } cases[] = {
        {1, 512, 2 * MiB},
        {513, 1024, 2 * MiB},
        {MiB, MiB, 2 * MiB},
        {MiB + 1, MiB + 512, 20 * MiB},
        {10 * MiB - 512, 10 * MiB - 512, 20 * MiB},
        {10 * MiB, 10 * MiB, 10 * MiB},
        {11 * MiB, 12 * MiB, 12 * MiB}, /* a rest of 1 MiB is not cut off */
        {21 * MiB, 22 * MiB, 22 * MiB},
        {99 * MiB, 100 * MiB, 100 * MiB}, /* nor anything off a large block */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_memory_cache *cache = erg_memory_cache_new();
        uint32_t block;
        assert_int_equal(held_of(cache, cases[i].bytes, &block), cases[i].held);
        assert_int_equal(erg_memory_cache_reserved(cache), cases[i].reserved);
        erg_memory_cache_free(cache);
    }
}

/* The smallest block that fits serves a large request if it is less than 20 MiB larger. */
static void large_blocks_are_whole(void **state)
{
    (void)state;
    struct erg_memory_cache *cache = erg_memory_cache_new();
    uint32_t blocks[3], block;
    assert_int_equal(held_of(cache, 86 * MiB, &blocks[0]), 86 * MiB);
    assert_int_equal(held_of(cache, 64 * MiB, &blocks[1]), 64 * MiB);
    assert_int_equal(held_of(cache, 32 * MiB, &blocks[2]), 32 * MiB);
    for (int i = 0; i < 3; i++)
        erg_memory_cache_give(cache, blocks[i]);
    assert_int_equal(held_of(cache, 50 * MiB, &block), 64 * MiB);
    erg_memory_cache_give(cache, block);
    assert_int_equal(held_of(cache, 44 * MiB, &block), 44 * MiB); /* 64 is 20 more: a new one */
    erg_memory_cache_give(cache, block);
    assert_int_equal(held_of(cache, 44 * MiB + 1, &block), 64 * MiB);
    assert_int_equal(held_of(cache, 16 * MiB, &block), 16 * MiB); /* 32 is not cut for it */
    assert_int_equal(erg_memory_cache_reserved(cache), (86 + 64 + 32 + 44 + 16) * MiB);
    erg_memory_cache_free(cache);
}

static void neighbours_merge(void **state)
{
    (void)state;
    struct erg_memory_cache *cache = erg_memory_cache_new();
    uint32_t blocks[4], block;
    for (int i = 0; i < 4; i++)
        assert_int_equal(held_of(cache, 5 * MiB, &blocks[i]), 5 * MiB);
    assert_int_equal(erg_memory_cache_reserved(cache), 20 * MiB);
    erg_memory_cache_give(cache, blocks[0]);
    erg_memory_cache_give(cache, blocks[2]);
    assert_int_equal(held_of(cache, 9 * MiB, &block), 9 * MiB); /* no two are neighbours */
    assert_int_equal(erg_memory_cache_reserved(cache), 40 * MiB);
    erg_memory_cache_give(cache, blocks[1]); /* the first three are one */
    assert_int_equal(held_of(cache, 15 * MiB, &block), 15 * MiB);
    assert_int_equal(erg_memory_cache_reserved(cache), 40 * MiB);
    erg_memory_cache_free(cache);
}

static void streams_share_nothing(void **state)
{
    (void)state;
    struct erg_memory_cache *cache = erg_memory_cache_new();
    uint32_t block;
    int64_t held;
    held_of(cache, 64 * MiB, &block);
    erg_memory_cache_give(cache, block);
    erg_memory_cache_take(cache, 1, 64 * MiB, &held);
    assert_int_equal(held, 64 * MiB);
    assert_int_equal(erg_memory_cache_reserved(cache), 128 * MiB);
    erg_memory_cache_free(cache);
}

/* Whatever comes, what is held is enough, fits into what is reserved, and can be had again. */
static void random_requests(void **state)
{
    (void)state;
    struct erg_memory_cache *cache = erg_memory_cache_new();
    struct {
        uint32_t block;
        int64_t held;
    } live[64] = {{0}};
    struct erg_rng rng;
    int64_t sum = 0;
    erg_rng_seed(&rng, 1);
    for (int i = 0; i < 20000; i++) {
        size_t slot = erg_rng_below(&rng, 64);
        if (live[slot].held) {
            erg_memory_cache_give(cache, live[slot].block);
            sum -= live[slot].held;
            live[slot].held = 0;
            continue;
        }
        int64_t bytes = 1 + (int64_t)exp(20 * erg_rng_uniform(&rng));
        live[slot].block = erg_memory_cache_take(cache, 0, bytes, &live[slot].held);
        sum += live[slot].held;
        assert_true(live[slot].held >= bytes && live[slot].held < bytes + 20 * MiB);
        assert_true(sum <= erg_memory_cache_reserved(cache));
    }
    for (int i = 0; i < 64; i++)
        if (live[i].held)
            erg_memory_cache_give(cache, live[i].block);
    /* All is free and whole again: a segment of every kind serves as if new. */
    int64_t reserved = erg_memory_cache_reserved(cache), held;
    erg_memory_cache_take(cache, 0, 2 * MiB - MiB, &held);
    erg_memory_cache_take(cache, 0, 9 * MiB, &held);
    assert_int_equal(erg_memory_cache_reserved(cache), reserved);
    erg_memory_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_segments),     cmocka_unit_test(large_blocks_are_whole),
        cmocka_unit_test(neighbours_merge), cmocka_unit_test(streams_share_nothing),
        cmocka_unit_test(random_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
