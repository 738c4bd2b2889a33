/* CSV: tables with a header row, read and written (io/csv.h). */
#include "io/csv.h"

#include "base/memory.h"
#include "io/file.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTE_ORDER_MARK "\xef\xbb\xbf"

struct erg_csv {
    char *name;
    char *data; /* the text, cut into NUL-terminated fields in place */
    struct {
        char **items; /* header first, then row by row */
        size_t count, capacity;
    } fields;
    struct {
        size_t *items; /* of the header and of every row */
        size_t count, capacity;
    } lines;
    size_t columns;
};

struct csv_cursor {
    char *at, *end;
    size_t line;
};

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

/*
 * Cuts one field out of the text and steps over the separator that follows it. *last: whether the
 * field ended its row.
 */
static int cut_field(struct erg_csv *csv, struct csv_cursor *cursor, bool *last,
                     struct erg_error *err)
{
    char *start, *stop;
    while (cursor->at < cursor->end && blank(*cursor->at))
        cursor->at++;
    if (cursor->at < cursor->end && *cursor->at == '"') {
        size_t opened = cursor->line;
        start = stop = ++cursor->at;
        for (;; cursor->at++) {
            if (cursor->at >= cursor->end)
                return erg_fail(err, ERG_FAILED,
                                "%s:%zu: the quoted field that starts here never ends, expected a "
                                "closing '\"'",
                                csv->name, opened);
            if (*cursor->at == '"') {
                if (cursor->at + 1 < cursor->end && cursor->at[1] == '"')
                    cursor->at++;
                else
                    break;
            }
            cursor->line += *cursor->at == '\n';
            *stop++ = *cursor->at;
        }
        cursor->at++;
        while (cursor->at < cursor->end && blank(*cursor->at))
            cursor->at++;
    } else {
        start = cursor->at;
        while (cursor->at < cursor->end && *cursor->at != ',' && *cursor->at != '\n' &&
               *cursor->at != '\r')
            cursor->at++;
        stop = cursor->at;
        while (stop > start && blank(stop[-1]))
            stop--;
    }
    *last = true;
    if (cursor->at < cursor->end) {
        char separator = *cursor->at++;
        assert(cursor->at <= cursor->end && stop < cursor->at);
        if (separator == '\r' && cursor->at < cursor->end && *cursor->at == '\n')
            separator = *cursor->at++;
        if (separator == ',')
            *last = false;
        else if (separator == '\n' || separator == '\r')
            cursor->line++;
        else
            return erg_fail(err, ERG_FAILED,
                            "%s:%zu: found '%c' after a quoted field, expected a comma or the end "
                            "of the line",
                            csv->name, cursor->line, separator);
    }
    *stop = '\0'; /* the byte of a separator, of a quote, or of the text's own end */
    ERG_PUSH(&csv->fields, items, start);
    return 0;
}

static bool skip_empty_lines(struct csv_cursor *cursor)
{
    char *at = cursor->at;
    while (at < cursor->end && (blank(*at) || *at == '\r' || *at == '\n')) {
        if (*at == '\n') {
            cursor->line++;
            cursor->at = at + 1;
        }
        at++;
    }
    return at < cursor->end;
}

/* Leaves the cursor at the next row, also after a failure. */
static int cut_row(struct erg_csv *csv, struct csv_cursor *cursor, struct erg_error *err)
{
    const struct csv_cursor start = *cursor;
    size_t before = csv->fields.count;
    bool last = false;
    while (!last) {
        if (cut_field(csv, cursor, &last, err) != 0) {
            char *end = memchr(start.at, '\n', (size_t)(start.end - start.at));
            *cursor = (struct csv_cursor){end ? end + 1 : start.end, start.end, start.line + 1};
            return -1;
        }
    }
    size_t found = csv->fields.count - before;
    if (csv->lines.count == 0)
        csv->columns = found;
    else if (found != csv->columns)
        return erg_fail(err, ERG_FAILED,
                        "%s:%zu: this row has %zu fields, expected %zu as in the header", csv->name,
                        start.line, found, csv->columns);
    ERG_PUSH(&csv->lines, items, start.line);
    return 0;
}

/* `broken` NULL: every row must be sound. */
static int cut_rows(struct erg_csv *csv, struct csv_cursor cursor, struct erg_csv_broken *broken,
                    struct erg_error *err)
{
    while (skip_empty_lines(&cursor)) {
        struct erg_error why;
        size_t before = csv->fields.count;
        if (cut_row(csv, &cursor, &why) == 0)
            continue;
        if (!broken || csv->lines.count == 0) {
            *err = why;
            return -1;
        }
        if (broken->rows++ == 0)
            broken->first = why;
        csv->fields.count = before;
    }
    if (csv->lines.count == 0)
        return erg_fail(err, ERG_FAILED, "%s: the table is empty, expected a header row",
                        csv->name);
    for (size_t i = 0; i < csv->columns; i++) {
        for (size_t j = 0; j < i; j++) {
            if (!strcmp(csv->fields.items[i], csv->fields.items[j]))
                return erg_fail(err, ERG_FAILED, "%s:%zu: the header names the column '%s' twice",
                                csv->name, csv->lines.items[0], csv->fields.items[i]);
        }
    }
    return 0;
}

/*
 * Takes over `data`, which has room for a NUL after its end. Names in it may be of any encoding: it
 * is converted to UTF-8 here, before any use.
 */
static int adopt(struct erg_csv **out, const char *name, char *data, size_t length,
                 struct erg_csv_broken *broken, struct erg_error *err)
{
    struct erg_csv *csv = erg_xcalloc(1, sizeof *csv);
    if (!erg_utf8_is_valid(data, length)) {
        struct erg_text sound = {0};
        erg_text_add_utf8(&sound, data, length);
        free(data);
        data = sound.data;
        length = sound.count;
    }
    csv->name = erg_xstrdup(name);
    csv->data = data;
    struct csv_cursor cursor = {data, data + length, 1};
    const char *nul = memchr(data, '\0', length);
    int failed = 0;
    if (nul) {
        size_t line = 1;
        for (const char *at = data; at < nul; at++)
            line += *at == '\n';
        failed = erg_fail(err, ERG_FAILED, "%s:%zu: found a zero byte, expected text", name, line);
    } else {
        if (length >= 3 && !memcmp(data, BYTE_ORDER_MARK, 3))
            cursor.at += 3;
        failed = cut_rows(csv, cursor, broken, err);
    }
    if (failed) {
        erg_csv_free(csv);
        return -1;
    }
    *out = csv;
    return 0;
}

int erg_csv_load(struct erg_csv **csv, const char *path, struct erg_error *err)
{
    char *data;
    size_t length;
    if (erg_file_read(path, 0, &data, &length, err) != 0)
        return -1;
    return adopt(csv, path, data, length, NULL, err);
}

static char *copy(const char *text, size_t length)
{
    char *data = erg_xmalloc(length + 1);
    memcpy(data, text, length);
    data[length] = '\0';
    return data;
}

int erg_csv_parse(struct erg_csv **csv, const char *name, const char *text, size_t length,
                  struct erg_error *err)
{
    return adopt(csv, name, copy(text, length), length, NULL, err);
}

int erg_csv_parse_sound(struct erg_csv **csv, struct erg_csv_broken *broken, const char *name,
                        const char *text, size_t length, struct erg_error *err)
{
    *broken = (struct erg_csv_broken){0};
    return adopt(csv, name, copy(text, length), length, broken, err);
}

void erg_csv_free(struct erg_csv *csv)
{
    if (!csv)
        return;
    free(csv->fields.items);
    free(csv->lines.items);
    free(csv->data);
    free(csv->name);
    free(csv);
}

size_t erg_csv_rows(const struct erg_csv *csv)
{
    return csv->lines.count - 1;
}

const char *erg_csv_header(const struct erg_csv *csv, size_t column)
{
    return column < csv->columns ? csv->fields.items[column] : NULL;
}

size_t erg_csv_line(const struct erg_csv *csv, size_t row)
{
    assert(row + 1 < csv->lines.count);
    return csv->lines.items[row + 1];
}

ptrdiff_t erg_csv_find(const struct erg_csv *csv, const char *name)
{
    for (size_t i = 0; i < csv->columns; i++) {
        if (!strcmp(csv->fields.items[i], name))
            return (ptrdiff_t)i;
    }
    return -1;
}

int erg_csv_require(const struct erg_csv *csv, const char *name, size_t *column,
                    struct erg_error *err)
{
    ptrdiff_t found = erg_csv_find(csv, name);
    if (found >= 0) {
        *column = (size_t)found;
        return 0;
    }
    struct erg_text known = {0};
    for (size_t i = 0; i < csv->columns; i++)
        erg_text_printf(&known, "%s%s", i ? ", " : "", csv->fields.items[i]);
    erg_fail(err, ERG_FAILED, "%s:%zu: the column '%s' is missing; the header has: %s", csv->name,
             csv->lines.items[0], name, known.data);
    erg_text_release(&known);
    return -1;
}

const char *erg_csv_text(const struct erg_csv *csv, size_t row, size_t column)
{
    assert(row + 1 < csv->lines.count && column < csv->columns);
    return csv->fields.items[(row + 1) * csv->columns + column];
}

int erg_csv_double(const struct erg_csv *csv, size_t row, size_t column, double *value,
                   struct erg_error *err)
{
    const char *text = erg_csv_text(csv, row, column);
    if (erg_parse_double(text, value))
        return 0;
    return erg_csv_fail(csv, row, err, "column '%s': expected a number, got '%s'",
                        erg_csv_header(csv, column), text);
}

int erg_csv_long(const struct erg_csv *csv, size_t row, size_t column, long *value,
                 struct erg_error *err)
{
    const char *text = erg_csv_text(csv, row, column);
    double number;
    if (erg_parse_long(text, value))
        return 0;
    if (erg_parse_double(text, &number) && number == floor(number) && fabs(number) <= 0x1p53) {
        *value = (long)number;
        return 0;
    }
    return erg_csv_fail(csv, row, err, "column '%s': expected %s, got '%s'",
                        erg_csv_header(csv, column), erg_whole_number(text), text);
}

int erg_csv_fail(const struct erg_csv *csv, size_t row, struct erg_error *err, const char *format,
                 ...)
{
    char message[768];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return erg_fail(err, ERG_FAILED, "%s:%zu: %s", csv->name, erg_csv_line(csv, row), message);
}

static bool at_row_start(const struct erg_text *out)
{
    return out->count == 0 || out->data[out->count - 1] == '\n';
}

void erg_csv_add(struct erg_text *out, const char *field)
{
    bool first = at_row_start(out);
    if (!first)
        erg_text_add(out, ",");
    size_t length = strlen(field);
    bool quote = (first && length == 0) || strpbrk(field, ",\"\r\n") ||
                 !strncmp(field, BYTE_ORDER_MARK, 3) ||
                 (length > 0 && (blank(field[0]) || blank(field[length - 1])));
    if (!quote) {
        erg_text_add_utf8(out, field, length);
        return;
    }
    erg_text_add(out, "\"");
    for (const char *end; (end = strchr(field, '"')) != NULL; field = end + 1) {
        erg_text_add_utf8(out, field, (size_t)(end - field));
        erg_text_add(out, "\"\"");
    }
    erg_text_add_utf8(out, field, strlen(field));
    erg_text_add(out, "\"");
}

void erg_csv_add_double(struct erg_text *out, double value)
{
    char digits[40] = "";
    for (int precision = 6; precision <= 17 && isfinite(value); precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        double back;
        if (erg_parse_double(digits, &back) && back == value)
            break;
    }
    erg_csv_add(out, digits);
}

void erg_csv_add_long(struct erg_text *out, long value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%ld", value);
    erg_csv_add(out, digits);
}

void erg_csv_end_row(struct erg_text *out)
{
    erg_text_add(out, "\n");
}
