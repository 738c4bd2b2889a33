/* A parsed YAML document, its check against a schema (yaml_check.c), and its text with another
 * value (yaml_set.c). */
#ifndef ERG_IO_YAML_INTERNAL_H
#define ERG_IO_YAML_INTERNAL_H

#include "io/yaml.h"

#include <yaml.h>

struct erg_yaml {
    char *name; /* of the file, for messages */
    char *text;
    size_t length;
    yaml_document_t document;
    bool parsed; /* `document` holds something to delete */
};

/* All documents that libcyaml refuses, and invalid ones that it accepts. */
int erg_yaml_check_schema(const struct erg_yaml *yaml, const cyaml_schema_value_t *schema,
                          struct erg_error *err);

/* Any text, in double quotes. */
void erg_yaml_add_quoted(struct erg_text *out, const char *value);

#endif
