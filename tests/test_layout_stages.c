/* Stages that each recompute and offload what is best for them: what trying all ways finds. */
#include "layout_world.h"

#include "base/random.h"
#include "layout/memory/stage_memory.h"

static double peak_of(const struct world *world, const struct erg_layout *layout, long stage)
{
    const struct erg_memory_request request = {.model = world->model, .layout = layout};
    struct erg_memory_sizes sizes;
    struct erg_memory_stage closed;
    erg_memory_sizes_of(&sizes, world->model, layout);
    erg_memory_closed(&closed, &request, &sizes, stage);
    return closed.peak_bytes;
}

/* Of one stage with one recomputation, by halving; INFINITY: none fits. */
static double least_offload(const struct world *world, const struct erg_layout *layout, long stage,
                            enum erg_recompute recompute, double budget)
{
    struct erg_layout own = *layout;
    double low = 0, high = 1;
    own.stage_recompute = NULL;
    own.stage_offload = NULL;
    own.recompute = recompute;
    own.offload = 0;
    if (peak_of(world, &own, stage) <= budget)
        return 0;
    own.offload = 1;
    double most = peak_of(world, &own, stage);
    if (own.pipeline < 3 || most > budget * (1 + 1e-9))
        return INFINITY;
    if (most > budget)
        return 1;
    while (high - low > 1e-12) {
        own.offload = (low + high) / 2;
        *(peak_of(world, &own, stage) <= budget ? &high : &low) = own.offload;
    }
    return high;
}

/* The least seconds of all ways of all stages. */
static double try_all(const struct world *world, const struct erg_layout *layout, double budget)
{
    const struct erg_time_request time = {world->model, world->engine, &world->machine};
    enum { MOST_STAGES = 4 };
    double ratios[MOST_STAGES][ERG_RECOMPUTES], offload[MOST_STAGES], best = INFINITY;
    enum erg_recompute recompute[MOST_STAGES];
    long combinations = 1;
    for (long stage = 0; stage < layout->pipeline; stage++, combinations *= ERG_RECOMPUTES)
        for (int way = 0; way < ERG_RECOMPUTES; way++)
            ratios[stage][way] =
                least_offload(world, layout, stage, (enum erg_recompute)way, budget);
    for (long k = 0; k < combinations; k++) {
        struct erg_layout own = *layout;
        struct erg_time seconds;
        bool fits = true;
        long rest = k;
        for (long stage = 0; stage < layout->pipeline; stage++, rest /= ERG_RECOMPUTES) {
            recompute[stage] = (enum erg_recompute)(rest % ERG_RECOMPUTES);
            offload[stage] = ratios[stage][recompute[stage]];
            fits &= isfinite(offload[stage]);
        }
        own.stage_recompute = recompute;
        own.stage_offload = offload;
        if (!fits)
            continue;
        erg_time_layout(&seconds, &time, &own);
        best = fmin(best, seconds.total);
    }
    return best;
}

struct seen {
    const struct world *world;
    double budget;
    long count, differ, stall, faster;
};

static void compare(void *context, const struct erg_layout_candidate *candidate)
{
    struct seen *seen = context;
    const struct erg_layout *layout = &candidate->layout;
    assert_non_null(layout->stage_recompute);
    assert_non_null(layout->stage_offload);
    if (layout->pipeline > 4)
        return;
    double peak = 0, best = try_all(seen->world, layout, seen->budget);
    for (long stage = 0; stage < layout->pipeline; stage++) {
        peak = fmax(peak, peak_of(seen->world, layout, stage));
        seen->differ += layout->stage_recompute[stage] != layout->stage_recompute[0];
        assert_true(layout->stage_offload[stage] <= layout->offload);
    }
    assert_close(candidate->time.total - candidate->time.items[ERG_TIME_UNEVEN], best, 1e-9);
    assert_close(candidate->peak_bytes, peak, 1e-9);
    assert_true(peak <= seen->budget * (1 + 1e-9));
    seen->stall += candidate->time.items[ERG_TIME_STALLS] > 0;
    seen->count++;
}

/* Budgets, links and interference drawn at random, equal stages and others. */
static void nothing_is_faster(void **state)
{
    (void)state;
    struct world world = world_of("llama-2-7b");
    struct seen seen = {.world = &world};
    struct erg_rng rng;
    erg_rng_seed(&rng, 20261122);
    for (int round = 0; round < 14; round++) {
        struct erg_layout_results own, same;
        struct erg_error err;
        seen.budget = 0x1p30 * (10 + 30 * erg_rng_uniform(&rng));
        world.engine->host_link_bandwidth = 1e9 * (4 + 60 * erg_rng_uniform(&rng));
        world.engine->offload_interference = 0.3 * erg_rng_uniform(&rng);
        struct erg_layout_search search = {
            .model = world.model,
            .kinds = {{.engine = world.engine,
                       .machine = world.machine,
                       .gpus = 8,
                       .memory_bytes = seen.budget}},
            .kind_count = 1,
            .gpus = 8,
            .sequence = 8192,
            .batch_least = 16,
            .batch_most = 16,
            .recomputes = ERG_RECOMPUTE_ALL,
            .offload = true,
            .equal_stages = round % 2 == 0,
            .per_stage = true,
            .microbatch_most = 1,
            .top = 5,
            .each = compare,
            .context = &seen,
        };
        if (erg_layout_search(&own, &search, &err) != 0)
            continue;
        /* Bounds drop nothing, and one layout alone is what the search says. */
        struct erg_layout_results bounded;
        search.each = NULL;
        assert_ok(erg_layout_search(&bounded, &search, &err), &err);
        assert_int_equal(bounded.count, own.count);
        for (size_t i = 0; i < own.count; i++)
            assert_close(bounded.items[i].tokens_per_s, own.items[i].tokens_per_s, 1e-12);
        assert_int_equal(bounded.evaluated,
                         bounded.feasible + bounded.slower + bounded.memory + bounded.host_memory);
        struct erg_layout_candidate one;
        struct erg_layout asked = own.items[0].layout;
        asked.chunk_layers = NULL;
        asked.stage_recompute = NULL;
        asked.stage_offload = NULL;
        if (own.items[0].layout.chunk_layers == NULL) {
            assert_ok(erg_layout_evaluate(&one, &search, &asked, NULL, 0, &err), &err);
            assert_close(one.time.total, own.items[0].time.total, 1e-12);
            erg_layout_candidate_release(&one);
        }
        /* One way for all is one of the ways. */
        search.per_stage = false;
        if (erg_layout_search(&same, &search, &err) == 0) {
            assert_true(own.items[0].tokens_per_s >= same.items[0].tokens_per_s * (1 - 1e-9));
            seen.faster += own.items[0].tokens_per_s > same.items[0].tokens_per_s * (1 + 1e-6);
            erg_layout_results_release(&same);
        }
        erg_layout_results_release(&own);
        erg_layout_results_release(&bounded);
    }
    print_message("%ld layouts, %ld stages unlike the first, %ld wait for copies; the fastest is "
                  "faster in %ld rounds\n",
                  seen.count, seen.differ, seen.stall, seen.faster);
    assert_true(seen.count > 200 && seen.differ > 100 && seen.stall > 10 && seen.faster > 3);
    world_release(&world);
}

/* A published configuration: the same peak, no longer, and with less on the bus. */
static void published_rows_copy_less(void **state)
{
    (void)state;
    struct world world = world_of("llama-65b");
    struct erg_layout_search search = {
        .model = world.model,
        .kinds = {{.engine = world.engine,
                   .machine = world.machine,
                   .gpus = 32,
                   .memory_bytes = 0x1p36}},
        .kind_count = 1,
        .gpus = 32,
        .sequence = 4096,
        .batch_least = 272,
        .batch_most = 272,
        .recomputes = 1 << ERG_RECOMPUTE_BALANCED,
        .offload = true,
        .equal_stages = true,
        .top = 1,
    };
    const struct erg_layout layout = {.tensor = 2,
                                      .context = 1,
                                      .pipeline = 8,
                                      .virtual_stages = 5,
                                      .microbatch = 1,
                                      .recompute = ERG_RECOMPUTE_BALANCED};
    struct erg_layout_candidate one, own;
    struct erg_error err;
    assert_ok(erg_layout_evaluate(&one, &search, &layout, NULL, 0, &err), &err);
    search.per_stage = true;
    assert_ok(erg_layout_evaluate(&own, &search, &layout, NULL, 0, &err), &err);
    assert_near(one.layout.offload, 0.544, 0.02);
    assert_close(own.layout.offload, one.layout.offload, 1e-6);
    assert_true(own.time.total < one.time.total);
    double sum = 0;
    for (int stage = 0; stage < 8; stage++)
        sum += own.stage_offload[stage] / 8;
    assert_true(sum < 0.8 * one.layout.offload);
    erg_layout_candidate_release(&one);
    erg_layout_candidate_release(&own);
    world_release(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_faster),
        cmocka_unit_test(published_rows_copy_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
