/* Grids: the published formula and rules on cases small enough to work out by hand. */
#include "check.h"
#include "io/csv.h"
#include "layout/grid/grid.h"

static void test_iteration_of_two_stages(void **state)
{
    (void)state;
    const struct erg_stage_time stages[] = {
        {.forward_s = 1,
         .forward_intra_s = 0.5,
         .backward_s = 3,
         .backward_intra_s = 1,
         .forward_send_s = 0.25,
         .gradient_sync_s = 2,
         .apply_s = 0.1,
         .apply_intra_s = 0.3},
        {.forward_s = 2,
         .backward_s = 3.5,
         .backward_send_s = 0.125,
         .gradient_sync_s = 1,
         .apply_s = 2e5},
    };
    struct erg_iteration_time time;
    /* F = 1.5, 2; W = 4, 3.5; forward sends 0.25, 0; backward sends 0, 0.125; B = 4:
     * 3 x 2 + 3.5 + 3 x 4 + 7.5 + 3 x 0.25 + 0.25 + 3 x 0.125 + 0.125 + (2 + 1) + 0.4, since the
     * second stage's update is a profile that failed. */
    erg_grid_time(stages, 2, 4, &time);
    assert_near(time.inter_s, 1 + 0.5, 1e-12);
    /* Computation: the slowest forward is stage 1 (all computation), the slowest backward stage 0
     * (3 of 4): 3 x 2 + 3, 3 x 3 + 6.5, 0.1. */
    assert_near(time.compute_s, 9 + 15.5 + 0.1, 1e-12);
    assert_near(time.intra_s, 0.5 + (3 * 1 + 1) + 3 + 0.3, 1e-12);
    assert_near(time.total_s, 6 + 3.5 + 12 + 7.5 + 1 + 0.5 + 3 + 0.4, 1e-12);
}

/*
 * The published estimates give the parts of an iteration summed over its stages. Spread evenly over
 * equal stages again, the formula must give their totals.
 */
static void test_published_totals(void **state)
{
    (void)state;
    const char *path = shared_data("arena/prof_estimate.csv");
    skip_without(path, "arena/prof_estimate.csv");
    static const char *const headers[] = {"pp", "comp_time_s", "intra_stage_comm_s",
                                          "inter_stage_comm_s", "e2e_iter_time_s"};
    struct erg_csv *csv;
    struct erg_error err;
    size_t columns[5], checked = 0;
    assert_ok(erg_csv_load(&csv, path, &err), &err);
    for (int i = 0; i < 5; i++)
        assert_ok(erg_csv_require(csv, headers[i], &columns[i], &err), &err);
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        double values[5];
        bool finite = true;
        for (int i = 0; i < 5 && finite; i++)
            finite = erg_csv_double(csv, row, columns[i], &values[i], NULL) == 0;
        if (!finite || values[4] < 0)
            continue; /* did not fit, or failed */
        struct erg_stage_time stages[ERG_GRID_MAX_STAGES] = {0};
        size_t count = (size_t)values[0];
        double times = (double)(ERG_GRID_MICROBATCHES - 1 + count);
        for (size_t i = 0; i < count; i++)
            stages[i] = (struct erg_stage_time){
                .forward_s = values[1] / 3 / times,
                .backward_s = values[1] * 2 / 3 / times,
                .forward_intra_s = values[2] / 2 / times,
                .gradient_sync_s = values[2] / 2 / (double)count,
                .forward_send_s = values[3] / 2 / times,
                .backward_send_s = values[3] / 2 / times,
            };
        struct erg_iteration_time time;
        erg_grid_time(stages, count, ERG_GRID_MICROBATCHES, &time);
        assert_close(time.total_s, values[4], 1e-12);
        assert_close(time.compute_s, values[1], 1e-12);
        assert_near(time.intra_s, values[2], 1e-12 * values[4]);
        checked++;
    }
    assert_int_equal(checked, 2054);
    erg_csv_free(csv);
}

static void test_groups_of_gpus(void **state)
{
    (void)state;
    /* Nodes of 4: GPUs 2..5 lie on two nodes, 0 4 8 12 on four, 0 2 on one. */
    assert_int_equal(erg_comm_group_of(2, 1, 4, 4).nodes, 2);
    assert_int_equal(erg_comm_group_of(0, 4, 4, 4).nodes, 4);
    assert_int_equal(erg_comm_group_of(0, 2, 2, 4).nodes, 1);
    assert_int_equal(erg_comm_group_of(0, 2, 2, 4).size, 2);
}

/* 2^18 elements are 2^20 bytes: a ring of n sends (n - 1) / n of them, an AllReduce twice that. */
static void test_links(void **state)
{
    (void)state;
    const struct erg_allocation allocation = {"H200-SXM-measured-long", 2, 4, false};
    const struct erg_grid_links links = {200e9, 25e9, 1e-5};
    static const struct {
        enum erg_grid_collective op;
        struct erg_comm_group group;
        double bytes, rate;
    } expected[] = {
        {ERG_ALL_REDUCE, {4, 1}, 2 * 0.75 * 0x1p20, 200e9},
        {ERG_ALL_REDUCE, {8, 2}, 2 * 0.875 * 0x1p20, 4 * 25e9},
        {ERG_ALL_TO_ALL, {2, 2}, 0.5 * 0x1p20, 25e9},
        {ERG_SEND, {2, 1}, 0x1p20, 200e9},
        {ERG_SEND, {2, 2}, 0x1p20, 25e9},
    };
    const struct erg_grid_network network = erg_grid_network_of(&links);
    struct erg_error err;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        double seconds = 0;
        assert_ok(network.time(network.context, &allocation, expected[i].op, expected[i].group,
                               0x1p18, &seconds, &err),
                  &err);
        assert_close(seconds, 1e-5 + expected[i].bytes / expected[i].rate, 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_of_gpus),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_iteration_of_two_stages),
        cmocka_unit_test(test_published_totals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
