/* The store of measurements. */
#include "io/store.h"

#include "base/clock.h"
#include "base/memory.h"
#include "io/database.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

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

static const char each_sql[] =
    "SELECT device, signature, clock_mhz, slot, sms, kind, repeat, work_name, slot_name, time_s,"
    " energy_j, time_error, energy_error, clock_effective_mhz, temperature_begin_c,"
    " temperature_end_c, window_s, reasons, created_utc FROM measurement ORDER BY id";

static const struct erg_database_format format = {
    .name = "measurement store",
    .application_id = 0x6572676e, /* "ergn" */
    .version = 1,
    .create_sql = "CREATE TABLE measurement ("
                  " id INTEGER PRIMARY KEY,"
                  " device TEXT NOT NULL, signature TEXT NOT NULL,"
                  " clock_mhz INTEGER NOT NULL, slot INTEGER NOT NULL, sms INTEGER NOT NULL,"
                  " kind INTEGER NOT NULL, repeat INTEGER NOT NULL,"
                  " work_name TEXT NOT NULL, slot_name TEXT NOT NULL,"
                  " time_s REAL NOT NULL, energy_j REAL, time_error REAL, energy_error REAL,"
                  " clock_effective_mhz REAL, temperature_begin_c REAL, temperature_end_c REAL,"
                  " window_s REAL, reasons INTEGER NOT NULL, created_utc TEXT NOT NULL,"
                  " UNIQUE (device, signature, clock_mhz, slot, sms, kind, repeat))",
    .get_sql = get_sql,
    .put_sql = put_sql,
    .each_sql = each_sql,
};

struct erg_store {
    struct erg_database database;
    pthread_mutex_t mutex; /* statements are shared by all threads */
};

int erg_store_open(struct erg_store **out, const char *path, struct erg_error *err)
{
    struct erg_store *store = erg_xcalloc(1, sizeof *store);
    struct erg_database *database = &store->database;
    if (erg_database_open(database, path, &format, err) != 0) {
        free(store);
        return -1;
    }
    pthread_mutex_init(&store->mutex, NULL);
    *out = store;
    return 0;
}

void erg_store_close(struct erg_store *store)
{
    if (!store)
        return;
    erg_database_close(&store->database);
    pthread_mutex_destroy(&store->mutex);
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

static void read_value(sqlite3_stmt *statement, int column, struct erg_measurement *value)
{
    double *const fields[] = {&value->time_s,
                              &value->energy_j,
                              &value->time_sd,
                              &value->energy_sd,
                              &value->clock_mhz,
                              &value->temperature_start_c,
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

static bool positive(double number)
{
    return number > 0 && isfinite(number);
}

/* Another program may have changed the stored data. */
static int check_value(const struct erg_store *store, const struct erg_store_key *key,
                       const struct erg_measurement *value, struct erg_error *err)
{
    if (positive(value->time_s) &&
        (key->kind == ERG_STORE_TIME_ONLY || positive(value->energy_j)) && !(value->time_sd < 0) &&
        !(value->energy_sd < 0))
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "reading '%s': the row with signature %s, %d MHz, slot %d, %d SMs holds %g s "
                    "and %g J with relative errors %g and %g, expected positive numbers; move the "
                    "file away to start a new one",
                    store->database.path, key->signature, key->clock_mhz, key->slot, key->sms,
                    value->time_s, value->energy_j, value->time_sd, value->energy_sd);
}

int erg_store_get(struct erg_store *store, const struct erg_store_key *key,
                  struct erg_measurement *value, bool *found, struct erg_error *err)
{
    pthread_mutex_lock(&store->mutex);
    bind_key(store->database.get, key);
    int code = sqlite3_step(store->database.get), result = 0;
    if (code == SQLITE_ROW) {
        read_value(store->database.get, 0, value);
        result = check_value(store, key, value, err);
    } else if (code != SQLITE_DONE) {
        result = erg_database_fail(&store->database, "reading", err);
    }
    *found = code == SQLITE_ROW;
    finish(store, store->database.get);
    return result;
}

int erg_store_put(struct erg_store *store, const struct erg_store_row *row, bool *inserted,
                  struct erg_error *err)
{
    const struct erg_measurement *value = &row->value;
    const double numbers[] = {value->time_s,
                              value->energy_j,
                              value->time_sd,
                              value->energy_sd,
                              value->clock_mhz,
                              value->temperature_start_c,
                              value->temperature_end_c,
                              value->window_s};
    if (!positive(value->time_s))
        return erg_fail(err, ERG_FAILED,
                        "storing a measurement of '%s' in '%s': expected a positive time, got %g s",
                        row->work_name, store->database.path, value->time_s);
    char now[24];
    erg_utc_now(now, sizeof now);

    pthread_mutex_lock(&store->mutex);
    sqlite3_stmt *put = store->database.put;
    bind_key(put, &row->key);
    sqlite3_bind_text(put, 8, row->work_name, -1, SQLITE_STATIC);
    sqlite3_bind_text(put, 9, row->slot_name, -1, SQLITE_STATIC);
    for (int i = 0; i < (int)(sizeof numbers / sizeof *numbers); i++)
        sqlite3_bind_double(put, 10 + i, numbers[i]);
    sqlite3_bind_int64(put, 18, value->reasons);
    sqlite3_bind_text(put, 19, now, -1, SQLITE_STATIC);
    int result = sqlite3_step(put) == SQLITE_DONE
                     ? 0
                     : erg_database_fail(&store->database, "writing to", err);
    if (inserted)
        *inserted = result == 0 && sqlite3_changes(store->database.handle) > 0;
    finish(store, put);
    return result;
}

int erg_store_each(struct erg_store *store,
                   int (*visit)(void *context, const struct erg_store_row *row,
                                struct erg_error *err),
                   void *context, struct erg_error *err)
{
    pthread_mutex_lock(&store->mutex);
    sqlite3_stmt *each = store->database.each;
    int code, result = 0;
    while (result == 0 && (code = sqlite3_step(each)) != SQLITE_DONE) {
        if (code != SQLITE_ROW) {
            result = erg_database_fail(&store->database, "reading", err);
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
