/* Documents and tables on a stream. */
#include "io/print.h"

#include "io/json.h"

#include <stdlib.h>

void erg_print_json(FILE *out, json_t *document)
{
    char *text = erg_json_text(document);
    fprintf(out, "%s\n", text);
    free(text);
    json_decref(document);
}

void erg_print_heads(struct erg_table *table, const char *const *heads, size_t count)
{
    table->columns = count;
    for (size_t i = 0; i < count; i++)
        erg_table_add(table, "%s", heads[i]);
}

void erg_print_table(FILE *out, struct erg_table *table, const char *indent)
{
    struct erg_text text = {0};
    erg_table_text(&text, table, indent);
    fputs(text.data, out);
    erg_text_release(&text);
    erg_table_release(table);
}
