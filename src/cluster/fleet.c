/* Reads a fleet's file. */
#include "cluster/fleet_schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define OPTIONAL CYAML_FLAG_OPTIONAL

#define POINT struct erg_operating_point
static const cyaml_schema_field_t point_fields[] = {
    CYAML_FIELD_FLOAT("slowdown", CYAML_FLAG_DEFAULT, POINT, slowdown),
    CYAML_FIELD_FLOAT("power_w", CYAML_FLAG_DEFAULT, POINT, power_w),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t point_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, POINT, point_fields)};

#define TYPE struct erg_gpu_type
/* The number or the names of the nodes. */
#define TYPE_FIELDS(NODES)                                                                         \
    {                                                                                              \
        CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, TYPE, name, 1, 100), NODES,             \
            CYAML_FIELD_INT("gpus_per_node", CYAML_FLAG_DEFAULT, TYPE, gpus_per_node),             \
            CYAML_FIELD_FLOAT("memory_gb", CYAML_FLAG_DEFAULT, TYPE, memory_bytes),                \
            CYAML_FIELD_FLOAT("idle_power_w", OPTIONAL, TYPE, idle_power_w),                       \
            CYAML_FIELD_FLOAT("waiting_power_w", OPTIONAL, TYPE, waiting_power_w),                 \
            CYAML_FIELD_FLOAT("off_power_w", OPTIONAL, TYPE, off_power_w),                         \
            CYAML_FIELD_SEQUENCE("points", OPTIONAL | CYAML_FLAG_POINTER, TYPE, points,            \
                                 &point_schema, 1, 1000),                                          \
            CYAML_FIELD_END,                                                                       \
    }
static const cyaml_schema_field_t type_fields[] =
    TYPE_FIELDS(CYAML_FIELD_INT("nodes", CYAML_FLAG_DEFAULT, TYPE, nodes));
static const cyaml_schema_field_t named_fields[] =
    TYPE_FIELDS(CYAML_FIELD_STRING_PTR("nodes", CYAML_FLAG_POINTER, TYPE, hosts, 1, 10000));
static const cyaml_schema_value_t type_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, TYPE, type_fields)};
const cyaml_schema_value_t erg_fleet_named_type = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, TYPE, named_fields)};

#define COSTS struct erg_reconfiguration
const cyaml_schema_field_t erg_fleet_cost_fields[] = {
    CYAML_FIELD_FLOAT("fixed_s", CYAML_FLAG_DEFAULT, COSTS, fixed_s),
    CYAML_FIELD_FLOAT("start_s", OPTIONAL, COSTS, start_s),
    CYAML_FIELD_FLOAT("per_gpu_s", OPTIONAL, COSTS, per_gpu_s),
    CYAML_FIELD_FLOAT("most_s", OPTIONAL, COSTS, most_s),
    CYAML_FIELD_END,
};

#define SAVING struct erg_power_saving
const cyaml_schema_field_t erg_fleet_saving_fields[] = {
    CYAML_FIELD_FLOAT("after_s", CYAML_FLAG_DEFAULT, SAVING, after_s),
    CYAML_FIELD_FLOAT("wake_s", CYAML_FLAG_DEFAULT, SAVING, wake_s),
    CYAML_FIELD_END,
};

struct fleet_file {
    struct erg_fleet fleet;
};
static const cyaml_schema_field_t fields[] = {
    ERG_FLEET_FIELDS(struct fleet_file, &type_schema),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct fleet_file, fields)};

static int finish_points(struct erg_gpu_type *type, unsigned index, const struct erg_yaml *yaml,
                         struct erg_error *err)
{
    char key[64], slowdown[96], power[96];
    if (!type->points) {
        type->points = erg_xmalloc(sizeof *type->points);
        type->points[0] = (struct erg_operating_point){1, type->idle_power_w};
        type->points_count = 1;
    }
    for (unsigned i = 0; i < type->points_count; i++) {
        const struct erg_operating_point *point = &type->points[i];
        snprintf(key, sizeof key, "types[%u].points[%u]", index, i);
        snprintf(slowdown, sizeof slowdown, "%s.slowdown", key);
        snprintf(power, sizeof power, "%s.power_w", key);
        if (erg_yaml_check_range(yaml, power, point->power_w, 0, 1e5, err) != 0 ||
            erg_yaml_check_range(yaml, slowdown, point->slowdown, 1, 1e3, err) != 0)
            return -1;
        if (point->power_w < fmax(type->idle_power_w, type->waiting_power_w))
            return erg_yaml_fail(
                yaml, power, err,
                "%g W is below %g W, the power of such a GPU when it does not compute",
                point->power_w, fmax(type->idle_power_w, type->waiting_power_w));
        if (i == 0 && point->slowdown != 1)
            return erg_yaml_fail(
                yaml, slowdown, err,
                "the first point must be the fastest: expected a slowdown of 1, got %g",
                point->slowdown);
        if (i > 0 && (point->slowdown <= point[-1].slowdown || point->power_w >= point[-1].power_w))
            return erg_yaml_fail(
                yaml, key, err,
                "expected a slower point than the previous one, with a lower power than its %g W",
                point[-1].power_w);
    }
    return 0;
}

static int finish_type(struct erg_fleet *fleet, unsigned index, const struct erg_yaml *yaml,
                       struct erg_error *err)
{
    struct erg_gpu_type *type = &fleet->types[index];
    const struct {
        const char *key;
        double value, least, most;
        bool optional;
    } ranges[] = {
        {"nodes", type->nodes, 1, 100000, false},
        {"gpus_per_node", type->gpus_per_node, 1, ERG_NODE_GPUS_MOST, false},
        {"memory_gb", type->memory_bytes, 0.1, 1e5, false},
        {"idle_power_w", type->idle_power_w, 0, 1e5, false},
        {"waiting_power_w", type->waiting_power_w, type->idle_power_w, 1e5, true},
        {"off_power_w", type->off_power_w, 0, type->idle_power_w, true},
    };
    char key[64];
    snprintf(key, sizeof key, "types[%u].off_power_w", index);
    if (erg_yaml_has(yaml, key) && !fleet->saves_power)
        return erg_yaml_fail(
            yaml, key, err,
            "without power saving, nodes are never off: expected the key power_saving, too");
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        snprintf(key, sizeof key, "types[%u].%s", index, ranges[i].key);
        if ((!ranges[i].optional || erg_yaml_has(yaml, key)) &&
            erg_yaml_check_range(yaml, key, ranges[i].value, ranges[i].least, ranges[i].most,
                                 err) != 0)
            return -1;
    }
    snprintf(key, sizeof key, "types[%u].name", index);
    if (erg_fleet_type(fleet, type->name) != (int)index)
        return erg_yaml_fail(yaml, key, err, "the type '%s' is listed twice", type->name);
    type->memory_bytes *= 1e9;
    type->first_node = fleet->nodes;
    fleet->nodes += type->nodes;
    fleet->gpus += type->nodes * type->gpus_per_node;
    return finish_points(type, index, yaml, err);
}

static int finish_power_saving(struct erg_fleet *fleet, const struct erg_yaml *yaml,
                               struct erg_error *err)
{
    const struct erg_power_saving *saving = &fleet->power_saving;
    fleet->saves_power = erg_yaml_has(yaml, "power_saving");
    if (!fleet->saves_power)
        return 0;
    if (erg_yaml_check_range(yaml, "power_saving.after_s", saving->after_s, 0, 1e9, err) != 0)
        return -1;
    return erg_yaml_check_range(yaml, "power_saving.wake_s", saving->wake_s, 0, 1e6, err);
}

int erg_fleet_finish(struct erg_fleet *fleet, const struct erg_yaml *yaml, struct erg_error *err)
{
    struct erg_reconfiguration *costs = &fleet->reconfiguration;
    if (!erg_yaml_has(yaml, "reconfiguration.most_s"))
        costs->most_s = INFINITY;
    else if (erg_yaml_check_range(yaml, "reconfiguration.most_s", costs->most_s, 0, 1e6, err) != 0)
        return -1;
    if (!erg_yaml_has(yaml, "checkpoint_interval_s"))
        fleet->checkpoint_interval_s = INFINITY;
    else if (erg_yaml_check_range(yaml, "checkpoint_interval_s", fleet->checkpoint_interval_s, 1,
                                  1e9, err) != 0)
        return -1;
    costs->has_start = erg_yaml_has(yaml, "reconfiguration.start_s");
    if (erg_yaml_check_range(yaml, "reconfiguration.fixed_s", costs->fixed_s, 0, 1e6, err) != 0 ||
        erg_yaml_check_range(yaml, "reconfiguration.start_s", costs->start_s, 0, 1e6, err) != 0 ||
        erg_yaml_check_range(yaml, "reconfiguration.per_gpu_s", costs->per_gpu_s, 0, 1e6, err) != 0)
        return -1;
    if (finish_power_saving(fleet, yaml, err) != 0)
        return -1;
    for (unsigned i = 0; i < fleet->types_count; i++)
        if (finish_type(fleet, i, yaml, err) != 0)
            return -1;
    return 0;
}

int erg_fleet_load(struct erg_fleet **fleet, const char *path, struct erg_error *err)
{
    struct erg_yaml *yaml;
    void *value;
    if (erg_yaml_open(&yaml, path, err) != 0)
        return -1;
    int result = erg_yaml_read(yaml, &schema, &value, err);
    if (result == 0 && (result = erg_fleet_finish(value, yaml, err)) != 0)
        erg_yaml_free(&schema, value);
    if (result == 0)
        *fleet = value;
    erg_yaml_close(yaml);
    return result;
}

void erg_fleet_free(struct erg_fleet *fleet)
{
    erg_yaml_free(&schema, fleet);
}

double erg_fleet_idle_power(const struct erg_fleet *fleet)
{
    double power_w = 0;
    for (unsigned t = 0; t < fleet->types_count; t++)
        power_w +=
            fleet->types[t].nodes * fleet->types[t].gpus_per_node * fleet->types[t].idle_power_w;
    return power_w;
}

int erg_fleet_type(const struct erg_fleet *fleet, const char *name)
{
    for (unsigned i = 0; i < fleet->types_count; i++)
        if (!strcmp(fleet->types[i].name, name))
            return (int)i;
    return -1;
}

const char *erg_fleet_type_names(const struct erg_fleet *fleet, struct erg_arena *arena)
{
    const char *names = "";
    for (unsigned i = 0; i < fleet->types_count; i++)
        names = erg_arena_printf(arena, "%s%s%s", names, i ? ", " : "", fleet->types[i].name);
    return names;
}
