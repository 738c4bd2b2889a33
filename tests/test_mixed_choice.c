/* Layouts over GPUs of several kinds over clocks: energy, which are planned, and on how many GPUs.
 */
#include "energy_of_layout.h"
#include "mixed_world.h"

#include "base/memory.h"
#include "base/random.h"
#include "layout/energy/candidate.h"
#include "layout/energy/choice_internal.h"
#include "layout/energy/mixed_rows.h"
#include "layout/search/layout_search_internal.h"

/* ---- energy ---- */

static struct erg_layout_choice_request request_of(const struct erg_layout_search *search,
                                                   const struct erg_goal *query)
{
    return (struct erg_layout_choice_request){.searches = search,
                                              .search_count = 1,
                                              .query = *query,
                                              .most = 24,
                                              .more = 24,
                                              .tolerance = 0.003};
}

static int choose(struct erg_layout_choice *choice, const struct erg_layout_search *search,
                  const struct erg_goal *query, struct erg_error *err)
{
    const struct erg_layout_choice_request asked = request_of(search, query);
    return erg_layout_choose(choice, &asked, err);
}

static double sum_of(const struct erg_layout_energy *energy)
{
    double sum = 0;
    for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++)
        sum += energy->items[i];
    return sum;
}

/* Stages of the same GPUs twice, under two names, need what they need under one; of two kinds each
 * stage draws its own power, and a frontier begins at the closed form's time. */
static void every_stage_draws_its_own_power(void **state)
{
    (void)state;
    struct world world = world_of("llama-65b");
    struct erg_layout_search search = search_of(&world, 2);
    struct erg_layout_results found;
    struct erg_layout_choice choice;
    struct erg_error err;
    search.kinds[0].gpus = search.kinds[1].gpus = 32;
    search.batch_least = search.batch_most = 32;
    search.only = (struct erg_layout_degrees){.tensor = 8, .context = 1, .microbatch = 1};
    search.top = 40;
    assert_ok(erg_layout_search(&found, &search, &err), &err);
    size_t both = 0;
    for (size_t i = 0; i < found.count; i++) {
        struct erg_layout_energy energy, hungrier;
        struct erg_gpu hungry = *world.gpus[1];
        const struct erg_layout_candidate *one = &found.items[i];
        erg_layout_candidate_energy(&energy, &search, one);
        assert_close(energy.time_s, one->time.total, 1e-9);
        assert_close(energy.total_j, sum_of(&energy), 1e-12);
        hungry.static_power_w += 100;
        search.kinds[1].gpu = &hungry;
        erg_layout_candidate_energy(&hungrier, &search, one);
        search.kinds[1].gpu = world.gpus[1];
        bool used = one->blocks[0].kind == 1 || one->block_count > 1;
        assert_true(used == (hungrier.total_j > energy.total_j));
        both += one->block_count > 1;
    }
    assert_true(both > 10);
    const struct erg_goal fastest = {0};
    assert_ok(choose(&choice, &search, &fastest, &err), &err);
    assert_true(choice.count > 0 && choice.pick_count == choice.count);
    for (size_t i = 0; i < choice.count; i++) {
        const struct erg_layout_planned *planned = &choice.layouts[i];
        const struct erg_frontier *frontier = &planned->frontier.frontier;
        struct erg_layout_energy energy;
        erg_layout_candidate_energy(&energy, &search, &planned->candidate);
        /* As fast as at the highest clock, with no more energy; more of it saves energy. */
        double closed_s = planned->candidate.time.total;
        /* Of few microbatches on unlike stages the schedule takes a little longer. */
        assert_true(frontier->points[0].time_s >= closed_s * (1 - 1e-9));
        assert_true(frontier->points[0].time_s <= closed_s * 1.001);
        assert_true(frontier->points[0].energy_j <= energy.total_j * 1.01);
        assert_true(frontier->points[frontier->count - 1].energy_j < 0.9 * energy.total_j);
    }
    const struct erg_goal late = {.objective = ERG_LEAST_ENERGY,
                                  .deadline_s = 1.2 * choice.picks[0].time_s};
    const struct erg_goal early = {.deadline_s = 0.5 * choice.picks[0].time_s};
    double fastest_j = choice.picks[0].energy_j;
    erg_layout_choice_release(&choice);
    assert_ok(choose(&choice, &search, &late, &err), &err);
    assert_true(choice.picks[0].time_s <= late.deadline_s * (1 + 1e-9));
    assert_true(choice.picks[0].energy_j < 0.95 * fastest_j);
    erg_layout_choice_release(&choice);
    assert_fails(choose(&choice, &search, &early, &err), &err, "a deadline");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    erg_layout_choice_release(&choice);
    erg_layout_results_release(&found);
    /* One kind: the same as without places. */
    const struct erg_time_request time = {world.model, world.engines[0], &world.kinds[0].machine};
    const struct erg_layout_energy_request request = {.time = time, .gpu = world.gpus[0]};
    struct erg_layout_energy alone, mixed;
    search.kind_count = 1;
    search.top = 1;
    assert_ok(erg_layout_search(&found, &search, &err), &err);
    erg_layout_candidate_energy(&mixed, &search, &found.items[0]);
    energy_of_layout(&alone, &request, &found.items[0].layout, 0, 0);
    for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++)
        assert_close(mixed.items[i], alone.items[i], 1e-12);
    erg_layout_results_release(&found);
    world_release(&world);
}

/* Every layout that a search passes on, as it does. */
struct passed {
    struct erg_layout_candidate *items;
    size_t count, capacity;
};

static void take(void *context, const struct erg_layout_candidate *candidate)
{
    struct passed *passed = context;
    struct erg_layout_candidate own = *candidate;
    erg_layout_own_lists(&own);
    ERG_PUSH(passed, items, own);
}

/* The best of a query when every layout is planned for itself; INFINITY: none is within it. */
static double best_of_each(const struct erg_layout_search *search, const struct passed *all,
                           const struct erg_goal *query)
{
    const struct erg_layout_choice_request asked = request_of(search, query);
    double best = INFINITY;
    for (size_t i = 0; i < all->count; i++) {
        struct erg_layout_candidate one = all->items[i];
        struct erg_layout_choice choice;
        erg_layout_own_lists(&one);
        if (erg_layout_choose_point(&choice, &asked, &one, NULL) == 0)
            best = fmin(best, erg_layout_pick_value(&choice.picks[0], query->objective));
        erg_layout_choice_release(&choice);
    }
    return best;
}

/* Few are planned, and none of all others is better: also with an exact number of GPUs, and with
 * stages that each do what is best for them. */
static void planned_layouts_are_the_best(void **state)
{
    (void)state;
    struct world world = world_of("llama-65b");
    struct erg_layout_search search = search_of(&world, 2);
    size_t compared = 0, planned = 0;
    world.model->layers = 8;
    search.batch_least = search.batch_most = 8;
    search.recomputes = 1u << ERG_RECOMPUTE_NONE | 1u << ERG_RECOMPUTE_FULL;
    search.only = (struct erg_layout_degrees){.tensor = 4, .context = 1, .microbatch = 1};
    for (int round = 0; round < 3; round++) {
        struct erg_layout_results found;
        struct passed all = {0};
        struct erg_error err;
        search.gpus = round == 1 ? 12 : 0;
        search.per_stage = round == 2;
        search.top = 1;
        search.each = take;
        search.context = &all;
        assert_ok(erg_layout_search(&found, &search, &err), &err);
        search.each = NULL;
        const struct erg_layout_candidate *first = &found.items[0];
        const double fastest_s = first->time.total;
        struct erg_layout_energy fastest;
        erg_layout_candidate_energy(&fastest, &search, first);
        const struct erg_goal queries[] = {
            {.objective = ERG_LEAST_ENERGY, .deadline_s = 1.1 * fastest_s},
            {.power_w = 0.7 * fastest.total_j / fastest_s},
            {.objective = ERG_LEAST_ENERGY},
            {.energy_j = 0.8 * fastest.total_j},
        };
        for (size_t i = 0; i < (round == 1 ? 4 : 1); i++) {
            struct erg_layout_choice choice;
            assert_ok(choose(&choice, &search, &queries[i], &err), &err);
            double best = best_of_each(&search, &all, &queries[i]);
            double got = erg_layout_pick_value(&choice.picks[0], queries[i].objective);
            if (!(got <= best * 1.004 && choice.gap <= 0.003))
                fail_msg("query %zu: %zu of %zu planned, %.8g with a gap of %g, the best of all "
                         "%.8g",
                         i, choice.count, all.count, got, choice.gap, best);
            compared += all.count;
            planned += choice.count;
            erg_layout_choice_release(&choice);
        }
        for (size_t i = 0; i < all.count; i++)
            erg_layout_candidate_release(&all.items[i]);
        free(all.items);
        erg_layout_results_release(&found);
    }
    print_message("%zu layouts, of which %zu were planned\n", compared, planned);
    assert_true(compared > 100 && planned < compared / 4);
    world_release(&world);
}

/* ---- rows of blocks ---- */

/* The bound of one layout alone. */
static void bound_one(struct erg_layout_bound *bound, const struct erg_layout_search *search,
                      const struct erg_layout_candidate *one)
{
    struct erg_layout_frontier_request on = {.clocks = ERG_LAYOUT_CHOICE_CLOCKS};
    struct erg_clocked_layout clocked;
    void *held = erg_layout_locate(&on, search, one);
    erg_clocked_layout_init(&clocked, &on);
    erg_layout_bound_init(bound, &clocked, true);
    erg_clocked_layout_release(&clocked);
    free(held);
}

/* What is said of all layouts on some numbers of stages is no more than what is said of each. */
static void rows_are_below_their_layouts(void **state)
{
    (void)state;
    struct world world = world_of("llama-2-7b");
    struct erg_rng rng;
    long compared = 0;
    double nearest = INFINITY, sum = 0;
    erg_rng_seed(&rng, 3);
    for (int round = 0; round < 24; round++) {
        struct erg_layout_search search = search_of(&world, 2 + erg_rng_below(&rng, 2));
        struct erg_layout_results found;
        struct erg_mixed_rows rows;
        struct erg_error err;
        world.model->layers = 4 + (long)erg_rng_below(&rng, 6);
        for (size_t k = 0; k < search.kind_count; k++) {
            search.kinds[k].gpus = 1 + (long)erg_rng_below(&rng, 4);
            search.kinds[k].memory_bytes = 0x1p30 * (6 + 60 * erg_rng_uniform(&rng));
            world.engines[k]->peak_flops = 1e14 * (1 + 9 * erg_rng_uniform(&rng));
            world.engines[k]->host_link_bandwidth = 1e9 * (4 + 60 * erg_rng_uniform(&rng));
        }
        search.per_stage = round % 3 == 0;
        search.microbatch_most = 2;
        search.batch_least = search.batch_most = 8 << 2 * erg_rng_below(&rng, 3);
        search.top = 300;
        if (erg_layout_search(&found, &search, &err) != 0)
            continue;
        erg_mixed_rows_init(&rows, &search);
        for (size_t i = 0; i < found.count; i++) {
            const struct erg_layout_candidate *one = &found.items[i];
            struct erg_layout_bound row, own;
            bound_one(&own, &search, one);
            erg_mixed_rows_bound(&row, &rows, &one->layout, one->blocks, one->block_count,
                                 search.per_stage ? search.recomputes
                                                  : 1u << one->layout.recompute);
            assert_true(row.points[0].time_s <= own.points[0].time_s);
            for (size_t k = 0; k < own.count; k++) {
                const double time_s = own.points[k].time_s;
                const double share = erg_layout_bound_energy(&row, time_s) / own.points[k].energy_j;
                assert_true(share <= 1);
                nearest = fmin(nearest, 1 - share);
            }
            const struct erg_goal least = {.objective = ERG_LEAST_ENERGY};
            sum +=
                erg_layout_bound_objective(&row, &least) / erg_layout_bound_objective(&own, &least);
            compared++;
            erg_layout_bound_release(&row);
            erg_layout_bound_release(&own);
        }
        erg_layout_results_release(&found);
    }
    print_message("%ld layouts: the least energy of their rows is %.1f %% below theirs on average, "
                  "anywhere at least %.1f %%\n",
                  compared, 100 * (1 - sum / (double)compared), 100 * nearest);
    assert_true(compared > 1000);
    assert_true(sum / (double)compared > 0.7);
    world_release(&world);
}

/* ---- how many GPUs of each kind ---- */

/* Every number on every set of kinds: those on one kind alone are what a search on it finds. */
static void numbers_of_each_kind(void **state)
{
    (void)state;
    struct world world = world_of("llama-2-7b");
    struct erg_layout_search searches[24];
    size_t count = 0;
    struct erg_error err;
    world.model->layers = 8;
    for (long gpus = 4; gpus <= 12; gpus += 4)
        for (unsigned used = 1; used < 4; used++) {
            searches[count] = search_of(&world, 2);
            searches[count].batch_least = searches[count].batch_most = 24;
            searches[count].microbatch_most = 2;
            searches[count].gpus = gpus;
            searches[count].used = used;
            searches[count++].top = 1;
        }
    const struct erg_goal query = {.objective = ERG_LEAST_ENERGY};
    struct erg_layout_choice_request asked = request_of(searches, &query);
    struct erg_layout_count counts[24];
    struct erg_layout_choice choice;
    asked.search_count = count;
    asked.whole_union = true;
    assert_ok(erg_layout_choose(&choice, &asked, &err), &err);
    assert_ok(erg_layout_counts_init(counts, &asked, &choice, &err), &err);
    long alone = 0, both = 0, on_frontier = 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_layout_candidate *fastest = &counts[i].fastest;
        const unsigned used = searches[i].used;
        if (!counts[i].fits)
            continue;
        on_frontier += counts[i].on_frontier;
        assert_int_equal(erg_layout_gpus(&fastest->layout), searches[i].gpus);
        assert_int_equal(erg_layout_gpus_of(fastest, 0) + erg_layout_gpus_of(fastest, 1),
                         searches[i].gpus);
        for (size_t k = 0; k < 2; k++)
            assert_true((erg_layout_gpus_of(fastest, k) > 0) == (used >> k & 1));
        if (used == 3) {
            both++;
            continue;
        }
        struct erg_layout_search same = searches[i];
        same.kinds[0] = world.kinds[used == 2];
        same.kind_count = 1;
        same.used = 0;
        struct erg_layout_results own;
        assert_ok(erg_layout_search(&own, &same, &err), &err);
        assert_close(fastest->time.total, own.items[0].time.total, 1e-12);
        erg_layout_results_release(&own);
        alone++;
    }
    assert_true(alone >= 4 && both >= 2 && on_frontier > 0);
    erg_layout_counts_release(counts, count);
    erg_layout_choice_release(&choice);
    world_release(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_draws_its_own_power),
        cmocka_unit_test(planned_layouts_are_the_best),
        cmocka_unit_test(rows_are_below_their_layouts),
        cmocka_unit_test(numbers_of_each_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
