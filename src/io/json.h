/*
 * JSON: jansson with errors that say file, key and what was expected.
 *
 * Values are jansson's json_t; this adds loading (duplicate keys are refused), typed getters with
 * line and key path in the message, and an atomic dump that loses no digit.
 */
#ifndef ERG_IO_JSON_H
#define ERG_IO_JSON_H

#include "base/text.h"
#include "ergon/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* *root is a new reference (json_decref). `name` stands for the file in messages. Bytes that are
 * not UTF-8 become U+FFFD. */
int erg_json_parse(json_t **root, const char *name, const char *text, size_t length,
                   struct erg_error *err);

/* Indented, keys in order of insertion, 17 digits; written in one step (io/file.h). */
int erg_json_write(const char *path, const json_t *root, struct erg_error *err);

/* The same as text, to be freed by the caller. No control character is left in its strings. */
char *erg_json_text(const json_t *root);

/*
 * New values for documents. They take any input, so that no key is lost: jansson's own
 * json_string() and json_pack() return NULL for text that is not UTF-8, and setting NULL sets
 * nothing. src/ uses these instead. Text is made valid (base/text.h); NaN and infinity, which JSON
 * does not have, and a NULL text are null.
 */
json_t *erg_json_number(double value);
json_t *erg_json_new_string(const char *text);

/*
 * json_pack() with such values. Its format has {} with "s:" before each value, [], s (a "?" behind
 * it changes nothing; "*" and "+" are not known), i, I (json_int_t), b, f, n, o (takes the
 * reference over), O (adds one).
 */
json_t *erg_json_pack(const char *format, ...);

/* The number at a key of an object; `otherwise`: there is none. */
double erg_json_number_or(const json_t *object, const char *key, double otherwise);

/* Adds a string with its quotes, as JSON writes it: for documents that are written line by line. */
void erg_json_add_string(struct erg_text *out, const char *text);

/*
 * A place in a document: an object and how to call it in messages, for example
 * "model config.json:25: key 'rope_scaling.factor': expected a number of at least 1, got 0".
 */
struct erg_json_place {
    const json_t *object;
    const char *name; /* of the document; borrowed */
    const char *text; /* it was parsed from, borrowed; NULL: messages say no line */
    size_t length;
    char path[192]; /* of the object inside it, "" for the root */
};

/* The root must be an object. */
int erg_json_root(struct erg_json_place *place, const json_t *root, const char *name,
                  struct erg_error *err);

/* Parses text that must be an object and stay until the last message. *root is a new reference. */
int erg_json_open(struct erg_json_place *place, json_t **root, const char *name, const char *text,
                  size_t length, struct erg_error *err);

/* Line of the key or item "a.b[2].c" in valid JSON, or of the innermost part of it that is there:
 * of a missing key the line where its object begins. */
long erg_json_line(const char *text, size_t length, const char *path);

/* The object at `key`, or element `index` of the array at `key` (which must be an object). */
int erg_json_enter(struct erg_json_place *inner, const struct erg_json_place *place,
                   const char *key, struct erg_error *err);
int erg_json_enter_item(struct erg_json_place *inner, const struct erg_json_place *place,
                        const char *key, size_t index, struct erg_error *err);

/* Whether the key is there and not null: for optional values. */
bool erg_json_has(const struct erg_json_place *place, const char *key);

/*
 * Typed values. A missing key is an error, and so is a value outside [min, max] or, for whole
 * numbers, one with a fraction (1e3 and 3.0 are whole).
 */
int erg_json_long(const struct erg_json_place *place, const char *key, long min, long max,
                  long *value, struct erg_error *err);
int erg_json_double(const struct erg_json_place *place, const char *key, double min, double max,
                    double *value, struct erg_error *err);
int erg_json_bool(const struct erg_json_place *place, const char *key, bool *value,
                  struct erg_error *err);
/* Text and array are borrowed from the document. */
int erg_json_string(const struct erg_json_place *place, const char *key, const char **value,
                    struct erg_error *err);
int erg_json_array(const struct erg_json_place *place, const char *key, const json_t **value,
                   struct erg_error *err);

/* "name:line: key 'path.key': message" for conditions that only the caller can check. Returns
 * -1. */
int erg_json_fail(const struct erg_json_place *place, const char *key, struct erg_error *err,
                  const char *format, ...) ERG_PRINTF(4, 5);

#endif
