/* How results come to a stream: documents, tables, sizes. */
#ifndef ERG_IO_PRINT_H
#define ERG_IO_PRINT_H

#include "base/table.h"

#include <jansson.h>
#include <stdio.h>

/* Takes the document. */
void erg_print_json(FILE *out, json_t *document);

/* The first row of a table, which has as many columns then. */
void erg_print_heads(struct erg_table *table, const char *const *heads, size_t count);

/* Lines that begin with `indent`. Releases the table. */
void erg_print_table(FILE *out, struct erg_table *table, const char *indent);

static inline double erg_gib(double bytes)
{
    return bytes / 0x1p30;
}

#endif
