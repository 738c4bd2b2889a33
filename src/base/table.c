/* Tables of text: their columns are aligned. */
#include "base/table.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t erg_text_width(const char *text)
{
    size_t columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xC0) != 0x80;
    return columns;
}

void erg_text_add_padded(struct erg_text *out, const char *text, size_t columns, bool right)
{
    size_t width = erg_text_width(text);
    int pad = width < columns ? (int)(columns - width) : 0;
    if (right)
        erg_text_printf(out, "%*s", pad, "");
    erg_text_add(out, text);
    if (!right)
        erg_text_printf(out, "%*s", pad, "");
}

void erg_table_add(struct erg_table *table, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ERG_PUSH(table, items, erg_xstrdup(text));
}

void erg_table_add_number(struct erg_table *table, int digits, double value)
{
    char text[64];
    snprintf(text, sizeof text, "%.*e", digits - 1, value);
    const char *exponent = strchr(text, 'e'); /* none: infinite, or no number */
    int decimals = exponent ? digits - 1 - atoi(exponent + 1) : 0;
    erg_table_add(table, "%.*f", decimals > 0 ? decimals : 0, value);
}

void erg_table_text(struct erg_text *out, const struct erg_table *table, const char *indent)
{
    size_t *widths = erg_xcalloc(table->columns + 1, sizeof *widths);
    for (size_t i = 0; i < table->count; i++) {
        size_t width = erg_text_width(table->items[i]), column = i % table->columns;
        if (width > widths[column])
            widths[column] = width;
    }
    for (size_t i = 0; i < table->count; i++) {
        size_t column = i % table->columns;
        erg_text_add(out, column ? "  " : indent);
        if (column + 1 < table->columns)
            erg_text_add_padded(out, table->items[i], widths[column], column > 0);
        else
            erg_text_printf(out, "%s\n", table->items[i]);
    }
    free(widths);
}

void erg_table_release(struct erg_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->items[i]);
    free(table->items);
    *table = (struct erg_table){0};
}
