/*
 * Fields: one table defines how a struct is written as JSON and read back.
 *
 * A table lists the members of a struct: their keys, types, places and permitted values.
 * erg_fields_json() writes by it, erg_fields_read() checks and reads by it, so that the two cannot
 * disagree. Keys that are not in a table are ignored. Unknown values are NaN for numbers with a
 * fraction, 0 for whole numbers, false for booleans, NULL for texts and lists: an unknown optional
 * member is not written, and one that is missing or null in the file is read as unknown.
 */
#ifndef ERG_IO_FIELDS_H
#define ERG_IO_FIELDS_H

#include "base/memory.h"
#include "io/json.h"

#include <stdbool.h>
#include <stddef.h>

enum erg_field_type {
    ERG_FIELD_TEXT,   /* const char * */
    ERG_FIELD_INT,    /* int */
    ERG_FIELD_LONG,   /* long */
    ERG_FIELD_SIZE,   /* size_t */
    ERG_FIELD_U32,    /* uint32_t */
    ERG_FIELD_DOUBLE, /* double */
    ERG_FIELD_BOOL,   /* bool */
    ERG_FIELD_NAME,   /* an enum, written as its name */
    ERG_FIELD_OBJECT, /* a struct inside the struct */
    ERG_FIELD_LIST,   /* a pointer to the first item, and their number */
};

struct erg_fields;

struct erg_field {
    const char *key; /* NULL in a list's `of`: the items are values, not objects */
    enum erg_field_type type;
    size_t offset;
    bool optional;
    double least, most;          /* numbers */
    const char *const *names;    /* NAME: of 0, 1, …; ends with NULL */
    const struct erg_fields *of; /* OBJECT, LIST */
    size_t count_offset;         /* LIST: a size_t; optional OBJECT: one that is 0 without it */
};

struct erg_fields {
    size_t bytes; /* of one struct */
    size_t count;
    const struct erg_field *items;
};

json_t *erg_fields_json(const struct erg_fields *fields, const void *from);

/*
 * Fills `into` (zeroed by the caller) from the object at `place`. Text and lists are allocated from
 * the arena. The message of a failure names file, line and key.
 */
int erg_fields_read(const struct erg_fields *fields, const struct erg_json_place *place, void *into,
                    struct erg_arena *arena, struct erg_error *err);

#endif
