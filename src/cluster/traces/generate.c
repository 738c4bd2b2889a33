/* Draws traces from a seed. */
#include "cluster/traces/generate.h"

#include "base/memory.h"
#include "base/random.h"
#include "io/yaml.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400.0
#define PI 3.14159265358979323846
#define OPTIONAL CYAML_FLAG_OPTIONAL
#define OPTIONAL_LIST (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER)

/* One of several, with its weight. */
struct item {
    char *name, *size; /* of a type, a tenant, a model */
    int count, batch;
    double weight;
    int index; /* in the fleet, or of the workload */
};

struct durations {
    double median_h, sigma, least_h, most_h;
};

struct deadlines {
    double share, least, most;
};

struct recipe {
    int jobs;
    double jobs_per_day, daily_swing, busiest_hour;
    struct durations duration;
    struct item *gpus, *types, *models, *tenants;
    unsigned gpus_count, types_count, models_count, tenants_count;
    struct deadlines deadlines;
};

#define ITEM struct item
static const cyaml_schema_field_t gpu_fields[] = {
    CYAML_FIELD_INT("count", CYAML_FLAG_DEFAULT, ITEM, count),
    CYAML_FIELD_FLOAT("weight", CYAML_FLAG_DEFAULT, ITEM, weight),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t name_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, ITEM, name, 1, 200),
    CYAML_FIELD_FLOAT("weight", CYAML_FLAG_DEFAULT, ITEM, weight),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t model_fields[] = {
    CYAML_FIELD_STRING_PTR("model", CYAML_FLAG_POINTER, ITEM, name, 1, 200),
    CYAML_FIELD_STRING_PTR("size", CYAML_FLAG_POINTER, ITEM, size, 1, 200),
    CYAML_FIELD_INT("batch", CYAML_FLAG_DEFAULT, ITEM, batch),
    CYAML_FIELD_FLOAT("weight", CYAML_FLAG_DEFAULT, ITEM, weight),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t gpu_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, ITEM, gpu_fields)};
static const cyaml_schema_value_t name_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, ITEM, name_fields)};
static const cyaml_schema_value_t model_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, ITEM, model_fields)};

#define DURATIONS struct durations
static const cyaml_schema_field_t duration_fields[] = {
    CYAML_FIELD_FLOAT("median_h", CYAML_FLAG_DEFAULT, DURATIONS, median_h),
    CYAML_FIELD_FLOAT("sigma", CYAML_FLAG_DEFAULT, DURATIONS, sigma),
    CYAML_FIELD_FLOAT("least_h", CYAML_FLAG_DEFAULT, DURATIONS, least_h),
    CYAML_FIELD_FLOAT("most_h", CYAML_FLAG_DEFAULT, DURATIONS, most_h),
    CYAML_FIELD_END,
};

#define DEADLINES struct deadlines
static const cyaml_schema_field_t deadline_fields[] = {
    CYAML_FIELD_FLOAT("share", CYAML_FLAG_DEFAULT, DEADLINES, share),
    CYAML_FIELD_FLOAT("least", CYAML_FLAG_DEFAULT, DEADLINES, least),
    CYAML_FIELD_FLOAT("most", CYAML_FLAG_DEFAULT, DEADLINES, most),
    CYAML_FIELD_END,
};

#define RECIPE struct recipe
static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_INT("jobs", CYAML_FLAG_DEFAULT, RECIPE, jobs),
    CYAML_FIELD_FLOAT("jobs_per_day", CYAML_FLAG_DEFAULT, RECIPE, jobs_per_day),
    CYAML_FIELD_FLOAT("daily_swing", OPTIONAL, RECIPE, daily_swing),
    CYAML_FIELD_FLOAT("busiest_hour", OPTIONAL, RECIPE, busiest_hour),
    CYAML_FIELD_MAPPING("duration", CYAML_FLAG_DEFAULT, RECIPE, duration, duration_fields),
    CYAML_FIELD_SEQUENCE("gpus", CYAML_FLAG_POINTER, RECIPE, gpus, &gpu_schema, 1, 1000),
    CYAML_FIELD_SEQUENCE("types", OPTIONAL_LIST, RECIPE, types, &name_schema, 1, 1000),
    CYAML_FIELD_SEQUENCE("models", OPTIONAL_LIST, RECIPE, models, &model_schema, 1, 1000),
    CYAML_FIELD_SEQUENCE("tenants", OPTIONAL_LIST, RECIPE, tenants, &name_schema, 1, 10000),
    CYAML_FIELD_MAPPING("deadlines", OPTIONAL, RECIPE, deadlines, deadline_fields),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, RECIPE, fields)};

/* ---- values ---- */

static int check_ranges(const struct recipe *recipe, const struct erg_yaml *yaml,
                        struct erg_error *err)
{
    const struct durations *duration = &recipe->duration;
    const struct deadlines *deadlines = &recipe->deadlines;
    const bool due = erg_yaml_has(yaml, "deadlines");
    const struct erg_yaml_range ranges[] = {
        {"jobs", recipe->jobs, 1, 10000000},
        {"jobs_per_day", recipe->jobs_per_day, 1e-3, 1e9},
        {"daily_swing", recipe->daily_swing, 0, 1},
        {"busiest_hour", recipe->busiest_hour, 0, 24},
        {"duration.least_h", duration->least_h, 0, 1e6},
        {"duration.most_h", duration->most_h, duration->least_h, 1e6},
        {"duration.median_h", duration->median_h, fmax(1e-6, duration->least_h), duration->most_h},
        {"duration.sigma", duration->sigma, 0, 10},
        {"deadlines.share", due ? deadlines->share : 0, 0, 1},
        {"deadlines.least", due ? deadlines->least : 1, 1, 1e6},
        {"deadlines.most", due ? deadlines->most : 1, due ? deadlines->least : 1, 1e6},
    };
    return erg_yaml_check_ranges(yaml, ranges, sizeof ranges / sizeof *ranges, true, err);
}

static int check_weights(const struct item *items, unsigned count, const char *list,
                         const struct erg_yaml *yaml, struct erg_error *err)
{
    char key[96];
    for (unsigned i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%s[%u].weight", list, i);
        if (erg_yaml_check_range(yaml, key, items[i].weight, 1e-6, 1e9, err) != 0)
            return -1;
    }
    return 0;
}

static int find_types(struct recipe *recipe, const struct erg_trace_maker *maker,
                      const struct erg_yaml *yaml, struct erg_error *err)
{
    for (unsigned i = 0; i < recipe->types_count; i++) {
        struct item *type = &recipe->types[i];
        type->index = erg_fleet_type(maker->fleet, type->name);
        if (type->index >= 0)
            continue;
        struct erg_arena arena = {0};
        char key[96];
        snprintf(key, sizeof key, "types[%u].name", i);
        erg_yaml_fail(yaml, key, err, "the cluster has no GPU type '%s', but %s", type->name,
                      erg_fleet_type_names(maker->fleet, &arena));
        erg_arena_release(&arena);
        return -1;
    }
    return 0;
}

static int find_models(struct recipe *recipe, const struct erg_trace_maker *maker,
                       const struct erg_yaml *yaml, struct erg_error *err)
{
    for (unsigned i = 0; i < recipe->models_count; i++) {
        struct item *model = &recipe->models[i];
        model->index = -1;
        for (size_t w = 0; w < maker->trace->workloads_count; w++) {
            const struct erg_trace_workload *workload = &maker->trace->workloads[w];
            if (workload->batch == model->batch && !strcmp(workload->family, model->name) &&
                !strcmp(workload->size, model->size))
                model->index = (int)w;
        }
        char key[96];
        snprintf(key, sizeof key, "models[%u]", i);
        if (model->index < 0)
            return erg_yaml_fail(yaml, key, err,
                                 "the profiles in %s have no %s of size %s with batches of %d",
                                 maker->trace->path, model->name, model->size, model->batch);
    }
    return 0;
}

enum recipe_list { GPUS, TYPES, MODELS, RECIPE_LISTS };
static const char *const recipe_lists[] = {[GPUS] = "gpus", [TYPES] = "types", [MODELS] = "models"};

/* Returns true if one item of a list can be drawn: some combination of model, number of GPUs and
 * type that contains it can run. */
static bool can_be_drawn(const struct recipe *recipe, enum recipe_list list, unsigned item,
                         const struct erg_trace_maker *maker)
{
    unsigned at[RECIPE_LISTS];
    for (at[MODELS] = 0; at[MODELS] < recipe->models_count; at[MODELS]++)
        for (at[TYPES] = 0; at[TYPES] < recipe->types_count; at[TYPES]++)
            for (at[GPUS] = 0; at[GPUS] < recipe->gpus_count; at[GPUS]++)
                if (at[list] == item &&
                    isfinite(erg_trace_maker_iteration(maker, recipe->models[at[MODELS]].index,
                                                       recipe->types[at[TYPES]].index,
                                                       recipe->gpus[at[GPUS]].count)))
                    return true;
    return false;
}

/* Every item in the file must be drawable. */
static int check_runs(const struct recipe *recipe, const struct erg_trace_maker *maker,
                      const struct erg_yaml *yaml, struct erg_error *err)
{
    const unsigned counts[] = {[GPUS] = recipe->gpus_count,
                               [TYPES] = recipe->types_count,
                               [MODELS] = recipe->models_count};
    for (int list = 0; list < RECIPE_LISTS; list++)
        for (unsigned i = 0; i < counts[list] && erg_yaml_has(yaml, recipe_lists[list]); i++) {
            char key[96];
            if (can_be_drawn(recipe, (enum recipe_list)list, i, maker))
                continue;
            snprintf(key, sizeof key, "%s[%u]", recipe_lists[list], i);
            return erg_yaml_fail(yaml, key, err,
                                 "no job could be drawn: none of the models runs on these numbers "
                                 "of GPUs of these types, by the profiles in %s",
                                 maker->trace->path);
        }
    return 0;
}

/* The defaults from the fleet and the profiles. */
static void add_defaults(struct recipe *recipe, const struct erg_trace_maker *maker,
                         const struct erg_yaml *yaml)
{
    if (!erg_yaml_has(yaml, "busiest_hour"))
        recipe->busiest_hour = 15;
    if (!recipe->types) {
        recipe->types_count = maker->fleet->types_count;
        recipe->types = erg_xcalloc(recipe->types_count, sizeof *recipe->types);
        for (unsigned t = 0; t < recipe->types_count; t++) {
            const struct erg_gpu_type *type = &maker->fleet->types[t];
            recipe->types[t] = (struct item){.name = erg_xstrdup(type->name),
                                             .index = (int)t,
                                             .weight = type->nodes * type->gpus_per_node};
        }
    }
    if (!recipe->models) {
        recipe->models_count = (unsigned)maker->trace->workloads_count;
        recipe->models = erg_xcalloc(recipe->models_count, sizeof *recipe->models);
        for (unsigned w = 0; w < recipe->models_count; w++)
            recipe->models[w] = (struct item){.index = (int)w, .weight = 1};
    }
}

static int check(struct recipe *recipe, const struct erg_trace_maker *maker,
                 const struct erg_yaml *yaml, struct erg_error *err)
{
    if (check_ranges(recipe, yaml, err) != 0 ||
        check_weights(recipe->gpus, recipe->gpus_count, "gpus", yaml, err) != 0 ||
        check_weights(recipe->types, recipe->types_count, "types", yaml, err) != 0 ||
        check_weights(recipe->models, recipe->models_count, "models", yaml, err) != 0 ||
        check_weights(recipe->tenants, recipe->tenants_count, "tenants", yaml, err) != 0 ||
        find_types(recipe, maker, yaml, err) != 0 || find_models(recipe, maker, yaml, err) != 0)
        return -1;
    add_defaults(recipe, maker, yaml);
    return check_runs(recipe, maker, yaml, err);
}

/* ---- draws ---- */

static const struct item *draw(const struct item *items, unsigned count, struct erg_rng *rng)
{
    double sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += items[i].weight;
    double at = sum * erg_rng_uniform(rng);
    unsigned i = 0;
    while (i + 1 < count && (at -= items[i].weight) >= 0)
        i++;
    return &items[i];
}

/* Seconds of the next arrival after `at_s`. */
static double next_arrival(const struct recipe *recipe, double at_s, struct erg_rng *rng)
{
    double swing = recipe->daily_swing, accepted;
    do {
        at_s -= log(1 - erg_rng_uniform(rng)) * DAY_S / (recipe->jobs_per_day * (1 + swing));
        double day = at_s / DAY_S - recipe->busiest_hour / 24;
        accepted = (1 + swing * cos(2 * PI * day)) / (1 + swing);
    } while (erg_rng_uniform(rng) >= accepted);
    return at_s;
}

static double draw_duration(const struct durations *duration, struct erg_rng *rng)
{
    double hours;
    do
        hours = duration->median_h * exp(duration->sigma * erg_rng_normal(rng));
    while (hours < duration->least_h || hours > duration->most_h);
    return 3600 * hours;
}

static void add_job(struct erg_trace_maker *maker, const struct recipe *recipe, int number,
                    double submit_s, struct erg_rng *rng)
{
    char id[32];
    struct erg_made_job made = {
        .id = id,
        .tenant =
            recipe->tenants_count ? draw(recipe->tenants, recipe->tenants_count, rng)->name : "",
        .submit_s = floor(submit_s),
        .deadline_s = INFINITY,
        .line = (size_t)number};
    snprintf(id, sizeof id, "job-%d", number);
    do {
        made.workload = draw(recipe->models, recipe->models_count, rng)->index;
        made.gpus = draw(recipe->gpus, recipe->gpus_count, rng)->count;
        made.type = draw(recipe->types, recipe->types_count, rng)->index;
    } while (isinf(erg_trace_maker_iteration(maker, made.workload, made.type, made.gpus)));
    made.duration_s = draw_duration(&recipe->duration, rng);
    const struct deadlines *deadlines = &recipe->deadlines;
    if (erg_rng_uniform(rng) < deadlines->share) {
        double slack =
            deadlines->least + (deadlines->most - deadlines->least) * erg_rng_uniform(rng);
        made.deadline_s = made.submit_s + ceil(slack * made.duration_s);
    }
    erg_trace_maker_add(maker, &made);
}

static void fill(struct erg_trace_maker *maker, const struct recipe *recipe, uint64_t seed)
{
    struct erg_rng arrivals;
    double at_s = 0;
    erg_rng_seed(&arrivals, seed);
    for (int number = 1; number <= recipe->jobs; number++) {
        struct erg_rng rng;
        at_s = next_arrival(recipe, at_s, &arrivals);
        erg_rng_seed(&rng, erg_hash_u64(seed, (uint64_t)number));
        add_job(maker, recipe, number, at_s, &rng);
    }
    erg_trace_maker_finish(maker);
}

static int generate(struct erg_trace_maker *maker, const struct erg_yaml *yaml, uint64_t seed,
                    struct erg_error *err)
{
    void *value;
    if (erg_yaml_read(yaml, &schema, &value, err) != 0)
        return -1;
    int result = check(value, maker, yaml, err);
    if (result == 0)
        fill(maker, value, seed);
    erg_yaml_free(&schema, value);
    return result;
}

int erg_trace_generate(struct erg_trace_maker *maker, const char *path, uint64_t seed,
                       struct erg_error *err)
{
    struct erg_yaml *yaml;
    if (erg_yaml_open(&yaml, path, err) != 0)
        return -1;
    int result = generate(maker, yaml, seed, err);
    erg_yaml_close(yaml);
    return result;
}
