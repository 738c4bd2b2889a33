/* layout/memory_copies: every group goes out and comes back, in time, and what compute waits. */
#include "memory_world.h"

#include "layout/memory_copies.h"

/* Two layers forward, two backward; a copy out under the second, one in under the third. */
static void waiting(void **state)
{
    (void)state;
    bool backward[] = {false, false, true, true};
    struct erg_memory_copy items[] = {
        {.bytes = 100, .begin = 1, .end = 2},
        {.bytes = 100, .begin = 2, .end = 3, .in = true},
    };
    struct erg_memory_copies copies = {
        .items = items, .count = 2, .layers = {.backward = backward, .count = 4}};
    assert_near(erg_memory_copies_wait(&copies, 1, 2, 100), 0, 0);
    assert_near(erg_memory_copies_wait(&copies, 1, 2, 80), 0.25, 1e-12);      /* out: 1.25 s in 1 */
    assert_near(erg_memory_copies_wait(&copies, 1, 2, 40), 1.5 + 0.5, 1e-12); /* both */
    items[1].end = 2;                                                         /* no time at all */
    assert_near(erg_memory_copies_wait(&copies, 1, 2, 100), 1, 1e-12);
    /* One direction is free while the other is busy, whatever ends first. */
    items[0] = (struct erg_memory_copy){.bytes = 300, .begin = 1, .end = 4};
    items[1] = (struct erg_memory_copy){.bytes = 100, .begin = 2, .end = 3, .in = true};
    assert_near(erg_memory_copies_wait(&copies, 1, 2, 100), 0, 0);
    assert_near(erg_memory_copies_wait(&copies, 1, 2, 50), 1, 1e-12);
}

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
    const struct published row = {4096, 32, 80, 2, 1, 8, 2, ERG_REMAT_BALANCED, 0.4};
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
            assert_int_equal(copies.layers.count, 2 * 2 * groups);
            for (size_t i = 0; i < copies.count; i++) {
                const struct erg_memory_copy *copy = &copies.items[i];
                long group = copy->chunk * layout.microbatches + copy->microbatch;
                long unit = 2 * group + (by_layer ? copy->layer : 0);
                size_t offset = by_layer ? (size_t)copy->layer : 0;
                assert_true(copy->layer == -1 || by_layer);
                assert_true(copy->begin <= copy->end && copy->end <= copies.layers.count);
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

/* A link that is fast enough hides all but the first copy in; a slow one is what counts. */
static void speed_of_the_link(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    const struct published row = {4096, 32, 80, 2, 1, 8, 2, ERG_REMAT_BALANCED, 0.4};
    struct erg_layout layout = layout_of(model, &row);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_copies copies;
    erg_memory_copies_init(&copies, &request, 3);
    double bytes = (double)copies.items[0].bytes;
    /* A group's forward pass takes 20 ms: so long may its copy take. */
    assert_near(erg_memory_copies_wait(&copies, 0.01, 0.02, bytes / 0.0199), 0, 1e-12);
    double slow = erg_memory_copies_wait(&copies, 0.01, 0.02, bytes / 0.1);
    long groups = layout.virtual_stages * layout.microbatches;
    assert_true(slow > 0.1 * (double)groups - 0.06 * (double)groups);
    erg_memory_copies_release(&copies);
    erg_model_free(model);
}

/*
 * A published row whose copies took 0.78 of a forward pass by the link's own rate: nothing waits
 * but for the first copy in, which has one pass as well. With an eighth of the host memory
 * bandwidth that all GPUs of the node could use, copies are what counts.
 */
static void waits_on_an_engine(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-2-70b", 32005);
    const struct published row = {8192, 32, 272, 2, 1, 8, 2, ERG_REMAT_BALANCED, 0.858};
    struct erg_layout layout = layout_of(model, &row);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_time_machine machine;
    struct erg_cluster *cluster;
    struct erg_engine *engine;
    struct erg_gpu *gpu;
    struct erg_error err;
    double waits[8];
    assert_ok(erg_engine_load(&engine, "megatron-kwai-h800", &err), &err);
    assert_ok(erg_gpu_load(&gpu, "h800-sxm-80gb", &err), &err);
    assert_ok(erg_cluster_load(
                  &cluster, ERGON_TEST_SOURCE_DIR "/data/clusters/32x8-h800-sxm-80gb.yaml", &err),
              &err);
    erg_time_machine_init(&machine, gpu, cluster);
    const struct erg_time_request time = {model, engine, &machine};
    erg_memory_copies_waits(waits, &request, &time);
    for (int stage = 0; stage < 8; stage++)
        assert_near(waits[stage], 0, 1e-9);
    machine.host_bandwidth = 64e9 / 8;
    erg_memory_copies_waits(waits, &request, &time);
    for (int stage = 0; stage < 8; stage++)
        assert_true(waits[stage] > 1);
    layout.offload = 0;
    erg_memory_copies_waits(waits, &request, &time);
    for (int stage = 0; stage < 8; stage++)
        assert_near(waits[stage], 0, 0);
    erg_gpu_free(gpu);
    erg_cluster_free(cluster);
    erg_engine_free(engine);
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting),
        cmocka_unit_test(every_group_comes_back),
        cmocka_unit_test(speed_of_the_link),
        cmocka_unit_test(waits_on_an_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
