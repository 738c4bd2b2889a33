/* io/store and io/trace: measurements that survive, files of others that stay untouched. */
#include "check.h"
#include "folder.h"

#include "base/thread.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/json.h"
#include "io/trace.h"
#include "json_file.h"
#include "stored.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct erg_store_row row_number(int i)
{
    return (struct erg_store_row){
        .key = {.device = "emulated A100-SXM4-40GB x8",
                .signature = "5c3f",
                .clock_mhz = 900 + 15 * i,
                .slot = i % 4,
                .sms = 3,
                .kind = ERG_STORE_FULL,
                .repeat = 0},
        .work_name = "fwd_attn, TP8",
        .slot_name = "norm_0",
        .value = {.time_s = 0.001 * (i + 1),
                  .energy_j = 0.5 + i,
                  .time_sd = 0.001,
                  .energy_sd = 0.004,
                  .clock_mhz = 900 + 15 * i,
                  .temperature_start_c = 31.5,
                  .temperature_end_c = 44,
                  .window_s = 5,
                  .reasons = 4},
    };
}

static struct erg_store *open_store(const char *name)
{
    struct erg_error err;
    struct erg_store *store;
    assert_ok(erg_store_open(&store, in_folder(name), &err), &err);
    return store;
}

static void first_measurement_of_a_key_stays(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_store *store = open_store("first.db");
    struct erg_store_row row = row_number(1);
    struct erg_measurement value;
    bool inserted, found;
    assert_ok(erg_store_get(store, &row.key, &value, &found, &err), &err);
    assert_false(found);
    assert_ok(erg_store_put(store, &row, &inserted, &err), &err);
    assert_true(inserted);
    row.value.time_s = 9;
    assert_ok(erg_store_put(store, &row, &inserted, &err), &err);
    assert_false(inserted);
    row.key.kind = ERG_STORE_TIME_ONLY;
    row.value.energy_j = NAN;
    assert_ok(erg_store_put(store, &row, NULL, &err), &err);
    erg_store_close(store);

    store = open_store("first.db");
    row = row_number(1);
    assert_ok(erg_store_get(store, &row.key, &value, &found, &err), &err);
    assert_true(found);
    assert_memory_equal(&value.time_s, &row.value.time_s, sizeof(double));
    assert_near(value.energy_j, 1.5, 0);
    assert_near(value.temperature_start_c, 31.5, 0);
    assert_near(value.window_s, 5, 0);
    assert_int_equal(value.reasons, 4);
    row.key.kind = ERG_STORE_TIME_ONLY;
    assert_ok(erg_store_get(store, &row.key, &value, &found, &err), &err);
    assert_true(found && isnan(value.energy_j) && value.time_s == 9);
    row.key.repeat = 1;
    assert_ok(erg_store_get(store, &row.key, &value, &found, &err), &err);
    assert_false(found);
    row.key.device = "another device";
    assert_ok(erg_store_get(store, &row.key, &value, &found, &err), &err);
    assert_false(found);
    assert_int_equal(count_rows(store), 2);
    row.value.time_s = NAN;
    assert_fails(erg_store_put(store, &row, NULL, &err), &err, "expected a positive time, got nan");
    erg_store_close(store);
}

static void impossible_rows_are_refused_by_name(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_store *store = open_store("changed.db");
    for (int i = 0; i < 3; i++) {
        struct erg_store_row row = row_number(i);
        struct erg_measurement value;
        bool found;
        double *changed[] = {&row.value.energy_j, &row.value.energy_j, &row.value.time_sd};
        *changed[i] = i ? -5 : NAN;
        assert_ok(erg_store_put(store, &row, NULL, &err), &err);
        assert_fails(erg_store_get(store, &row.key, &value, &found, &err), &err, "changed.db': ");
    }
    erg_store_close(store);
}

static int stop_at_third(void *context, const struct erg_store_row *row, struct erg_error *err)
{
    int *seen = context;
    assert_near(row->value.time_s, 0.001 * (*seen + 1), 1e-12);
    return ++*seen == 3 ? erg_fail(err, ERG_FAILED, "enough") : 0;
}

static void rows_come_in_order_and_export(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_store *store = open_store("order.db");
    for (int i = 0; i < 5; i++) {
        struct erg_store_row row = row_number(i);
        row.value.energy_sd = NAN;
        assert_ok(erg_store_put(store, &row, NULL, &err), &err);
    }
    int seen = 0;
    assert_fails(erg_store_each(store, stop_at_third, &seen, &err), &err, "enough");
    assert_int_equal(seen, 3);
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("order.csv"));
    assert_ok(erg_store_export_csv(store, path, &err), &err);
    erg_store_close(store);
    struct erg_csv *csv;
    size_t time, error;
    double value;
    assert_ok(erg_csv_load(&csv, path, &err), &err);
    assert_int_equal(erg_csv_rows(csv), 5);
    assert_ok(erg_csv_require(csv, "time_s", &time, &err), &err);
    assert_ok(erg_csv_require(csv, "energy_error", &error, &err), &err);
    assert_ok(erg_csv_double(csv, 4, time, &value, &err), &err);
    assert_near(value, 0.005, 0);
    assert_string_equal(erg_csv_text(csv, 4, error), "");
    assert_string_equal(erg_csv_text(csv, 0, 2), "fwd_attn, TP8");
    erg_csv_free(csv);
}

static int put_many(void *context, size_t thread, struct erg_error *err)
{
    struct erg_store *store = context;
    for (int i = 0; i < 40; i++) { /* threads 0 and 1 put the same rows, 2 and 3 others */
        struct erg_store_row row = row_number(i);
        row.key.repeat = (int64_t)(thread / 2);
        struct erg_measurement value;
        bool found;
        if (erg_store_put(store, &row, NULL, err) ||
            erg_store_get(store, &row.key, &value, &found, err))
            return -1;
        if (!found || value.time_s != row.value.time_s)
            return erg_fail(err, ERG_FAILED, "row %d of thread %zu is not there", i, thread);
    }
    return 0;
}

static void threads_share_a_store(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_store *store = open_store("threads.db");
    assert_ok(erg_parallel_for(4, 4, put_many, store, &err), &err);
    assert_int_equal(count_rows(store), 80);
    erg_store_close(store);
}

static void processes_share_a_store(void **state)
{
    (void)state;
    enum { PROCESSES = 4 };
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct erg_error err;
            struct erg_store *store;
            int failed = erg_store_open(&store, in_folder("processes.db"), &err) ||
                         put_many(store, (size_t)i, &err);
            if (failed)
                fprintf(stderr, "%s\n", err.message);
            _exit(failed);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        waitpid(children[i], &status, 0);
        assert_int_equal(status, 0);
    }
    struct erg_store *store = open_store("processes.db");
    assert_int_equal(count_rows(store), 80);
    erg_store_close(store);
}

static void killed_run_loses_no_finished_put(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct erg_error err;
        struct erg_store *store;
        if (erg_store_open(&store, in_folder("killed.db"), &err) != 0)
            _exit(1);
        for (int i = 0;; i++) {
            struct erg_store_row row = row_number(i);
            if (erg_store_put(store, &row, NULL, &err) != 0 || write(ends[1], "x", 1) != 1)
                _exit(1);
        }
    }
    close(ends[1]);
    char byte;
    size_t acknowledged = 0;
    while (acknowledged < 25 && read(ends[0], &byte, 1) == 1)
        acknowledged++;
    kill(child, SIGKILL);
    while (read(ends[0], &byte, 1) == 1)
        acknowledged++;
    close(ends[0]);
    waitpid(child, NULL, 0);
    assert_true(acknowledged >= 25);
    struct erg_store *store = open_store("killed.db");
    assert_true(count_rows(store) >= acknowledged);
    erg_store_close(store);
}

static void foreign_and_broken_files_are_refused(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_store *store;
    char path[256];

    snprintf(path, sizeof path, "%s", in_folder("foreign.db"));
    sqlite3 *foreign;
    assert_int_equal(sqlite3_open(path, &foreign), SQLITE_OK);
    assert_int_equal(sqlite3_exec(foreign, "CREATE TABLE bookmarks (url)", NULL, NULL, NULL), 0);
    sqlite3_close(foreign);
    char *before, *after;
    size_t size, size_after;
    assert_ok(erg_file_read(path, 0, &before, &size, &err), &err);
    assert_fails(erg_store_open(&store, path, &err), &err, "a database of another program");
    assert_ok(erg_file_read(path, 0, &after, &size_after, &err), &err);
    assert_int_equal(size, size_after);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);

    snprintf(path, sizeof path, "%s", in_folder("text.db"));
    assert_ok(erg_file_write(path, "stage,time\n0,1\n", 15, &err), &err);
    assert_fails(erg_store_open(&store, path, &err), &err, "damaged or no store at all");

    store = open_store("cut.db");
    for (int i = 0; i < 60; i++) {
        struct erg_store_row row = row_number(i);
        assert_ok(erg_store_put(store, &row, NULL, &err), &err);
    }
    erg_store_close(store);
    snprintf(path, sizeof path, "%s", in_folder("cut.db"));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size / 2), 0);
    assert_fails(erg_store_open(&store, path, &err), &err, "damaged");
    assert_int_equal(truncate(path, 50), 0);
    assert_fails(erg_store_open(&store, path, &err), &err, "damaged or no store at all");

    store = open_store("overwritten.db");
    for (int i = 0; i < 60; i++) {
        struct erg_store_row row = row_number(i);
        assert_ok(erg_store_put(store, &row, NULL, &err), &err);
    }
    erg_store_close(store);
    snprintf(path, sizeof path, "%s", in_folder("overwritten.db"));
    char noise[6000];
    memset(noise, 0xa5, sizeof noise);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 9000, SEEK_SET), 0);
    assert_int_equal(fwrite(noise, 1, sizeof noise, file), sizeof noise);
    assert_int_equal(fclose(file), 0);
    assert_fails(erg_store_open(&store, path, &err), &err, "damaged");
    assert_null(strchr(err.message, '\n'));

    /* Ergon's marks on tables of others, whose rows may lack what is relied on. */
    snprintf(path, sizeof path, "%s", in_folder("marked.db"));
    assert_int_equal(sqlite3_open(path, &foreign), SQLITE_OK);
    assert_int_equal(sqlite3_exec(foreign,
                                  "PRAGMA application_id = 0x6572676e; PRAGMA user_version = 1;"
                                  "CREATE TABLE measurement (id INTEGER PRIMARY KEY, device,"
                                  " signature, clock_mhz, slot, sms, kind, repeat, work_name,"
                                  " slot_name, time_s, energy_j, time_error, energy_error,"
                                  " clock_effective_mhz, temperature_begin_c, temperature_end_c,"
                                  " window_s, reasons, created_utc, UNIQUE (device, signature,"
                                  " clock_mhz, slot, sms, kind, repeat));"
                                  "INSERT INTO measurement (time_s) VALUES (1)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(foreign);
    assert_fails(erg_store_open(&store, path, &err), &err,
                 "its tables are not those that ergon makes");

    store = open_store("newer.db");
    erg_store_close(store);
    snprintf(path, sizeof path, "%s", in_folder("newer.db"));
    assert_int_equal(sqlite3_open(path, &foreign), SQLITE_OK);
    assert_int_equal(sqlite3_exec(foreign, "PRAGMA user_version = 7", NULL, NULL, NULL), 0);
    sqlite3_close(foreign);
    assert_fails(erg_store_open(&store, path, &err), &err,
                 "it has format 7, but this version of ergon reads format 1");

    assert_fails(erg_store_open(&store, in_folder("no/such.db"), &err), &err,
                 "unable to open database file (No such file or directory)");
    assert_fails(erg_store_open(&store, folder, &err), &err, "unable to open");
}

/* A store as ergon makes one, then changed by these statements, is not opened. */
static void check_changed_store(const char *name, const char *sql, const char *part)
{
    struct erg_store *store;
    struct erg_error err = {0};
    struct erg_store_row row = row_number(1);
    sqlite3 *database;
    assert_ok(erg_store_open(&store, in_folder(name), &err), &err);
    assert_ok(erg_store_put(store, &row, NULL, &err), &err);
    erg_store_close(store);
    assert_int_equal(sqlite3_open(in_folder(name), &database), SQLITE_OK);
    sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
    if (sqlite3_exec(database, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(database));
    sqlite3_close(database);
    if (part)
        assert_fails(erg_store_open(&store, in_folder(name), &err), &err, part);
    else
        assert_ok(erg_store_open(&store, in_folder(name), &err), &err);
    if (!part)
        erg_store_close(store);
}

/* The marks of ergon do not make another program's tables ergon's. */
static void changed_tables_are_refused(void **state)
{
    (void)state;
    static const char other[] = "its tables are not those that ergon makes";
    check_changed_store("null.db",
                        "CREATE TABLE m2 AS SELECT * FROM measurement; DROP TABLE measurement;"
                        "ALTER TABLE m2 RENAME TO measurement;"
                        "CREATE UNIQUE INDEX k ON measurement"
                        " (device, signature, clock_mhz, slot, sms, kind, repeat);"
                        "UPDATE measurement SET created_utc = NULL, work_name = NULL",
                        other);
    check_changed_store("view.db",
                        "ALTER TABLE measurement RENAME TO m; CREATE VIEW measurement AS "
                        "SELECT * FROM m",
                        other);
    check_changed_store("trigger.db",
                        "CREATE TRIGGER t AFTER INSERT ON measurement BEGIN "
                        "DELETE FROM measurement; END",
                        other);
    check_changed_store("column.db", "ALTER TABLE measurement ADD COLUMN more TEXT", other);
    check_changed_store("gone.db", "DROP TABLE measurement", other);
    /* The right text over rows that break it. */
    check_changed_store("broken.db",
                        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = "
                        "replace(sql, 'created_utc TEXT NOT NULL', 'created_utc TEXT         ') "
                        "WHERE name = 'measurement'; PRAGMA writable_schema = RESET;"
                        "UPDATE measurement SET created_utc = NULL;"
                        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = "
                        "replace(sql, 'created_utc TEXT         ', 'created_utc TEXT NOT NULL') "
                        "WHERE name = 'measurement'",
                        "the file is damaged (NULL value in measurement.created_utc)");
    check_changed_store("index.db", "CREATE INDEX own ON measurement (time_s)", NULL);
}

static void write_protected_file_is_refused(void **state)
{
    (void)state;
    if (geteuid() == 0) {
        print_message("[  NOTE  ] skipped: root may write everywhere\n");
        skip();
    }
    struct erg_error err;
    struct erg_store *store = open_store("locked.db");
    erg_store_close(store);
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("locked.db"));
    assert_int_equal(chmod(path, 0444), 0);
    assert_fails(erg_store_open(&store, path, &err), &err, "the file is write-protected");
}

static void trace_is_valid_json(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_trace *trace = erg_trace_new();
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("trace.json"));
    json_t *root;
    assert_ok(erg_trace_write(trace, path, &err), &err);
    assert_ok(load_json(&root, path, &err), &err);
    assert_int_equal(json_array_size(json_object_get(root, "traceEvents")), 0);
    json_decref(root);

    const struct erg_trace_arg args[] = {{"clock_mhz", NULL, 1410}, {"config", "a \"b\"\n\\", 0}};
    const struct erg_trace_arg power[] = {{"W", NULL, 392.5}, {"unknown", NULL, NAN}};
    erg_trace_name_process(trace, 3, "stage 3");
    erg_trace_name_thread(trace, 3, 1, "compute");
    erg_trace_span(trace, 3, 1, "fwd 0", "forward", 1.5, 0.000250001, args, 2);
    erg_trace_counter(trace, 3, "power", 2, power, 2);
    assert_ok(erg_trace_write(trace, path, &err), &err);
    erg_trace_free(trace);
    assert_ok(load_json(&root, path, &err), &err);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), 6);
    const json_t *span = json_array_get(events, 4);
    assert_string_equal(json_string_value(json_object_get(span, "ph")), "X");
    assert_near(json_number_value(json_object_get(span, "ts")), 1500000, 0);
    assert_near(json_number_value(json_object_get(span, "dur")), 250, 1e-9);
    const json_t *span_args = json_object_get(span, "args");
    assert_near(json_number_value(json_object_get(span_args, "clock_mhz")), 1410, 0);
    assert_string_equal(json_string_value(json_object_get(span_args, "config")), "a \"b\"\n\\");
    const json_t *counter = json_array_get(events, 5);
    assert_string_equal(json_string_value(json_object_get(counter, "ph")), "C");
    assert_true(json_is_null(json_object_get(json_object_get(counter, "args"), "unknown")));
    json_decref(root);
}

/* Viewers drop a span that overlaps the one before it, be it by a nanosecond of rounding. */
static void trace_spans_that_follow_each_other_do_not_overlap(void **state)
{
    (void)state;
    enum { SPANS = 500 };
    struct erg_error err = {0};
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("spans.json"));
    struct erg_trace *trace = erg_trace_new();
    double start_s = 0;
    for (int i = 0; i < SPANS; i++) {
        double duration_s = 0.1 / (3 + i);
        erg_trace_span(trace, 1, 0, "span", "forward", start_s, duration_s, NULL, 0);
        start_s += duration_s;
    }
    assert_ok(erg_trace_write(trace, path, &err), &err);
    erg_trace_free(trace);
    json_t *root;
    assert_ok(load_json(&root, path, &err), &err);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), SPANS);
    long long end_ns = 0;
    for (size_t i = 0; i < SPANS; i++) {
        const json_t *span = json_array_get(events, i);
        /* as a viewer reads it: cut, not rounded */
        long long start_ns = (long long)(1e3 * json_number_value(json_object_get(span, "ts")));
        assert_true(start_ns >= end_ns);
        end_ns = start_ns + (long long)(1e3 * json_number_value(json_object_get(span, "dur")));
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_measurement_of_a_key_stays),
        cmocka_unit_test(impossible_rows_are_refused_by_name),
        cmocka_unit_test(rows_come_in_order_and_export),
        cmocka_unit_test(processes_share_a_store),
        cmocka_unit_test(killed_run_loses_no_finished_put),
        cmocka_unit_test(threads_share_a_store),
        cmocka_unit_test(foreign_and_broken_files_are_refused),
        cmocka_unit_test(changed_tables_are_refused),
        cmocka_unit_test(write_protected_file_is_refused),
        cmocka_unit_test(trace_is_valid_json),
        cmocka_unit_test(trace_spans_that_follow_each_other_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
