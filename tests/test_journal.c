/*
 * The journal of a live controller: what a controller that begins anew reads, from the whole past
 * and from one of which most was forgotten, and after the calendar's clock has gone back.
 */
#define _GNU_SOURCE

#include "base/clock.h"
#include "check.h"
#include "cluster/live/journal.h"
#include "folder.h"

#include <sqlite3.h>
#include <sys/stat.h>

enum { JOBS = 30, ROWS = 600, KEPT_ROWS = 20, NODES = 2 };
static const char *const node_names[NODES] = {"h1", "h2"};
static const double now_s = 1000;

static const char *token_of(int job)
{
    static char tokens[JOBS][ERG_TOKEN_LENGTH + 1];
    snprintf(tokens[job], sizeof tokens[job], "%016x", 0xabc0u + (unsigned)job);
    return tokens[job];
}

static struct erg_journal *open_journal(const char *name)
{
    struct erg_journal *journal;
    struct erg_error err;
    assert_ok(erg_journal_open(&journal, in_folder(name), &err), &err);
    return journal;
}

/* Every number its own. */
static void put_job(struct erg_journal *journal, int job)
{
    struct erg_managed_job record;
    struct erg_error err;
    erg_managed_job_init(&record, (uint32_t)job + 1, token_of(job));
    erg_placement_add(&record.intended, job % NODES, 3);
    erg_placement_add(&record.asked, (job + 1) % NODES, 12);
    record.point = job % 5;
    record.told_point = job % 3 - 1;
    record.intended_w = 100 + job;
    record.told_w = 200 + job;
    record.before_w = 300 + job;
    record.plan = 1000000000000 + job;
    record.incarnation = job + 2;
    record.incarnation_before = job;
    record.checkpoint = 10 * job;
    record.longest_save_s = 0.5 * job;
    record.released_s = job % 2 ? now_s - 5 - job : NAN;
    record.stopped_s = job % 3 ? now_s - 7 - job : NAN;
    record.killed_s = job % 4 ? now_s - 9 - job : NAN;
    record.not_before_s = job % 5 ? now_s + 11 + job : -INFINITY;
    record.unsure = job % 2;
    record.failed_starts = job % 3;
    record.failures = job % 2;
    record.failed_checkpoint = job - 1;
    record.began_checkpoint = job;
    record.given_up = job % 7 == 0;
    record.needs_attention = job % 7 == 0;
    snprintf(record.reason, sizeof record.reason, "reason %d", job);
    assert_ok(erg_journal_put_job(journal,
                                  &(struct erg_journal_job){&record, 1.5 * job, job % 4, job % 6},
                                  node_names, now_s, &err),
              &err);
    erg_managed_job_release(&record);
}

/* A past: `ROWS` of each kind, of which three actions did not end. */
static void fill(struct erg_journal *journal)
{
    struct erg_error err;
    double epoch_s;
    char long_text[2000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    assert_ok(erg_journal_epoch(journal, &epoch_s, &err), &err);
    assert_ok(erg_journal_gather(journal, &err), &err);
    for (int job = 0; job < JOBS; job++)
        put_job(journal, job);
    for (int row = 0; row < ROWS; row++) {
        int64_t id;
        const char *token = token_of(row % JOBS);
        json_t *changes = json_string(long_text);
        assert_ok(
            erg_journal_begin(journal, &id, token, ERG_ACTION_PLACE, row % NODES, "why", &err),
            &err);
        if (row % 200 != 100)
            assert_ok(erg_journal_end(journal, id, ERG_ENGINE_DONE, "", &err), &err);
        assert_ok(erg_journal_decision(journal, "fcfs", changes, &err), &err);
        assert_ok(erg_journal_restart(
                      journal, &(struct erg_journal_restart){token, row % 2, 4, row, 1, 2}, &err),
                  &err);
        assert_ok(erg_journal_delay(journal, token, "seen", row, &err), &err);
        json_decref(changes);
    }
    json_t *speeds = json_pack("[{s:s, s:f}]", "family", "a", "iteration_s", 1.5),
           *policy = json_pack("{s:i}", "round", 7);
    assert_ok(erg_journal_put_speeds(journal, speeds, &err), &err);
    assert_ok(erg_journal_put_policy(journal, "fcfs", policy, &err), &err);
    json_decref(speeds);
    json_decref(policy);
    assert_ok(erg_journal_flush(journal, &err), &err);
}

static bool get_job(struct erg_journal *journal, int job, struct erg_managed_job *record,
                    struct erg_journal_job *kept)
{
    struct erg_error err;
    bool found;
    erg_managed_job_init(record, (uint32_t)job + 1, token_of(job));
    *kept = (struct erg_journal_job){.record = record};
    assert_ok(erg_journal_get_job(journal, kept, &found, node_names, NODES, now_s, &err), &err);
    return found;
}

/* Times are read at two moments. */
static void assert_same_time(double a, double b)
{
    if (isnan(a) || isinf(a))
        assert_true(isnan(a) ? isnan(b) : a == b);
    else
        assert_near(a, b, 5);
}

static void compare_job(struct erg_journal *whole, struct erg_journal *less, int job)
{
    struct erg_managed_job a, b;
    struct erg_journal_job kept_a, kept_b;
    assert_true(get_job(whole, job, &a, &kept_a));
    assert_true(get_job(less, job, &b, &kept_b));
    assert_true(erg_placement_equal(&a.intended, &b.intended) && a.intended.count == 1);
    assert_true(erg_placement_equal(&a.asked, &b.asked) && a.asked.slices[0].gpus == 12);
    assert_same_time(a.released_s, b.released_s);
    assert_same_time(a.stopped_s, b.stopped_s);
    assert_same_time(a.killed_s, b.killed_s);
    assert_same_time(a.not_before_s, b.not_before_s);
    erg_managed_job_release(&a);
    erg_managed_job_release(&b);
    a.intended = a.asked = b.intended = b.asked = (struct erg_placement){0};
    a.released_s = a.stopped_s = a.killed_s = a.not_before_s = 0;
    b.released_s = b.stopped_s = b.killed_s = b.not_before_s = 0;
    assert_int_equal(a.point, job % 5);
    assert_true(a.told_w == 200 + job && a.before_w == 300 + job);
    assert_true(a.plan == 1000000000000 + job);
    assert_memory_equal(&a, &b, sizeof a);
    assert_near(kept_a.attained_gpu_s, kept_b.attained_gpu_s, 0);
    assert_int_equal(kept_a.starts, kept_b.starts);
    assert_int_equal(kept_a.chosen_point, job % 6);
    assert_int_equal(kept_b.chosen_point, job % 6);
}

static void compare_rest(struct erg_journal *whole, struct erg_journal *less)
{
    struct erg_error err;
    struct erg_open_action *open[2];
    size_t count[2];
    json_t *texts[2];
    double epoch_s[2];
    struct erg_journal *const both[] = {whole, less};
    for (int i = 0; i < 2; i++) {
        assert_ok(erg_journal_epoch(both[i], &epoch_s[i], &err), &err);
        assert_ok(erg_journal_take_open(both[i], &open[i], &count[i], &err), &err);
    }
    assert_near(epoch_s[0], epoch_s[1], 0);
    assert_int_equal(count[0], 3);
    assert_int_equal(count[1], 3);
    for (size_t k = 0; k < 3; k++) {
        assert_string_equal(open[0][k].token, open[1][k].token);
        assert_int_equal(open[0][k].action.verb, open[1][k].action.verb);
        assert_int_equal(open[0][k].action.node, open[1][k].action.node);
    }
    free(open[0]);
    free(open[1]);
    for (int what = 0; what < 2; what++) {
        for (int i = 0; i < 2; i++)
            assert_ok(what ? erg_journal_get_policy(both[i], "fcfs", &texts[i], &err)
                           : erg_journal_get_speeds(both[i], &texts[i], &err),
                      &err);
        assert_true(texts[0] && json_equal(texts[0], texts[1]));
        json_decref(texts[0]);
        json_decref(texts[1]);
    }
}

static int64_t ask(const char *name, const char *sql)
{
    sqlite3 *file;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_open(in_folder(name), &file), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(file, sql, -1, &statement, NULL), SQLITE_OK);
    const int code = sqlite3_step(statement);
    assert_true(code == SQLITE_ROW || code == SQLITE_DONE);
    const int64_t number = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    sqlite3_close(file);
    return number;
}

static bool is_even(const void *context, const char *token)
{
    (void)context;
    return strtoul(token, NULL, 16) % 2 == 0;
}

static long size_of(const char *name)
{
    struct stat info;
    assert_int_equal(stat(in_folder(name), &info), 0);
    return (long)info.st_size;
}

static void a_trimmed_journal_replays_like_the_whole(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_journal *whole = open_journal("whole"), *less;
    fill(whole);
    erg_journal_close(whole);
    shell("cp @/whole @/less");
    less = open_journal("less");
    /* Jobs that were written of late stay, whoever knows them. */
    struct erg_journal_needs needs = {
        .since_unix_s = erg_unix_s() - 86400, .is_known = is_even, .rows = 10 * ROWS};
    assert_ok(erg_journal_forget(less, &needs, &err), &err);
    assert_int_equal(ask("less", "SELECT count(*) FROM entry WHERE kind = 'job'"), JOBS);
    assert_int_equal(ask("less", "SELECT count(*) FROM action"), ROWS);
    needs.since_unix_s = erg_unix_s() + 1;
    needs.rows = KEPT_ROWS;
    assert_ok(erg_journal_forget(less, &needs, &err), &err);
    /* And by a controller that begins anew. */
    erg_journal_close(less);
    less = open_journal("less");
    whole = open_journal("whole");
    for (int job = 0; job < JOBS; job++) {
        struct erg_managed_job record;
        struct erg_journal_job kept;
        if (job % 2 == 0) {
            compare_job(whole, less, job);
            continue;
        }
        assert_false(get_job(less, job, &record, &kept));
        erg_managed_job_release(&record);
    }
    compare_rest(whole, less);
    erg_journal_close(whole);
    erg_journal_close(less);
    assert_int_equal(ask("less", "SELECT count(*) FROM action"), KEPT_ROWS + 3);
    assert_int_equal(ask("less", "SELECT count(*) FROM decision"), KEPT_ROWS);
    assert_int_equal(ask("less", "SELECT count(*) FROM restart"), KEPT_ROWS);
    assert_int_equal(ask("less", "SELECT count(*) FROM delay"), KEPT_ROWS);
    assert_int_equal(ask("less", "SELECT min(seconds) FROM delay"), ROWS - KEPT_ROWS);
    printf("%ld and %ld bytes\n", size_of("whole"), size_of("less"));
    assert_true(size_of("less") < size_of("whole") / 4);
}

/* What was written at a later hour than it is now happened now, so no deadline is an hour away. */
static void a_clock_set_back_delays_no_job(void **state)
{
    (void)state;
    struct erg_journal *journal = open_journal("journal");
    fill(journal);
    erg_journal_close(journal);
    static const char *const times[] = {"released_s", "stopped_s", "killed_s", "not_before_s"};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char sql[300];
        snprintf(sql, sizeof sql,
                 "UPDATE entry SET value = json_set(value, '$.%s', json_extract(value, '$.%s') + "
                 "3600) WHERE kind = 'job' AND json_extract(value, '$.%s') IS NOT NULL",
                 times[i], times[i], times[i]);
        ask("journal", sql);
    }
    ask("journal", "UPDATE entry SET value = value + 3600 WHERE kind = 'clock'");
    journal = open_journal("journal");
    for (int job = 0; job < JOBS; job++) {
        struct erg_managed_job record;
        struct erg_journal_job kept;
        assert_true(get_job(journal, job, &record, &kept));
        assert_same_time(record.released_s, job % 2 ? now_s : NAN);
        assert_same_time(record.stopped_s, job % 3 ? now_s : NAN);
        assert_same_time(record.killed_s, job % 4 ? now_s : NAN);
        assert_same_time(record.not_before_s, job % 5 ? now_s + 600 : -INFINITY);
        assert_false(record.released_s > now_s);
        erg_managed_job_release(&record);
    }
    double epoch_s;
    struct erg_error err;
    assert_ok(erg_journal_epoch(journal, &epoch_s, &err), &err);
    assert_true(epoch_s <= erg_unix_s());
    erg_journal_close(journal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trimmed_journal_replays_like_the_whole),
        cmocka_unit_test(a_clock_set_back_delays_no_job),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
