/* The result document of a point: written and read by one table of its fields. */
#include "characterize/result.h"

#include "io/field_table.h"
#include "io/file.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "ergon.point"
enum { SCHEMA_VERSION = 1, MOST_GPUS = 1 << 20 };

const char *const erg_result_status_names[] = {
    [ERG_RESULT_OK] = "ok",
    [ERG_RESULT_MEMORY] = "memory",
    [ERG_RESULT_IMPOSSIBLE] = "impossible",
    [ERG_RESULT_FAILED] = "failed",
    [ERG_RESULT_SKIPPED] = "skipped",
    NULL,
};

const char *const erg_result_source_names[] = {
    [ERG_RESULT_EMULATED] = "emulated",
    [ERG_RESULT_MEASURED] = "measured",
    NULL,
};

/* ---- the tables ---- */

/* clang-format off */
#define COUNT(name, member) LONG(name, member, RANGE(0, MOST_GPUS))
#define ITEMS(name, member) LIST_OR_NONE(name, member.items, member.count, item)

#define T struct erg_result_series
TABLE(series, T, NUMBER(mean), NUMBER(least), NUMBER(peak), NUMBER(sensor_peak), NUMBER(p99));
#undef T

#define T struct erg_result_bytes
TABLE(bytes, T, NUMBER(nvlink), NUMBER(pcie), NUMBER(network));
#undef T

#define T struct erg_result_metrics
TABLE(metrics, T,
    NUMBER(time_s), NUMBER(samples_per_s), NUMBER(tokens_per_s_gpu), NUMBER(mfu),
    NUMBER(energy_j), NUMBER(sensor_energy_j), NUMBER(j_per_token), NUMBER(tokens_per_j),
    NUMBER(eff_edp),
    OBJECT("power_w", power_w, series),
    OBJECT("temperature_c", temperature_c, series),
    OBJECT("memory_temperature_c", memory_temperature_c, series),
    NUMBER(clock_mhz), NUMBER(busy_clock_mhz), NUMBER(cap_share), NUMBER(thermal_share),
    NUMBER(bubble), NUMBER(exposed_share),
    OBJECT("bytes", bytes, bytes),
    NUMBER(network_use), NUMBER(temperature_imbalance), NUMBER(power_imbalance),
    NUMBER(busy_imbalance), NUMBER(noise));
#undef T

#define T struct erg_result_gpu
TABLE(gpu, T,
    COUNT("rank", rank), COUNT("node", node), COUNT("local", local), TEXT_OR_NONE("slot", slot),
    COUNT("tensor", tensor), COUNT("context", context), COUNT("data", data),
    COUNT("expert", expert), COUNT("stage", stage),
    OBJECT("power_w", power_w, series),
    OBJECT("temperature_c", temperature_c, series),
    OBJECT("memory_temperature_c", memory_temperature_c, series),
    NUMBER(energy_j), NUMBER(busy_share), NUMBER(clock_mhz), NUMBER(busy_clock_mhz),
    NUMBER(cap_share), NUMBER(thermal_share),
    OBJECT("sent", sent, bytes), OBJECT("received", received, bytes));
#undef T

#define T struct erg_result_stage
TABLE(stage, T,
    COUNT("stage", stage), COUNT("layers", layers), NUMBER(forward_s), NUMBER(backward_s),
    NUMBER(head_s), NUMBER(spin_s), NUMBER(message_s), NUMBER(wait_s), NUMBER(gradient_s),
    NUMBER(optimizer_s), NUMBER(total_s));
#undef T

#define T struct erg_result_category
TABLE(category, T,
    TEXT("name", name), NUMBER(summed_s), NUMBER(exposed_s), NUMBER(wait_s), NUMBER(count),
    NUMBER(energy_j));
#undef T

#define T struct erg_result_kernels
TABLE(kernels, T,
    COUNT("rank", rank), COUNT("stage", stage),
    LIST_OR_NONE("categories", categories, category_count, category), NUMBER(idle_s), NUMBER(idle_j));
#undef T

#define T struct erg_result_link
TABLE(link, T, TEXT("kind", kind), NUMBER(nvlink), NUMBER(network));
#undef T

#define T struct erg_result_item
TABLE(item, T, TEXT("name", name), NUMBER(value));
#undef T

#define T struct erg_result_repeat
TABLE(repeat, T,
    NUMBER(time_s), NUMBER(energy_j), NUMBER(sensor_energy_j), NUMBER(mean_power_w),
    NUMBER(sensor_peak_power_w), NUMBER(mean_temperature_c), NUMBER(sensor_peak_temperature_c));
#undef T

#define T struct erg_result_moment
TABLE(moment, T,
    NUMBER(begin_s), NUMBER(time_s), NUMBER(power_w), NUMBER(temperature_c),
    NUMBER(peak_temperature_c));
#undef T

VALUE(text, const char *, .type = ERG_FIELD_TEXT);

#define T struct erg_study_result
TABLE(result, T,
    TEXT_OR_NONE("id", id),
    NAME("status", status, erg_result_status_names),
    TEXT_OR_NONE("message", message),
    NAME("source", source, erg_result_source_names),
    COUNT("gpu_count", gpus), COUNT("nodes", nodes), COUNT("node_gpus", node_gpus),
    OBJECT("metrics", metrics, metrics),
    LIST_OR_NONE("gpus", gpu, gpu_count, gpu),
    LIST_OR_NONE("stages", stages, stage_count, stage),
    LIST_OR_NONE("kernels", kernels, kernels_count, kernels),
    LIST_OR_NONE("links", links, link_count, link),
    ITEMS("memory_bytes", memory_bytes), ITEMS("time_s", time_s), ITEMS("energy_j", energy_j),
    LIST_OR_NONE("repeats", repeats, repeat_count, repeat),
    LIST_OR_NONE("course", course, course_count, moment),
    LIST_OR_NONE("flags", flags, flag_count, text));
#undef T
/* clang-format on */

/* ---- values that are not known ---- */

static void forget(const struct erg_fields *fields, void *into)
{
    for (size_t i = 0; i < fields->count; i++) {
        const struct erg_field *field = &fields->items[i];
        void *value = (char *)into + field->offset;
        if (field->type == ERG_FIELD_DOUBLE)
            *(double *)value = NAN;
        else if (field->type == ERG_FIELD_OBJECT)
            forget(field->of, value);
    }
}

void erg_study_result_init(struct erg_study_result *result)
{
    *result = (struct erg_study_result){0};
    forget(&result_fields, result);
}

void erg_result_gpu_init(struct erg_result_gpu *gpu)
{
    *gpu = (struct erg_result_gpu){0};
    forget(&gpu_fields, gpu);
}

/* ---- the document ---- */

json_t *erg_study_result_json(const struct erg_study_result *result)
{
    json_t *root = erg_json_pack("{s:s s:i}", "schema", SCHEMA, "schema_version", SCHEMA_VERSION);
    json_t *fields = erg_fields_json(&result_fields, result);
    const struct {
        const char *key;
        const json_t *value;
    } parts[] = {{"point", result->point}, {"identity", result->identity}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].value)
            json_object_set_new(root, parts[i].key, json_deep_copy(parts[i].value));
    json_object_update(root, fields);
    json_decref(fields);
    return root;
}

int erg_study_result_from_json(struct erg_study_result *result, const json_t *root,
                               const char *name, const char *text, size_t length,
                               struct erg_arena *arena, struct erg_error *err)
{
    struct erg_json_place place;
    const char *schema;
    long version;
    erg_study_result_init(result);
    if (erg_json_root(&place, root, name, err) != 0)
        return -1;
    place.text = text;
    place.length = length;
    if (erg_json_string(&place, "schema", &schema, err) != 0)
        return -1;
    if (strcmp(schema, SCHEMA) != 0)
        return erg_json_fail(&place, "schema", err, "expected %s, got %s", SCHEMA, schema);
    if (erg_json_long(&place, "schema_version", SCHEMA_VERSION, SCHEMA_VERSION, &version, err) !=
            0 ||
        erg_fields_read(&result_fields, &place, result, arena, err) != 0)
        return -1;
    result->point = json_object_get(root, "point");
    result->identity = json_object_get(root, "identity");
    return 0;
}

int erg_study_result_write(const struct erg_study_result *result, const char *path,
                           struct erg_error *err)
{
    json_t *root = erg_study_result_json(result);
    int status = erg_json_write(path, root, err);
    json_decref(root);
    return status;
}

int erg_study_result_read(struct erg_study_result *result, json_t **root, const char *path,
                          struct erg_arena *arena, struct erg_error *err)
{
    char *text;
    size_t length;
    *root = NULL;
    if (erg_file_read(path, 0, &text, &length, err) != 0)
        return -1;
    int status = erg_json_parse(root, path, text, length, err);
    if (status == 0)
        status = erg_study_result_from_json(result, *root, path, text, length, arena, err);
    if (status != 0) {
        json_decref(*root);
        *root = NULL;
    }
    free(text);
    return status;
}
