/* The journal of a live controller, a SQLite file, and its folder in the spool. */
#include "cluster/live/journal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/database.h"
#include "io/field_table.h"
#include "io/file.h"
#include "io/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct erg_database_format format = {
    .name = "journal",
    .application_id = 0x6572676a, /* "ergj" */
    .version = 1,
    .create_sql =
        "CREATE TABLE entry (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
        " PRIMARY KEY (kind, key)) WITHOUT ROWID;"
        "CREATE TABLE action (id INTEGER PRIMARY KEY, token TEXT NOT NULL, verb INTEGER NOT NULL,"
        " node INTEGER NOT NULL, why TEXT NOT NULL, begun_unix_s REAL NOT NULL, ended_unix_s REAL,"
        " answer INTEGER, sentence TEXT);"
        "CREATE INDEX open_action ON action (id) WHERE ended_unix_s IS NULL;"
        "CREATE TABLE decision (id INTEGER PRIMARY KEY, policy TEXT NOT NULL,"
        " at_unix_s REAL NOT NULL, changes TEXT NOT NULL);"
        "CREATE TABLE restart (id INTEGER PRIMARY KEY, token TEXT NOT NULL, first INTEGER NOT NULL,"
        " gpus INTEGER NOT NULL, at_unix_s REAL NOT NULL, took_s REAL NOT NULL, save_s REAL,"
        " load_s REAL);"
        "CREATE TABLE delay (id INTEGER PRIMARY KEY, token TEXT NOT NULL, kind TEXT NOT NULL,"
        " at_unix_s REAL NOT NULL, seconds REAL NOT NULL)",
    .get_sql = "SELECT value FROM entry WHERE kind = ?1 AND key = ?2",
    .put_sql = "INSERT INTO entry (kind, key, value) VALUES (?1, ?2, ?3)"
               " ON CONFLICT (kind, key) DO UPDATE SET value = ?3",
    .each_sql = "SELECT id, token, verb, node FROM action WHERE ended_unix_s IS NULL ORDER BY id",
};

/* A file of fewer pages is not worth compacting. */
enum { PAGES_LEAST = 256 };

struct erg_journal {
    struct erg_database database;
    int lock; /* on PATH.lock: SQLite releases its own locks between changes */
};

int erg_journal_open(struct erg_journal **out, const char *path, struct erg_error *err)
{
    struct erg_text lock = {0};
    erg_text_printf(&lock, "%s.lock", path);
    int file = open(lock.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int result = 0;
    if (file < 0)
        result = erg_fail(err, ERG_FAILED, "opening '%s': %s", lock.data, strerror(errno));
    else if (flock(file, LOCK_EX | LOCK_NB) != 0)
        result = erg_fail(
            err, ERG_FAILED,
            "another controller uses the journal '%s'; see \"ergon schedule --status\"", path);
    erg_text_release(&lock);
    struct erg_journal *journal = erg_xcalloc(1, sizeof *journal);
    journal->lock = file;
    if (result == 0)
        result = erg_database_open(&journal->database, path, &format, err);
    if (result != 0) {
        if (file >= 0)
            close(file);
        free(journal);
        return -1;
    }
    *out = journal;
    return 0;
}

void erg_journal_close(struct erg_journal *journal)
{
    if (!journal)
        return;
    erg_database_close(&journal->database);
    close(journal->lock);
    free(journal);
}

/* ---- entries: a text by kind and key ---- */

static int put_entry(struct erg_journal *journal, const char *kind, const char *key,
                     const json_t *value, struct erg_error *err)
{
    sqlite3_stmt *put = journal->database.put;
    char *text = erg_json_text(value);
    sqlite3_bind_text(put, 1, kind, -1, SQLITE_STATIC);
    sqlite3_bind_text(put, 2, key, -1, SQLITE_STATIC);
    sqlite3_bind_text(put, 3, text, -1, SQLITE_STATIC);
    int result = sqlite3_step(put) == SQLITE_DONE
                     ? 0
                     : erg_database_fail(&journal->database, "writing to", err);
    sqlite3_reset(put);
    sqlite3_clear_bindings(put);
    free(text);
    return result;
}

/* Free *text; NULL: there is none. */
static int get_entry(struct erg_journal *journal, const char *kind, const char *key, char **text,
                     struct erg_error *err)
{
    sqlite3_stmt *get = journal->database.get;
    sqlite3_bind_text(get, 1, kind, -1, SQLITE_STATIC);
    sqlite3_bind_text(get, 2, key, -1, SQLITE_STATIC);
    int code = sqlite3_step(get), result = 0;
    *text = NULL;
    if (code == SQLITE_ROW)
        *text = erg_xstrdup((const char *)sqlite3_column_text(get, 0));
    else if (code != SQLITE_DONE)
        result = erg_database_fail(&journal->database, "reading", err);
    sqlite3_reset(get);
    sqlite3_clear_bindings(get);
    return result;
}

int erg_journal_gather(struct erg_journal *journal, struct erg_error *err)
{
    return erg_database_execute(&journal->database, "BEGIN IMMEDIATE", "writing to", err);
}

int erg_journal_flush(struct erg_journal *journal, struct erg_error *err)
{
    return erg_database_execute(&journal->database, "COMMIT", "writing to", err);
}

/* ---- jobs ---- */

struct kept_slice {
    const char *node;
    const char *gpus; /* bits, hexadecimal */
};

/* A record; its table has only what cannot be observed again. Times are UTC. */
struct kept_job {
    struct erg_managed_job record;
    const struct kept_slice *intended, *asked;
    size_t intended_count, asked_count;
    const char *reason;
    double attained_gpu_s;
    int starts, chosen_point;
    double kept_unix_s; /* time of the write */
};

/* clang-format off */
#define T struct kept_slice
TABLE(slice, T, TEXT("node", node), TEXT("gpus", gpus));
#undef T

#define T struct kept_job
#define WHOLE RANGE(-1, 1e9)
#define OWN(member) DOUBLE(#member, record.member, UNKNOWN(-DBL_MAX, DBL_MAX))
TABLE(job, T,
    U32("id", record.id, RANGE(0, UINT32_MAX)),
    LIST_OR_NONE("intended", intended, intended_count, slice),
    LIST_OR_NONE("asked", asked, asked_count, slice),
    INT("point", record.point, WHOLE), INT("told_point", record.told_point, WHOLE),
    OWN(intended_w), OWN(told_w), OWN(before_w),
    LONG("plan", record.plan, UNKNOWN(0, 1e15)),
    LONG("incarnation", record.incarnation, WHOLE),
    LONG("incarnation_before", record.incarnation_before, WHOLE),
    OWN(checkpoint), OWN(longest_save_s),
    OWN(released_s), OWN(stopped_s), OWN(killed_s), OWN(not_before_s),
    BOOL("unsure", record.unsure),
    INT("failed_starts", record.failed_starts, WHOLE), INT("failures", record.failures, WHOLE),
    OWN(failed_checkpoint), OWN(began_checkpoint),
    BOOL("given_up", record.given_up), BOOL("needs_attention", record.needs_attention),
    TEXT_OR_NONE("reason", reason),
    NUMBER(attained_gpu_s),
    INT("starts", starts, WHOLE),
    INT("chosen_point", chosen_point, UNKNOWN(-1, 1e9)),
    NUMBER(kept_unix_s));
#undef T
/* clang-format on */

static void keep_placement(const struct kept_slice **to, size_t *count,
                           const struct erg_placement *placement, const char *const *node_names,
                           struct erg_arena *arena)
{
    struct kept_slice *items = erg_arena_alloc(arena, sizeof *items * (size_t)placement->count);
    for (int i = 0; i < placement->count; i++)
        items[i] = (struct kept_slice){
            node_names[placement->slices[i].node],
            erg_arena_printf(arena, "%llx", (unsigned long long)placement->slices[i].gpus)};
    *to = items;
    *count = (size_t)placement->count;
}

/* Drops a placement on a node that is no longer in the fleet. */
static void take_placement(struct erg_placement *placement, const struct kept_slice *kept,
                           size_t count, const char *const *node_names, int nodes)
{
    placement->count = 0;
    for (size_t i = 0; i < count; i++) {
        int node = 0;
        while (node < nodes && strcmp(node_names[node], kept[i].node) != 0)
            node++;
        if (node == nodes) {
            placement->count = 0;
            return;
        }
        erg_placement_add(placement, node, strtoull(kept[i].gpus, NULL, 16));
    }
}

int erg_journal_put_job(struct erg_journal *journal, const struct erg_journal_job *job,
                        const char *const *node_names, double now_s, struct erg_error *err)
{
    const struct erg_managed_job *record = job->record;
    const double zero_s = erg_unix_s() - now_s; /* of the engine's clock */
    struct erg_arena arena = {0};
    struct kept_job kept = {
        .record = *record,
        .reason = record->reason,
        .attained_gpu_s = job->attained_gpu_s,
        .starts = job->starts,
        .chosen_point = job->chosen_point,
        .kept_unix_s = erg_unix_s(),
    };
    kept.record.released_s += zero_s;
    kept.record.stopped_s += zero_s;
    kept.record.killed_s += zero_s;
    kept.record.not_before_s += zero_s; /* an infinite one becomes null */
    keep_placement(&kept.intended, &kept.intended_count, &record->intended, node_names, &arena);
    keep_placement(&kept.asked, &kept.asked_count, &record->asked, node_names, &arena);
    json_t *value = erg_fields_json(&job_fields, &kept);
    int result = put_entry(journal, "job", record->token, value, err);
    json_decref(value);
    erg_arena_release(&arena);
    return result;
}

/* Upper limit of every wait after a failure (struct erg_reconcile_limits). */
static const double waits_most_s = 600;

/* Converts a time to the engine's clock, at most `most_s`: the calendar's clock may have been set
 * back. */
static double engine_time(double unix_s, double zero_s, double most_s)
{
    return unix_s - zero_s > most_s ? most_s : unix_s - zero_s; /* NAN: never */
}

static double known_or(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

static void take_job(struct erg_journal_job *job, const struct kept_job *kept,
                     const char *const *node_names, int nodes, double now_s)
{
    struct erg_managed_job *record = job->record;
    const double zero_s = erg_unix_s() - now_s;
    const long incarnation = record->incarnation; /* from the job's reports */
    *record = kept->record;
    record->incarnation = incarnation;
    take_placement(&record->intended, kept->intended, kept->intended_count, node_names, nodes);
    take_placement(&record->asked, kept->asked, kept->asked_count, node_names, nodes);
    record->intended_w = known_or(record->intended_w, 0);
    record->told_w = known_or(record->told_w, 0);
    record->before_w = known_or(record->before_w, ERG_UNKNOWN_W);
    record->checkpoint = known_or(record->checkpoint, 0);
    record->longest_save_s = known_or(record->longest_save_s, 0);
    record->released_s = engine_time(record->released_s, zero_s, now_s);
    record->stopped_s = engine_time(record->stopped_s, zero_s, now_s);
    record->killed_s = engine_time(record->killed_s, zero_s, now_s);
    record->not_before_s =
        known_or(engine_time(record->not_before_s, zero_s, now_s + waits_most_s), -INFINITY);
    snprintf(record->reason, sizeof record->reason, "%s", kept->reason ? kept->reason : "");
    job->attained_gpu_s = known_or(kept->attained_gpu_s, 0);
    job->starts = kept->starts;
    job->chosen_point = kept->chosen_point;
}

int erg_journal_get_job(struct erg_journal *journal, struct erg_journal_job *job, bool *found,
                        const char *const *node_names, int nodes, double now_s,
                        struct erg_error *err)
{
    char *text;
    *found = false;
    if (get_entry(journal, "job", job->record->token, &text, err) != 0)
        return -1;
    if (!text)
        return 0;
    json_t *root = NULL;
    struct erg_arena arena = {0};
    struct erg_json_place place;
    struct kept_job kept = {.record = *job->record};
    kept.record.plan = 0; /* unless it is there */
    int result = -1;
    if (erg_json_open(&place, &root, journal->database.path, text, strlen(text), err) == 0 &&
        erg_fields_read(&job_fields, &place, &kept, &arena, err) == 0) {
        *found = kept.record.id == job->record->id;
        if (*found)
            take_job(job, &kept, node_names, nodes, now_s);
        result = 0;
    }
    json_decref(root);
    erg_arena_release(&arena);
    free(text);
    return result;
}

/* ---- rows ---- */

/* A value of a row. */
struct value {
    enum { TEXT, WHOLE_NUMBER, REAL } type;
    const char *text;
    int64_t whole;
    double real;
};
#define OF_TEXT(T)                                                                                 \
    {                                                                                              \
        .type = TEXT, .text = (T)                                                                  \
    }
#define OF_WHOLE(N)                                                                                \
    {                                                                                              \
        .type = WHOLE_NUMBER, .whole = (N)                                                         \
    }
#define OF_REAL(X)                                                                                 \
    {                                                                                              \
        .type = REAL, .real = (X)                                                                  \
    }

static int change(struct erg_journal *journal, const char *sql, const struct value *values,
                  int count, struct erg_error *err)
{
    sqlite3_stmt *statement = NULL;
    int result = -1;
    if (sqlite3_prepare_v2(journal->database.handle, sql, -1, &statement, NULL) == SQLITE_OK) {
        for (int i = 0; i < count; i++)
            switch (values[i].type) {
            case TEXT:
                sqlite3_bind_text(statement, i + 1, values[i].text, -1, SQLITE_STATIC);
                break;
            case WHOLE_NUMBER:
                sqlite3_bind_int64(statement, i + 1, values[i].whole);
                break;
            case REAL:
                sqlite3_bind_double(statement, i + 1, values[i].real);
            }
        result = sqlite3_step(statement) == SQLITE_DONE ? 0 : -1;
    }
    if (result != 0)
        erg_database_fail(&journal->database, "writing to", err);
    sqlite3_finalize(statement);
    return result;
}

/* ---- deletion of old rows ---- */

/* The number that a statement returns. */
static int ask(struct erg_journal *journal, const char *sql, int64_t *number, struct erg_error *err)
{
    sqlite3_stmt *statement = NULL;
    int result = -1;
    *number = 0;
    if (sqlite3_prepare_v2(journal->database.handle, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
        *number = sqlite3_column_int64(statement, 0);
        result = 0;
    }
    if (result != 0)
        erg_database_fail(&journal->database, "reading", err);
    sqlite3_finalize(statement);
    return result;
}

struct tokens {
    char (*items)[ERG_TOKEN_LENGTH + 1];
    size_t count, capacity;
};

/* Rows of a former version lack the time of the write, and stay. */
static int find_unneeded(struct erg_journal *journal, struct tokens *tokens,
                         const struct erg_journal_needs *needs, struct erg_error *err)
{
    static const char sql[] = "SELECT key FROM entry WHERE kind = 'job'"
                              " AND json_extract(value, '$.kept_unix_s') < ?1";
    sqlite3_stmt *old = NULL;
    int code = sqlite3_prepare_v2(journal->database.handle, sql, -1, &old, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_double(old, 1, needs->since_unix_s);
        while ((code = sqlite3_step(old)) == SQLITE_ROW) {
            const char *token = (const char *)sqlite3_column_text(old, 0);
            if (needs->is_known(needs->context, token))
                continue;
            ERG_RESERVE(tokens, items, 1);
            snprintf(tokens->items[tokens->count++], sizeof *tokens->items, "%s", token);
        }
    }
    if (code != SQLITE_DONE)
        erg_database_fail(&journal->database, "reading", err);
    sqlite3_finalize(old);
    return code == SQLITE_DONE ? 0 : -1;
}

static int delete_all(struct erg_journal *journal, const struct tokens *tokens, long rows,
                      struct erg_error *err)
{
    static const char *const tables[] = {"action", "decision", "restart", "delay"};
    int result = 0;
    for (size_t i = 0; result == 0 && i < tokens->count; i++) {
        const struct value token = OF_TEXT(tokens->items[i]);
        result =
            change(journal, "DELETE FROM entry WHERE kind = 'job' AND key = ?1", &token, 1, err);
    }
    for (size_t i = 0; result == 0 && i < sizeof tables / sizeof *tables; i++) {
        char sql[160];
        const struct value most = OF_WHOLE(rows);
        snprintf(sql, sizeof sql, "DELETE FROM %s WHERE id <= (SELECT max(id) FROM %s) - ?1%s",
                 tables[i], tables[i], i == 0 ? " AND ended_unix_s IS NOT NULL" : "");
        result = change(journal, sql, &most, 1, err);
    }
    return result;
}

int erg_journal_forget(struct erg_journal *journal, const struct erg_journal_needs *needs,
                       struct erg_error *err)
{
    struct tokens tokens = {0};
    int64_t pages, unused;
    int result = find_unneeded(journal, &tokens, needs, err) || erg_journal_gather(journal, err);
    if (result == 0) {
        result = delete_all(journal, &tokens, needs->rows, err) || erg_journal_flush(journal, err);
        if (result != 0)
            erg_database_execute(&journal->database, "ROLLBACK", "writing to", NULL);
    }
    free(tokens.items);
    if (result != 0 || ask(journal, "PRAGMA page_count", &pages, err) != 0 ||
        ask(journal, "PRAGMA freelist_count", &unused, err) != 0)
        return -1;
    /* A disk that is too full for the compacted copy is not an error. */
    if (pages > PAGES_LEAST && unused > pages / 2)
        erg_database_execute(&journal->database, "VACUUM", "writing to", NULL);
    return 0;
}

/* ---- actions, decisions, restarts ---- */

int erg_journal_begin(struct erg_journal *journal, int64_t *id, const char *token,
                      enum erg_action_verb verb, int node, const char *why, struct erg_error *err)
{
    const struct value values[] = {OF_TEXT(token), OF_WHOLE(verb), OF_WHOLE(node), OF_TEXT(why),
                                   OF_REAL(erg_unix_s())};
    int result = change(journal,
                        "INSERT INTO action (token, verb, node, why, begun_unix_s)"
                        " VALUES (?1, ?2, ?3, ?4, ?5)",
                        values, 5, err);
    *id = sqlite3_last_insert_rowid(journal->database.handle);
    return result;
}

int erg_journal_end(struct erg_journal *journal, int64_t id, enum erg_engine_answer answer,
                    const char *sentence, struct erg_error *err)
{
    const struct value values[] = {OF_WHOLE(id), OF_REAL(erg_unix_s()), OF_WHOLE(answer),
                                   OF_TEXT(sentence)};
    return change(journal,
                  "UPDATE action SET ended_unix_s = ?2, answer = ?3, sentence = ?4 WHERE id = ?1",
                  values, 4, err);
}

int erg_journal_take_open(struct erg_journal *journal, struct erg_open_action **actions,
                          size_t *count, struct erg_error *err)
{
    struct {
        struct erg_open_action *items;
        size_t count, capacity;
    } open = {0};
    sqlite3_stmt *each = journal->database.each;
    int code;
    while ((code = sqlite3_step(each)) == SQLITE_ROW) {
        struct erg_open_action one = {
            .action = {.verb = (enum erg_action_verb)sqlite3_column_int(each, 2),
                       .node = sqlite3_column_int(each, 3),
                       .why = "the controller died"}};
        snprintf(one.token, sizeof one.token, "%s", (const char *)sqlite3_column_text(each, 1));
        ERG_PUSH(&open, items, one);
    }
    sqlite3_reset(each);
    *actions = open.items;
    *count = open.count;
    if (code != SQLITE_DONE)
        return erg_database_fail(&journal->database, "reading", err);
    const struct value values[] = {OF_REAL(erg_unix_s()), OF_WHOLE(ERG_ENGINE_LATER)};
    return change(journal,
                  "UPDATE action SET ended_unix_s = ?1, answer = ?2, sentence = 'its controller "
                  "died' WHERE ended_unix_s IS NULL",
                  values, 2, err);
}

int erg_journal_decision(struct erg_journal *journal, const char *policy, const json_t *changes,
                         struct erg_error *err)
{
    char *text = erg_json_text(changes);
    const struct value values[] = {OF_TEXT(policy), OF_REAL(erg_unix_s()), OF_TEXT(text)};
    int result =
        change(journal, "INSERT INTO decision (policy, at_unix_s, changes) VALUES (?1, ?2, ?3)",
               values, 3, err);
    free(text);
    return result;
}

int erg_journal_restart(struct erg_journal *journal, const struct erg_journal_restart *restart,
                        struct erg_error *err)
{
    const struct value values[] = {OF_TEXT(restart->token),  OF_WHOLE(restart->first),
                                   OF_WHOLE(restart->gpus),  OF_REAL(erg_unix_s()),
                                   OF_REAL(restart->took_s), OF_REAL(restart->save_s),
                                   OF_REAL(restart->load_s)};
    return change(journal,
                  "INSERT INTO restart (token, first, gpus, at_unix_s, took_s, save_s, load_s)"
                  " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                  values, 7, err);
}

int erg_journal_delay(struct erg_journal *journal, const char *token, const char *kind,
                      double seconds, struct erg_error *err)
{
    const struct value values[] = {OF_TEXT(token), OF_TEXT(kind), OF_REAL(erg_unix_s()),
                                   OF_REAL(seconds)};
    return change(journal,
                  "INSERT INTO delay (token, kind, at_unix_s, seconds) VALUES (?1, ?2, ?3, ?4)",
                  values, 4, err);
}

int erg_journal_epoch(struct erg_journal *journal, double *unix_s, struct erg_error *err)
{
    char *text;
    *unix_s = erg_unix_s();
    if (get_entry(journal, "clock", "epoch", &text, err) != 0)
        return -1;
    double kept;
    const bool known = text && erg_parse_double(text, &kept) && kept > 0 && kept <= *unix_s;
    free(text);
    if (known) {
        *unix_s = kept;
        return 0;
    }
    json_t *value = erg_json_number(*unix_s);
    int result = put_entry(journal, "clock", "epoch", value, err);
    json_decref(value);
    return result;
}

int erg_journal_put_speeds(struct erg_journal *journal, const json_t *speeds, struct erg_error *err)
{
    return put_entry(journal, "speeds", "", speeds, err);
}

int erg_journal_get_speeds(struct erg_journal *journal, json_t **speeds, struct erg_error *err)
{
    char *text;
    *speeds = NULL;
    if (get_entry(journal, "speeds", "", &text, err) != 0)
        return -1;
    int result = text ? erg_json_parse(speeds, journal->database.path, text, strlen(text), err) : 0;
    free(text);
    return result;
}

int erg_journal_put_policy(struct erg_journal *journal, const char *name, const json_t *policy,
                           struct erg_error *err)
{
    return put_entry(journal, "policy", name, policy, err);
}

int erg_journal_get_policy(struct erg_journal *journal, const char *name, json_t **policy,
                           struct erg_error *err)
{
    char *text;
    *policy = NULL;
    if (get_entry(journal, "policy", name, &text, err) != 0)
        return -1;
    int result = text ? erg_json_parse(policy, journal->database.path, text, strlen(text), err) : 0;
    free(text);
    return result;
}

/* ---- the folder ---- */

int erg_controller_folder(char **path, const char *spool, struct erg_error *err)
{
    char *at = erg_file_path(spool, ".controller");
    struct stat status;
    *path = NULL;
    int result = 0;
    if (mkdir(at, 0755) != 0 && errno != EEXIST)
        result = erg_fail(
            err, ERG_FAILED,
            "making '%s': %s; expected the spool to be a folder that the controller can write to",
            at, strerror(errno));
    else if (lstat(at, &status) != 0)
        result = erg_fail(err, ERG_FAILED, "'%s': %s", at, strerror(errno));
    else if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 022))
        result =
            erg_fail(err, ERG_FAILED,
                     "'%s' must be a folder that only its owner, user %ld, can write to: remove "
                     "it, or run the controller as its owner",
                     at, (long)geteuid());
    if (result == 0)
        *path = at;
    else
        free(at);
    return result;
}
