/* What would make a layout or a job fit: what is named does, and nothing less. */
#include "check.h"

#include "layout/memory/memory.h"
#include "layout/search/nearest.h"

struct world {
    struct erg_model *model;
    struct erg_engine *engine;
    struct erg_gpu *gpu;
    struct erg_time_machine machine;
    struct erg_layout_search search;
};

/* 32 layers of 7B on eight GPUs, without offloading. */
static int world_open(void **state)
{
    static const struct erg_cluster cluster = {.nodes = 4,
                                               .gpus_per_node = 8,
                                               .intra_node_bandwidth = 200e9,
                                               .inter_node_bandwidth = 100e9};
    static struct world world;
    struct erg_error err;
    assert_ok(erg_model_load(&world.model, "llama-2-7b", &err), &err);
    assert_ok(erg_engine_load(&world.engine, "megatron-kwai-h800", &err), &err);
    assert_ok(erg_gpu_load(&world.gpu, "h800-sxm-80gb", &err), &err);
    erg_time_machine_init(&world.machine, world.gpu, &cluster);
    world.search = (struct erg_layout_search){
        .model = world.model,
        .kinds = {{.engine = world.engine,
                   .machine = world.machine,
                   .gpus = 8,
                   .memory_bytes = 0.9 * world.gpu->memory_bytes}},
        .kind_count = 1,
        .gpus = 8,
        .sequence = 4096,
        .batch_least = 16,
        .batch_most = 16,
        .recomputes = ERG_RECOMPUTE_ALL,
        .top = 1,
    };
    *state = &world;
    return 0;
}

static int world_close(void **state)
{
    struct world *world = *state;
    erg_model_free(world->model);
    erg_engine_free(world->engine);
    erg_gpu_free(world->gpu);
    return 0;
}

static bool fits(const struct erg_layout_search *search, const struct erg_layout *layout)
{
    struct erg_layout_candidate candidate;
    if (erg_layout_evaluate(&candidate, search, layout, NULL, 0, NULL) != 0)
        return false;
    erg_layout_candidate_release(&candidate);
    return true;
}

static int differences(const struct erg_layout *a, const struct erg_layout *b)
{
    return (a->tensor != b->tensor) + (a->context != b->context) + (a->pipeline != b->pipeline) +
           (a->virtual_stages != b->virtual_stages) + (a->microbatch != b->microbatch) +
           (a->recompute != b->recompute);
}

static void one_change_is_enough(void **state)
{
    const struct world *world = *state;
    struct erg_layout_search search = world->search;
    const struct erg_layout layout = {
        .tensor = 1, .context = 1, .pipeline = 4, .virtual_stages = 1, .microbatch = 2};
    struct erg_layout_change change;
    search.kinds[0].memory_bytes = 40e9;
    assert_false(fits(&search, &layout));
    erg_layout_find_change(&change, &search, &layout);
    assert_int_equal(change.changed, 1);
    assert_int_equal(differences(&layout, &change.candidate.layout), 1);
    assert_true(change.candidate.peak_bytes <= search.kinds[0].memory_bytes);
    /* Of those that one change leads to it is the fastest. */
    struct erg_layout other = layout;
    for (int recompute = ERG_RECOMPUTE_NONE; recompute <= ERG_RECOMPUTE_FULL; recompute++) {
        struct erg_layout_candidate candidate;
        other.recompute = (enum erg_recompute)recompute;
        if (erg_layout_evaluate(&candidate, &search, &other, NULL, 0, NULL) != 0)
            continue;
        assert_true(candidate.tokens_per_s <= change.candidate.tokens_per_s);
        erg_layout_candidate_release(&candidate);
    }
    /* The memory that is named is enough, and little less is not. */
    assert_true(change.memory_bytes > search.kinds[0].memory_bytes);
    search.kinds[0].memory_bytes = change.memory_bytes;
    assert_true(fits(&search, &layout));
    search.kinds[0].memory_bytes *= 0.994; /* the model's own error is 0.004 */
    assert_false(fits(&search, &layout));
    erg_layout_candidate_release(&change.candidate);
}

static void two_changes_where_one_is_not_enough(void **state)
{
    const struct world *world = *state;
    struct erg_layout_search search = world->search;
    /* Three heads' ranks, and more memory than there is. */
    const struct erg_layout layout = {
        .tensor = 3, .context = 1, .pipeline = 3, .virtual_stages = 1, .microbatch = 1};
    struct erg_layout_change change;
    erg_layout_find_change(&change, &search, &layout);
    assert_int_equal(change.changed, 2);
    assert_int_equal(differences(&layout, &change.candidate.layout), 2);
    assert_near(change.memory_bytes, 0, 0); /* memory is not what is missing */
    erg_layout_candidate_release(&change.candidate);
    search.kinds[0].memory_bytes = 1e9; /* for which two changes are too few */
    erg_layout_find_change(&change, &search, &layout);
    assert_int_equal(change.changed, 0);
    erg_layout_candidate_release(&change.candidate);
}

static void gpus_and_batches_that_fit(void **state)
{
    const struct world *world = *state;
    struct erg_layout_search search = world->search;
    struct erg_layout_results found;
    struct erg_error err;
    search.kinds[0].memory_bytes = 9e9;
    assert_fails(erg_layout_search(&found, &search, &err), &err, "GiB more");
    long gpus = erg_layout_fewest_gpus(&search, 64);
    assert_true(gpus > 8 && gpus % 8 == 0);
    search.gpus = search.kinds[0].gpus = gpus;
    assert_ok(erg_layout_search(&found, &search, &err), &err);
    erg_layout_results_release(&found);
    search.gpus = search.kinds[0].gpus = gpus - 8;
    assert_fails(erg_layout_search(&found, &search, &err), &err, "no layout");
    assert_int_equal(erg_layout_fewest_gpus(&search, 8), 0);

    search = world->search;
    search.gpus = search.kinds[0].gpus =
        5; /* 16 sequences are no multiple of what five GPUs can share */
    search.equal_stages = true;
    search.batch_least = search.batch_most = 16;
    assert_fails(erg_layout_search(&found, &search, &err), &err, "spreads a batch");
    assert_int_equal(erg_layout_nearest_batch(&search, 3), 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_change_is_enough),
        cmocka_unit_test(two_changes_where_one_is_not_enough),
        cmocka_unit_test(gpus_and_batches_that_fit),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
