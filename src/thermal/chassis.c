/* Chassis as data: slots, heat, fans and limits of a catalogue file. */
#include "thermal/thermal.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "hardware/catalogue.h"
#include "io/file.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* One row per number: section, key in the file, member, smallest and largest value. */
#define HEAT_NUMBERS(X)                                                                            \
    X(heat, inlet_c, inlet_c, -20, 100)                                                            \
    X(heat, die_k_per_w, die_k_per_w, 1e-4, 1)                                                     \
    X(heat, sink_k_per_w, sink_k_per_w, 1e-4, 1)                                                   \
    X(heat, die_time_s, die_time_s, 0.01, 1e4)                                                     \
    X(heat, sink_time_s, sink_time_s, 0.01, 1e5)
#define HEAT_OPTIONS(X)                                                                            \
    X(heat, preheat_k, preheat_k, 0, 50)                                                           \
    X(heat, air_k_per_w, air_k_per_w, 0, 1)                                                        \
    X(heat, lane_mix, lane_mix, 0, 1)                                                              \
    X(heat, sensor_lag_s, sensor_lag_s, 0, 60)
#define FAN_NUMBERS(X)                                                                             \
    X(fan, target_c, fan.target_c, 1, 120)                                                         \
    X(fan, gain_per_k, fan.gain_per_k, 0, 10)                                                      \
    X(fan, integral_s, fan.integral_s, 0.1, 1e5)                                                   \
    X(fan, period_s, fan.period_s, 0.01, 60)                                                       \
    X(fan, slew_per_s, fan.slew_per_s, 1e-4, 100)                                                  \
    X(fan, slowest, fan.slowest, 0.05, 1)                                                          \
    X(fan, fastest, fan.fastest, 1, 10)
#define LIMIT_NUMBERS(X) X(limit, hold_c, limit.hold_c, 1, 150)
#define LIMIT_OPTIONS(X)                                                                           \
    X(limit, slowdown_k, limit.slowdown_k, 0, 50)                                                  \
    X(limit, soft_c, limit.soft_c, 1, 150)                                                         \
    X(limit, slope_mhz_per_k, limit.slope_mhz_per_k, 0, 1000)

#define FIELD(section, name, member, min, max)                                                     \
    CYAML_FIELD_FLOAT(#name, CYAML_FLAG_DEFAULT, struct erg_chassis, member),
#define OPTION(section, name, member, min, max)                                                    \
    CYAML_FIELD_FLOAT(#name, CYAML_FLAG_OPTIONAL, struct erg_chassis, member),
#define QUANTITY(section, name, member, min, max)                                                  \
    {#section "." #name, offsetof(struct erg_chassis, member), 1, (min), (max)},

static const cyaml_strval_t position_names[] = {{"front", ERG_SLOT_FRONT}, {"rear", ERG_SLOT_REAR}};
static const cyaml_strval_t law_names[] = {{"hold", ERG_HEAT_HOLD},
                                           {"proportional", ERG_HEAT_PROPORTIONAL}};

static const cyaml_schema_field_t slot_fields[] = {
    CYAML_FIELD_ENUM("position", CYAML_FLAG_STRICT, struct erg_chassis_slot, position,
                     position_names, 2),
    CYAML_FIELD_INT("lane", CYAML_FLAG_DEFAULT, struct erg_chassis_slot, lane),
    CYAML_FIELD_INT("sink", CYAML_FLAG_OPTIONAL, struct erg_chassis_slot, sink),
    CYAML_FIELD_FLOAT("die_k_per_w", CYAML_FLAG_OPTIONAL, struct erg_chassis_slot, die_k_per_w),
    CYAML_FIELD_FLOAT("sink_k_per_w", CYAML_FLAG_OPTIONAL, struct erg_chassis_slot, sink_k_per_w),
    CYAML_FIELD_FLOAT("preheat_k", CYAML_FLAG_OPTIONAL, struct erg_chassis_slot, preheat_k),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t slot_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct erg_chassis_slot, slot_fields)};

static const cyaml_schema_field_t heat_fields[] = {HEAT_NUMBERS(FIELD) HEAT_OPTIONS(OPTION)
                                                       CYAML_FIELD_END};
static const cyaml_schema_field_t fan_fields[] = {FAN_NUMBERS(FIELD) CYAML_FIELD_END};
static const cyaml_schema_field_t limit_fields[] = {
    CYAML_FIELD_ENUM("law", CYAML_FLAG_STRICT | CYAML_FLAG_OPTIONAL, struct erg_chassis, limit.law,
                     law_names, 2),
    LIMIT_NUMBERS(FIELD) LIMIT_OPTIONS(OPTION) CYAML_FIELD_END};

/* A section groups keys in the file; its members lie in the chassis itself. */
#define SECTION(name, presence, list)                                                              \
    {                                                                                              \
        .key = name, .value = {                                                                    \
            .type = CYAML_MAPPING,                                                                 \
            .flags = presence,                                                                     \
            .data_size = sizeof(struct erg_chassis),                                               \
            .mapping = {.fields = list},                                                           \
        }                                                                                          \
    }

static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct erg_chassis, name, 1, 200),
    CYAML_FIELD_STRING_PTR("confidence", CYAML_FLAG_POINTER, struct erg_chassis, confidence, 1,
                           400),
    {.key = "slots",
     .value = {.type = CYAML_SEQUENCE,
               .flags = CYAML_FLAG_POINTER,
               .data_size = sizeof(struct erg_chassis_slot),
               .sequence = {.entry = &slot_schema, .min = 1, .max = ERG_CHASSIS_GPUS}},
     .data_offset = offsetof(struct erg_chassis, slots),
     .count_offset = offsetof(struct erg_chassis, gpus),
     .count_size = sizeof(unsigned)},
    SECTION("heat", CYAML_FLAG_DEFAULT, heat_fields),
    SECTION("fan", CYAML_FLAG_OPTIONAL, fan_fields),
    SECTION("limit", CYAML_FLAG_DEFAULT, limit_fields),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct erg_chassis, fields),
};

static const struct erg_quantity quantities[] = {HEAT_NUMBERS(QUANTITY) HEAT_OPTIONS(QUANTITY)
                                                     FAN_NUMBERS(QUANTITY) LIMIT_NUMBERS(QUANTITY)
                                                         LIMIT_OPTIONS(QUANTITY){NULL, 0, 0, 0, 0}};

static bool has(const struct erg_yaml *yaml, unsigned slot, const char *key, char *path,
                size_t capacity)
{
    snprintf(path, capacity, "slots[%u].%s", slot, key);
    return erg_yaml_has(yaml, path);
}

static int finish_sink(struct erg_chassis *chassis, unsigned at, const struct erg_yaml *yaml,
                       struct erg_error *err)
{
    struct erg_chassis_slot *slot = &chassis->slots[at];
    assert(at < chassis->gpus);
    char path[64];
    if (!has(yaml, at, "sink", path, sizeof path)) {
        slot->sink = (int)at;
        return 0;
    }
    if (erg_yaml_check_range(yaml, path, slot->sink, 0, at, err) != 0)
        return -1;
    const struct erg_chassis_slot *owner = &chassis->slots[slot->sink];
    if (owner->sink != slot->sink)
        return erg_yaml_fail(yaml, path, err,
                             "slot %d shares a sink, expected as sink the slot that owns it, %d",
                             slot->sink, owner->sink);
    if (owner->position != slot->position || owner->lane != slot->lane)
        return erg_yaml_fail(
            yaml, path, err,
            "expected a slot of the same position and lane, since the two share a sink");
    return 0;
}

/* Reads a number of a slot; default: that of all slots. */
static int finish_number(const struct erg_yaml *yaml, unsigned at, const char *key, double all,
                         double min, double max, double *number, struct erg_error *err)
{
    char path[64];
    if (!has(yaml, at, key, path, sizeof path)) {
        *number = all;
        return 0;
    }
    return erg_yaml_check_range(yaml, path, *number, min, max, err);
}

static int finish_slot(struct erg_chassis *chassis, unsigned at, const struct erg_yaml *yaml,
                       struct erg_error *err)
{
    struct erg_chassis_slot *slot = &chassis->slots[at];
    char path[64];
    has(yaml, at, "lane", path, sizeof path);
    if (erg_yaml_check_range(yaml, path, slot->lane, 0, ERG_CHASSIS_GPUS - 1, err) != 0 ||
        finish_number(yaml, at, "die_k_per_w", chassis->die_k_per_w, 1e-4, 1, &slot->die_k_per_w,
                      err) != 0 ||
        finish_number(yaml, at, "sink_k_per_w", chassis->sink_k_per_w, 1e-4, 1, &slot->sink_k_per_w,
                      err) != 0 ||
        finish_number(yaml, at, "preheat_k", chassis->preheat_k, 0, 50, &slot->preheat_k, err) != 0)
        return -1;
    return finish_sink(chassis, at, yaml, err);
}

static int finish_limit(struct erg_chassis *chassis, const struct erg_yaml *yaml,
                        struct erg_error *err)
{
    static const char *const needed[] = {"limit.soft_c", "limit.slope_mhz_per_k"};
    if (!erg_yaml_has(yaml, "limit.slowdown_k"))
        chassis->limit.slowdown_k = 5;
    for (size_t i = 0; chassis->limit.law == ERG_HEAT_PROPORTIONAL && i < 2; i++)
        if (!erg_yaml_has(yaml, needed[i]))
            return erg_yaml_fail(yaml, "limit.law", err, "a proportional limit needs the key '%s'",
                                 needed[i]);
    for (unsigned i = 0; i < chassis->gpus; i++)
        if (chassis->limit.hold_c <= chassis->inlet_c + chassis->slots[i].preheat_k)
            return erg_yaml_fail(
                yaml, "limit.hold_c", err,
                "expected more than %g C, the temperature of the cooling air, got %g",
                chassis->inlet_c + chassis->slots[i].preheat_k, chassis->limit.hold_c);
    return 0;
}

static int finish(void *value, const struct erg_yaml *yaml, struct erg_error *err)
{
    struct erg_chassis *chassis = value;
    erg_name_make_printable(&chassis->name);
    erg_name_make_printable(&chassis->confidence);
    if (erg_quantities_finish(chassis, quantities, yaml, "", err) != 0)
        return -1;
    for (unsigned i = 0; i < chassis->gpus; i++)
        if (finish_slot(chassis, i, yaml, err) != 0)
            return -1;
    return finish_limit(chassis, yaml, err);
}

static const struct erg_catalogue catalogue = {"chassis", "chassis", &schema, finish};

int erg_chassis_load(struct erg_chassis **chassis, const char *name, struct erg_error *err)
{
    void *value;
    if (erg_catalogue_load(&value, &catalogue, name, err) != 0)
        return -1;
    *chassis = value;
    return 0;
}

void erg_chassis_free(struct erg_chassis *chassis)
{
    erg_yaml_free(&schema, chassis);
}

uint64_t erg_chassis_fingerprint(const struct erg_chassis *chassis)
{
    uint64_t hash = erg_hash_u64(erg_hash_text(chassis->name), chassis->limit.law);
    for (unsigned i = 0; i < chassis->gpus; i++) {
        const struct erg_chassis_slot *slot = &chassis->slots[i];
        uint64_t bits[3];
        memcpy(&bits[0], &slot->die_k_per_w, sizeof bits[0]);
        memcpy(&bits[1], &slot->sink_k_per_w, sizeof bits[1]);
        memcpy(&bits[2], &slot->preheat_k, sizeof bits[2]);
        hash = erg_hash_u64(hash, (uint64_t)slot->position);
        hash = erg_hash_u64(hash, (uint64_t)slot->lane);
        hash = erg_hash_u64(hash, (uint64_t)slot->sink);
        for (int b = 0; b < 3; b++)
            hash = erg_hash_u64(hash, bits[b]);
    }
    return erg_quantities_hash(chassis, quantities, hash);
}

/* ---- writing ---- */

static void write_slots(struct erg_text *out, const struct erg_chassis *chassis)
{
    erg_text_add(out, "\nslots:\n");
    for (unsigned i = 0; i < chassis->gpus; i++) {
        const struct erg_chassis_slot *slot = &chassis->slots[i];
        erg_text_printf(out, "  - {position: %s, lane: %d", position_names[slot->position].str,
                        slot->lane);
        if (slot->sink != (int)i)
            erg_text_printf(out, ", sink: %d", slot->sink);
        if (slot->die_k_per_w != chassis->die_k_per_w)
            erg_text_printf(out, ", die_k_per_w: %.5g", slot->die_k_per_w);
        if (slot->sink_k_per_w != chassis->sink_k_per_w)
            erg_text_printf(out, ", sink_k_per_w: %.5g", slot->sink_k_per_w);
        if (slot->preheat_k != chassis->preheat_k)
            erg_text_printf(out, ", preheat_k: %.3g", slot->preheat_k);
        erg_text_add(out, "}\n");
    }
}

static void write_section(struct erg_text *out, const struct erg_chassis *chassis,
                          const char *section)
{
    const size_t length = strlen(section);
    erg_text_printf(out, "\n%s:\n", section);
    for (const struct erg_quantity *at = quantities; at->key; at++)
        if (!strncmp(at->key, section, length) && at->key[length] == '.')
            erg_text_printf(out, "  %s: %.6g\n", at->key + length + 1,
                            *(const double *)(const void *)((const char *)chassis + at->offset));
}

int erg_chassis_write(const struct erg_chassis *chassis, const char *path, const char *heading,
                      struct erg_error *err)
{
    const struct erg_heat_limit *limit = &chassis->limit;
    struct erg_text out = {0};
    erg_catalogue_add_heading(&out, heading);
    erg_text_add(&out, "\nname: ");
    erg_yaml_add_string(&out, chassis->name);
    erg_text_add(&out, "\nconfidence: ");
    erg_yaml_add_string(&out, chassis->confidence);
    erg_text_add(&out, "\n");
    write_slots(&out, chassis);
    write_section(&out, chassis, "heat");
    if (chassis->fan.target_c > 0)
        write_section(&out, chassis, "fan");
    erg_text_printf(&out, "\nlimit:\n  law: %s\n  hold_c: %.6g\n  slowdown_k: %.6g\n",
                    law_names[limit->law].str, limit->hold_c, limit->slowdown_k);
    if (limit->law == ERG_HEAT_PROPORTIONAL)
        erg_text_printf(&out, "  soft_c: %.6g\n  slope_mhz_per_k: %.6g\n", limit->soft_c,
                        limit->slope_mhz_per_k);
    int status = erg_file_write(path, out.data, out.count, err);
    erg_text_release(&out);
    return status;
}
