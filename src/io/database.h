/*
 * Databases: functions for all SQLite files of ergon. Each carries ergon's mark and the number of
 * its format; a file of another program, of a newer ergon, or a damaged one is refused and left
 * untouched. A change is on the disk when its statement returns (WAL, synchronous=FULL), and
 * several processes may use one file at the same time.
 */
#ifndef ERG_IO_DATABASE_H
#define ERG_IO_DATABASE_H

#include "ergon/error.h"

#include <sqlite3.h>

/* A kind of file; constant data. */
struct erg_database_format {
    const char *name;   /* in messages: "measurement store" */
    int application_id; /* identifies this kind of file */
    int version;
    const char *create_sql; /* its tables */
    const char *get_sql, *put_sql, *each_sql;
};

struct erg_database {
    sqlite3 *handle;                /* for statements; without a mutex of its own */
    sqlite3_stmt *get, *put, *each; /* the format's */
    const struct erg_database_format *format;
    char *path;
};

/* Opens the file, or makes it; its folder must exist. */
int erg_database_open(struct erg_database *database, const char *path,
                      const struct erg_database_format *format, struct erg_error *err);

/* All-zero is fine. */
void erg_database_close(struct erg_database *database);

/* Runs statements that return no rows; `doing` is for messages: "writing to". */
int erg_database_execute(struct erg_database *database, const char *sql, const char *doing,
                         struct erg_error *err);

/* The error of the last call of SQLite: "reading the measurement store 'x.db': …". Returns -1. */
int erg_database_fail(const struct erg_database *database, const char *doing,
                      struct erg_error *err);

#endif
