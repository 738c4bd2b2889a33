/*
 * device/cuda/collective_index.h: whatever the number of ranks and blocks, the offset and the
 * count, every element has one owner and every byte of a share is moved once, in aligned vectors
 * where it can be. Walks the shares as the kernels do.
 */
#include "check.h"
#include "device/cuda/collective_index.h"

enum { ROOM = 4096 };

/* As a kernel does: vectors by blocks, single elements by the first
 * block. Counts how often each element is touched. */
static void walk(struct erg_collective_share share, size_t width, int blocks,
                 unsigned char *touched)
{
    for (int block = 0; block < blocks; block++) {
        size_t begin = erg_collective_block_begin(share.vectors, block, blocks);
        size_t end = erg_collective_block_begin(share.vectors, block + 1, blocks);
        assert_true(begin <= end && end <= share.vectors);
        for (size_t v = begin; v < end; v++) {
            size_t element = share.begin + share.head + v * width;
            assert_int_equal(element % width, 0);
            for (size_t i = 0; i < width; i++)
                touched[element + i]++;
        }
    }
    assert_int_equal(erg_collective_block_begin(share.vectors, blocks, blocks), share.vectors);
    for (size_t k = 0; k < share.head + share.tail; k++)
        touched[share.begin + k + (k < share.head ? 0 : share.vectors * width)]++;
}

static void check_touched(const unsigned char *touched, size_t begin, size_t end)
{
    for (size_t i = 0; i < ROOM; i++)
        if (touched[i] != (i >= begin && i < end))
            fail_msg("element %zu of [%zu, %zu) is touched %d times", i, begin, end, touched[i]);
}

static void every_element_has_one_owner(void **state)
{
    (void)state;
    static const int rank_counts[] = {2, 4, 8}, block_counts[] = {1, 2, 7, 32};
    static const size_t counts[] = {0, 1, 2, 7, 8, 9, 15, 31, 64, 100, 1000, 3333};
    for (int n = 0; n < 3; n++)
        for (size_t width = 4; width <= 8; width += 4)
            for (size_t offset = 0; offset < 18; offset++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                    for (int b = 0; b < 4; b++) {
                        unsigned char touched[ROOM] = {0};
                        int ranks = rank_counts[n];
                        for (int rank = 0; rank < ranks; rank++)
                            walk(erg_collective_own(offset, counts[c], rank, ranks, width), width,
                                 block_counts[b], touched);
                        check_touched(touched, offset, offset + counts[c]);
                    }
}

static void shards_are_split_at_vectors(void **state)
{
    (void)state;
    for (size_t begin = 0; begin < 20; begin++)
        for (size_t count = 0; count < 70; count++) {
            unsigned char touched[ROOM] = {0};
            struct erg_collective_share share = erg_collective_split(begin, begin + count, 8);
            walk(share, 8, 3, touched);
            check_touched(touched, begin, begin + count);
            if (share.vectors)
                assert_true(share.head < 8 && share.tail < 8);
            else
                assert_true(share.head + share.tail < 16);
        }
}

/* Large and ill divisible: the owners and the blocks have equal work but for a vector. */
static void work_is_balanced(void **state)
{
    (void)state;
    size_t least = SIZE_MAX, most = 0;
    for (int rank = 0; rank < 8; rank++) {
        struct erg_collective_share share = erg_collective_own(3, 50000001, rank, 8, 8);
        least = share.vectors < least ? share.vectors : least;
        most = share.vectors > most ? share.vectors : most;
    }
    assert_in_range(most - least, 0, 2);
    for (int block = 0; block < 32; block++) {
        size_t vectors = erg_collective_block_begin(781251, block + 1, 32) -
                         erg_collective_block_begin(781251, block, 32);
        assert_in_range(vectors, 781251 / 32, 781251 / 32 + 1);
    }
}

static void local_rows_follow_each_other_in_a_wider_tensor(void **state)
{
    (void)state;
    static const unsigned steps[] = {1, 2, 3, 5, 512};
    const struct erg_collective_local local = {NULL, 3, 112, 74 * 112};
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        struct erg_collective_spot step = erg_collective_spot_of(&local, steps[s]);
        struct erg_collective_spot spot = erg_collective_spot_of(&local, 1);
        for (unsigned index = 1; index < 10000; index += steps[s]) {
            size_t row = index / 3, column = index % 3;
            assert_int_equal(erg_collective_spot_at(&local, spot), row * 112 + column * 16);
            spot = erg_collective_spot_add(&local, spot, step);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_has_one_owner),
        cmocka_unit_test(shards_are_split_at_vectors),
        cmocka_unit_test(local_rows_follow_each_other_in_a_wider_tensor),
        cmocka_unit_test(work_is_balanced),
    };
    return cmocka_run_group_tests_name("collective_index", tests, NULL, NULL);
}
