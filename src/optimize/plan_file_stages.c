/* Reading a plan: its stages and the options that each has (optimize/plan_file.h). */
#include "optimize/plan_file_internal.h"

#include <float.h>
#include <string.h>

int erg_plan_positive(const struct erg_json_place *place, const char *key, double *value,
                      struct erg_error *err)
{
    return erg_json_double(place, key, DBL_MIN, DBL_MAX, value, err);
}

static bool lists_text(const json_t *list, const char *text)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        if (json_is_string(item) && !strcmp(json_string_value(item), text))
            return true;
    }
    return false;
}

static bool lists_number(const json_t *list, long number)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        if (json_is_integer(item) && json_integer_value(item) == number)
            return true;
    }
    return false;
}

static int read_configuration(const struct erg_plan_reader *reader, size_t kind,
                              const struct erg_json_place *place,
                              struct erg_plan_configuration *out, struct erg_error *err)
{
    long sms;
    if (erg_json_string(place, "partition", &out->partition, err) ||
        erg_json_string(place, "slot", &out->slot, err) ||
        erg_json_long(place, "sms", 1, ERG_PLAN_MOST_COUNT, &sms, err))
        return -1;
    out->sms = (int)sms;
    const json_t *partition = NULL;
    for (size_t i = 0; !partition && i < json_array_size(reader->partitions); i++) {
        const json_t *item = json_array_get(reader->partitions, i);
        if (!strcmp(json_string_value(json_object_get(item, "key")), out->partition) &&
            json_integer_value(json_object_get(item, "kind")) == (json_int_t)kind)
            partition = item;
    }
    if (!partition)
        return erg_json_fail(place, "partition", err, "the plan has no partition %s of %s",
                             out->partition, reader->plan->kinds[kind].gpu);
    if (!lists_text(json_object_get(partition, "slots"), out->slot))
        return erg_json_fail(place, "slot", err, "partition %s has no slot %s", out->partition,
                             out->slot);
    if (!lists_number(json_object_get(partition, "sms"), sms))
        return erg_json_fail(place, "sms", err, "partition %s has no choice of %ld SMs",
                             out->partition, sms);
    return 0;
}

static int read_option(const struct erg_plan_reader *reader, size_t kind,
                       const struct erg_json_place *place, struct erg_plan_option *out,
                       struct erg_error *err)
{
    const char *mode;
    long clock_mhz;
    if (erg_json_string(place, "mode", &mode, err) ||
        erg_json_long(place, "clock_mhz", 1, ERG_PLAN_MOST_COUNT, &clock_mhz, err) ||
        erg_plan_positive(place, "time_s", &out->time_s, err) ||
        erg_plan_positive(place, "energy_j", &out->energy_j, err))
        return -1;
    static const enum erg_mode modes[] = {ERG_MODE_OVERLAP, ERG_MODE_SEQUENTIAL,
                                          ERG_MODE_NANOBATCH};
    size_t m = 0;
    while (m < 3 && strcmp(mode, erg_mode_name(modes[m])) != 0)
        m++;
    if (m == 3)
        return erg_json_fail(place, "mode", err,
                             "expected overlap, sequential or nanobatch, got %s", mode);
    if (!lists_number(reader->plan->kinds[kind].clocks_mhz, clock_mhz))
        return erg_json_fail(place, "clock_mhz", err, "%ld is none of the clocks_mhz of %s",
                             clock_mhz, reader->plan->kinds[kind].gpu);
    out->mode = modes[m];
    out->clock_mhz = (int)clock_mhz;
    if (out->mode != ERG_MODE_OVERLAP)
        return erg_json_has(place, "configurations")
                   ? erg_json_fail(place, "configurations", err,
                                   "only the mode overlap has them, got mode %s", mode)
                   : 0;
    const json_t *list;
    if (erg_json_array(place, "configurations", &list, err))
        return -1;
    out->configuration_count = json_array_size(list);
    out->configurations = erg_arena_alloc(&reader->plan->arena, (out->configuration_count + 1) *
                                                                    sizeof *out->configurations);
    for (size_t i = 0; i < out->configuration_count; i++) {
        struct erg_json_place item;
        if (erg_json_enter_item(&item, place, "configurations", i, err) ||
            read_configuration(reader, kind, &item, &out->configurations[i], err))
            return -1;
    }
    return 0;
}

static int read_options(const struct erg_plan_reader *reader, size_t kind,
                        const struct erg_json_place *stage, const char *direction,
                        struct erg_plan_options *out, struct erg_error *err)
{
    struct erg_json_place place;
    const json_t *list;
    if (erg_json_enter(&place, stage, direction, err) ||
        erg_json_array(&place, "options", &list, err))
        return -1;
    out->count = json_array_size(list);
    out->items = erg_arena_alloc(&reader->plan->arena, (out->count + 1) * sizeof *out->items);
    for (size_t i = 0; i < out->count; i++) {
        struct erg_json_place item;
        if (erg_json_enter_item(&item, &place, "options", i, err) ||
            read_option(reader, kind, &item, &out->items[i], err))
            return -1;
    }
    return 0;
}

int erg_plan_read_stages(struct erg_plan_reader *reader, struct erg_pipeline *pipeline,
                         struct erg_error *err)
{
    struct erg_plan_file *plan = reader->plan;
    const json_t *layers;
    if (erg_json_array(&reader->root, "stages", &reader->stages, err) ||
        erg_json_array(&reader->job, "layers", &layers, err))
        return -1;
    size_t count = json_array_size(reader->stages);
    if (count != pipeline->stages * pipeline->chunks)
        return erg_json_fail(&reader->root, "stages", err,
                             "expected %zu entries (pipeline %zu x virtual_stages %zu), got %zu",
                             pipeline->stages * pipeline->chunks, pipeline->stages,
                             pipeline->chunks, count);
    if (json_array_size(layers) != count)
        return erg_json_fail(&reader->job, "layers", err, "expected %zu entries, got %zu", count,
                             json_array_size(layers));
    plan->options = erg_arena_alloc(&plan->arena, 2 * count * sizeof *plan->options);
    plan->layers = erg_arena_alloc(&plan->arena, count * sizeof *plan->layers);
    plan->stage_kind = erg_arena_alloc(&plan->arena, pipeline->stages * sizeof *plan->stage_kind);
    for (size_t x = 0; x < count; x++) {
        struct erg_json_place place;
        long stage, chunk, kind, most = (long)plan->kind_count - 1;
        size_t *stage_kind = &plan->stage_kind[x % pipeline->stages];
        if (erg_json_enter_item(&place, &reader->root, "stages", x, err) ||
            erg_json_long(&place, "stage", 0, ERG_PLAN_MOST_COUNT, &stage, err) ||
            erg_json_long(&place, "chunk", 0, ERG_PLAN_MOST_COUNT, &chunk, err) ||
            erg_json_long(&place, "kind", 0, most, &kind, err) ||
            erg_json_long(&place, "layers", 1, ERG_PLAN_MOST_COUNT, &plan->layers[x], err))
            return -1;
        if ((size_t)stage != x % pipeline->stages || (size_t)chunk != x / pipeline->stages)
            return erg_json_fail(&place, "stage", err,
                                 "expected stage %zu and chunk %zu here, got %ld and %ld",
                                 x % pipeline->stages, x / pipeline->stages, stage, chunk);
        if (json_integer_value(json_array_get(layers, x)) != plan->layers[x])
            return erg_json_fail(&place, "layers", err, "%ld is not what job.layers[%zu] says",
                                 plan->layers[x], x);
        if (x >= pipeline->stages && (size_t)kind != *stage_kind)
            return erg_json_fail(&place, "kind", err,
                                 "chunk %ld of stage %ld is on GPUs of kind %ld, but its first is "
                                 "on kind %zu",
                                 chunk, stage, kind, *stage_kind);
        *stage_kind = (size_t)kind;
        if (read_options(reader, *stage_kind, &place, "forward", &plan->options[2 * x], err) ||
            read_options(reader, *stage_kind, &place, "backward", &plan->options[2 * x + 1], err))
            return -1;
    }
    erg_plan_find_powers(plan, pipeline);
    return 0;
}
