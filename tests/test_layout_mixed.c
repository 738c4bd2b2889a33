/* Layouts over GPUs of several kinds: what trying all finds, and where stages should lie. */
#include "mixed_world.h"

#include "base/random.h"
#include "layout/search/layout_search_internal.h"

#include <stdbool.h>

/* ---- against trying all ---- */

/* The fastest split of a layout on given blocks, its schedule followed. */
struct splits {
    const struct erg_layout_search *search;
    struct erg_layout_candidate at; /* blocks */
    struct erg_layout layout;
    long chunks[8];
    double best_s;
    bool fits;
};

static void try_splits(struct splits *splits, long at, long left)
{
    long count = splits->layout.pipeline * splits->layout.virtual_stages;
    if (at + 1 < count) {
        for (splits->chunks[at] = 1; splits->chunks[at] <= left - (count - at - 1);
             splits->chunks[at]++)
            try_splits(splits, at + 1, left - splits->chunks[at]);
        return;
    }
    splits->chunks[at] = left;
    struct erg_layout_candidate candidate;
    if (erg_layout_evaluate(&candidate, splits->search, &splits->layout, splits->at.blocks,
                            splits->at.block_count, NULL) != 0)
        return;
    splits->fits = true;
    splits->best_s = fmin(splits->best_s, candidate.time.total);
    erg_layout_candidate_release(&candidate);
}

static bool is_same(const struct erg_layout_candidate *found,
                    const struct erg_layout_candidate *other)
{
    const struct erg_layout *a = &found->layout, *b = &other->layout;
    bool same = a->tensor == b->tensor && a->context == b->context && a->data == b->data &&
                a->pipeline == b->pipeline && a->virtual_stages == b->virtual_stages &&
                a->microbatch == b->microbatch && a->recompute == b->recompute &&
                found->block_count == other->block_count;
    for (size_t i = 0; same && i < found->block_count; i++)
        same = found->blocks[i].kind == other->blocks[i].kind &&
               found->blocks[i].stages == other->blocks[i].stages;
    return same;
}

/* Layouts without context degrees, each once: where a split is faster than equal stages, on GPUs of
 * one kind, both are there. */
static size_t count_layouts(const struct erg_layout_results *found)
{
    size_t count = 0;
    for (size_t i = 0; i < found->count; i++) {
        bool again = found->items[i].layout.context > 1;
        for (size_t k = 0; k < i && !again; k++)
            again = is_same(&found->items[i], &found->items[k]);
        count += !again;
    }
    return count;
}

struct comparison {
    const struct erg_layout_results *found;
    long compared, chunked, mixed, none, offload;
    size_t seen;
};

/* All chunks and recomputations on one row of blocks. */
static void compare(struct comparison *comparison, struct splits *splits)
{
    struct erg_layout *layout = &splits->layout;
    long layers = splits->search->model->layers;
    for (long v = 1; v == 1 || (layout->pipeline > 1 && v * layout->pipeline <= layers); v++)
        for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
            const struct erg_layout_candidate *match = NULL;
            layout->virtual_stages = v;
            layout->recompute = (enum erg_recompute)recompute;
            splits->best_s = INFINITY;
            splits->fits = false;
            if (layout->pipeline <= layers && v * layout->pipeline <= 8)
                try_splits(splits, 0, layers);
            splits->at.layout = *layout;
            for (size_t i = 0; i < comparison->found->count && !match; i++)
                if (is_same(&comparison->found->items[i], &splits->at))
                    match = &comparison->found->items[i];
            if (!splits->fits) {
                assert_null(match);
                comparison->none++;
                continue;
            }
            assert_non_null(match);
            double share = match->time.total / splits->best_s - 1;
            assert_near(share, 0, 1e-9);
            assert_near(match->bound_s, match->time.total, 0);
            comparison->chunked += v > 1;
            comparison->compared++;
            comparison->seen++;
            comparison->mixed += match->block_count > 1;
            comparison->offload += match->layout.offload > 0;
        }
}

/* All rows of blocks: the kinds that are left, in all orders. */
static void try_blocks(struct comparison *comparison, struct splits *splits, unsigned used)
{
    const struct erg_layout_search *search = splits->search;
    struct erg_layout *layout = &splits->layout;
    if (splits->at.block_count > 0)
        compare(comparison, splits);
    for (size_t k = 0; k < search->kind_count; k++) {
        long most = search->kinds[k].gpus / (layout->tensor * layout->data);
        if (used & 1u << k || layout->tensor > search->kinds[k].machine.node_gpus)
            continue;
        for (long stages = 1; stages <= most && layout->pipeline + stages <= 8; stages++) {
            splits->at.blocks[splits->at.block_count++] =
                (struct erg_layout_block){.kind = k, .stages = stages};
            layout->pipeline += stages;
            try_blocks(comparison, splits, used | 1u << k);
            layout->pipeline -= stages;
            splits->at.block_count--;
        }
    }
}

/* What is asked for alone is the fastest of its kind among all; with a data degree, of those. */
static void asked_degrees_are_the_fastest_of_them(const struct erg_layout_results *found,
                                                  const struct erg_layout_search *all,
                                                  const struct erg_layout *asked)
{
    struct erg_error err;
    struct erg_layout_results own;
    struct erg_layout_search search = *all;
    search.top = 1;
    search.recomputes = 1u << asked->recompute;
    search.only = (struct erg_layout_degrees){.tensor = asked->tensor,
                                              .context = asked->context,
                                              .pipeline = asked->pipeline,
                                              .virtual_stages = asked->virtual_stages,
                                              .microbatch = asked->microbatch};
    for (int data = 0; data < 2; data++) {
        double fastest = 0;
        search.only.data = data ? asked->data : 0;
        for (size_t k = 0; k < found->count; k++) {
            const struct erg_layout *at = &found->items[k].layout;
            if (at->tensor == asked->tensor && at->context == asked->context &&
                at->pipeline == asked->pipeline && at->virtual_stages == asked->virtual_stages &&
                at->microbatch == asked->microbatch && at->recompute == asked->recompute &&
                (!data || at->data == asked->data))
                fastest = fmax(fastest, found->items[k].tokens_per_s);
        }
        assert_ok(erg_layout_search(&own, &search, &err), &err);
        assert_int_equal(own.items[0].layout.pipeline, asked->pipeline);
        assert_int_equal(own.items[0].layout.recompute, asked->recompute);
        assert_true(!data || own.items[0].layout.data == asked->data);
        assert_close(own.items[0].tokens_per_s, fastest, 1e-9);
        erg_layout_results_release(&own);
    }
    search.only.pipeline = 1000;
    assert_fails(erg_layout_search(&own, &search, &err), &err,
                 "that was requested spreads a batch");
    assert_int_equal(err.status, ERG_INFEASIBLE);
}

static void no_layout_is_faster(void **state)
{
    (void)state;
    struct world world = world_of("llama-2-7b");
    struct comparison comparison = {0};
    struct erg_rng rng;
    long bounded = 0;
    erg_rng_seed(&rng, 9);
    for (int i = 0; i < 60; i++) {
        struct erg_error err;
        struct erg_layout_results found;
        struct erg_layout_search search = search_of(&world, 2 + erg_rng_below(&rng, 2));
        world.model->layers = 4 + (long)erg_rng_below(&rng, 3);
        world.model->vocab = 4000 * (1 + (long)erg_rng_below(&rng, 32));
        for (size_t k = 0; k < search.kind_count; k++) {
            struct erg_layout_kind *kind = &search.kinds[k];
            kind->gpus = 1 + (long)erg_rng_below(&rng, search.kind_count == 2 ? 4 : 2);
            kind->machine.node_gpus = 1 + (long)erg_rng_below(&rng, 2);
            kind->machine.network_bandwidth = 1e9 * (1 + 20 * erg_rng_uniform(&rng));
            kind->memory_bytes = 0x1p30 * (6 + 30 * erg_rng_uniform(&rng));
            kind->host_bytes =
                erg_rng_below(&rng, 3) ? 0 : 0x1p30 * (4 + 40 * erg_rng_uniform(&rng));
            world.engines[k]->peak_flops = 1e14 * (1 + 9 * erg_rng_uniform(&rng));
            world.engines[k]->offload_interference = 0.2 * erg_rng_uniform(&rng);
        }
        search.sequence = 4096 << erg_rng_below(&rng, 2);
        search.microbatch_most = 1;
        search.batch_least = search.batch_most = 12;
        search.top = 20000;
        if (erg_layout_search(&found, &search, &err) != 0) {
            assert_int_equal(err.status, ERG_INFEASIBLE);
            found = (struct erg_layout_results){0};
        }
        comparison.found = &found;
        comparison.seen = 0;
        for (long t = 1; t <= 2; t++)
            for (long d = 1; d <= 4; d++) {
                struct splits splits = {.search = &search};
                splits.layout = (struct erg_layout){.tensor = t,
                                                    .context = 1,
                                                    .data = d,
                                                    .microbatch = 1,
                                                    .chunk_layers = splits.chunks};
                if (12 % d == 0)
                    try_blocks(&comparison, &splits, 0);
            }
        assert_int_equal(comparison.seen, count_layouts(&found));
        assert_int_equal(found.bounded, 0);
        for (size_t k = 0; k < found.count; k += 1 + found.count / 8)
            asked_degrees_are_the_fastest_of_them(&found, &search, &found.items[k].layout);
        if (found.count > 3) { /* the same with bounds */
            struct erg_layout_results fewer;
            search.top = 3;
            assert_ok(erg_layout_search(&fewer, &search, &err), &err);
            bounded += (long)(fewer.bounded + fewer.slower);
            for (size_t k = 0; k < 3; k++)
                assert_close(fewer.items[k].tokens_per_s, found.items[k].tokens_per_s, 0.01);
            erg_layout_results_release(&fewer);
        }
        erg_layout_results_release(&found);
    }
    print_message(
        "%ld layouts, %ld of several kinds, %ld offload; %ld do not fit; %ld with virtual "
        "stages\n",
        comparison.compared, comparison.mixed, comparison.offload, comparison.none,
        comparison.chunked);
    assert_true(comparison.chunked > 200);
    assert_true(comparison.compared > 1000 && comparison.mixed > 500);
    assert_true(comparison.offload > 20 && comparison.none > 500);
    assert_true(bounded > 100);
    world_release(&world);
}

/* ---- one kind ---- */

/* A number of GPUs that is asked for is the same as having no more, where all are used. */
static void one_kind_is_one_block(void **state)
{
    (void)state;
    struct world world = world_of("llama-65b");
    struct erg_error err;
    struct erg_layout_results exact, any;
    struct erg_layout_search search = search_of(&world, 1);
    search.top = 1;
    search.kinds[0].gpus = 32;
    assert_ok(erg_layout_search(&any, &search, &err), &err);
    search.gpus = 32;
    assert_ok(erg_layout_search(&exact, &search, &err), &err);
    assert_close(any.items[0].tokens_per_s, exact.items[0].tokens_per_s, 1e-9);
    assert_int_equal(any.items[0].block_count, 1);
    assert_int_equal(any.items[0].blocks[0].stages, exact.items[0].layout.pipeline);
    assert_near(any.items[0].blocks[0].peak_bytes, exact.items[0].peak_bytes, 1e6);
    assert_close(erg_layout_peak_flops(&any.items[0], &search), 32 * 989.4e12, 1e-12);
    erg_layout_results_release(&any);
    erg_layout_results_release(&exact);
    world_release(&world);
}

/* ---- what should be ---- */

/* GPUs three times as fast get about three times the layers; both together are faster than the fast
 * ones alone, by about what the slow ones add. */
static void faster_gpus_get_more_layers(void **state)
{
    (void)state;
    struct world world = world_of("llama-65b");
    struct erg_error err;
    struct erg_layout_results alone, both;
    struct erg_layout_search search = search_of(&world, 2);
    search.kinds[0].gpus = search.kinds[1].gpus = 32;
    search.kind_count = 1;
    assert_ok(erg_layout_search(&alone, &search, &err), &err);
    search.kind_count = 2;
    assert_ok(erg_layout_search(&both, &search, &err), &err);
    const struct erg_layout_candidate *best = &both.items[0];
    double gain = best->tokens_per_s / alone.items[0].tokens_per_s;
    assert_int_equal(best->block_count, 2);
    assert_true(gain > 1.15 && gain < 1 + 312 / 989.4 + 0.1);
    double layers[2] = {0};
    for (long stage = 0; stage < best->layout.pipeline; stage++) {
        size_t block = stage >= best->blocks[0].stages;
        for (long chunk = 0; chunk < best->layout.virtual_stages; chunk++)
            layers[best->blocks[block].kind] +=
                (double)erg_layout_chunk_layers(&best->layout, world.model->layers, stage, chunk);
    }
    for (size_t i = 0; i < 2; i++)
        layers[best->blocks[i].kind] /= (double)best->blocks[i].stages;
    assert_true(layers[0] > 2 * layers[1] && layers[0] < 5 * layers[1]);
    for (size_t i = 0; i < 2; i++)
        assert_true(best->blocks[i].peak_bytes <=
                    search.kinds[best->blocks[i].kind].memory_bytes * (1 + 1e-9));
    erg_layout_results_release(&both);
    erg_layout_results_release(&alone);
    world_release(&world);
}

/* GiB more a GPU with which a search's nearest layout fits; INFINITY: no layout, or none nearest.
 */
static double missing_gib(const struct erg_layout_search *search)
{
    struct erg_layout_results found;
    struct erg_error err;
    assert_int_not_equal(erg_layout_search(&found, search, &err), 0);
    assert_int_equal(err.status, ERG_INFEASIBLE);
    const char *with = strstr(err.message, "which fits with ");
    return with ? strtod(with + strlen("which fits with "), NULL) : INFINITY;
}

/* Most layouts are too far from fitting to be looked at; the nearest of all groups and numbers of
 * stages, each looked at for itself, is the nearest. */
static void the_nearest_that_does_not_fit(void **state)
{
    (void)state;
    struct world world = world_of("llama-65b");
    for (int offload = 0; offload < 2; offload++) {
        struct erg_layout_search search = search_of(&world, 2);
        double nearest = INFINITY;
        world.engines[0]->host_link_bandwidth = world.engines[1]->host_link_bandwidth = 50e9;
        search.offload = offload;
        search.batch_least = search.batch_most = 4;
        double whole = missing_gib(&search);
        for (long tensor = 1; tensor <= 8; tensor *= 2)
            for (long pipeline = 1; pipeline <= 16 / tensor; pipeline++) {
                search.only = (struct erg_layout_degrees){.tensor = tensor, .pipeline = pipeline};
                nearest = fmin(nearest, missing_gib(&search));
            }
        assert_true(whole > 0 && isfinite(whole));
        assert_near(whole, nearest, 1e-9);
        /* And it does. */
        search.only = (struct erg_layout_degrees){0};
        for (int k = 0; k < 2; k++)
            search.kinds[k].memory_bytes += whole * 0x1p30;
        struct erg_layout_results found;
        struct erg_error err;
        assert_ok(erg_layout_search(&found, &search, &err), &err);
        erg_layout_results_release(&found);
    }
    world_release(&world);
}

static void errors_are_reported(void **state)
{
    (void)state;
    struct world world = world_of("llama-65b");
    struct erg_error err;
    struct erg_layout_results found;
    struct erg_layout_search search = search_of(&world, 2);
    assert_fails(erg_layout_search(&found, &search, &err), &err,
                 "with a batch of 64 sequences fits on these GPUs");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    search.batch_least = 65;
    assert_fails(erg_layout_search(&found, &search, &err), &err, "got 65 to 64");
    search.kinds[1].machine.network_bandwidth = 0;
    assert_fails(erg_layout_search(&found, &search, &err), &err,
                 "that of the nodes with A100-SXM4-40GB is unknown");
    search.kind_count = 0;
    assert_fails(erg_layout_search(&found, &search, &err), &err, "1 to 4 kinds of GPUs, got 0");
    world_release(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_layout_is_faster),
        cmocka_unit_test(one_kind_is_one_block),
        cmocka_unit_test(faster_gpus_get_more_layers),
        cmocka_unit_test(the_nearest_that_does_not_fit),
        cmocka_unit_test(errors_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
