/* Reads the live file. */
#include "cluster/live/live_file.h"

#include "base/text.h"
#include "cluster/fleet_schema.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONAL CYAML_FLAG_OPTIONAL

#define SLURM struct erg_live_slurm
static const cyaml_schema_field_t slurm_fields[] = {
    CYAML_FIELD_STRING_PTR("partition", CYAML_FLAG_POINTER, SLURM, partition, 1, 100),
    CYAML_FIELD_STRING_PTR("spool", CYAML_FLAG_POINTER, SLURM, spool, 1, 1000),
    CYAML_FIELD_FLOAT("poll_s", OPTIONAL, SLURM, poll_s),
    CYAML_FIELD_FLOAT("settle_s", OPTIONAL, SLURM, settle_s),
    CYAML_FIELD_END,
};

#define LIVE struct erg_live_file
static const cyaml_schema_field_t fields[] = {
    ERG_FLEET_FIELDS(LIVE, &erg_fleet_named_type),
    CYAML_FIELD_MAPPING("slurm", CYAML_FLAG_DEFAULT, LIVE, slurm, slurm_fields),
    CYAML_FIELD_STRING_PTR("profiles", OPTIONAL | CYAML_FLAG_POINTER, LIVE, profiles, 1, 1000),
    CYAML_FIELD_FLOAT("power_cap_w", OPTIONAL, LIVE, power_cap_w),
    CYAML_FIELD_STRING_PTR("policy", OPTIONAL | CYAML_FLAG_POINTER, LIVE, policy_name, 1, 100),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t schema = {CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, LIVE, fields)};

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* A node belongs to one type. */
static int check_names(const struct erg_live_file *live, const struct erg_yaml *yaml,
                       struct erg_error *err)
{
    size_t count = live->nodes.count;
    int result = 0;
    char **sorted = erg_xcalloc(count, sizeof *sorted);
    memcpy(sorted, live->nodes.items, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < count && result == 0; i++)
        if (!strcmp(sorted[i - 1], sorted[i]))
            result = erg_yaml_fail(yaml, "types", err, "the node '%s' is listed twice", sorted[i]);
    free(sorted);
    return result;
}

static int read_names(struct erg_live_file *live, const struct erg_yaml *yaml,
                      struct erg_error *err)
{
    for (unsigned i = 0; i < live->fleet.types_count; i++) {
        struct erg_gpu_type *type = &live->fleet.types[i];
        const size_t before = live->nodes.count;
        struct erg_error why;
        char key[64];
        long number;
        snprintf(key, sizeof key, "types[%u].nodes", i);
        if (erg_parse_long(type->hosts, &number))
            return erg_yaml_fail(yaml, key, err,
                                 "expected the names of the nodes, such as h[001-004], got %s",
                                 type->hosts);
        if (erg_host_list_add(&live->nodes, type->hosts, &why) != 0)
            return erg_yaml_fail(yaml, key, err, "%s", why.message);
        type->nodes = (int)(live->nodes.count - before);
    }
    return check_names(live, yaml, err);
}

static int check_slurm(struct erg_live_file *live, const struct erg_yaml *yaml,
                       struct erg_error *err)
{
    struct erg_live_slurm *slurm = &live->slurm;
    if (!erg_yaml_has(yaml, "slurm.poll_s"))
        slurm->poll_s = 2;
    if (!erg_yaml_has(yaml, "slurm.settle_s"))
        slurm->settle_s = 5;
    if (slurm->spool[0] != '/')
        return erg_yaml_fail(yaml, "slurm.spool", err,
                             "expected an absolute path, valid on all nodes, got '%s'",
                             slurm->spool);
    return erg_yaml_check_range(yaml, "slurm.poll_s", slurm->poll_s, 0.01, 3600, err) ||
                   erg_yaml_check_range(yaml, "slurm.settle_s", slurm->settle_s, 0, 3600, err)
               ? -1
               : 0;
}

/* Relative to the folder of the file. */
static void place_profiles(struct erg_live_file *live, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!live->profiles || live->profiles[0] == '/' || !slash)
        return;
    struct erg_text whole = {0};
    erg_text_printf(&whole, "%.*s/%s", (int)(slash - path), path, live->profiles);
    free(live->profiles);
    live->profiles = whole.data;
}

static int finish(struct erg_live_file *live, const struct erg_yaml *yaml, const char *path,
                  struct erg_error *err)
{
    struct erg_error why;
    if (read_names(live, yaml, err) != 0 || erg_fleet_finish(&live->fleet, yaml, err) != 0 ||
        check_slurm(live, yaml, err) != 0)
        return -1;
    if (!erg_yaml_has(yaml, "power_cap_w"))
        live->power_cap_w = INFINITY;
    else if (erg_yaml_check_range(yaml, "power_cap_w", live->power_cap_w, 1, 1e12, err) != 0)
        return -1;
    place_profiles(live, path);
    if (erg_policy_find(&live->policy, live->policy_name ? live->policy_name : "ergon", &why) != 0)
        return erg_yaml_fail(yaml, "policy", err, "%s", why.message);
    return 0;
}

int erg_live_file_load(struct erg_live_file **live, const char *path, struct erg_error *err)
{
    struct erg_yaml *yaml;
    void *value;
    if (erg_yaml_open(&yaml, path, err) != 0)
        return -1;
    int result = erg_yaml_read(yaml, &schema, &value, err);
    if (result == 0) {
        *live = value;
        result = finish(value, yaml, path, err);
        if (result != 0)
            erg_live_file_free(value);
    }
    erg_yaml_close(yaml);
    return result;
}

void erg_live_file_free(struct erg_live_file *live)
{
    if (!live)
        return;
    erg_host_list_release(&live->nodes);
    erg_yaml_free(&schema, live);
}
