/* JSON documents: loading, writing, values for new ones, typed getters (io/json.h). */
#include "io/json.h"

#include "base/memory.h"
#include "io/file.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without a byte-order mark, which editors on Windows write. */
static void skip_mark(const char **text, size_t *length)
{
    const size_t mark = *length >= 3 && !memcmp(*text, "\xef\xbb\xbf", 3) ? 3 : 0;
    *text += mark;
    *length -= mark;
}

int erg_json_parse(json_t **root, const char *name, const char *text, size_t length,
                   struct erg_error *err)
{
    json_error_t problem;
    skip_mark(&text, &length);
    struct erg_text sound = {0}; /* a model with names in other encodings is accepted */
    if (!erg_utf8_is_valid(text, length)) {
        erg_text_add_utf8(&sound, text, length);
        text = sound.data;
        length = sound.count;
    }
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    erg_text_release(&sound);
    if (!value && !problem.text[0]) /* jansson has nothing to say of that */
        return erg_fail(err, ERG_FAILED, "%s: out of memory while reading JSON", name);
    if (!value)
        return erg_fail(err, ERG_FAILED, "%s:%d:%d: this is not valid JSON: %s", name, problem.line,
                        problem.column, problem.text);
    *root = value;
    return 0;
}

/*
 * Valid UTF-8 with all control characters written as JSON escapes them, and a backslash before
 * those of `quoted`. jansson leaves U+007F to U+009F, which terminals obey, as they are. Line
 * breaks of an indented document stay.
 */
static void add_escaped(struct erg_text *out, const char *text, const char *quoted)
{
    const char *plain = text; /* from here on nothing is added yet */
    for (const char *at = text; *at; at++) {
        const unsigned char c = (unsigned char)at[0], next = (unsigned char)at[1];
        const bool long_control = c == 0xc2 && next < 0xa0;
        const bool control = (c < 0x20 && (quoted[0] || c != '\n')) || c == 0x7f || long_control;
        if (!control && !strchr(quoted, c))
            continue;
        erg_text_add_bytes(out, plain, (size_t)(at - plain));
        erg_text_printf(out, control ? "\\u%04x" : "\\%c", long_control ? next : c);
        at += long_control;
        plain = at + 1;
    }
    erg_text_add(out, plain);
}

char *erg_json_text(const json_t *root)
{
    char *dumped = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
    if (!dumped)
        return NULL;
    struct erg_text text = {0};
    add_escaped(&text, dumped, "");
    free(dumped);
    return text.data;
}

int erg_json_write(const char *path, const json_t *root, struct erg_error *err)
{
    char *text = erg_json_text(root);
    if (!text)
        return erg_fail(err, ERG_FAILED,
                        "writing '%s': the document cannot be written as JSON (it contains itself)",
                        path);
    struct erg_text line = {0};
    erg_text_add(&line, text);
    erg_text_add(&line, "\n");
    int result = erg_file_write(path, line.data, line.count, err);
    erg_text_release(&line);
    free(text);
    return result;
}

/* ---- new values ---- */

json_t *erg_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

double erg_json_number_or(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

json_t *erg_json_new_string(const char *text)
{
    if (!text)
        return json_null();
    struct erg_text sound = {0};
    erg_text_add_utf8(&sound, text, strlen(text));
    json_t *string = json_string(sound.data);
    erg_text_release(&sound);
    return string;
}

static char next_letter(const char **format)
{
    *format += strspn(*format, " ,:?");
    return *(*format)++;
}

static json_t *pack(const char **format, char letter, va_list *args);

static json_t *pack_list(const char **format, va_list *args)
{
    json_t *list = json_array();
    for (char letter; (letter = next_letter(format)) != ']';)
        json_array_append_new(list, pack(format, letter, args));
    return list;
}

static json_t *pack_object(const char **format, va_list *args)
{
    json_t *object = json_object();
    for (char letter; (letter = next_letter(format)) != '}';) {
        assert(letter == 's');
        const char *key = va_arg(*args, const char *);
        json_object_set_new(object, key, pack(format, next_letter(format), args));
    }
    return object;
}

static json_t *or_null(json_t *value)
{
    return value ? value : json_null();
}

static json_t *pack(const char **format, char letter, va_list *args)
{
    switch (letter) {
    case '{':
        return pack_object(format, args);
    case '[':
        return pack_list(format, args);
    case 's':
        return erg_json_new_string(va_arg(*args, const char *));
    case 'i':
        return json_integer(va_arg(*args, int));
    case 'I':
        return json_integer(va_arg(*args, json_int_t));
    case 'b':
        return json_boolean(va_arg(*args, int));
    case 'f':
        return erg_json_number(va_arg(*args, double));
    case 'o':
        return or_null(va_arg(*args, json_t *));
    case 'O':
        return or_null(json_incref(va_arg(*args, json_t *)));
    default:
        assert(letter == 'n');
        return json_null();
    }
}

json_t *erg_json_pack(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *value = pack(&format, next_letter(&format), &args);
    va_end(args);
    return value;
}

void erg_json_add_string(struct erg_text *out, const char *text)
{
    erg_text_add(out, "\"");
    struct erg_text sound = {0};
    erg_text_add_utf8(&sound, text, strlen(text));
    add_escaped(out, sound.data, "\"\\");
    erg_text_add(out, "\"");
    erg_text_release(&sound);
}

/* ---- reading ---- */

/* "name:line: key 'path': message"; no key for the whole document. */
static int fail_at(const struct erg_json_place *place, const char *path, const char *message,
                   struct erg_error *err)
{
    char line[24] = "";
    if (place->text)
        snprintf(line, sizeof line, ":%ld", erg_json_line(place->text, place->length, path));
    if (!path[0])
        return erg_fail(err, ERG_FAILED, "%s%s: %s", place->name, line, message);
    return erg_fail(err, ERG_FAILED, "%s%s: key '%s': %s", place->name, line, path, message);
}

/* How to call a key of a place; a long one is cut. */
static void join_path(const struct erg_json_place *place, const char *key, char *out,
                      size_t capacity)
{
    snprintf(out, capacity, "%s%s%s", place->path, place->path[0] ? "." : "", key);
}

int erg_json_fail(const struct erg_json_place *place, const char *key, struct erg_error *err,
                  const char *format, ...)
{
    char message[640], path[256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    join_path(place, key, path, sizeof path);
    return fail_at(place, path, message, err);
}

/* A short rendering of a value for "got …". */
static const char *shown(const json_t *value, char *out, size_t capacity)
{
    if (json_is_object(value) || json_is_array(value)) {
        snprintf(out, capacity, "%s", json_is_object(value) ? "an object" : "a list");
        return out;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    snprintf(out, capacity, "%s", text ? text : "a value");
    free(text);
    return out;
}

static int expected(const struct erg_json_place *place, const char *key, const char *what,
                    struct erg_error *err)
{
    const json_t *value = json_object_get(place->object, key);
    char text[96];
    if (!value)
        return erg_json_fail(place, key, err, "the key is missing, expected %s", what);
    return erg_json_fail(place, key, err, "expected %s, got %s", what,
                         shown(value, text, sizeof text));
}

static int check_root(const struct erg_json_place *place, struct erg_error *err)
{
    char text[96], message[192];
    if (json_is_object(place->object))
        return 0;
    snprintf(message, sizeof message, "expected an object {…} at the top, got %s",
             shown(place->object, text, sizeof text));
    return fail_at(place, "", message, err);
}

int erg_json_root(struct erg_json_place *place, const json_t *root, const char *name,
                  struct erg_error *err)
{
    *place = (struct erg_json_place){.object = root, .name = name};
    return check_root(place, err);
}

int erg_json_open(struct erg_json_place *place, json_t **root, const char *name, const char *text,
                  size_t length, struct erg_error *err)
{
    json_t *value;
    skip_mark(&text, &length);
    if (erg_json_parse(&value, name, text, length, err) != 0)
        return -1;
    *place = (struct erg_json_place){.object = value, .name = name, .text = text, .length = length};
    if (check_root(place, err) != 0) {
        json_decref(value);
        return -1;
    }
    *root = value;
    return 0;
}

int erg_json_enter(struct erg_json_place *inner, const struct erg_json_place *place,
                   const char *key, struct erg_error *err)
{
    const json_t *value = json_object_get(place->object, key);
    if (!json_is_object(value))
        return expected(place, key, "an object {…}", err);
    struct erg_json_place next = *place; /* `inner` may be `place` */
    next.object = value;
    join_path(place, key, next.path, sizeof next.path);
    *inner = next;
    return 0;
}

int erg_json_enter_item(struct erg_json_place *inner, const struct erg_json_place *place,
                        const char *key, size_t index, struct erg_error *err)
{
    const json_t *list = json_object_get(place->object, key);
    const json_t *value = json_array_get(list, index);
    if (!json_is_array(list))
        return expected(place, key, "a list of objects [{…}]", err);
    struct erg_json_place next = *place;
    char item[256];
    snprintf(item, sizeof item, "%s[%zu]", key, index);
    if (!json_is_object(value)) {
        char text[96];
        return erg_json_fail(place, item, err, "expected an object {…}, got %s",
                             value ? shown(value, text, sizeof text) : "the end of the list");
    }
    next.object = value;
    join_path(place, item, next.path, sizeof next.path);
    *inner = next;
    return 0;
}

bool erg_json_has(const struct erg_json_place *place, const char *key)
{
    const json_t *value = json_object_get(place->object, key);
    return value && !json_is_null(value);
}

int erg_json_long(const struct erg_json_place *place, const char *key, long min, long max,
                  long *value, struct erg_error *err)
{
    const json_t *found = json_object_get(place->object, key);
    char what[96];
    if (min == 1 && max == LONG_MAX)
        snprintf(what, sizeof what, "a positive integer");
    else if (max == LONG_MAX)
        snprintf(what, sizeof what, "an integer of at least %ld", min);
    else if (min == 1)
        snprintf(what, sizeof what, "a positive integer of at most %ld", max);
    else
        snprintf(what, sizeof what, "an integer from %ld to %ld", min, max);

    json_int_t number;
    if (json_is_integer(found)) {
        number = json_integer_value(found);
    } else if (json_is_real(found)) {
        double real = json_real_value(found);
        if (real != floor(real) || fabs(real) > 9007199254740992.0)
            return expected(place, key, what, err);
        number = (json_int_t)real;
    } else {
        return expected(place, key, what, err);
    }
    if (number < min || number > max)
        return expected(place, key, what, err);
    *value = (long)number;
    return 0;
}

int erg_json_double(const struct erg_json_place *place, const char *key, double min, double max,
                    double *value, struct erg_error *err)
{
    const json_t *found = json_object_get(place->object, key);
    char what[96];
    if (isinf(min) && isinf(max))
        snprintf(what, sizeof what, "a number");
    else if (isinf(max))
        snprintf(what, sizeof what, "a number of at least %g", min);
    else
        snprintf(what, sizeof what, "a number from %g to %g", min, max);
    double number = json_number_value(found);
    if (!json_is_number(found) || !(number >= min && number <= max))
        return expected(place, key, what, err);
    *value = number;
    return 0;
}

int erg_json_bool(const struct erg_json_place *place, const char *key, bool *value,
                  struct erg_error *err)
{
    const json_t *found = json_object_get(place->object, key);
    if (!json_is_boolean(found))
        return expected(place, key, "true or false", err);
    *value = json_is_true(found);
    return 0;
}

int erg_json_string(const struct erg_json_place *place, const char *key, const char **value,
                    struct erg_error *err)
{
    const json_t *found = json_object_get(place->object, key);
    if (!json_is_string(found))
        return expected(place, key, "text in quotes", err);
    *value = json_string_value(found);
    return 0;
}

int erg_json_array(const struct erg_json_place *place, const char *key, const json_t **value,
                   struct erg_error *err)
{
    const json_t *found = json_object_get(place->object, key);
    if (!json_is_array(found))
        return expected(place, key, "a list […]", err);
    *value = found;
    return 0;
}
