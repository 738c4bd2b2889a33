/* layout/memory/allocator: the rules of the emulated allocator, one by one. */
#include "check.h"

#include "base/random.h"
#include "layout/memory/allocator.h"

static const int64_t MiB = 1 << 20;

static const struct erg_memory_allocator empty = {.accounting = ERG_MEMORY_FRAMEWORK};

static int64_t held_on(struct erg_memory_allocator *memory, int stream, int64_t bytes,
                       uint32_t *block)
{
    *block = erg_memory_take(memory, ERG_MEMORY_TRANSIENT, bytes, stream);
    return memory->blocks[*block].held;
}

static int64_t held_of(struct erg_memory_allocator *memory, int64_t bytes, uint32_t *block)
{
    return held_on(memory, 0, bytes, block);
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
        struct erg_memory_allocator memory = empty;
        uint32_t block;
        assert_int_equal(held_of(&memory, cases[i].bytes, &block), cases[i].held);
        assert_int_equal(memory.reserved, cases[i].reserved);
        erg_memory_allocator_release(&memory);
    }
}

/* The smallest block that fits serves a large request if it is less than 20 MiB larger. */
static void large_blocks_are_whole(void **state)
{
    (void)state;
    struct erg_memory_allocator memory = empty;
    uint32_t blocks[3], block;
    assert_int_equal(held_of(&memory, 86 * MiB, &blocks[0]), 86 * MiB);
    assert_int_equal(held_of(&memory, 64 * MiB, &blocks[1]), 64 * MiB);
    assert_int_equal(held_of(&memory, 32 * MiB, &blocks[2]), 32 * MiB);
    for (int i = 0; i < 3; i++)
        erg_memory_give(&memory, &blocks[i]);
    assert_int_equal(held_of(&memory, 50 * MiB, &block), 64 * MiB);
    erg_memory_give(&memory, &block);
    assert_int_equal(held_of(&memory, 44 * MiB, &block), 44 * MiB); /* 64 is 20 more: a new one */
    erg_memory_give(&memory, &block);
    assert_int_equal(held_of(&memory, 44 * MiB + 1, &block), 64 * MiB);
    assert_int_equal(held_of(&memory, 16 * MiB, &block), 16 * MiB); /* 32 is not cut for it */
    assert_int_equal(memory.reserved, (86 + 64 + 32 + 44 + 16) * MiB);
    erg_memory_allocator_release(&memory);
}

static void neighbours_merge(void **state)
{
    (void)state;
    struct erg_memory_allocator memory = empty;
    uint32_t blocks[4], block;
    for (int i = 0; i < 4; i++)
        assert_int_equal(held_of(&memory, 5 * MiB, &blocks[i]), 5 * MiB);
    assert_int_equal(memory.reserved, 20 * MiB);
    erg_memory_give(&memory, &blocks[0]);
    erg_memory_give(&memory, &blocks[2]);
    assert_int_equal(held_of(&memory, 9 * MiB, &block), 9 * MiB); /* no two are neighbours */
    assert_int_equal(memory.reserved, 40 * MiB);
    erg_memory_give(&memory, &blocks[1]); /* the first three are one */
    assert_int_equal(held_of(&memory, 15 * MiB, &block), 15 * MiB);
    assert_int_equal(memory.reserved, 40 * MiB);
    erg_memory_allocator_release(&memory);
}

static void streams_share_nothing(void **state)
{
    (void)state;
    struct erg_memory_allocator memory = empty;
    uint32_t block;
    held_of(&memory, 64 * MiB, &block);
    erg_memory_give(&memory, &block);
    assert_int_equal(held_on(&memory, 1, 64 * MiB, &block), 64 * MiB);
    assert_int_equal(memory.reserved, 128 * MiB);
    erg_memory_allocator_release(&memory);
}

/* Whatever comes, what is held is enough, fits into what is reserved, and can be had again. */
static void random_requests(void **state)
{
    (void)state;
    struct erg_memory_allocator memory = empty;
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
            erg_memory_give(&memory, &live[slot].block);
            sum -= live[slot].held;
            live[slot].held = 0;
            continue;
        }
        int64_t bytes = 1 + (int64_t)exp(20 * erg_rng_uniform(&rng));
        live[slot].held = held_of(&memory, bytes, &live[slot].block);
        sum += live[slot].held;
        assert_int_equal(memory.now.total, sum);
        assert_true(live[slot].held >= bytes && live[slot].held < bytes + 20 * MiB);
        assert_true(sum <= memory.reserved);
    }
    for (int i = 0; i < 64; i++)
        if (live[i].held)
            erg_memory_give(&memory, &live[i].block);
    /* All is free and whole again: a segment of every kind serves as if new. */
    int64_t reserved = memory.reserved;
    uint32_t block;
    held_of(&memory, 2 * MiB - MiB, &block);
    held_of(&memory, 9 * MiB, &block);
    assert_int_equal(memory.reserved, reserved);
    erg_memory_allocator_release(&memory);
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
