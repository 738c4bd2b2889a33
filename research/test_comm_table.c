/* The look-up in measured communication tables: rules on a small table worked out by hand, and
 * agreement with the published tables at and between all their samples. */
#include "check.h"
#include "comm_table.h"
#include "io/csv.h"

#define HEADER                                                                                     \
    "gpu_type,num_nodes,gpus_per_node,infiniband,op,group_size,hosts_crossed,num_groups,elements," \
    "dtype,time_s\n"

static struct comm_tables *load_text(const char *text)
{
    char path[] = "/tmp/ergon-comm-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    struct comm_tables *tables;
    struct erg_error err;
    assert_ok(comm_tables_load(&tables, path, &err), &err);
    unlink(path);
    return tables;
}

static void test_interpolates_and_extrapolates(void **state)
{
    (void)state;
    const double small_sizes[] = {1, 4, 16}, small_times[] = {1, 2, 5};
    const struct comm_curve small = {small_sizes, small_times, 3};
    assert_near(comm_time(&small, 0), 1, 0);
    assert_near(comm_time(&small, 1), 1, 0);
    assert_near(comm_time(&small, 2), 1 + 1.0 / 3, 1e-15);
    assert_near(comm_time(&small, 4), 2, 0);
    assert_near(comm_time(&small, 10), 3.5, 1e-15);
    assert_near(comm_time(&small, 16), 5, 0);
    /* 42 = 2 x 16 + 10: 2 x 5 + 3.5. 32 = 2 x 16 + 0, and nothing costs what the first size does.
     */
    assert_near(comm_time(&small, 42), 13.5, 1e-14);
    assert_near(comm_time(&small, 32), 11, 1e-14);
    /* From 2^27 elements on: 2.5 x 2^27 is 2 transfers and half of one, all of it times 1.1^2. */
    const double large_sizes[] = {0x1p26, 0x1p27}, large_times[] = {0.25, 0.5};
    const struct comm_curve large = {large_sizes, large_times, 2};
    assert_near(comm_time(&large, 2.5 * 0x1p27), 1.21 * (2 * 0.5 + 0.25), 1e-14);
}

static void test_missing_measurements(void **state)
{
    (void)state;
    struct comm_tables *tables = load_text(HEADER "x,2,4,0,all-reduce,4,2,2,8,float32,3\n"
                                                  "x,2,4,0,all-reduce,4,1,2,8,float32,2\n"
                                                  "x,2,1,0,send,2,2,1,8,float32,9\n"
                                                  "x,1,2,0,send,2,1,1,8,float32,7\n"
                                                  "x,1,2,0,send,2,1,1,8,float32,6\n"
                                                  "y,1,2,0,all-reduce,2,1,1,8,float32,1\n"
                                                  "y,1,2,1,all-reduce,2,1,1,8,float32,4\n");
    struct comm_curve curve;
    struct erg_error err;
    /* 2 x 2: nodes of 2 were not measured, but nodes of 4, of which a group may use 2. */
    struct erg_allocation x22 = {"x", 2, 2, false}, y = {"y", 1, 2, true};
    assert_ok(
        comm_tables_find(tables, &x22, ERG_ALL_REDUCE, (struct erg_comm_group){4, 2}, &curve, &err),
        &err);
    assert_near(curve.time_s[0], 3, 0);
    /* Sends have tables of their own, and a second run of a curve replaces the first. */
    assert_ok(comm_tables_find(tables, &x22, ERG_SEND, (struct erg_comm_group){2, 2}, &curve, &err),
              &err);
    assert_near(curve.time_s[0], 9, 0);
    assert_ok(comm_tables_find(tables, &x22, ERG_SEND, (struct erg_comm_group){2, 1}, &curve, &err),
              &err);
    assert_near(curve.time_s[0], 6, 0);
    /* A network that a type was not measured on is the one that it was measured on. */
    x22.infiniband = true;
    assert_ok(
        comm_tables_find(tables, &x22, ERG_ALL_REDUCE, (struct erg_comm_group){4, 2}, &curve, &err),
        &err);
    assert_ok(
        comm_tables_find(tables, &y, ERG_ALL_REDUCE, (struct erg_comm_group){2, 1}, &curve, &err),
        &err);
    assert_near(curve.time_s[0], 4, 0);
    y.infiniband = false;
    assert_ok(
        comm_tables_find(tables, &y, ERG_ALL_REDUCE, (struct erg_comm_group){2, 1}, &curve, &err),
        &err);
    assert_near(curve.time_s[0], 1, 0);
    assert_fails(
        comm_tables_find(tables, &y, ERG_ALL_TO_ALL, (struct erg_comm_group){2, 1}, &curve, &err),
        &err, "no all-to-all of 2 GPUs across 1 nodes was measured in 1 x 2 y");
    comm_tables_free(tables);
}

static void test_refuses_files_that_are_no_tables(void **state)
{
    (void)state;
    char path[] = "/tmp/ergon-comm-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    static const char text[] = HEADER "x,1,2,0,gossip,2,1,1,8,float32,7\n";
    assert_int_equal(write(file, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(file);
    struct comm_tables *tables;
    struct erg_error err;
    assert_fails(comm_tables_load(&tables, path, &err), &err, "got 'gossip'");
    unlink(path);
}

/* One curve of the file, as the file has it. */
struct run {
    struct erg_allocation allocation;
    enum erg_grid_collective op;
    struct erg_comm_group group;
    double elements, time_s;
};

static struct run read_run(const struct erg_csv *csv, size_t row)
{
    static const char *const headers[] = {"num_nodes",  "gpus_per_node", "infiniband",
                                          "group_size", "hosts_crossed", "elements"};
    long values[6];
    struct run run;
    size_t column;
    struct erg_error err;
    for (int i = 0; i < 6; i++)
        assert_ok(erg_csv_require(csv, headers[i], &column, &err) ||
                      erg_csv_long(csv, row, column, &values[i], &err),
                  &err);
    assert_ok(erg_csv_require(csv, "time_s", &column, &err) ||
                  erg_csv_double(csv, row, column, &run.time_s, &err),
              &err);
    assert_ok(erg_csv_require(csv, "gpu_type", &column, &err), &err);
    run.allocation = (struct erg_allocation){erg_csv_text(csv, row, column), values[0], values[1],
                                             values[2] != 0};
    assert_ok(erg_csv_require(csv, "op", &column, &err), &err);
    for (run.op = 0; strcmp(comm_collective_name(run.op), erg_csv_text(csv, row, column)) != 0;)
        run.op++;
    run.group = (struct erg_comm_group){values[3], values[4]};
    run.elements = (double)values[5];
    return run;
}

/* At every sample what the table says, and halfway to the next one the mean of both. */
static void test_published_tables(void **state)
{
    (void)state;
    const char *path = shared_data("arena/comm_data.csv");
    skip_without(path, "arena/comm_data.csv");
    struct comm_tables *tables;
    struct erg_csv *csv;
    struct erg_error err;
    assert_ok(comm_tables_load(&tables, path, &err), &err);
    assert_ok(erg_csv_load(&csv, path, &err), &err);
    size_t rows = erg_csv_rows(csv), exact = 0, replaced = 0, between = 0;
    assert_int_equal(rows, 52422);
    struct run next = read_run(csv, 0);
    for (size_t row = 0; row < rows; row++) {
        struct run run = next;
        if (row + 1 < rows)
            next = read_run(csv, row + 1);
        /* Sends in groups of more than two are no point-to-point transfer that anyone asks for. */
        if (run.op == ERG_SEND && run.allocation.nodes * run.allocation.gpus_per_node > 2)
            continue;
        struct comm_curve curve;
        assert_ok(comm_tables_find(tables, &run.allocation, run.op, run.group, &curve, &err), &err);
        double found = comm_time(&curve, run.elements);
        if (found != run.time_s) {
            replaced++; /* the earlier of two runs */
            assert_true(run.op == ERG_SEND);
            continue;
        }
        exact++;
        if (row + 1 < rows && next.elements > run.elements) {
            double middle = comm_time(&curve, (run.elements + next.elements) / 2);
            assert_close(middle, (run.time_s + next.time_s) / 2, 1e-12);
            between++;
        }
    }
    assert_int_equal(replaced, 2 * 275); /* one run each of A100 and V100 */
    assert_int_equal(exact, 48297);
    assert_int_equal(between, 48035);
    erg_csv_free(csv);
    comm_tables_free(tables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interpolates_and_extrapolates),
        cmocka_unit_test(test_missing_measurements),
        cmocka_unit_test(test_refuses_files_that_are_no_tables),
        cmocka_unit_test(test_published_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
