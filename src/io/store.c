#include "io/store.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

#include <math.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    APPLICATION_ID = 0x6572676e, /* "ergn": tells our files from other SQLite databases */
    SCHEMA_VERSION = 1,
    BUSY_TIMEOUT_MS = 30000, /* another run's put takes milliseconds */
    BUSY_RETRY_MS = 20,
};

static const char create_sql[] =
    "CREATE TABLE measurement ("
    " id INTEGER PRIMARY KEY,"
    " device TEXT NOT NULL, signature TEXT NOT NULL,"
    " clock_mhz INTEGER NOT NULL, slot INTEGER NOT NULL, sms INTEGER NOT NULL,"
    " kind INTEGER NOT NULL, repeat INTEGER NOT NULL,"
    " work_name TEXT NOT NULL, slot_name TEXT NOT NULL,"
    " time_s REAL NOT NULL, energy_j REAL, time_error REAL, energy_error REAL,"
    " clock_effective_mhz REAL, temperature_begin_c REAL, temperature_end_c REAL,"
    " window_s REAL, reasons INTEGER NOT NULL, created_utc TEXT NOT NULL,"
    " UNIQUE (device, signature, clock_mhz, slot, sms, kind, repeat))";

static const char get_sql[] =
    "SELECT time_s, energy_j, time_error, energy_error, clock_effective_mhz,"
    " temperature_begin_c, temperature_end_c, window_s, reasons FROM measurement"
    " WHERE device = ?1 AND signature = ?2 AND clock_mhz = ?3 AND slot = ?4 AND sms = ?5"
    " AND kind = ?6 AND repeat = ?7";

static const char put_sql[] =
    "INSERT INTO measurement (device, signature, clock_mhz, slot, sms, kind, repeat, work_name,"
    " slot_name, time_s, energy_j, time_error, energy_error, clock_effective_mhz,"
    " temperature_begin_c, temperature_end_c, window_s, reasons, created_utc)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,"
    " ?19)"
    " ON CONFLICT (device, signature, clock_mhz, slot, sms, kind, repeat) DO NOTHING";

static const char count_sql[] = "SELECT count(*) FROM measurement"
                                " WHERE (?1 IS NULL OR device = ?1)"
                                " AND (?2 IS NULL OR signature = ?2)";

static const char each_sql[] =
    "SELECT device, signature, clock_mhz, slot, sms, kind, repeat, work_name, slot_name, time_s,"
    " energy_j, time_error, energy_error, clock_effective_mhz, temperature_begin_c,"
    " temperature_end_c, window_s, reasons, created_utc FROM measurement"
    " WHERE (?1 IS NULL OR device = ?1) AND (?2 IS NULL OR signature = ?2) ORDER BY id";

struct erg_store {
    sqlite3 *database;
    sqlite3_stmt *get, *put, *count, *each;
    pthread_mutex_t mutex; /* statements are shared by all threads */
    char *path;
};

static int fail(struct erg_store *store, const char *doing, struct erg_error *err)
{
    int code = sqlite3_errcode(store->database);
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        return erg_fail(err, ERG_FAILED,
                        "%s the measurement store '%s': the file is damaged or no store at all "
                        "(%s); move it away to start a new one",
                        doing, store->path, sqlite3_errmsg(store->database));
    return erg_fail(err, ERG_FAILED, "%s the measurement store '%s': %s", doing, store->path,
                    sqlite3_errmsg(store->database));
}

static int execute(struct erg_store *store, const char *sql, struct erg_error *err)
{
    if (sqlite3_exec(store->database, sql, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return fail(store, "opening", err);
}

/* The first column of the first row as a number, and as text when `text` is not NULL. */
static int query(struct erg_store *store, const char *sql, int64_t *number, struct erg_text *text,
                 struct erg_error *err)
{
    sqlite3_stmt *statement = NULL;
    int result = -1;
    if (sqlite3_prepare_v2(store->database, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
        *number = sqlite3_column_int64(statement, 0);
        if (text)
            erg_text_add(text, (const char *)sqlite3_column_text(statement, 0));
        result = 0;
    } else {
        fail(store, "opening", err);
    }
    sqlite3_finalize(statement);
    return result;
}

/* Switching to WAL takes a lock that SQLite does not wait for when two runs start together. */
static int enter_wal(struct erg_store *store, struct erg_error *err)
{
    for (int waited_ms = 0;; waited_ms += BUSY_RETRY_MS) {
        int code = sqlite3_exec(store->database, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
        if (code == SQLITE_OK)
            return execute(store, "PRAGMA synchronous = FULL", err);
        if (code != SQLITE_BUSY || waited_ms >= BUSY_TIMEOUT_MS)
            return fail(store, "opening", err);
        nanosleep(&(struct timespec){.tv_nsec = BUSY_RETRY_MS * 1000000L}, NULL);
    }
}

/* Refuses what is not ours; *empty tells that the file holds nothing yet. */
static int check_identity(struct erg_store *store, bool *empty, struct erg_error *err)
{
    int64_t application, version, tables;
    if (query(store, "PRAGMA application_id", &application, NULL, err) ||
        query(store, "PRAGMA user_version", &version, NULL, err) ||
        query(store, "SELECT count(*) FROM sqlite_master", &tables, NULL, err))
        return -1;
    *empty = tables == 0 && application == 0;
    if (!*empty && application != APPLICATION_ID)
        return erg_fail(err, ERG_FAILED,
                        "opening the measurement store '%s': the file is a database of another "
                        "program; name a file of ergon's own",
                        store->path);
    if (!*empty && version != SCHEMA_VERSION)
        return erg_fail(err, ERG_FAILED,
                        "opening the measurement store '%s': it has format %lld, this version of "
                        "ergon reads format %d",
                        store->path, (long long)version, SCHEMA_VERSION);
    return 0;
}

static int create(struct erg_store *store, struct erg_error *err)
{
    bool empty;
    char identity[96];
    snprintf(identity, sizeof identity, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             APPLICATION_ID, SCHEMA_VERSION);
    if (execute(store, "BEGIN IMMEDIATE", err) != 0)
        return -1;
    int result = check_identity(store, &empty, err); /* another run may have been faster */
    if (result == 0 && empty)
        result = execute(store, create_sql, err) || execute(store, identity, err) ? -1 : 0;
    if (sqlite3_exec(store->database, result == 0 ? "COMMIT" : "ROLLBACK", NULL, NULL, NULL) !=
            SQLITE_OK &&
        result == 0)
        result = fail(store, "opening", err);
    return result;
}

static int check_integrity(struct erg_store *store, struct erg_error *err)
{
    struct erg_text verdict = {0};
    int64_t unused;
    int result = query(store, "PRAGMA quick_check(1)", &unused, &verdict, err);
    if (result == 0 && strcmp(verdict.data, "ok") != 0)
        result = erg_fail(err, ERG_FAILED,
                          "opening the measurement store '%s': the file is damaged (%.200s); move "
                          "it away to start a new one",
                          store->path, verdict.data);
    erg_text_release(&verdict);
    return result;
}

static int prepare(struct erg_store *store, struct erg_error *err)
{
    const struct {
        const char *sql;
        sqlite3_stmt **statement;
    } all[] = {{get_sql, &store->get},
               {put_sql, &store->put},
               {count_sql, &store->count},
               {each_sql, &store->each}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (sqlite3_prepare_v3(store->database, all[i].sql, -1, SQLITE_PREPARE_PERSISTENT,
                               all[i].statement, NULL) != SQLITE_OK)
            return fail(store, "opening", err);
    }
    return 0;
}

static int set_up(struct erg_store *store, struct erg_error *err)
{
    bool empty;
    sqlite3_busy_timeout(store->database, BUSY_TIMEOUT_MS);
    /* One transaction, so that another run's creation is seen whole or not at all. */
    if (execute(store, "BEGIN", err) || check_identity(store, &empty, err) ||
        execute(store, "COMMIT", err))
        return -1;
    if (sqlite3_db_readonly(store->database, "main") == 1)
        return erg_fail(err, ERG_FAILED,
                        "opening the measurement store '%s': the file is write-protected",
                        store->path);
    if (!empty && check_integrity(store, err) != 0)
        return -1;
    if (enter_wal(store, err) != 0)
        return -1;
    if (empty && create(store, err) != 0)
        return -1;
    return prepare(store, err);
}

int erg_store_open(struct erg_store **out, const char *path, struct erg_error *err)
{
    struct erg_store *store = erg_xcalloc(1, sizeof *store);
    pthread_mutex_init(&store->mutex, NULL);
    store->path = erg_xstrdup(path);
    int result;
    if (sqlite3_open_v2(path, &store->database,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        NULL) == SQLITE_OK)
        result = set_up(store, err);
    else
        result = fail(store, "opening", err);
    if (result != 0) {
        erg_store_close(store);
        return -1;
    }
    *out = store;
    return 0;
}

void erg_store_close(struct erg_store *store)
{
    if (!store)
        return;
    sqlite3_finalize(store->get);
    sqlite3_finalize(store->put);
    sqlite3_finalize(store->count);
    sqlite3_finalize(store->each);
    sqlite3_close(store->database);
    pthread_mutex_destroy(&store->mutex);
    free(store->path);
    free(store);
}

static void bind_key(sqlite3_stmt *statement, const struct erg_store_key *key)
{
    sqlite3_bind_text(statement, 1, key->device, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, key->signature, -1, SQLITE_STATIC);
    sqlite3_bind_int(statement, 3, key->clock_mhz);
    sqlite3_bind_int(statement, 4, key->slot);
    sqlite3_bind_int(statement, 5, key->sms);
    sqlite3_bind_int(statement, 6, (int)key->kind);
    sqlite3_bind_int64(statement, 7, key->repeat);
}

/* SQLite stores NaN as NULL. */
static double real(sqlite3_stmt *statement, int column)
{
    return sqlite3_column_type(statement, column) == SQLITE_NULL
               ? NAN
               : sqlite3_column_double(statement, column);
}

static void read_value(sqlite3_stmt *statement, int column, struct erg_store_value *value)
{
    double *const fields[] = {&value->time_s,
                              &value->energy_j,
                              &value->time_error,
                              &value->energy_error,
                              &value->clock_effective_mhz,
                              &value->temperature_begin_c,
                              &value->temperature_end_c,
                              &value->window_s};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        *fields[i] = real(statement, column++);
    value->reasons = (uint32_t)sqlite3_column_int64(statement, column);
}

static void finish(struct erg_store *store, sqlite3_stmt *statement)
{
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    pthread_mutex_unlock(&store->mutex);
}

int erg_store_get(struct erg_store *store, const struct erg_store_key *key,
                  struct erg_store_value *value, bool *found, struct erg_error *err)
{
    pthread_mutex_lock(&store->mutex);
    bind_key(store->get, key);
    int code = sqlite3_step(store->get);
    if (code == SQLITE_ROW)
        read_value(store->get, 0, value);
    int result = code == SQLITE_ROW || code == SQLITE_DONE ? 0 : fail(store, "reading", err);
    *found = code == SQLITE_ROW;
    finish(store, store->get);
    return result;
}

int erg_store_put(struct erg_store *store, const struct erg_store_row *row, bool *inserted,
                  struct erg_error *err)
{
    const struct erg_store_value *value = &row->value;
    const double numbers[] = {value->time_s,
                              value->energy_j,
                              value->time_error,
                              value->energy_error,
                              value->clock_effective_mhz,
                              value->temperature_begin_c,
                              value->temperature_end_c,
                              value->window_s};
    if (!(value->time_s > 0 && isfinite(value->time_s)))
        return erg_fail(err, ERG_FAILED,
                        "storing a measurement of '%s' in '%s': expected a positive time, got %g s",
                        row->work_name, store->path, value->time_s);
    char now[24];
    erg_utc_now(now, sizeof now);

    pthread_mutex_lock(&store->mutex);
    sqlite3_stmt *put = store->put;
    bind_key(put, &row->key);
    sqlite3_bind_text(put, 8, row->work_name, -1, SQLITE_STATIC);
    sqlite3_bind_text(put, 9, row->slot_name, -1, SQLITE_STATIC);
    for (int i = 0; i < (int)(sizeof numbers / sizeof *numbers); i++)
        sqlite3_bind_double(put, 10 + i, numbers[i]);
    sqlite3_bind_int64(put, 18, value->reasons);
    sqlite3_bind_text(put, 19, now, -1, SQLITE_STATIC);
    int result = sqlite3_step(put) == SQLITE_DONE ? 0 : fail(store, "writing to", err);
    if (inserted)
        *inserted = result == 0 && sqlite3_changes(store->database) > 0;
    finish(store, put);
    return result;
}

static void bind_filter(sqlite3_stmt *statement, const char *device, const char *signature)
{
    if (device) /* what is not bound is NULL */
        sqlite3_bind_text(statement, 1, device, -1, SQLITE_STATIC);
    if (signature)
        sqlite3_bind_text(statement, 2, signature, -1, SQLITE_STATIC);
}

int erg_store_count(struct erg_store *store, const char *device, const char *signature,
                    size_t *count, struct erg_error *err)
{
    pthread_mutex_lock(&store->mutex);
    bind_filter(store->count, device, signature);
    int result = 0;
    if (sqlite3_step(store->count) == SQLITE_ROW)
        *count = (size_t)sqlite3_column_int64(store->count, 0);
    else
        result = fail(store, "reading", err);
    finish(store, store->count);
    return result;
}

int erg_store_each(struct erg_store *store, const char *device, const char *signature,
                   int (*visit)(void *context, const struct erg_store_row *row,
                                struct erg_error *err),
                   void *context, struct erg_error *err)
{
    pthread_mutex_lock(&store->mutex);
    sqlite3_stmt *each = store->each;
    bind_filter(each, device, signature);
    int code, result = 0;
    while (result == 0 && (code = sqlite3_step(each)) != SQLITE_DONE) {
        if (code != SQLITE_ROW) {
            result = fail(store, "reading", err);
            break;
        }
        struct erg_store_row row = {
            .key = {.device = (const char *)sqlite3_column_text(each, 0),
                    .signature = (const char *)sqlite3_column_text(each, 1),
                    .clock_mhz = sqlite3_column_int(each, 2),
                    .slot = sqlite3_column_int(each, 3),
                    .sms = sqlite3_column_int(each, 4),
                    .kind = (enum erg_store_kind)sqlite3_column_int(each, 5),
                    .repeat = sqlite3_column_int64(each, 6)},
            .work_name = (const char *)sqlite3_column_text(each, 7),
            .slot_name = (const char *)sqlite3_column_text(each, 8),
            .created_utc = (const char *)sqlite3_column_text(each, 18),
        };
        read_value(each, 9, &row.value);
        result = visit(context, &row, err);
    }
    finish(store, each);
    return result;
}
