/* How results of any command come to standard output: documents, tables, sizes. */
#ifndef ERG_CLI_PRINT_H
#define ERG_CLI_PRINT_H

#include "observe/table.h"

#include <jansson.h>

/* Takes the document. */
void erg_print_json(json_t *document);

/* The first row of a table, which has as many columns then. */
void erg_print_heads(struct erg_table *table, const char *const *heads, size_t count);

/* Lines that begin with `indent`. Releases the table. */
void erg_print_table(struct erg_table *table, const char *indent);

static inline double erg_gib(double bytes)
{
    return bytes / 0x1p30;
}

#endif
