/*
 * CSV: tables with a header row.
 *
 * The reader takes a whole file into memory: comma-separated, fields optionally in double quotes
 * (a quote inside is doubled, line breaks inside are kept), LF or CRLF, an optional byte-order
 * mark. Empty lines are skipped; blanks around unquoted fields are dropped. A row with more or
 * fewer fields than the header is an error. Every error names file and line.
 */
#ifndef ERG_IO_CSV_H
#define ERG_IO_CSV_H

#include "base/text.h"
#include "ergon/error.h"

#include <stddef.h>

struct erg_csv;

int erg_csv_load(struct erg_csv **csv, const char *path, struct erg_error *err);

/* The same from memory; `name` stands for the file in messages. */
int erg_csv_parse(struct erg_csv **csv, const char *name, const char *text, size_t length,
                  struct erg_error *err);
/* The same for a table with possibly invalid rows: these are left out. */
struct erg_csv_broken {
    size_t rows;
    struct erg_error first; /* the error of the first of them */
};
int erg_csv_parse_sound(struct erg_csv **csv, struct erg_csv_broken *broken, const char *name,
                        const char *text, size_t length, struct erg_error *err);
void erg_csv_free(struct erg_csv *csv);

size_t erg_csv_rows(const struct erg_csv *csv);
const char *erg_csv_header(const struct erg_csv *csv, size_t column); /* NULL: the table lacks it */
size_t erg_csv_line(const struct erg_csv *csv, size_t row); /* where the row starts, from 1 */

/* The column with that name: required (an error lists the columns), or optional (-1 if absent). */
int erg_csv_require(const struct erg_csv *csv, const char *name, size_t *column,
                    struct erg_error *err);
ptrdiff_t erg_csv_find(const struct erg_csv *csv, const char *name);

/* Fields. Rows count from 0 after the header. Numbers must fill the field and be finite; a whole
 * number may be written as others write it, 1410.0. */
const char *erg_csv_text(const struct erg_csv *csv, size_t row, size_t column);
int erg_csv_double(const struct erg_csv *csv, size_t row, size_t column, double *value,
                   struct erg_error *err);
int erg_csv_long(const struct erg_csv *csv, size_t row, size_t column, long *value,
                 struct erg_error *err);

/* An error about a row that only the caller can see: "file:line: message". Returns -1. */
int erg_csv_fail(const struct erg_csv *csv, size_t row, struct erg_error *err, const char *format,
                 ...) ERG_PRINTF(4, 5);

/*
 * Writing, into a text that goes to erg_file_write(): fields one by one (commas and quotes are
 * added as needed), then the end of the row. Numbers use as few digits as read back exactly; a
 * number that is not finite is an empty field.
 */
void erg_csv_add(struct erg_text *out, const char *field);
void erg_csv_add_double(struct erg_text *out, double value);
void erg_csv_add_long(struct erg_text *out, long value);
void erg_csv_end_row(struct erg_text *out);

#endif
