/* GPUs of two kinds that are the same are GPUs of one kind: every layout takes the same time,
 * energy and memory. */
#include "energy_of_layout.h"
#include "mixed_world.h"

#include "base/random.h"
#include "layout/energy/candidate.h"

/* Degrees of a layout; what layers and stages do may differ. */
static bool is_same(const struct erg_layout *a, const struct erg_layout *b)
{
    return a->tensor == b->tensor && a->context == b->context && a->data == b->data &&
           a->pipeline == b->pipeline && a->virtual_stages == b->virtual_stages &&
           a->microbatch == b->microbatch && (a->stage_recompute || a->recompute == b->recompute);
}

/* The fastest of some degrees; NULL: none. */
static const struct erg_layout_candidate *best_of(const struct erg_layout_results *found,
                                                  const struct erg_layout *layout)
{
    for (size_t i = 0; i < found->count; i++)
        if (is_same(&found->items[i].layout, layout))
            return &found->items[i];
    return NULL;
}

static void same_energy(const struct erg_layout_search *search, const struct world *world,
                        const struct erg_layout_candidate *mixed)
{
    const struct erg_time_request time = {world->model, world->engines[0],
                                          &world->kinds[0].machine};
    const struct erg_layout_energy_request request = {.time = time, .gpu = world->gpus[0]};
    struct erg_layout_energy one, two;
    energy_of_layout(&one, &request, &mixed->layout, 0, mixed->time.items[ERG_TIME_UNEVEN]);
    erg_layout_candidate_energy(&two, search, mixed);
    assert_close(two.total_j, one.total_j, 1e-12);
    assert_close(two.time_s, one.time_s, 1e-12);
}

/* One kind of 32 GPUs, and the same as two of 16 each. */
static void compare(bool per_stage, double gib, double host_link)
{
    struct world world = world_of("llama-2-7b");
    struct erg_layout_search search = search_of(&world, 2);
    struct erg_layout_results one, two;
    struct erg_error err;
    long compared = 0, equal = 0, chunked = 0, offload = 0;
    world.model->layers = 8;
    world.engines[0]->host_link_bandwidth = host_link;
    search.kinds[0].gpus = 16;
    search.kinds[0].memory_bytes = gib * 0x1p30;
    search.kinds[1] = search.kinds[0];
    search.kinds[1].name = "the same";
    search.batch_least = search.batch_most = 32;
    search.microbatch_most = 2;
    search.per_stage = per_stage;
    search.top = 100000;
    struct erg_layout_search same = search;
    same.kind_count = 1;
    same.gpus = same.kinds[0].gpus = 32;
    assert_ok(erg_layout_search(&one, &same, &err), &err);
    assert_ok(erg_layout_search(&two, &search, &err), &err);
    for (size_t i = 0; i < two.count; i++) {
        const struct erg_layout_candidate *mixed = &two.items[i];
        if (erg_layout_gpus(&mixed->layout) != 32)
            continue;
        const struct erg_layout_candidate *uniform = best_of(&one, &mixed->layout);
        assert_non_null(uniform);
        assert_int_equal(mixed->block_count, 2);
        assert_close(mixed->time.total, uniform->time.total, 1e-9);
        assert_close(mixed->peak_bytes, uniform->peak_bytes, 1e-9);
        assert_close(mixed->layout.offload, uniform->layout.offload, 1e-9);
        same_energy(&search, &world, mixed);
        compared++;
        equal += !mixed->chunk_layers;
        chunked += mixed->layout.virtual_stages > 1;
        offload += mixed->layout.offload > 0;
    }
    /* And nothing is missing, where half of the stages can lie on each. */
    for (size_t i = 0; i < one.count; i++)
        if (one.items[i].layout.pipeline % 2 == 0)
            assert_non_null(best_of(&two, &one.items[i].layout));
    print_message("%ld layouts, %ld of equal stages, %ld with virtual stages, %ld offload\n",
                  compared, equal, chunked, offload);
    assert_true(compared > 40 && equal > 10 && chunked > 10);
    assert_true(host_link == 0 || offload > 5);
    erg_layout_results_release(&one);
    erg_layout_results_release(&two);
    world_release(&world);
}

static void two_alike_are_one(void **state)
{
    (void)state;
    compare(false, 30, 0);
    compare(false, 4, 40e9);
}

static void with_stages_of_their_own(void **state)
{
    (void)state;
    compare(true, 30, 0);
    compare(true, 4, 40e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_alike_are_one),
        cmocka_unit_test(with_stages_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
