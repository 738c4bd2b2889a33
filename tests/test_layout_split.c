/* Layers of stages: no split is faster than the one that is found. */
#include "check.h"

#include "base/random.h"
#include "layout/time/split.h"

#include <stdbool.h>

enum { MOST_STAGES = 6 };

/* Seconds of a split, from the definition; INFINITY where a stage may not have so many. */
static double time_of(const struct erg_split_group *stages, const long *layers, size_t count,
                      const struct erg_split *split)
{
    double pace = 0, sum = 0, once = 0;
    for (size_t i = 0; i < count; i++) {
        double n = (double)layers[i], x = stages[i].layer_s * n + stages[i].fixed_s;
        if (layers[i] < stages[i].least || layers[i] > stages[i].most)
            return INFINITY;
        pace = fmax(pace, x);
        sum += x;
        once = fmax(once, stages[i].layer_once_s * n + stages[i].fixed_once_s);
    }
    return split->pace_weight * pace + split->sum_weight * sum + once;
}

/* The fastest of all ways to give `left` layers to the stages from `at` on. */
static double try_all(const struct erg_split_group *stages, long *layers, size_t at, size_t count,
                      long left, const struct erg_split *split)
{
    double best = INFINITY;
    if (at + 1 == count) {
        layers[at] = left;
        return time_of(stages, layers, count, split);
    }
    for (layers[at] = 0; layers[at] <= left; layers[at]++)
        best = fmin(best, try_all(stages, layers, at + 1, count, left - layers[at], split));
    return best;
}

/* Groups of random stages; layers in whole and half milliseconds, so that there are ties. */
static struct erg_split random_split(struct erg_split_group *groups, struct erg_rng *rng)
{
    struct erg_split split = {.groups = groups,
                              .pace_weight = erg_rng_uniform(rng) * 8,
                              .sum_weight = erg_rng_uniform(rng)};
    size_t stages = 0;
    split.layers = 2 + (long)erg_rng_below(rng, 11);
    bool alike = erg_rng_below(rng, 2) == 0;
    while (stages < MOST_STAGES && (split.count == 0 || erg_rng_below(rng, 4) > 0)) {
        struct erg_split_group *group = &groups[split.count++];
        size_t most = MOST_STAGES - stages < 3 ? MOST_STAGES - stages : 3;
        *group = (struct erg_split_group){
            .count = 1 + (long)erg_rng_below(rng, most),
            .layer_s = 1e-3 * (double)(1 + erg_rng_below(rng, 4)),
            .fixed_s = 5e-4 * (double)erg_rng_below(rng, 8),
            .layer_once_s = 1e-3 * (double)erg_rng_below(rng, 5),
            .fixed_once_s = 1e-2 * (double)erg_rng_below(rng, 3),
            .least = (long)erg_rng_below(rng, 3),
            .most = (long)erg_rng_below(rng, 9),
        };
        if (alike)
            group->layer_s = 2e-3;
        stages += (size_t)group->count;
    }
    return split;
}

static void no_split_is_faster(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 11);
    int possible = 0, none = 0;
    for (int i = 0; i < 4000; i++) {
        struct erg_split_group groups[MOST_STAGES], stages[MOST_STAGES];
        struct erg_split split = random_split(groups, &rng), single = split;
        long layers[MOST_STAGES];
        single.groups = stages;
        single.count = 0;
        for (size_t k = 0; k < split.count; k++)
            for (long j = 0; j < groups[k].count; j++) {
                stages[single.count] = groups[k];
                stages[single.count++].count = 1;
            }
        double best = try_all(stages, layers, 0, single.count, split.layers, &split);
        double found = erg_split_solve(&split, INFINITY);
        if (best == INFINITY) {
            none++;
            assert_true(found == INFINITY);
            continue;
        }
        possible++;
        assert_close(found, best, 1e-12);
        assert_close(erg_split_solve(&single, INFINITY), best, 1e-12);
        erg_split_layers(layers, &single);
        long sum = 0;
        for (size_t k = 0; k < single.count; k++)
            sum += layers[k];
        assert_int_equal(sum, split.layers);
        assert_close(time_of(stages, layers, single.count, &split), best, 1e-12);
        /* A limit: what is slower need not be exact, but is slower. */
        double limited = erg_split_solve(&split, best * 0.9);
        assert_true(limited > best * 0.9 && limited <= best * (1 + 1e-12));
        assert_close(erg_split_solve(&split, best * 1.01), best, 1e-12);
    }
    assert_true(possible > 1000 && none > 500);
}

static void the_stage_with_one_layer_less(void **state)
{
    (void)state;
    /* The head takes as long as a layer and a half. */
    struct erg_split_group stages[4];
    struct erg_split split = {.groups = stages, .count = 4, .layers = 14, .pace_weight = 7};
    long layers[4];
    for (int i = 0; i < 4; i++)
        stages[i] = (struct erg_split_group){.count = 1, .layer_s = 1, .least = 1, .most = 14};
    stages[3].fixed_s = 1.5;
    assert_close(erg_split_solve(&split, INFINITY), 7 * 4, 1e-12);
    erg_split_layers(layers, &split);
    const long expected[] = {4, 4, 4, 2};
    assert_memory_equal(layers, expected, sizeof layers);
    /* One layer less: the first stage, where most microbatches wait, has it. */
    split.layers = 13;
    assert_close(erg_split_solve(&split, INFINITY), 7 * 4, 1e-12);
    erg_split_layers(layers, &split);
    const long fewer[] = {3, 4, 4, 2};
    assert_memory_equal(layers, fewer, sizeof layers);
    /* The last two of GPUs twice as fast, and what runs once does not matter. */
    stages[2].layer_s = stages[3].layer_s = 0.5;
    stages[3].fixed_s = 0;
    split.layers = 18;
    split.sum_weight = 0.1;
    assert_close(erg_split_solve(&split, INFINITY), 7 * 3 + 0.1 * 12, 1e-12);
    erg_split_layers(layers, &split);
    const long faster[] = {3, 3, 6, 6};
    assert_memory_equal(layers, faster, sizeof layers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_split_is_faster),
        cmocka_unit_test(the_stage_with_one_layer_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
