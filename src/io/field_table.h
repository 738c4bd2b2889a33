/*
 * The words of a table of fields (io/fields.h), for the .c file that has the table. T is the struct
 * whose members the next table lists: the file defines it before a table and undefines it after it.
 *
 *     #define T struct point
 *     TABLE(point, T, DOUBLE("time_s", time_s, RANGE(0, 1e6)), TEXT_OR_NONE("name", name));
 *     #undef T
 *
 * makes point_fields. Further members of struct erg_field follow the member.
 */
#ifndef ERG_IO_FIELD_TABLE_H
#define ERG_IO_FIELD_TABLE_H

#include "io/fields.h"

#include <float.h>

/* clang-format off */
#define TABLE(name, struct_type, ...)                                                              \
    static const struct erg_field name##_items[] = {__VA_ARGS__};                                  \
    static const struct erg_fields name##_fields = {                                               \
        .bytes = sizeof(struct_type),                                                              \
        .count = sizeof name##_items / sizeof *name##_items,                                       \
        .items = name##_items}
/* Items of a list that are values. */
#define VALUE(name, value_type, ...) TABLE(name, value_type, {__VA_ARGS__})

#define FIELD(name, field_type, member, ...)                                                       \
    {.key = name, .type = field_type, .offset = offsetof(T, member), __VA_ARGS__}
#define TEXT(name, member) {.key = name, .type = ERG_FIELD_TEXT, .offset = offsetof(T, member)}
#define TEXT_OR_NONE(name, member) FIELD(name, ERG_FIELD_TEXT, member, .optional = true)
#define BOOL(name, member) {.key = name, .type = ERG_FIELD_BOOL, .offset = offsetof(T, member)}
#define NAME(key, member, list) FIELD(key, ERG_FIELD_NAME, member, .names = list)
#define INT(name, member, ...) FIELD(name, ERG_FIELD_INT, member, __VA_ARGS__)
#define LONG(name, member, ...) FIELD(name, ERG_FIELD_LONG, member, __VA_ARGS__)
#define SIZE(name, member, ...) FIELD(name, ERG_FIELD_SIZE, member, __VA_ARGS__)
#define U32(name, member, ...) FIELD(name, ERG_FIELD_U32, member, __VA_ARGS__)
#define DOUBLE(name, member, ...) FIELD(name, ERG_FIELD_DOUBLE, member, __VA_ARGS__)
/* A number that may be unknown, with the member's name as its key. */
#define NUMBER(member) DOUBLE(#member, member, UNKNOWN(-DBL_MAX, DBL_MAX))
#define OBJECT(name, member, table) FIELD(name, ERG_FIELD_OBJECT, member, .of = &table##_fields)
/* Keys of a part of the document whose members are the struct's own. */
#define GROUP(name, table) {.key = name, .type = ERG_FIELD_OBJECT, .of = &table##_fields}
#define LIST(name, member, number, table)                                                          \
    FIELD(name, ERG_FIELD_LIST, member, .count_offset = offsetof(T, number), .of = &table##_fields)
#define LIST_OR_NONE(name, member, number, table)                                                  \
    FIELD(name, ERG_FIELD_LIST, member, .optional = true, .count_offset = offsetof(T, number),     \
          .of = &table##_fields)

#define RANGE(low, high) .least = low, .most = high
#define UNKNOWN(low, high) .optional = true, RANGE(low, high)
/* clang-format on */

#endif
