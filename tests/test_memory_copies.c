/* layout/memory_copies: every group goes out and comes back, in time. */
#include "memory_world.h"

#include "layout/memory/copies.h"

/* Positions of a group's layers in the order of the stage. */
struct places {
    size_t forward_end, backward_begin;
};

/* Walks the schedule by its own rule: warm-up, one forward and one backward in turn, cool-down. */
static void find_places(struct places *places, const struct erg_layout *layout, long stage,
                        long layers)
{
    long steps = layout->microbatches * layout->virtual_stages, p = layout->pipeline;
    long v = layout->virtual_stages, warmup = erg_memory_warmup(layout, stage), forward = 0;
    size_t at = 0;
    for (; forward < warmup; forward++) {
        long chunk = forward % (p * v) / p, m = forward / (p * v) * p + forward % p;
        at += (size_t)layers;
        places[chunk * layout->microbatches + m].forward_end = at;
    }
    for (long k = 0; k < steps; k++) {
        if (k + warmup < steps) {
            long f = k + warmup, chunk = f % (p * v) / p, m = f / (p * v) * p + f % p;
            at += (size_t)layers;
            places[chunk * layout->microbatches + m].forward_end = at;
        }
        long chunk = v - 1 - k % (p * v) / p, m = k / (p * v) * p + k % p;
        places[chunk * layout->microbatches + m].backward_begin = at;
        at += (size_t)layers;
    }
}

/*
 * Of every group but the head's as many bytes go out as come in; a copy out begins when what it
 * moves is made, the copy in begins after it has ended and ends before the backward pass.
 */
static void every_group_comes_back(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    const struct published row = {4096, 32, 80, 2, 1, 8, 2, ERG_RECOMPUTE_BALANCED, 0.4};
    struct erg_layout layout = layout_of(model, &row);
    for (int by_layer = 0; by_layer < 2; by_layer++)
        for (long stage = 0; stage < 8; stage++) {
            struct erg_memory_request request = {
                .model = model, .layout = &layout, .layer_copies = by_layer};
            struct erg_memory_copies copies;
            long chunks = layout.virtual_stages, groups = chunks * layout.microbatches;
            struct places *places = calloc((size_t)groups, sizeof *places);
            int64_t *balance = calloc((size_t)groups * 2, sizeof *balance);
            size_t *out_end = calloc((size_t)groups * 2, sizeof *out_end), moved = 0;
            erg_memory_copies_init(&copies, &request, stage);
            find_places(places, &layout, stage, 2);
            assert_int_equal(erg_memory_copies_end(&copies), 2 * 2 * groups);
            for (size_t i = 0; i < copies.count; i++) {
                const struct erg_memory_copy *copy = &copies.items[i];
                long group = copy->chunk * layout.microbatches + copy->microbatch;
                long unit = 2 * group + (by_layer ? copy->layer : 0);
                size_t offset = by_layer ? (size_t)copy->layer : 0;
                assert_true(copy->layer == -1 || by_layer);
                assert_true(copy->begin <= copy->end &&
                            copy->end <= erg_memory_copies_end(&copies));
                assert_false(stage == 7 && copy->chunk == chunks - 1);
                if (copy->in) {
                    balance[unit] -= copy->bytes;
                    assert_true(copy->begin >= out_end[unit]);
                    size_t needed = places[group].backward_begin + (by_layer ? 1 - offset : 0);
                    assert_true(copy->end <= needed);
                } else {
                    balance[unit] += copy->bytes;
                    out_end[unit] = copy->end;
                    size_t made = places[group].forward_end - (by_layer ? 1 - offset : 0);
                    assert_true(copy->begin >= made);
                    moved += (size_t)copy->bytes;
                }
            }
            for (long unit = 0; unit < 2 * groups; unit++)
                assert_int_equal(balance[unit], 0);
            long head = stage == 7 ? layout.microbatches : 0;
            assert_true(moved > 0 && moved % (size_t)(groups - head) == 0);
            free(places);
            free(balance);
            free(out_end);
            erg_memory_copies_release(&copies);
        }
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_group_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
