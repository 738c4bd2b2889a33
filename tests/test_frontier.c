/* The frontier algebra: exact on small cases, and its laws on random ones. */
#include "check.h"

#include "base/random.h"
#include "ergon/frontier.h"

static void fill_random(struct erg_frontier *frontier, struct erg_rng *rng, size_t count)
{
    erg_frontier_clear(frontier);
    for (size_t i = 0; i < count; i++) /* a coarse grid, so that ties happen */
        erg_frontier_add(frontier, (double)(1 + erg_rng_below(rng, 40)),
                         (double)(1 + erg_rng_below(rng, 40)), (int64_t)i);
}

static int dominated(const struct erg_frontier *all, const struct erg_point *point)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct erg_point *other = &all->points[i];
        if (other->time_s <= point->time_s && other->energy_j <= point->energy_j &&
            (other->time_s < point->time_s || other->energy_j < point->energy_j))
            return 1;
    }
    return 0;
}

static void assert_same_shape(const struct erg_frontier *a, const struct erg_frontier *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_near(a->points[i].time_s, b->points[i].time_s, 0);
        assert_near(a->points[i].energy_j, b->points[i].energy_j, 0);
    }
}

static void filter_keeps_exactly_the_undominated(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    struct erg_frontier all = {0}, front = {0};
    for (int round = 0; round < 200; round++) {
        fill_random(&all, &rng, 1 + erg_rng_below(&rng, 60));
        erg_frontier_copy(&front, &all);
        erg_frontier_filter(&front);
        for (size_t i = 0; i < front.count; i++) {
            assert_false(dominated(&all, &front.points[i]));
            if (i) {
                assert_true(front.points[i].time_s > front.points[i - 1].time_s);
                assert_true(front.points[i].energy_j < front.points[i - 1].energy_j);
            }
        }
        for (size_t i = 0; i < all.count; i++) { /* nothing undominated is missing */
            size_t found = dominated(&all, &all.points[i]);
            for (size_t j = 0; j < front.count; j++)
                found += front.points[j].time_s == all.points[i].time_s &&
                         front.points[j].energy_j == all.points[i].energy_j;
            assert_true(found > 0);
        }
    }
    erg_frontier_release(&all);
    erg_frontier_release(&front);
}

static void sum_is_brute_force_commutative_and_associative(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 2);
    struct erg_frontier a = {0}, b = {0}, c = {0}, ab = {0}, ba = {0}, ab_c = {0}, bc = {0},
                        a_bc = {0}, brute = {0};
    for (int round = 0; round < 100; round++) {
        fill_random(&a, &rng, 12);
        fill_random(&b, &rng, 9);
        fill_random(&c, &rng, 7);
        erg_frontier_filter(&a);
        erg_frontier_filter(&b);
        erg_frontier_filter(&c);
        erg_frontier_sum(&ab, &a, &b);
        erg_frontier_sum(&ba, &b, &a);
        assert_same_shape(&ab, &ba);
        erg_frontier_sum(&ab_c, &ab, &c);
        erg_frontier_sum(&bc, &b, &c);
        erg_frontier_sum(&a_bc, &a, &bc);
        assert_same_shape(&ab_c, &a_bc);
        erg_frontier_clear(&brute);
        for (size_t i = 0; i < a.count; i++)
            for (size_t j = 0; j < b.count; j++)
                for (size_t k = 0; k < c.count; k++)
                    erg_frontier_add(
                        &brute, a.points[i].time_s + b.points[j].time_s + c.points[k].time_s,
                        a.points[i].energy_j + b.points[j].energy_j + c.points[k].energy_j, 0);
        erg_frontier_filter(&brute);
        assert_same_shape(&ab_c, &brute);
        for (size_t i = 0; i < ab.count; i++) { /* a recipe leads back to its two operands */
            size_t ia = (size_t)ab.points[i].recipe / b.count;
            size_t ib = (size_t)ab.points[i].recipe % b.count;
            assert_near(ab.points[i].time_s, a.points[ia].time_s + b.points[ib].time_s, 0);
            assert_near(ab.points[i].energy_j, a.points[ia].energy_j + b.points[ib].energy_j, 0);
        }
    }
    struct erg_frontier empty = {0};
    erg_frontier_sum(&ab, &a, &empty);
    assert_int_equal(ab.count, 0);
    struct erg_frontier *all[] = {&a, &b, &c, &ab, &ba, &ab_c, &bc, &a_bc, &brute};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        erg_frontier_release(all[i]);
}

static void large_sum_equals_brute_force_across_buffer_flushes(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 5);
    struct erg_frontier a = {0}, b = {0}, sum = {0}, brute = {0};
    double energy = 1000;
    for (int i = 0; i < 300; i++) {
        energy -= erg_rng_uniform(&rng);
        erg_frontier_add(&a, i + 1, energy, i);
        erg_frontier_add(&b, 1.7 * i + 1, energy + erg_rng_uniform(&rng), i);
    }
    erg_frontier_filter(&a);
    erg_frontier_filter(&b);
    for (size_t i = 0; i < a.count; i++)
        for (size_t j = 0; j < b.count; j++)
            erg_frontier_add(&brute, a.points[i].time_s + b.points[j].time_s,
                             a.points[i].energy_j + b.points[j].energy_j,
                             (int64_t)(i * b.count + j));
    erg_frontier_filter(&brute);
    erg_frontier_sum(&sum, &a, &b);
    assert_same_shape(&sum, &brute);
    struct erg_frontier *all[] = {&a, &b, &sum, &brute};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        erg_frontier_release(all[i]);
}

static void union_keeps_the_undominated_of_both(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 5);
    struct erg_frontier a = {0}, b = {0}, both = {0};
    for (int round = 0; round < 100; round++) {
        fill_random(&a, &rng, 1 + erg_rng_below(&rng, 30));
        fill_random(&b, &rng, 1 + erg_rng_below(&rng, 30));
        erg_frontier_copy(&both, &a);
        for (size_t i = 0; i < b.count; i++)
            erg_frontier_add(&both, b.points[i].time_s, b.points[i].energy_j, 100 + (int64_t)i);
        erg_frontier_filter(&both);
        struct erg_frontier first = {0};
        erg_frontier_copy(&first, &a);
        erg_frontier_union(&first, &b, 100);
        assert_same_shape(&first, &both);
        for (size_t i = 0; i < first.count; i++) { /* recipes still find the operand's point */
            int64_t recipe = first.points[i].recipe;
            const struct erg_point *from =
                recipe < 100 ? &a.points[recipe] : &b.points[recipe - 100];
            assert_near(first.points[i].time_s, from->time_s, 0);
            assert_near(first.points[i].energy_j, from->energy_j, 0);
        }
        erg_frontier_release(&first);
    }
    erg_frontier_release(&a);
    erg_frontier_release(&b);
    erg_frontier_release(&both);
}

static void hull_is_convex_and_below_every_point(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 3);
    struct erg_frontier all = {0}, hull = {0};
    for (int round = 0; round < 100; round++) {
        fill_random(&all, &rng, 50);
        erg_frontier_filter(&all);
        erg_frontier_copy(&hull, &all);
        erg_frontier_hull(&hull);
        for (size_t i = 2; i < hull.count; i++) {
            const struct erg_point *p = &hull.points[i - 2];
            double before = (p[0].energy_j - p[1].energy_j) / (p[1].time_s - p[0].time_s);
            double after = (p[1].energy_j - p[2].energy_j) / (p[2].time_s - p[1].time_s);
            assert_true(before > after);
        }
        for (size_t i = 0; i < all.count; i++)
            for (size_t j = 1; j < hull.count; j++) {
                const struct erg_point *p = &hull.points[j - 1], *q = &all.points[i];
                if (q->time_s < p[0].time_s || q->time_s > p[1].time_s)
                    continue;
                double share = (q->time_s - p[0].time_s) / (p[1].time_s - p[0].time_s);
                double line = p[0].energy_j + share * (p[1].energy_j - p[0].energy_j);
                assert_true(q->energy_j >= line - 1e-12 * line);
            }
    }
    erg_frontier_release(&all);
    erg_frontier_release(&hull);
}

static void hypervolume_equals_cell_count(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 4);
    struct erg_frontier all = {0};
    for (int round = 0; round < 50; round++) {
        fill_random(&all, &rng, 20);
        int cells = 0; /* unit cells of the grid that some point dominates, reference (35, 30) */
        for (int t = 0; t < 35; t++)
            for (int e = 0; e < 30; e++) {
                int covered = 0;
                for (size_t i = 0; i < all.count; i++)
                    covered |= all.points[i].time_s <= t && all.points[i].energy_j <= e;
                cells += covered;
            }
        assert_near(erg_frontier_hypervolume(&all, 35, 30), cells, 1e-9);
    }
    erg_frontier_release(&all);
}

static void picks(void **state)
{
    (void)state;
    struct erg_frontier f = {0};
    assert_int_equal(erg_frontier_pick_deadline(&f, 10), -1);
    assert_int_equal(erg_frontier_pick_budget(&f, 10), -1);
    assert_int_equal(erg_frontier_pick_knee(&f), -1);
    erg_frontier_add(&f, 1, 10, 0);
    erg_frontier_add(&f, 2, 4, 1);
    erg_frontier_add(&f, 5, 3, 2);
    erg_frontier_filter(&f);
    assert_int_equal(erg_frontier_pick_deadline(&f, 0.5), -1);
    assert_int_equal(erg_frontier_pick_deadline(&f, 1), 0);
    assert_int_equal(erg_frontier_pick_deadline(&f, 4.99), 1);
    assert_int_equal(erg_frontier_pick_deadline(&f, 99), 2);
    assert_int_equal(erg_frontier_pick_budget(&f, 2.9), -1);
    assert_int_equal(erg_frontier_pick_budget(&f, 3), 2);
    assert_int_equal(erg_frontier_pick_budget(&f, 9), 1);
    assert_int_equal(erg_frontier_pick_budget(&f, 10), 0);
    assert_int_equal(erg_frontier_pick_knee(&f), 1);
    erg_frontier_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_keeps_exactly_the_undominated),
        cmocka_unit_test(sum_is_brute_force_commutative_and_associative),
        cmocka_unit_test(large_sum_equals_brute_force_across_buffer_flushes),
        cmocka_unit_test(union_keeps_the_undominated_of_both),
        cmocka_unit_test(hull_is_convex_and_below_every_point),
        cmocka_unit_test(hypervolume_equals_cell_count),
        cmocka_unit_test(picks),
    };
    return cmocka_run_group_tests_name("frontier", tests, NULL, NULL);
}
