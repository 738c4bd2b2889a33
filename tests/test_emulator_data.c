/* The emulated GPU against measurements: partitions on H200. */
#include "catalogue.h"
#include "check.h"

#include "device/emulated/emulated.h"
#include "io/csv.h"

/* Joins and host cost nothing: the H200 constants were fitted that way. */
static const struct erg_stack plain_stack = {0};

/* The partition of tests/data/h200_mlp_partition_tp4.csv: an MLP of 16,384 tokens under TP4, with
 * the AllReduce of another nanobatch; one row per launch slot and number of CTAs. */
static const struct erg_op mlp[] = {
    {ERG_OP_MEMORY, 1, 0, 201326592, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 412316860416, 260046848, 3072, 2048, {0}, 0, 0, 0},
    {ERG_OP_MEMORY, 1, 0, 268435456, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 206158430208, 180355072, 2048, 1536, {0}, 0, 0, 0},
};

struct partition_row {
    struct erg_step step;
    bool overlap;
    double time_s, energy_j, model_time_s, model_energy_j;
};

static struct erg_step step_of_row(const char *mode, const char *launch_at, int ctas)
{
    static const char *const names[] = {"norm", "linear1", "activation", "linear2"};
    struct erg_step step = {
        .task = {mlp, 4, {.kind = ERG_COMM_ALLREDUCE, .wire_bytes = 150994944, .group = 4}},
        .launch = {4, ctas}}; /* 4: sequential */
    if (strcmp(mode, "compute_only") == 0)
        step.task.comm.wire_bytes = 0;
    if (strcmp(mode, "comm_only") == 0)
        step.task.op_count = step.launch.slot = 0;
    for (size_t i = 0; i < 4; i++)
        if (strcmp(launch_at, names[i]) == 0)
            step.launch.slot = i;
    return step;
}

static size_t read_partition(struct partition_row rows[64])
{
    struct erg_error err;
    struct erg_csv *csv;
    assert_ok(
        erg_csv_load(&csv, ERGON_TEST_SOURCE_DIR "/tests/data/h200_mlp_partition_tp4.csv", &err),
        &err);
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = plain_stack;
    size_t count = erg_csv_rows(csv);
    assert_in_range(count, 1, 64);
    for (size_t i = 0; i < count; i++) {
        struct partition_row *row = &rows[i];
        const char *mode = erg_csv_text(csv, i, 0);
        row->overlap = strcmp(mode, "compute_only") != 0 && strcmp(mode, "comm_only") != 0;
        row->step = step_of_row(mode, erg_csv_text(csv, i, 1), atoi(erg_csv_text(csv, i, 2)));
        double time_ms, energy_all_j;
        assert_ok(erg_csv_double(csv, i, 3, &time_ms, &err), &err);
        assert_ok(erg_csv_double(csv, i, 4, &energy_all_j, &err), &err);
        row->time_s = time_ms * 1e-3;
        row->energy_j = energy_all_j / 4;
        struct erg_emulated_result result;
        assert_ok(erg_emulated_run(&gpu, &stack, &row->step, 1, 1980, &result, &err), &err);
        row->model_time_s = result.time_s;
        row->model_energy_j = result.energy_j;
    }
    erg_csv_free(csv);
    return count;
}

static void h200_partitions_within_two_percent(void **state)
{
    (void)state;
    struct partition_row rows[64];
    size_t count = read_partition(rows);
    double time_error = 0, energy_error = 0;
    for (size_t i = 0; i < count; i++) {
        time_error += fabs(rows[i].model_time_s / rows[i].time_s - 1) / (double)count;
        energy_error += fabs(rows[i].model_energy_j / rows[i].energy_j - 1) / (double)count;
    }
    print_message("H200 partitions: mean error %.2f %% time, %.2f %% energy\n", 100 * time_error,
                  100 * energy_error);
    assert_true(time_error <= 0.016);
    assert_true(energy_error <= 0.017);
}

static double rank_correlation(const double *a, const double *b, size_t count)
{
    double distance = 0, n = (double)count;
    for (size_t i = 0; i < count; i++) {
        double rank_a = 0, rank_b = 0;
        for (size_t j = 0; j < count; j++) {
            rank_a += a[j] < a[i];
            rank_b += b[j] < b[i];
        }
        distance += (rank_a - rank_b) * (rank_a - rank_b);
    }
    return 1 - 6 * distance / (n * (n * n - 1));
}

static void h200_choices_of_the_model_are_good_ones(void **state)
{
    (void)state;
    struct partition_row rows[64];
    size_t count = read_partition(rows), n = 0;
    double time_s[64], energy_j[64], model_time_s[64], model_energy_j[64];
    size_t fastest = 0, cheapest = 0;
    for (size_t i = 0; i < count; i++) {
        if (!rows[i].overlap)
            continue;
        time_s[n] = rows[i].time_s;
        energy_j[n] = rows[i].energy_j;
        model_time_s[n] = rows[i].model_time_s;
        model_energy_j[n] = rows[i].model_energy_j;
        fastest = model_time_s[n] < model_time_s[fastest] ? n : fastest;
        cheapest = model_energy_j[n] < model_energy_j[cheapest] ? n : cheapest;
        n++;
    }
    for (size_t i = 0; i < n; i++) { /* the measured regret of the model's choice */
        assert_true(time_s[fastest] <= 1.06 * time_s[i]);
        assert_true(energy_j[cheapest] <= 1.06 * energy_j[i]);
    }
    double in_time = rank_correlation(time_s, model_time_s, n);
    double in_energy = rank_correlation(energy_j, model_energy_j, n);
    print_message("H200 partitions: rank correlation %.3f time, %.3f energy\n", in_time, in_energy);
    assert_true(in_time >= 0.8 && in_energy >= 0.8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h200_partitions_within_two_percent),
        cmocka_unit_test(h200_choices_of_the_model_are_good_ones),
    };
    return cmocka_run_group_tests(tests, NULL, catalogue_release);
}
