/*
 * The keys of a fleet (cluster/fleet.h), for files that contain other keys, too: embed with
 * ERG_FLEET_FIELDS() in the fields of a struct whose member `fleet` is a struct erg_fleet, and call
 * erg_fleet_finish() after reading.
 */
#ifndef ERG_CLUSTER_FLEET_SCHEMA_H
#define ERG_CLUSTER_FLEET_SCHEMA_H

#include "cluster/fleet.h"
#include "io/yaml.h"

extern const cyaml_schema_field_t erg_fleet_cost_fields[], erg_fleet_saving_fields[];

/* A GPU type whose key `nodes` is a text, read into `hosts`; the reader sets `nodes`. */
extern const cyaml_schema_value_t erg_fleet_named_type;

#define ERG_FLEET_FIELDS(owner, type)                                                              \
    CYAML_FIELD_SEQUENCE("types", CYAML_FLAG_POINTER, owner, fleet.types, type, 1, 1000),          \
        CYAML_FIELD_MAPPING("reconfiguration", CYAML_FLAG_OPTIONAL, owner, fleet.reconfiguration,  \
                            erg_fleet_cost_fields),                                                \
        CYAML_FIELD_FLOAT("checkpoint_interval_s", CYAML_FLAG_OPTIONAL, owner,                     \
                          fleet.checkpoint_interval_s),                                            \
        CYAML_FIELD_MAPPING("power_saving", CYAML_FLAG_OPTIONAL, owner, fleet.power_saving,        \
                            erg_fleet_saving_fields)

/* Checks what was read and fills the rest. */
int erg_fleet_finish(struct erg_fleet *fleet, const struct erg_yaml *yaml, struct erg_error *err);

#endif
