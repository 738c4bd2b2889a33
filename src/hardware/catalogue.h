/*
 * Catalogues: kinds of files in the data folders, found by a name or a path, whose numbers may have
 * another unit in the file than in memory.
 */
#ifndef ERG_HARDWARE_CATALOGUE_H
#define ERG_HARDWARE_CATALOGUE_H

#include "hardware/hardware.h"
#include "io/yaml.h"

/* Lists end with a NULL key. Checks and converts the document's values; `prefix` as in
 * erg_cluster_finish(). */
int erg_quantities_finish(void *object, const struct erg_quantity *list,
                          const struct erg_yaml *yaml, const char *prefix, struct erg_error *err);

/* Mixes the quantities of an object into a hash. */
uint64_t erg_quantities_hash(const void *object, const struct erg_quantity *list, uint64_t hash);

/* The file of the catalogue entry `name` of `kind`, to be freed by the caller; NULL: unknown. */
char *erg_catalogue_path(const char *kind, const char *name);

/* One kind of catalogue entries. */
struct erg_catalogue {
    const char *folder; /* of data/ */
    const char *what;   /* in messages */
    const cyaml_schema_value_t *schema;
    /* Checks the values, and fills in derived ones. */
    int (*finish)(void *value, const struct erg_yaml *yaml, struct erg_error *err);
};

/* Loads the entry `name`, or the file of that path; erg_yaml_free() frees it. */
int erg_catalogue_load(void **value, const struct erg_catalogue *catalogue, const char *name,
                       struct erg_error *err);

/* Writes out the control characters of a name that was read, which is shown and written often. */
void erg_name_make_printable(char **name);

/* Comment lines: `heading` with "# " before each. */
void erg_catalogue_add_heading(struct erg_text *out, const char *heading);

#endif
