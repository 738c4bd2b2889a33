/* Functions for all SQLite files of ergon: opening, checking, messages. */
#include "io/database.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    BUSY_TIMEOUT_MS = 30000, /* another run's change takes milliseconds */
    BUSY_RETRY_MS = 20,
};

/* Why the file cannot be opened; SQLite's own answer is that of its last attempt, to read only. */
static const char *why_not_opened(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return strerror(errno);
    close(file);
    return "it can be opened now";
}

int erg_database_fail(const struct erg_database *database, const char *doing, struct erg_error *err)
{
    const char *name = database->format->name, *said = sqlite3_errmsg(database->handle);
    int code = sqlite3_errcode(database->handle);
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        return erg_fail(err, ERG_FAILED,
                        "%s the %s '%s': the file is damaged or no store at all (%s); move it away "
                        "to start a new one",
                        doing, name, database->path, said);
    if (code == SQLITE_CANTOPEN)
        return erg_fail(err, ERG_FAILED, "%s the %s '%s': %s (%s)", doing, name, database->path,
                        said, why_not_opened(database->path));
    int reason = sqlite3_system_errno(database->handle); /* of a full disk, a file too large */
    if (code == SQLITE_IOERR && reason)
        return erg_fail(err, ERG_FAILED, "%s the %s '%s': %s (%s)", doing, name, database->path,
                        said, strerror(reason));
    return erg_fail(err, ERG_FAILED, "%s the %s '%s': %s", doing, name, database->path, said);
}

int erg_database_execute(struct erg_database *database, const char *sql, const char *doing,
                         struct erg_error *err)
{
    if (sqlite3_exec(database->handle, sql, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return erg_database_fail(database, doing, err);
}

static int prepare(struct erg_database *database, sqlite3_stmt **statement, const char *sql,
                   struct erg_error *err)
{
    if (sqlite3_prepare_v3(database->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, statement, NULL) ==
        SQLITE_OK)
        return 0;
    return erg_database_fail(database, "opening", err);
}

/* The first column of the first row as a number, and as text when `text` is not NULL. */
static int query(struct erg_database *database, const char *sql, int64_t *number,
                 struct erg_text *text, struct erg_error *err)
{
    sqlite3_stmt *statement = NULL;
    int result = -1;
    if (sqlite3_prepare_v2(database->handle, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
        *number = sqlite3_column_int64(statement, 0);
        if (text)
            erg_text_add(text, (const char *)sqlite3_column_text(statement, 0));
        result = 0;
    } else {
        erg_database_fail(database, "opening", err);
    }
    sqlite3_finalize(statement);
    return result;
}

/* Switching to WAL takes a lock that SQLite does not wait for when two runs start together. */
static int enter_wal(struct erg_database *database, struct erg_error *err)
{
    for (int waited_ms = 0;; waited_ms += BUSY_RETRY_MS) {
        int code = sqlite3_exec(database->handle, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
        if (code == SQLITE_OK)
            return erg_database_execute(database, "PRAGMA synchronous = FULL", "opening", err);
        if (code != SQLITE_BUSY || waited_ms >= BUSY_TIMEOUT_MS)
            return erg_database_fail(database, "opening", err);
        nanosleep(&(struct timespec){.tv_nsec = BUSY_RETRY_MS * 1000000L}, NULL);
    }
}

/* Refuses files of other programs; *empty: the file contains nothing yet. */
static int check_identity(struct erg_database *database, bool *empty, struct erg_error *err)
{
    const struct erg_database_format *format = database->format;
    int64_t application, version, tables;
    if (query(database, "PRAGMA application_id", &application, NULL, err) ||
        query(database, "PRAGMA user_version", &version, NULL, err) ||
        query(database, "SELECT count(*) FROM sqlite_master", &tables, NULL, err))
        return -1;
    *empty = tables == 0 && application == 0;
    if (!*empty && application != format->application_id)
        return erg_fail(err, ERG_FAILED,
                        "opening the %s '%s': the file is a database of another program; name a "
                        "file of ergon's own",
                        format->name, database->path);
    if (!*empty && version != format->version)
        return erg_fail(
            err, ERG_FAILED,
            "opening the %s '%s': it has format %lld, but this version of ergon reads format %d",
            format->name, database->path, (long long)version, format->version);
    return 0;
}

static int create(struct erg_database *database, struct erg_error *err)
{
    bool empty;
    char identity[96];
    snprintf(identity, sizeof identity, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             database->format->application_id, database->format->version);
    if (erg_database_execute(database, "BEGIN IMMEDIATE", "opening", err) != 0)
        return -1;
    int result = check_identity(database, &empty, err); /* another run may have been faster */
    if (result == 0 && empty)
        result = erg_database_execute(database, database->format->create_sql, "opening", err) ||
                         erg_database_execute(database, identity, "opening", err)
                     ? -1
                     : 0;
    if (sqlite3_exec(database->handle, result == 0 ? "COMMIT" : "ROLLBACK", NULL, NULL, NULL) !=
            SQLITE_OK &&
        result == 0)
        result = erg_database_fail(database, "opening", err);
    return result;
}

/* A file of another program may carry ergon's marks: its tables have to be those that ergon makes,
 * each by the very statement. */
static int check_tables(struct erg_database *database, struct erg_error *err)
{
    static const char sql[] = "SELECT count(*), sum(type = 'table' AND instr(';' || ?1 || ';', "
                              "';' || sql || ';') > 0) FROM sqlite_master"
                              " WHERE type <> 'index' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    static const char table[] = "CREATE TABLE ";
    const char *create = database->format->create_sql;
    sqlite3_stmt *statement = NULL;
    int result = 0, tables = 0;
    for (const char *at = create; (at = strstr(at, table)); at += sizeof table - 1)
        tables++;
    if (sqlite3_prepare_v2(database->handle, sql, -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_bind_text(statement, 1, create, -1, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW)
        result = erg_database_fail(database, "opening", err);
    else if (sqlite3_column_int64(statement, 0) != tables ||
             sqlite3_column_int64(statement, 1) != tables)
        result = erg_fail(err, ERG_FAILED,
                          "opening the %s '%s': its tables are not those that ergon makes; move it "
                          "away to start a new one",
                          database->format->name, database->path);
    sqlite3_finalize(statement);
    return result;
}

static int check_integrity(struct erg_database *database, struct erg_error *err)
{
    struct erg_text verdict = {0};
    int64_t unused;
    int result = query(database, "PRAGMA quick_check(1)", &unused, &verdict, err);
    if (result == 0 && strcmp(verdict.data, "ok") != 0) {
        for (char *at = verdict.data; (at = strchr(at, '\n'));) /* one sentence is one line */
            *at = ' ';
        result = erg_fail(err, ERG_FAILED,
                          "opening the %s '%s': the file is damaged (%.200s); move it away to "
                          "start a new one",
                          database->format->name, database->path, verdict.data);
    }
    erg_text_release(&verdict);
    return result;
}

static int set_up(struct erg_database *database, struct erg_error *err)
{
    bool empty;
    sqlite3_busy_timeout(database->handle, BUSY_TIMEOUT_MS);
    /* One transaction, so that another run's creation is seen whole or not at all. */
    if (erg_database_execute(database, "BEGIN", "opening", err) ||
        check_identity(database, &empty, err) ||
        erg_database_execute(database, "COMMIT", "opening", err))
        return -1;
    if (sqlite3_db_readonly(database->handle, "main") == 1)
        return erg_fail(err, ERG_FAILED, "opening the %s '%s': the file is write-protected",
                        database->format->name, database->path);
    if (!empty && (check_tables(database, err) || check_integrity(database, err)))
        return -1;
    if (enter_wal(database, err) || (empty && create(database, err)))
        return -1;
    const struct erg_database_format *format = database->format;
    return prepare(database, &database->get, format->get_sql, err) ||
                   prepare(database, &database->put, format->put_sql, err) ||
                   prepare(database, &database->each, format->each_sql, err)
               ? -1
               : 0;
}

int erg_database_open(struct erg_database *database, const char *path,
                      const struct erg_database_format *format, struct erg_error *err)
{
    *database = (struct erg_database){.format = format, .path = erg_xstrdup(path)};
    int result = erg_file_refuse_fifo(path, err);
    if (result == 0 &&
        sqlite3_open_v2(path, &database->handle,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        NULL) == SQLITE_OK)
        result = set_up(database, err);
    else if (result == 0)
        result = erg_database_fail(database, "opening", err);
    if (result != 0)
        erg_database_close(database);
    return result;
}

void erg_database_close(struct erg_database *database)
{
    sqlite3_finalize(database->get);
    sqlite3_finalize(database->put);
    sqlite3_finalize(database->each);
    sqlite3_close(database->handle);
    free(database->path);
    *database = (struct erg_database){0};
}
