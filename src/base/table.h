/*
 * Table: cells that are lined up when all are known. The first and the last column are flush left,
 * those between them flush right.
 */
#ifndef ERG_BASE_TABLE_H
#define ERG_BASE_TABLE_H

#include "base/text.h"

#include <stddef.h>

/* A zeroed struct with only `columns` set is a valid empty table. */
struct erg_table {
    size_t columns;
    char **items; /* cells, row after row */
    size_t count, capacity;
};

/* The next cell. */
void erg_table_add(struct erg_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The next cell: a number with at least the given significant digits, 5.950 and 12346, so that the
 * numbers of a column have the same precision. */
void erg_table_add_number(struct erg_table *table, int digits, double value);

/* Adds whole rows as lines that begin with `indent`; the table stays. */
void erg_table_text(struct erg_text *out, const struct erg_table *table, const char *indent);
void erg_table_release(struct erg_table *table);

/* Columns that a text takes on a terminal: bytes that do not continue a UTF-8 character. */
size_t erg_text_width(const char *text);

/* Adds the text with blanks to a width, on its left when `right`. */
void erg_text_add_padded(struct erg_text *out, const char *text, size_t columns, bool right);

#endif
