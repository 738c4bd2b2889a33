/* Stages on GPUs of several kinds that each recompute and offload what is best for them: what
 * trying all ways finds. */
#include "mixed_world.h"

#include "base/random.h"
#include "layout/memory/stage_memory.h"
#include "layout/search/layout_search_internal.h"

enum { MOST_STAGES = 4 };

/* One layout, with the kind of each stage. */
struct way {
    const struct erg_layout_search *search;
    const struct erg_layout_candidate *found;
    struct erg_layout_site site;
    struct erg_layout_places places;
};

static double peak_of(const struct way *way, const struct erg_layout *layout, long stage)
{
    const struct erg_memory_request request = {.model = way->search->model, .layout = layout};
    struct erg_memory_sizes sizes;
    struct erg_memory_stage closed;
    erg_memory_sizes_of(&sizes, way->search->model, layout);
    erg_memory_closed(&closed, &request, &sizes, stage);
    return closed.peak_bytes;
}

static const struct erg_layout_kind *kind_of(const struct way *way, long stage)
{
    size_t block = 0;
    for (; stage >= way->found->blocks[block].stages; block++)
        stage -= way->found->blocks[block].stages;
    return &way->search->kinds[way->found->blocks[block].kind];
}

/* With one recomputation, by halving; INFINITY: none fits. */
static double least_offload(const struct way *way, long stage, enum erg_recompute recompute)
{
    const struct erg_layout_kind *kind = kind_of(way, stage);
    struct erg_layout own = way->found->layout;
    double low = 0, high = 1;
    own.stage_recompute = NULL;
    own.stage_offload = NULL;
    own.recompute = recompute;
    own.offload = 0;
    if (peak_of(way, &own, stage) <= kind->memory_bytes)
        return 0;
    own.offload = 1;
    double most = peak_of(way, &own, stage);
    if (own.pipeline < 3 || !(kind->engine->host_link_bandwidth > 0) ||
        most > kind->memory_bytes * (1 + 1e-9))
        return INFINITY;
    if (most > kind->memory_bytes)
        return 1;
    while (high - low > 1e-12) {
        own.offload = (low + high) / 2;
        *(peak_of(way, &own, stage) <= kind->memory_bytes ? &high : &low) = own.offload;
    }
    return high;
}

/* The least seconds of all ways of all stages, with the layers of what was found. */
static double try_all(const struct way *way)
{
    const struct erg_layout *layout = &way->found->layout;
    double ratios[MOST_STAGES][ERG_RECOMPUTES], offload[MOST_STAGES], best = INFINITY;
    enum erg_recompute recompute[MOST_STAGES];
    long combinations = 1;
    for (long stage = 0; stage < layout->pipeline; stage++, combinations *= ERG_RECOMPUTES)
        for (int own = 0; own < ERG_RECOMPUTES; own++)
            ratios[stage][own] = least_offload(way, stage, (enum erg_recompute)own);
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
        erg_time_compose_places(&seconds, way->places.time, way->places.count, &own);
        best = fmin(best, seconds.total);
    }
    return best;
}

struct seen {
    long count, mixed, differ, differ_within, offload, only_one_offloads, stall, faster;
};

static void compare(struct seen *seen, const struct erg_layout_search *search,
                    const struct erg_layout_candidate *found)
{
    const struct erg_layout *layout = &found->layout;
    struct way way = {.search = search, .found = found};
    assert_non_null(layout->stage_recompute);
    assert_non_null(layout->stage_offload);
    if (layout->pipeline > MOST_STAGES)
        return;
    erg_layout_site_init(&way.site, search);
    erg_layout_places_init(&way.places, &way.site, layout, found->blocks, found->block_count);
    double peak = 0, offloads[ERG_LAYOUT_MOST_KINDS] = {0};
    for (long stage = 0; stage < layout->pipeline; stage++) {
        const size_t place = erg_layout_place_of(&way.places, stage);
        const double own = peak_of(&way, layout, stage);
        assert_true(own <= kind_of(&way, stage)->memory_bytes * (1 + 1e-9));
        assert_true(own <= found->blocks[place].peak_bytes * (1 + 1e-9));
        peak = fmax(peak, own);
        offloads[place] = fmax(offloads[place], layout->stage_offload[stage]);
        seen->differ += layout->stage_recompute[stage] != layout->stage_recompute[0];
        seen->differ_within += stage > way.places.time[place].first &&
                               layout->stage_recompute[stage] != layout->stage_recompute[stage - 1];
    }
    assert_close(found->time.total - found->time.items[ERG_TIME_UNEVEN], try_all(&way), 1e-9);
    assert_close(found->peak_bytes, peak, 1e-9);
    assert_true(found->bound_s <= found->time.total * (1 + 1e-9));
    seen->count++;
    seen->mixed += found->block_count > 1;
    seen->offload += layout->offload > 0;
    seen->only_one_offloads +=
        found->block_count > 1 && layout->offload > 0 && fmin(offloads[0], offloads[1]) == 0;
    seen->stall += found->time.items[ERG_TIME_STALLS] > 0;
}

static void draw(struct world *world, struct erg_layout_search *search, struct erg_rng *rng)
{
    world->model->layers = 5 + (long)erg_rng_below(rng, 6);
    for (size_t k = 0; k < search->kind_count; k++) {
        struct erg_layout_kind *kind = &search->kinds[k];
        kind->gpus = 1 + (long)erg_rng_below(rng, 3);
        kind->machine.node_gpus = 1 + (long)erg_rng_below(rng, 2);
        kind->machine.network_bandwidth = 1e9 * (1 + 20 * erg_rng_uniform(rng));
        kind->memory_bytes = 0x1p30 * (8 + 40 * erg_rng_uniform(rng));
        world->engines[k]->peak_flops = 1e14 * (1 + 9 * erg_rng_uniform(rng));
        world->engines[k]->offload_interference = 0.3 * erg_rng_uniform(rng);
        world->engines[k]->host_link_bandwidth =
            erg_rng_below(rng, 4) ? 1e9 * (2 + 60 * erg_rng_uniform(rng)) : 0;
    }
    search->sequence = 4096 << erg_rng_below(rng, 2);
    search->microbatch_most = 1;
    search->batch_least = search->batch_most = 6 * (1 + (long)erg_rng_below(rng, 2));
}

static void nothing_is_faster(void **state)
{
    (void)state;
    struct world world = world_of("llama-2-7b");
    struct seen seen = {0};
    struct erg_rng rng;
    erg_rng_seed(&rng, 20261123);
    for (int round = 0; round < 60; round++) {
        struct erg_layout_search search = search_of(&world, 2 + erg_rng_below(&rng, 2));
        struct erg_layout_results all, fewer, same;
        struct erg_error err;
        draw(&world, &search, &rng);
        search.per_stage = true;
        search.top = 20000;
        if (erg_layout_search(&all, &search, &err) != 0) {
            assert_int_equal(err.status, ERG_INFEASIBLE);
            continue;
        }
        assert_int_equal(all.bounded, 0);
        for (size_t i = 0; i < all.count; i++)
            compare(&seen, &search, &all.items[i]);
        /* Bounds drop nothing but layouts whose first split is too slow. */
        search.top = 3;
        assert_ok(erg_layout_search(&fewer, &search, &err), &err);
        assert_int_equal(fewer.evaluated, fewer.feasible + fewer.slower + fewer.memory);
        for (size_t i = 0; i < fewer.count; i++)
            assert_close(fewer.items[i].tokens_per_s, all.items[i].tokens_per_s, 0.01);
        assert_true(all.items[0].tokens_per_s <=
                    fewer.items[0].tokens_per_s * (1 + fewer.gap) * (1 + 1e-9));
        /* One layout alone is what the search says. */
        struct erg_layout_candidate one = all.items[0];
        struct erg_layout asked = one.layout;
        asked.stage_recompute = NULL;
        asked.stage_offload = NULL;
        assert_ok(erg_layout_evaluate(&one, &search, &asked, all.items[0].blocks,
                                      all.items[0].block_count, &err),
                  &err);
        assert_close(one.time.total, all.items[0].time.total, 1e-12);
        assert_close(one.layout.offload, all.items[0].layout.offload, 1e-12);
        erg_layout_candidate_release(&one);
        /* One way for all is one of the ways. */
        search.per_stage = false;
        if (erg_layout_search(&same, &search, &err) == 0) {
            assert_true(all.items[0].tokens_per_s >= same.items[0].tokens_per_s * (1 - 1e-9));
            seen.faster += all.items[0].tokens_per_s > same.items[0].tokens_per_s * (1 + 1e-6);
            erg_layout_results_release(&same);
        }
        erg_layout_results_release(&fewer);
        erg_layout_results_release(&all);
    }
    print_message("%ld layouts, %ld of several kinds; %ld stages unlike the first, %ld unlike the "
                  "one before on the same GPUs; %ld offload, %ld on one kind only, %ld wait for "
                  "copies; the fastest is faster in %ld rounds\n",
                  seen.count, seen.mixed, seen.differ, seen.differ_within, seen.offload,
                  seen.only_one_offloads, seen.stall, seen.faster);
    assert_true(seen.count > 500 && seen.mixed > 300 && seen.differ > 100);
    assert_true(seen.differ_within > 30 && seen.offload > 50 && seen.only_one_offloads > 10);
    assert_true(seen.stall > 10 && seen.faster > 5);
    world_release(&world);
}

/* Where only one recomputation is allowed besides none that fits, bounds take the kinds' own. */
static void bounds_use_the_best_recomputation_of_each_kind(void **state)
{
    (void)state;
    struct world world = world_of("llama-2-7b");
    struct erg_layout_search search = search_of(&world, 2);
    struct erg_layout_results all, fewer;
    struct erg_error err;
    world.model->layers = 10;
    world.engines[1]->peak_flops = 1e14;
    search.recomputes = 1u << ERG_RECOMPUTE_BALANCED | 1u << ERG_RECOMPUTE_FULL;
    search.per_stage = true;
    search.batch_least = search.batch_most = 8;
    search.top = 20000;
    assert_ok(erg_layout_search(&all, &search, &err), &err);
    search.top = 5;
    assert_ok(erg_layout_search(&fewer, &search, &err), &err);
    assert_true(fewer.slower + fewer.bounded > 0);
    for (size_t i = 0; i < 5; i++)
        assert_close(fewer.items[i].tokens_per_s, all.items[i].tokens_per_s, 1e-9);
    erg_layout_results_release(&all);
    erg_layout_results_release(&fewer);
    world_release(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_faster),
        cmocka_unit_test(bounds_use_the_best_recomputation_of_each_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
