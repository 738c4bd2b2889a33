/* A store of JSON documents by key. */
#include "io/documents.h"

#include "base/clock.h"
#include "base/memory.h"
#include "io/database.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char get_sql[] = "SELECT content FROM document WHERE key = ?1";
static const char put_sql[] = "INSERT INTO document (key, about, content, created_utc)"
                              " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key) DO NOTHING";
static const char each_sql[] = "SELECT key, about, content, created_utc FROM document";

static const struct erg_database_format format = {
    .name = "store of documents",
    .application_id = 0x65726764, /* "ergd" */
    .version = 1,
    .create_sql = "CREATE TABLE document (key TEXT PRIMARY KEY, about TEXT NOT NULL,"
                  " content TEXT NOT NULL, created_utc TEXT NOT NULL)",
    .get_sql = get_sql,
    .put_sql = put_sql,
    .each_sql = each_sql,
};

struct erg_documents {
    struct erg_database database;
};

int erg_documents_open(struct erg_documents **out, const char *path, struct erg_error *err)
{
    struct erg_documents *documents = erg_xcalloc(1, sizeof *documents);
    struct erg_database *database = &documents->database;
    if (erg_database_open(database, path, &format, err) != 0) {
        free(documents);
        return -1;
    }
    *out = documents;
    return 0;
}

void erg_documents_close(struct erg_documents *documents)
{
    if (!documents)
        return;
    erg_database_close(&documents->database);
    free(documents);
}

int erg_documents_get(struct erg_documents *documents, const char *key, json_t **document,
                      struct erg_error *err)
{
    sqlite3_stmt *get = documents->database.get;
    int result = 0;
    *document = NULL;
    sqlite3_bind_text(get, 1, key, -1, SQLITE_STATIC);
    int code = sqlite3_step(get);
    if (code == SQLITE_ROW)
        result = erg_json_parse(document, documents->database.path,
                                (const char *)sqlite3_column_text(get, 0),
                                (size_t)sqlite3_column_bytes(get, 0), err);
    else if (code != SQLITE_DONE)
        result = erg_database_fail(&documents->database, "reading", err);
    sqlite3_reset(get);
    return result;
}

int erg_documents_fail(const struct erg_documents *documents, const char *key, const char *why,
                       struct erg_error *err)
{
    return erg_fail(err, ERG_FAILED,
                    "reading the %s '%s': the document '%s' is damaged (%s); move the file away to "
                    "start a new one",
                    format.name, documents->database.path, key, why);
}

/* A row as texts: key, about, content, created_utc. */
enum { COLUMNS = 4 };

static int put_row(struct erg_documents *documents, const char *const *row, struct erg_error *err)
{
    sqlite3_stmt *put = documents->database.put;
    for (int i = 0; i < COLUMNS; i++)
        sqlite3_bind_text(put, 1 + i, row[i], -1, SQLITE_STATIC);
    int result = sqlite3_step(put) == SQLITE_DONE
                     ? 0
                     : erg_database_fail(&documents->database, "writing to", err);
    sqlite3_reset(put);
    sqlite3_clear_bindings(put);
    return result;
}

int erg_documents_put(struct erg_documents *documents, const char *key, const json_t *about,
                      const json_t *document, struct erg_error *err)
{
    char now[24];
    char *about_text = json_dumps(about, JSON_COMPACT);
    char *content = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(17));
    erg_utc_now(now, sizeof now);
    const char *const row[COLUMNS] = {key, about_text, content, now};
    int result = put_row(documents, row, err);
    free(about_text);
    free(content);
    return result;
}

static int add_all(struct erg_documents *documents, struct erg_documents *from,
                   struct erg_error *err)
{
    int code;
    while ((code = sqlite3_step(from->database.each)) == SQLITE_ROW) {
        const char *row[COLUMNS];
        for (int i = 0; i < COLUMNS; i++)
            if (!(row[i] = (const char *)sqlite3_column_text(from->database.each, i)))
                return erg_documents_fail(from, row[0] ? row[0] : "without a key",
                                          "it is not whole", err);
        if (put_row(documents, row, err) != 0)
            return -1;
    }
    return code == SQLITE_DONE ? 0 : erg_database_fail(&from->database, "reading", err);
}

int erg_documents_merge(struct erg_documents *documents, const char *path, size_t *added,
                        struct erg_error *err)
{
    struct erg_database *database = &documents->database;
    struct erg_documents *from;
    if (access(path, F_OK) != 0) /* opening would make it */
        return erg_fail(err, ERG_FAILED, "merging the %s '%s': there is no such file", format.name,
                        path);
    if (erg_documents_open(&from, path, err) != 0)
        return -1;
    int before = sqlite3_total_changes(database->handle);
    int result = erg_database_execute(database, "BEGIN IMMEDIATE", "writing to", err);
    if (result == 0) { /* in one step: the disk is waited for once */
        result = add_all(documents, from, err);
        if (result == 0)
            result = erg_database_execute(database, "COMMIT", "writing to", err);
        if (result != 0)
            sqlite3_exec(database->handle, "ROLLBACK", NULL, NULL, NULL);
    }
    if (result == 0 && added)
        *added = (size_t)(sqlite3_total_changes(database->handle) - before);
    erg_documents_close(from);
    return result;
}
