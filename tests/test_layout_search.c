/* The search over layouts: it finds what trying all finds, and what was published. */
#include "layout_world.h"

#include "base/memory.h"
#include "base/random.h"
#include "layout/memory/stage_memory.h"
#include "layout/time/fit.h"

static const char rows_path[] = ERGON_TEST_SOURCE_DIR "/tests/data/megatron-kwai-h800.csv";

static struct erg_layout_search search_of(const struct world *world, long gpus, long sequence)
{
    return (struct erg_layout_search){
        .model = world->model,
        .kinds = {{.engine = world->engine,
                   .machine = world->machine,
                   .gpus = gpus,
                   .memory_bytes = 0x1p36}},
        .kind_count = 1,
        .gpus = gpus,
        .sequence = sequence,
        .batch_least = 64,
        .batch_most = 64,
        .recomputes = ERG_RECOMPUTE_ALL,
        .offload = true,
        .top = 20,
    };
}

/* The stage that needs most, of all. */
static double peak_of(const struct erg_layout_search *search, const struct erg_layout *layout)
{
    const struct erg_memory_request request = {.model = search->model, .layout = layout};
    struct erg_memory_sizes sizes;
    double peak = 0;
    erg_memory_sizes_of(&sizes, request.model, layout);
    for (long stage = 0; stage < layout->pipeline; stage++) {
        struct erg_memory_stage closed;
        erg_memory_closed(&closed, &request, &sizes, stage);
        peak = fmax(peak, closed.peak_bytes);
    }
    return peak;
}

/* ---- against trying all ---- */

struct all {
    struct erg_layout_candidate best[20];
    size_t count, offered;
};

static void offer(struct all *all, const struct erg_layout_candidate *candidate)
{
    size_t place = all->count;
    all->offered++;
    while (place > 0 && candidate->tokens_per_s > all->best[place - 1].tokens_per_s)
        place--;
    if (place == 20)
        return;
    size_t moved = all->count - place - (all->count == 20);
    memmove(&all->best[place + 1], &all->best[place], moved * sizeof *all->best);
    all->best[place] = *candidate;
    all->count += all->count < 20;
}

static void offer_each(void *context, const struct erg_layout_candidate *candidate)
{
    offer(context, candidate);
}

/* Every layout of small numbers, one by one, by the function that evaluates one. */
static void try_all(struct all *all, const struct erg_layout_search *search)
{
    const struct erg_model *model = search->model;
    for (long t = 1; t <= 8; t++)
        for (long c = 1; c <= 8; c++)
            for (long p = 1; p <= model->layers; p++)
                for (long v = 1; v * p <= model->layers; v++)
                    for (long b = 1; b <= 64; b++)
                        for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
                            const struct erg_layout layout = {.tensor = t,
                                                              .context = c,
                                                              .pipeline = p,
                                                              .virtual_stages = v,
                                                              .microbatch = b,
                                                              .recompute =
                                                                  (enum erg_recompute)recompute};
                            struct erg_layout_candidate candidate;
                            if (search->gpus % (t * c * p) != 0 ||
                                erg_layout_evaluate(&candidate, search, &layout, NULL, 0, NULL) !=
                                    0)
                                continue;
                            offer(all, &candidate);
                            erg_layout_candidate_release(&candidate);
                        }
}

static void the_search_equals_enumeration(void **state)
{
    (void)state;
    struct world world = world_of("llama-2-7b");
    static const struct {
        long gpus, least, most, sequence;
        double gib;
    } cases[] = {
        {8, 64, 64, 4096, 64},
        {16, 60, 68, 2048, 24}, /* little memory: some offload */
        {12, 64, 72, 4096, 40}, /* no power of two */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err;
        struct erg_layout_results found, seen;
        struct all all = {0}, each = {0};
        struct erg_layout_search search = search_of(&world, cases[i].gpus, cases[i].sequence);
        search.batch_least = cases[i].least;
        search.batch_most = cases[i].most;
        search.kinds[0].memory_bytes = cases[i].gib * 0x1p30;
        search.equal_stages = true;
        search.microbatch_most = 64;
        try_all(&all, &search);
        assert_ok(erg_layout_search(&found, &search, &err), &err);
        assert_int_equal(found.count, all.count);
        for (size_t k = 0; k < found.count; k++) {
            assert_close(found.items[k].tokens_per_s, all.best[k].tokens_per_s, 1e-12);
            assert_true(found.items[k].peak_bytes <= search.kinds[0].memory_bytes * (1 + 1e-9));
            assert_close(found.items[k].peak_bytes, peak_of(&search, &found.items[k].layout),
                         1e-12);
            assert_ok(erg_layout_check(&found.items[k].layout, world.model, &err), &err);
            assert_int_equal(found.items[k].batch, all.best[k].batch);
        }
        assert_true(found.slower > 0);
        assert_int_equal(found.evaluated,
                         found.feasible + found.slower + found.memory + found.host_memory);
        /* Without the bound: the same, and all that fit. */
        search.each = offer_each;
        search.context = &each;
        assert_ok(erg_layout_search(&seen, &search, &err), &err);
        assert_int_equal(each.offered, all.offered);
        assert_int_equal(seen.feasible, all.offered);
        assert_int_equal(seen.slower, 0);
        for (size_t k = 0; k < seen.count; k++)
            assert_memory_equal(&seen.items[k].layout, &found.items[k].layout,
                                sizeof found.items[k].layout);
        erg_layout_results_release(&seen);
        erg_layout_results_release(&found);
    }
    world_release(&world);
}

/* ---- stages that differ ---- */

/* The fastest of all splits of a layout, chunk by chunk, its schedule followed. */
struct splits {
    const struct erg_layout_search *search;
    struct erg_layout layout;
    long chunks[12];
    double best_s;
    long fit, even; /* splits that fit; of them those whose chunks differ by at most one layer */
};

static void try_split(struct splits *splits)
{
    const struct erg_layout *layout = &splits->layout;
    struct erg_layout_candidate candidate;
    bool even = true;
    for (long i = 0; i < layout->pipeline * layout->virtual_stages; i++)
        for (long k = i; k >= 0; k -= layout->pipeline)
            even &= labs(splits->chunks[i] - splits->chunks[k]) <= 1;
    if (erg_layout_evaluate(&candidate, splits->search, layout, NULL, 0, NULL) != 0)
        return;
    splits->fit++;
    splits->even += even;
    splits->best_s = fmin(splits->best_s, candidate.time.total);
    erg_layout_candidate_release(&candidate);
}

static void try_splits(struct splits *splits, long at, long left)
{
    long count = splits->layout.pipeline * splits->layout.virtual_stages;
    if (at + 1 == count) {
        splits->chunks[at] = left;
        if (left > 0)
            try_split(splits);
        return;
    }
    for (splits->chunks[at] = 1; splits->chunks[at] <= left - (count - at - 1);
         splits->chunks[at]++)
        try_splits(splits, at + 1, left - splits->chunks[at]);
}

/* Of what a search with stages that may differ kept, those of one layout's degrees. */
static double fastest_found(const struct erg_layout_results *found, const struct erg_layout *layout)
{
    double best = INFINITY;
    for (size_t i = 0; i < found->count; i++) {
        const struct erg_layout *at = &found->items[i].layout;
        if (at->tensor == layout->tensor && at->context == layout->context &&
            at->pipeline == layout->pipeline && at->virtual_stages == layout->virtual_stages &&
            at->microbatch == layout->microbatch && at->recompute == layout->recompute)
            best = fmin(best, found->items[i].time.total);
    }
    return best;
}

/* Few microbatches: the first stage, all of whose forward passes come first, needs less than one
 * that has begun to go backward. */
static void the_stage_with_the_largest_need_counts(void **state)
{
    (void)state;
    struct world world = world_of("llama-2-7b");
    struct erg_layout_search search = search_of(&world, 4, 0);
    struct erg_rng rng;
    long fit = 0, few = 0;
    erg_rng_seed(&rng, 8);
    for (int i = 0; i < 6000; i++) {
        search.gpus = search.kinds[0].gpus = 3 + (long)erg_rng_below(&rng, 6);
        search.sequence = 4096 << erg_rng_below(&rng, 4);
        search.batch_least = search.batch_most = 1 + (long)erg_rng_below(&rng, 12);
        search.kinds[0].memory_bytes = 0x1p30 * (20 + 60 * erg_rng_uniform(&rng));
        search.equal_stages = erg_rng_below(&rng, 2) == 0;
        const struct erg_layout layout = {
            .tensor = 1,
            .context = 1,
            .pipeline = search.gpus,
            .virtual_stages = 1 + (long)erg_rng_below(&rng, 2),
            .microbatch = 1,
            .recompute = (enum erg_recompute)erg_rng_below(&rng, ERG_RECOMPUTES)};
        struct erg_layout_candidate found;
        if (erg_layout_evaluate(&found, &search, &layout, NULL, 0, NULL) != 0)
            continue;
        double peak = peak_of(&search, &found.layout);
        assert_close(found.peak_bytes, peak, 1e-12);
        assert_true(peak <= search.kinds[0].memory_bytes * (1 + 1e-9));
        fit++;
        few += found.layout.offload > 0 && found.layout.microbatches <= found.layout.pipeline;
        erg_layout_candidate_release(&found);
    }
    print_message("%ld fit, %ld of them with few microbatches and offloading\n", fit, few);
    assert_true(fit > 500 && few > 50);
    world_release(&world);
}

/* Models, machines and budgets of random sizes, in which sometimes all fits, sometimes hardly
 * anything, and sometimes some stages lie in one node and others do not: every layout's fastest
 * split is found. */
static void no_split_that_fits_is_faster(void **state)
{
    (void)state;
    struct world world = world_of("llama-2-7b");
    struct erg_rng rng;
    long compared = 0, offloads = 0, unequal = 0, none = 0, host = 0, nothing = 0, chunked = 0,
         tilted = 0;
    erg_rng_seed(&rng, 5);
    for (int i = 0; i < 120; i++) {
        static const long gpus[] = {2, 3, 4, 6, 8, 10, 12};
        struct erg_error err;
        struct erg_layout_results found;
        struct erg_layout_search search =
            search_of(&world, gpus[erg_rng_below(&rng, 7)], 4096 << erg_rng_below(&rng, 2));
        world.model->layers = 4 + (long)erg_rng_below(&rng, 8);
        world.model->vocab = 4000 * (1 + (long)erg_rng_below(&rng, 32));
        world.engine->offload_interference = 0.2 * erg_rng_uniform(&rng);
        world.engine->pipeline_exposed = 0;
        world.machine.node_gpus = 8;
        world.machine.network_bandwidth = 12.5e9;
        if (i % 2) { /* messages count */
            world.engine->pipeline_exposed = erg_rng_uniform(&rng);
            world.machine.node_gpus = 2 + 2 * (long)erg_rng_below(&rng, 2);
            world.machine.network_bandwidth = 1e9 * (0.5 + 4 * erg_rng_uniform(&rng));
        }
        search.group_most = 2;
        search.microbatch_most = 2;
        search.batch_least = search.batch_most =
            (i % 3 ? 24 : 4) * (1 + (long)erg_rng_below(&rng, 3));
        search.kinds[0].memory_bytes = 0x1p30 * (8 + 24 * erg_rng_uniform(&rng));
        search.kinds[0].host_bytes =
            erg_rng_below(&rng, 3) ? 0 : 0x1p30 * (2 + 60 * erg_rng_uniform(&rng));
        search.top = 5000;
        if (erg_layout_search(&found, &search, &err) != 0) {
            assert_int_equal(err.status, ERG_INFEASIBLE);
            found = (struct erg_layout_results){0};
        }
        assert_int_equal(erg_layout_any_fits(&search), found.count > 0);
        nothing += found.count == 0;
        for (size_t k = 0; k < found.count; k++) {
            offloads += found.items[k].layout.offload > 0 && found.items[k].layout.chunk_layers;
            unequal += found.items[k].layout.chunk_layers != NULL;
            if (found.items[k].layout.chunk_layers) /* is proven to be the fastest split */
                assert_near(found.items[k].bound_s, found.items[k].time.total, 0);
            assert_ok(erg_layout_check(&found.items[k].layout, world.model, &err), &err);
            assert_true(found.items[k].peak_bytes <= search.kinds[0].memory_bytes * (1 + 1e-9));
        }
        host += (long)found.host_memory;
        for (long t = 1; t <= 2; t++)
            for (long p = 2; p <= world.model->layers && t * p <= search.gpus; p++)
                for (long v = 1; v * p <= world.model->layers && v * p <= 12; v++)
                    for (int kind = 0; kind < 2 * ERG_RECOMPUTES; kind++) {
                        struct splits splits = {.search = &search, .best_s = INFINITY};
                        splits.layout =
                            (struct erg_layout){.tensor = t,
                                                .context = 1,
                                                .pipeline = p,
                                                .virtual_stages = v,
                                                .microbatch = 1 + kind % 2,
                                                .recompute = (enum erg_recompute)(kind / 2),
                                                .chunk_layers = splits.chunks};
                        if (search.gpus % (t * p) != 0)
                            continue;
                        try_splits(&splits, 0, world.model->layers);
                        double fastest = fastest_found(&found, &splits.layout);
                        if (splits.fit == 0) {
                            assert_true(fastest == INFINITY);
                            none++;
                            continue;
                        }
                        assert_close(fastest, splits.best_s, 1e-9);
                        compared++;
                        chunked += v > 1;
                        tilted += splits.even == 0;
                    }
        erg_layout_results_release(&found);
    }
    print_message(
        "%ld layouts, %ld with virtual stages, %ld only in chunks that differ by more than "
        "one layer: %ld of unequal stages, %ld of them offload; %ld too large, %ld for the "
        "host\n",
        compared, chunked, tilted, unequal, offloads, none, host);
    assert_true(tilted > 20 && compared > 500 && chunked > 500 && unequal > 500 && offloads > 20 &&
                none > 100 && host > 0 && nothing > 0);
    world_release(&world);
}

/* What `each` is called with, without their lists. */
struct offered {
    struct erg_layout_candidate *items;
    size_t count, capacity;
};

static void note_offered(void *context, const struct erg_layout_candidate *candidate)
{
    struct offered *offered = context;
    ERG_PUSH(offered, items, *candidate);
}

/* As a search tells layouts apart: equal chunks and others are two. */
static bool is_same(const struct erg_layout *a, const struct erg_layout *b)
{
    return a->tensor == b->tensor && a->context == b->context && a->pipeline == b->pipeline &&
           a->virtual_stages == b->virtual_stages && a->microbatch == b->microbatch &&
           a->recompute == b->recompute && !a->chunk_layers == !b->chunk_layers;
}

/* All that fit come once, those that are found as they are found. */
static void check_offered(const struct offered *offered, const struct erg_layout_results *found)
{
    assert_int_equal(offered->count, found->feasible);
    for (size_t i = 0; i < offered->count; i++)
        for (size_t k = 0; k < i; k++)
            assert_false(is_same(&offered->items[i].layout, &offered->items[k].layout));
    for (size_t i = 0; i < found->count; i++) {
        size_t k = 0;
        while (k < offered->count && !is_same(&offered->items[k].layout, &found->items[i].layout))
            k++;
        assert_true(k < offered->count);
        assert_close(offered->items[k].tokens_per_s, found->items[i].tokens_per_s, 1e-12);
    }
}

/* With chunks that differ, layers are moved until that is no faster: the same whichever way a
 * layout is asked for. */
static void all_ways_to_ask_say_the_same(void **state)
{
    (void)state;
    struct world world = world_of("llama-3.3-70b");
    struct erg_error err;
    struct erg_layout_results found, fewer, seen;
    struct erg_layout_search search = search_of(&world, 96, 8192);
    struct offered offered = {0};
    size_t uneven = 0;
    search.batch_least = search.batch_most = 24;
    search.top = 10;
    assert_ok(erg_layout_search(&found, &search, &err), &err);
    for (size_t i = 0; i < found.count; i++) {
        struct erg_layout_candidate alone;
        struct erg_layout layout = found.items[i].layout;
        layout.chunk_layers = NULL;
        assert_ok(erg_layout_evaluate(&alone, &search, &layout, NULL, 0, &err), &err);
        assert_close(alone.tokens_per_s, found.items[i].tokens_per_s, 1e-9);
        assert_true(i == 0 || found.items[i].tokens_per_s <= found.items[i - 1].tokens_per_s);
        uneven += found.items[i].layout.virtual_stages > 1 && found.items[i].chunk_layers;
        erg_layout_candidate_release(&alone);
    }
    assert_true(uneven > 5);
    search.top = 1;
    assert_ok(erg_layout_search(&fewer, &search, &err), &err);
    assert_close(fewer.items[0].tokens_per_s, found.items[0].tokens_per_s, 1e-12);
    search.top = 10;
    search.each = note_offered;
    search.context = &offered;
    assert_ok(erg_layout_search(&seen, &search, &err), &err);
    assert_close(seen.items[0].tokens_per_s, found.items[0].tokens_per_s, 1e-12);
    check_offered(&offered, &seen);
    free(offered.items);
    erg_layout_results_release(&found);
    erg_layout_results_release(&fewer);
    erg_layout_results_release(&seen);
    world_release(&world);
}

/* Stages that cannot be equal: 96 layers on 5 x 128 GPUs, with and without chunks. */
static void stages_may_differ(void **state)
{
    (void)state;
    struct world world = world_of("gpt3-175b");
    struct erg_error err;
    struct erg_layout_results found;
    struct erg_layout_search search = search_of(&world, 640, 2048);
    search.batch_least = search.batch_most = 640;
    search.top = 150;
    assert_ok(erg_layout_search(&found, &search, &err), &err);
    size_t unequal = 0, interleaved = 0;
    for (size_t i = 0; i < found.count; i++) {
        const struct erg_layout *layout = &found.items[i].layout;
        assert_ok(erg_layout_check(layout, world.model, &err), &err);
        if (!layout->chunk_layers)
            continue;
        unequal++;
        interleaved += layout->virtual_stages > 1;
        struct erg_layout_candidate again;
        assert_ok(erg_layout_evaluate(&again, &search, layout, NULL, 0, &err), &err);
        assert_close(again.tokens_per_s, found.items[i].tokens_per_s, 1e-12);
        erg_layout_candidate_release(&again);
    }
    assert_true(unequal > 20 && interleaved > 20);
    erg_layout_results_release(&found);
    world_release(&world);
}

/* ---- against what was published ---- */

/* The published space: whole chunks of 1, 2, 4 or 8 layers, at least 3 stages, no full
 * recomputation. */
static bool was_tried(const struct erg_layout *layout, long layers)
{
    long chunk = layers / (layout->pipeline * layout->virtual_stages);
    return layout->pipeline >= 3 && (chunk == 1 || chunk == 2 || chunk == 4 || chunk == 8);
}

static void published_layouts_are_among_the_best(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_fit_rows rows;
    assert_ok(erg_fit_rows_load(&rows, rows_path, &err), &err);
    int first = 0, third = 0;
    double furthest = 0, worst_offload = 0;
    struct world world = world_of("llama-65b");
    for (size_t i = 0; i < rows.count; i++) {
        const struct erg_fit_row *row = &rows.items[i];
        const struct erg_layout *wanted = &row->layout;
        struct erg_layout_results found;
        struct erg_layout_search search =
            search_of(&world, erg_layout_gpus(wanted), wanted->sequence);
        search.model = row->model;
        search.batch_least = 240;
        search.batch_most = 272;
        search.recomputes = 1 << ERG_RECOMPUTE_NONE | 1 << ERG_RECOMPUTE_BALANCED;
        search.equal_stages = true;
        search.microbatch_most = 1;
        search.memory_slack = ERG_MEMORY_ERROR;
        search.top = 150;
        assert_ok(erg_layout_search(&found, &search, &err), &err);
        int place = 0;
        double best = 0;
        bool met = false;
        for (size_t k = 0; k < found.count && !met; k++) {
            const struct erg_layout_candidate *at = &found.items[k];
            if (!was_tried(&at->layout, row->model->layers))
                continue;
            place++;
            best = place == 1 ? at->tokens_per_s : best;
            if (at->layout.tensor != wanted->tensor || at->layout.context != wanted->context ||
                at->layout.pipeline != wanted->pipeline ||
                at->layout.virtual_stages != wanted->virtual_stages ||
                at->layout.recompute != wanted->recompute)
                continue;
            met = true;
            assert_int_equal(at->batch, row->batch); /* the rule of the batch */
            worst_offload = fmax(worst_offload, fabs(at->layout.offload - wanted->offload));
            furthest = fmax(furthest, best / at->tokens_per_s - 1);
            first += place == 1;
            third += place <= 3;
        }
        if (!met)
            fail_msg("row %zu: the published layout is none that fits", i);
        erg_layout_results_release(&found);
    }
    print_message("published layout: best in %d of %zu, among the best 3 in %d; at most %.2f %% "
                  "from our best; offload at most %.3f off\n",
                  first, rows.count, third, 100 * furthest, worst_offload);
    assert_true(third >= 21); /* the share that 30 of all 41 published rows are */
    assert_true(furthest <= 0.015);
    assert_true(worst_offload <= 0.02);
    world_release(&world);
    erg_fit_rows_release(&rows);
}

/* ---- why not ---- */

static void rejected_layouts_say_why(void **state)
{
    (void)state;
    struct world world = world_of("llama-65b");
    struct erg_layout_search search = search_of(&world, 64, 4096);
    struct erg_layout_candidate candidate;
    struct erg_error err;
    static const struct {
        struct erg_layout layout;
        const char *message;
    } cases[] = {
        {{.tensor = 8, .context = 2, .pipeline = 4, .virtual_stages = 1, .microbatch = 1},
         "tensor 8 x context 2 are 16 GPUs, more than the 8 of a node"},
        {{.tensor = 2, .context = 1, .pipeline = 5, .virtual_stages = 1, .microbatch = 1},
         "tensor 2 x context 1 x pipeline 5 are 10 GPUs, and 64 is not a multiple"},
        {{.tensor = 2, .context = 1, .pipeline = 4, .virtual_stages = 1, .microbatch = 3},
         "a batch of 64 sequences is not a multiple of data 8 x microbatch 3"},
        {{.tensor = 2, .context = 1, .pipeline = 4, .virtual_stages = 32, .microbatch = 1},
         "has 80 layers, too few for 4 stages of 32 chunks"},
        {{.tensor = 1, .context = 1, .pipeline = 4, .virtual_stages = 1, .microbatch = 1},
         "GiB more than the 64.0 GiB of a GPU with any offloading"},
        {{.tensor = 8, .context = 1, .pipeline = 1, .virtual_stages = 1, .microbatch = 1},
         "GiB more than the 64.0 GiB of a GPU"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(erg_layout_evaluate(&candidate, &search, &cases[i].layout, NULL, 0, &err),
                     &err, cases[i].message);
        assert_int_equal(err.status, ERG_INFEASIBLE);
    }
    const struct erg_layout offloads = {.tensor = 4,
                                        .context = 1,
                                        .pipeline = 8,
                                        .virtual_stages = 1,
                                        .microbatch = 2,
                                        .recompute = ERG_RECOMPUTE_NONE};
    search.batch_least = search.batch_most = 256;
    assert_ok(erg_layout_evaluate(&candidate, &search, &offloads, NULL, 0, &err), &err);
    assert_true(candidate.layout.offload > 0.05 && candidate.layout.offload < 1);
    assert_close(candidate.peak_bytes, search.kinds[0].memory_bytes,
                 1e-6); /* no more than needed */
    erg_layout_candidate_release(&candidate);
    search.kinds[0].host_bytes = 0x1p30;
    assert_fails(erg_layout_evaluate(&candidate, &search, &offloads, NULL, 0, &err), &err,
                 "to a node's host memory than its 1.0 GiB");
    /* 80 layers in 12 chunks: the fastest split, unless stages must be equal. */
    const struct erg_layout uneven = {
        .tensor = 2, .context = 1, .pipeline = 4, .virtual_stages = 3, .microbatch = 1};
    search.kinds[0].memory_bytes = 0x1p37;
    assert_ok(erg_layout_evaluate(&candidate, &search, &uneven, NULL, 0, &err), &err);
    long level[12];
    for (int i = 0; i < 12; i++)
        level[i] = 6 + (i > 3);
    struct erg_layout said = uneven;
    struct erg_layout_candidate other;
    said.chunk_layers = level;
    assert_ok(erg_layout_evaluate(&other, &search, &said, NULL, 0, &err), &err);
    assert_true(candidate.time.total <= other.time.total);
    erg_layout_candidate_release(&other);
    erg_layout_candidate_release(&candidate);
    search.equal_stages = true;
    assert_fails(erg_layout_evaluate(&candidate, &search, &uneven, NULL, 0, &err), &err,
                 "cannot be divided among 4 stages of 3 chunks");
    world_release(&world);
}

static void searches_without_an_answer_say_why(void **state)
{
    (void)state;
    struct world world = world_of("gpt3-175b");
    struct erg_error err;
    struct erg_layout_results found;
    struct erg_layout_search search = search_of(&world, 8, 2048);
    assert_fails(erg_layout_search(&found, &search, &err), &err,
                 "no layout of gpt3-175b on 8 GPUs fits into 64.0 GiB; nearest is tensor");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    search.gpus = search.kinds[0].gpus = 1024;
    search.batch_least = search.batch_most = 1;
    assert_fails(erg_layout_search(&found, &search, &err), &err,
                 "spreads a batch of 1 sequences over 1024 GPUs");
    search.batch_least = 2;
    assert_fails(erg_layout_search(&found, &search, &err), &err, "got 2 to 1");
    search.sequence = 4096;
    search.batch_most = 2;
    assert_fails(erg_layout_search(&found, &search, &err), &err, "longer than the 2048 positions");
    world_release(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_search_equals_enumeration),
        cmocka_unit_test(the_stage_with_the_largest_need_counts),
        cmocka_unit_test(no_split_that_fits_is_faster),
        cmocka_unit_test(all_ways_to_ask_say_the_same),
        cmocka_unit_test(stages_may_differ),
        cmocka_unit_test(published_layouts_are_among_the_best),
        cmocka_unit_test(rejected_layouts_say_why),
        cmocka_unit_test(searches_without_an_answer_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
