/* Documents and tables on standard output. */
#include "cli/print.h"

#include "io/json.h"

#include <stdio.h>
#include <stdlib.h>

void erg_print_json(json_t *document)
{
    char *text = erg_json_text(document);
    puts(text);
    free(text);
    json_decref(document);
}

void erg_print_heads(struct erg_table *table, const char *const *heads, size_t count)
{
    table->columns = count;
    for (size_t i = 0; i < count; i++)
        erg_table_add(table, "%s", heads[i]);
}

void erg_print_table(struct erg_table *table, const char *indent)
{
    struct erg_text text = {0};
    erg_table_text(&text, table, indent);
    fputs(text.data, stdout);
    erg_text_release(&text);
    erg_table_release(table);
}
