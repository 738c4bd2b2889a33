/*
 * Shared between the files of the hardware room only: numbers whose unit in the file is not the
 * unit in memory.
 */
#ifndef ERG_HARDWARE_INTERNAL_H
#define ERG_HARDWARE_INTERNAL_H

#include "hardware/hardware.h"
#include "io/yaml.h"

struct erg_quantity {
    const char *key; /* path in the document */
    size_t offset;   /* of a double in the struct */
    double factor;   /* from the file's unit to that of the struct */
    double min, max; /* in the file's unit */
};

/* Checks and converts what the document gives; `prefix` as in erg_cluster_finish(). */
int erg_quantities_finish(void *object, const struct erg_quantity *list, size_t count,
                          const struct erg_yaml *yaml, const char *prefix, struct erg_error *err);

/* Mixes the quantities of an object into a hash. */
uint64_t erg_quantities_hash(const void *object, const struct erg_quantity *list, size_t count,
                             uint64_t hash);

/* The file of the catalogue entry `name` of `kind`, to be freed by the caller; NULL: unknown. */
char *erg_catalogue_path(const char *kind, const char *name);

/*
 * Opens the catalogue entry `name` of `kind` ("gpus", "stacks") and reads it with the schema; the
 * caller closes *yaml and frees *value. `what` names the kind in messages.
 */
int erg_catalogue_read(const char *kind, const char *what, const char *name,
                       const cyaml_schema_value_t *schema, struct erg_yaml **yaml, void **value,
                       struct erg_error *err);

#endif
