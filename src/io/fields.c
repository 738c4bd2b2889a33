/* Structs as JSON and back, by one table of their fields. */
#include "io/fields.h"

#include "base/text.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const void *at(const void *from, size_t offset)
{
    return (const char *)from + offset;
}

/* ---- writing ---- */

static json_t *value_json(const struct erg_field *field, const void *from);

static json_t *item_json(const struct erg_fields *fields, const void *item)
{
    if (fields->count == 1 && !fields->items[0].key)
        return value_json(&fields->items[0], item);
    return erg_fields_json(fields, item);
}

static json_t *list_json(const struct erg_field *field, const void *from)
{
    const char *items = *(const char *const *)at(from, field->offset);
    size_t count = *(const size_t *)at(from, field->count_offset);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, item_json(field->of, items + i * field->of->bytes));
    return list;
}

static json_t *value_json(const struct erg_field *field, const void *from)
{
    const void *value = at(from, field->offset);
    switch (field->type) {
    case ERG_FIELD_TEXT:
        return erg_json_new_string(*(const char *const *)value);
    case ERG_FIELD_INT:
        return json_integer(*(const int *)value);
    case ERG_FIELD_LONG:
        return json_integer(*(const long *)value);
    case ERG_FIELD_SIZE:
        return json_integer((json_int_t) * (const size_t *)value);
    case ERG_FIELD_U32:
        return json_integer(*(const uint32_t *)value);
    case ERG_FIELD_DOUBLE:
        return erg_json_number(*(const double *)value);
    case ERG_FIELD_BOOL:
        return json_boolean(*(const bool *)value);
    case ERG_FIELD_NAME:
        return erg_json_new_string(field->names[*(const int *)value]);
    case ERG_FIELD_OBJECT:
        return erg_fields_json(field->of, value);
    case ERG_FIELD_LIST:
        return list_json(field, from);
    }
    return json_null();
}

static bool is_unknown(const struct erg_field *field, const void *from)
{
    const void *value = at(from, field->offset);
    switch (field->type) {
    case ERG_FIELD_TEXT:
    case ERG_FIELD_LIST:
        return !*(const void *const *)value;
    case ERG_FIELD_INT:
    case ERG_FIELD_NAME:
        return *(const int *)value == 0;
    case ERG_FIELD_LONG:
        return *(const long *)value == 0;
    case ERG_FIELD_SIZE:
        return *(const size_t *)value == 0;
    case ERG_FIELD_U32:
        return *(const uint32_t *)value == 0;
    case ERG_FIELD_DOUBLE:
        return isnan(*(const double *)value);
    case ERG_FIELD_BOOL:
        return !*(const bool *)value;
    case ERG_FIELD_OBJECT:
        return *(const size_t *)at(from, field->count_offset) == 0;
    }
    return false;
}

json_t *erg_fields_json(const struct erg_fields *fields, const void *from)
{
    json_t *object = json_object();
    for (size_t i = 0; i < fields->count; i++) {
        const struct erg_field *field = &fields->items[i];
        if (!field->optional || !is_unknown(field, from))
            json_object_set_new(object, field->key, value_json(field, from));
    }
    return object;
}

/* ---- reading ---- */

struct reader {
    struct erg_arena *arena;
    struct erg_error *err;
};

static int read_value(const struct reader *reader, const struct erg_field *field,
                      const struct erg_json_place *place, const char *key, void *into);

/* An item that is a value is treated as an object with one key, so that messages can name it. */
static int read_item(const struct reader *reader, const struct erg_fields *fields,
                     const struct erg_json_place *list, const char *key, size_t index, void *into)
{
    struct erg_json_place item;
    const json_t *value = json_array_get(json_object_get(list->object, key), index);
    char name[256];
    snprintf(name, sizeof name, "%s[%zu]", key, index);
    if (fields->count == 1 && !fields->items[0].key) {
        json_t *wrapped = erg_json_pack("{s:O}", name, value);
        item = *list;
        item.object = wrapped;
        int status = read_value(reader, &fields->items[0], &item, name, into);
        json_decref(wrapped);
        return status;
    }
    return erg_json_enter_item(&item, list, key, index, reader->err) ||
                   erg_fields_read(fields, &item, into, reader->arena, reader->err)
               ? -1
               : 0;
}

static int read_list(const struct reader *reader, const struct erg_field *field,
                     const struct erg_json_place *place, const char *key, void *into)
{
    const json_t *list;
    if (erg_json_array(place, key, &list, reader->err))
        return -1;
    size_t count = json_array_size(list), bytes = field->of->bytes;
    char *items = erg_arena_alloc(reader->arena, (count + !count) * bytes);
    for (size_t i = 0; i < count; i++)
        if (read_item(reader, field->of, place, key, i, items + i * bytes))
            return -1;
    *(char **)((char *)into + field->offset) = items;
    *(size_t *)((char *)into + field->count_offset) = count;
    return 0;
}

static int read_name(const struct erg_field *field, const struct erg_json_place *place,
                     const char *key, int *value, struct erg_error *err)
{
    const char *text;
    if (erg_json_string(place, key, &text, err))
        return -1;
    for (*value = 0; field->names[*value]; ++*value)
        if (!strcmp(text, field->names[*value]))
            return 0;
    struct erg_text names = {0};
    for (size_t i = 0; field->names[i]; i++)
        erg_text_printf(&names, "%s%s",
                        !i                    ? ""
                        : field->names[i + 1] ? ", "
                                              : " or ",
                        field->names[i]);
    erg_json_fail(place, key, err, "expected %s, got %s", names.data, text);
    erg_text_release(&names);
    return -1;
}

static int read_whole(const struct erg_field *field, const struct erg_json_place *place,
                      const char *key, void *into, struct erg_error *err)
{
    long number;
    if (erg_json_long(place, key, (long)field->least, (long)field->most, &number, err))
        return -1;
    switch (field->type) {
    case ERG_FIELD_INT:
        *(int *)into = (int)number;
        break;
    case ERG_FIELD_SIZE:
        *(size_t *)into = (size_t)number;
        break;
    case ERG_FIELD_U32:
        *(uint32_t *)into = (uint32_t)number;
        break;
    default:
        *(long *)into = number;
    }
    return 0;
}

static int read_value(const struct reader *reader, const struct erg_field *field,
                      const struct erg_json_place *place, const char *key, void *into)
{
    void *value = (char *)into + field->offset;
    struct erg_error *err = reader->err;
    struct erg_json_place inner;
    const char *text;
    switch (field->type) {
    case ERG_FIELD_TEXT:
        if (erg_json_string(place, key, &text, err))
            return -1;
        *(const char **)value = erg_arena_strdup(reader->arena, text);
        return 0;
    case ERG_FIELD_INT:
    case ERG_FIELD_LONG:
    case ERG_FIELD_SIZE:
    case ERG_FIELD_U32:
        return read_whole(field, place, key, value, err);
    case ERG_FIELD_DOUBLE:
        return erg_json_double(place, key, field->least, field->most, value, err);
    case ERG_FIELD_BOOL:
        return erg_json_bool(place, key, value, err);
    case ERG_FIELD_NAME:
        return read_name(field, place, key, value, err);
    case ERG_FIELD_OBJECT:
        return erg_json_enter(&inner, place, key, err) ||
                       erg_fields_read(field->of, &inner, value, reader->arena, err)
                   ? -1
                   : 0;
    case ERG_FIELD_LIST:
        return read_list(reader, field, place, key, into);
    }
    return 0;
}

int erg_fields_read(const struct erg_fields *fields, const struct erg_json_place *place, void *into,
                    struct erg_arena *arena, struct erg_error *err)
{
    const struct reader reader = {arena, err};
    for (size_t i = 0; i < fields->count; i++) {
        const struct erg_field *field = &fields->items[i];
        if (field->optional && !erg_json_has(place, field->key)) {
            if (field->type == ERG_FIELD_DOUBLE)
                *(double *)((char *)into + field->offset) = NAN;
            continue;
        }
        if (read_value(&reader, field, place, field->key, into))
            return -1;
    }
    return 0;
}
