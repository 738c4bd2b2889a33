/*
 * YAML: files that people write, checked against a schema.
 *
 * A schema is a libcyaml cyaml_schema_value_t (CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, …) at the
 * top). Before libcyaml fills the structs, the document is checked here, because libcyaml takes
 * "1.5" for the integer 1, "010" for 8, "maybe" for true, and its line numbers are those of the
 * value before. Every error is one sentence with file, line, key and what was expected; unknown
 * keys and values get a "did you mean".
 *
 * Refused on purpose: duplicate keys, several documents in a file, aliases, numbers in octal or
 * hexadecimal, NaN and infinity, an empty value (except with CYAML_FLAG_POINTER_NULL in the
 * schema).
 */
#ifndef ERG_IO_YAML_H
#define ERG_IO_YAML_H

#include "base/text.h"
#include "ergon/error.h"

#include <cyaml/cyaml.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Open the document, read it into a struct of the schema's type, check its values with messages
 * that name their lines, close. open_text: from memory; `name` stands for the file in messages.
 * The struct outlives the document and is freed with erg_yaml_free().
 */
struct erg_yaml;

int erg_yaml_open(struct erg_yaml **yaml, const char *path, struct erg_error *err);
int erg_yaml_open_text(struct erg_yaml **yaml, const char *name, const char *text, size_t length,
                       struct erg_error *err);
int erg_yaml_read(const struct erg_yaml *yaml, const cyaml_schema_value_t *schema, void **value,
                  struct erg_error *err);
void erg_yaml_close(struct erg_yaml *yaml);
void erg_yaml_free(const cyaml_schema_value_t *schema, void *value);

/*
 * Keys are paths such as "cluster.nodes" or "layers[1]". has: whether the document has the key.
 * line: of its value, or of the nearest object around it when it is absent.
 */
bool erg_yaml_has(const struct erg_yaml *yaml, const char *key);
size_t erg_yaml_line(const struct erg_yaml *yaml, const char *key);
/* The text of a value that is neither a list nor a mapping, for keys that may also be these; NULL:
 * missing, or one of these. */
const char *erg_yaml_scalar(const struct erg_yaml *yaml, const char *key);

/* "file:line: key 'cluster.nodes': message". Returns -1. */
int erg_yaml_fail(const struct erg_yaml *yaml, const char *key, struct erg_error *err,
                  const char *format, ...) ERG_PRINTF(4, 5);

/*
 * Writes a text as a scalar that is read as the same text, here and by other readers: as it stands
 * where it can only be a text, else in double quotes. The text must be UTF-8.
 */
void erg_yaml_add_string(struct erg_text *out, const char *value);

/*
 * The document's text with `value`, one YAML value on one line, for a key, which need not be there
 * yet, nor the objects around it. Lines keep their numbers, except that a key added to an object
 * with others below it adds a line.
 */
int erg_yaml_set(struct erg_text *out, const struct erg_yaml *yaml, const char *key,
                 const char *value, struct erg_error *err);

/* Fails unless min <= value <= max ("expected a number from 1 to 8, got 9"). */
int erg_yaml_check_range(const struct erg_yaml *yaml, const char *key, double value, double min,
                         double max, struct erg_error *err);

/* The same for several keys; those that the file lacks only if they are `always` checked. */
struct erg_yaml_range {
    const char *key;
    double value, least, most;
};
int erg_yaml_check_ranges(const struct erg_yaml *yaml, const struct erg_yaml_range *ranges,
                          size_t count, bool always, struct erg_error *err);

#endif
