/* Studies: parses a study's file, and checks what can be checked without other files. */
#include "characterize/study_internal.h"

#include "base/text.h"
#include "model/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONAL CYAML_FLAG_OPTIONAL
#define LIST (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER)

const struct study_optimisation erg_study_optimisations[] = {
    {"base", false, false}, {"cc", true, false},  {"act", false, true},
    {"cc+act", true, true}, {NULL, false, false},
};

const char *const erg_study_overlap_names[] = {"none", "gradients", "tensor", "all", NULL};
const char *const erg_study_placement_names[] = {"given", "cold-first", "search", NULL};

/* ---- the schema ---- */

static const cyaml_schema_value_t word = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, 400)};
static const cyaml_schema_value_t whole = {CYAML_VALUE_INT(CYAML_FLAG_DEFAULT, int)};
static const cyaml_schema_value_t number = {CYAML_VALUE_FLOAT(CYAML_FLAG_DEFAULT, double)};

static const cyaml_schema_field_t fault_fields[] = {
    CYAML_FIELD_INT("node", CYAML_FLAG_DEFAULT, struct study_fault, node),
    CYAML_FIELD_FLOAT("clock_share", CYAML_FLAG_DEFAULT, struct study_fault, clock_share),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t fault = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct study_fault, fault_fields)};

static const cyaml_schema_field_t lora_fields[] = {
    CYAML_FIELD_INT("rank", CYAML_FLAG_DEFAULT, struct study_lora, rank),
    CYAML_FIELD_SEQUENCE("targets", LIST, struct study_lora, targets, &word, 1, 8),
    CYAML_FIELD_END,
};

#define MOST 1000
#define AXES(TYPE)                                                                                 \
    CYAML_FIELD_INT("sequence", OPTIONAL, TYPE, axes.sequence),                                    \
        CYAML_FIELD_INT("vocabulary", OPTIONAL, TYPE, axes.vocabulary),                            \
        CYAML_FIELD_SEQUENCE("microbatch", LIST, TYPE, axes.microbatch, &whole, 1, MOST),          \
        CYAML_FIELD_SEQUENCE("optimisations", LIST, TYPE, axes.optimisations, &word, 1, MOST),     \
        CYAML_FIELD_SEQUENCE("overlap", LIST, TYPE, axes.overlap, &word, 1, MOST),                 \
        CYAML_FIELD_SEQUENCE("recompute", LIST, TYPE, axes.recompute, &word, 1, MOST),             \
        CYAML_FIELD_SEQUENCE("layers", LIST, TYPE, axes.layers, &word, 1, MOST),                   \
        CYAML_FIELD_SEQUENCE("placement", LIST, TYPE, axes.placement, &word, 1, MOST),             \
        CYAML_FIELD_SEQUENCE("clocks", LIST, TYPE, axes.clocks, &number, 1, MOST),                 \
        CYAML_FIELD_SEQUENCE("power_w", LIST, TYPE, axes.power_w, &number, 1, MOST),               \
        CYAML_FIELD_SEQUENCE("inlet_c", LIST, TYPE, axes.inlet_c, &number, 1, MOST),               \
        CYAML_FIELD_SEQUENCE("faults", LIST, TYPE, axes.faults, &fault, 1, MOST),                  \
        CYAML_FIELD_MAPPING_PTR("lora", LIST, TYPE, axes.lora, lora_fields)

static const cyaml_schema_field_t entry_fields[] = {
    CYAML_FIELD_STRING_PTR("model", CYAML_FLAG_POINTER, struct study_entry, model, 1, 4000),
    CYAML_FIELD_SEQUENCE("layouts", CYAML_FLAG_POINTER, struct study_entry, layouts, &word, 1,
                         MOST),
    AXES(struct study_entry), CYAML_FIELD_END};
static const cyaml_schema_value_t entry = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct study_entry, entry_fields)};

static const cyaml_schema_field_t settle_fields[] = {
    CYAML_FIELD_FLOAT("seconds", OPTIONAL, struct study_settle, seconds),
    CYAML_FIELD_FLOAT("slope_k_per_min", OPTIONAL, struct study_settle, slope_k_per_min),
    CYAML_FIELD_INT("most_iterations", OPTIONAL, struct study_settle, most_iterations),
    CYAML_FIELD_END};
static const cyaml_schema_field_t record_fields[] = {
    CYAML_FIELD_FLOAT("window_s", OPTIONAL, struct study_record, window_s),
    CYAML_FIELD_FLOAT("period_ms", OPTIONAL, struct study_record, period_ms),
    CYAML_FIELD_STRING_PTR("sensor", LIST, struct study_record, sensor, 1, 100), CYAML_FIELD_END};
static const cyaml_schema_field_t trace_fields[] = {
    CYAML_FIELD_STRING_PTR("ranks", LIST, struct study_trace, ranks, 1, 100), CYAML_FIELD_END};

static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct study_file, name, 1, 200),
    CYAML_FIELD_STRING_PTR("cluster", CYAML_FLAG_POINTER, struct study_file, cluster, 1, 4000),
    CYAML_FIELD_STRING_PTR("engine", CYAML_FLAG_POINTER, struct study_file, engine, 1, 4000),
    CYAML_FIELD_INT("batch", CYAML_FLAG_DEFAULT, struct study_file, batch),
    CYAML_FIELD_FLOAT("seed", OPTIONAL, struct study_file, seed),
    CYAML_FIELD_INT("repeats", OPTIONAL, struct study_file, repeats),
    CYAML_FIELD_MAPPING("settle", OPTIONAL, struct study_file, settle, settle_fields),
    CYAML_FIELD_MAPPING("record", OPTIONAL, struct study_file, record, record_fields),
    CYAML_FIELD_MAPPING("trace", OPTIONAL, struct study_file, trace, trace_fields),
    CYAML_FIELD_SEQUENCE("points", CYAML_FLAG_POINTER, struct study_file, points, &entry, 1, MOST),
    AXES(struct study_file),
    CYAML_FIELD_SEQUENCE("figures", LIST, struct study_file, figures, &whole, 1, 100),
    CYAML_FIELD_END};
static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct study_file, fields)};

/* ---- values ---- */

const char *const erg_study_sensor_names[] = {"hopper", "exact", NULL};
static const char *const trace_names[] = {"none", "stages", NULL};
static const int figures[] = {4, 5, 8, 10, 13, 15, 17, 0};

bool erg_study_has_figure(long wanted)
{
    for (size_t i = 0; figures[i]; i++)
        if (figures[i] == wanted)
            return true;
    return false;
}

static int check_name(const struct erg_yaml *yaml, const char *key, const char *name,
                      const char *const *names, struct erg_error *err)
{
    for (size_t i = 0; names[i]; i++)
        if (!strcmp(names[i], name))
            return 0;
    struct erg_text known = {0};
    erg_text_add_names(&known, names);
    erg_yaml_fail(yaml, key, err, "expected one of %s, got '%.80s'", known.data, name);
    erg_text_release(&known);
    return -1;
}

/* The keys of an axis: "points[2].clocks", "clocks[1]". */
struct study_place {
    char key[96];
};

static struct study_place place_of(const char *prefix, const char *list, unsigned index)
{
    struct study_place place;
    snprintf(place.key, sizeof place.key, "%s%s[%u]", prefix, list, index);
    return place;
}

static int check_names(const struct erg_yaml *yaml, const char *prefix, const char *list,
                       char *const *items, unsigned count, const char *const *names,
                       struct erg_error *err)
{
    for (unsigned i = 0; i < count; i++) {
        struct study_place place = place_of(prefix, list, i);
        if (check_name(yaml, place.key, items[i], names, err) != 0)
            return -1;
    }
    return 0;
}

/* 0 means the default value. */
static int check_numbers(const struct erg_yaml *yaml, const char *prefix, const char *list,
                         const double *items, unsigned count, double least, double most,
                         struct erg_error *err)
{
    for (unsigned i = 0; i < count; i++) {
        struct study_place place = place_of(prefix, list, i);
        if (items[i] == 0 && least > 0)
            continue;
        if (erg_yaml_check_range(yaml, place.key, items[i], least, most, err) != 0)
            return -1;
    }
    return 0;
}

static int check_optimisations(const struct study_axes *axes, const struct erg_yaml *yaml,
                               const char *prefix, struct erg_error *err)
{
    enum { NAMES = sizeof erg_study_optimisations / sizeof *erg_study_optimisations };
    const char *names[NAMES];
    for (size_t i = 0; i < NAMES; i++)
        names[i] = erg_study_optimisations[i].name;
    if (check_names(yaml, prefix, "optimisations", axes->optimisations, axes->optimisations_count,
                    names, err) != 0 ||
        check_names(yaml, prefix, "overlap", axes->overlap, axes->overlap_count,
                    erg_study_overlap_names, err) != 0 ||
        check_names(yaml, prefix, "recompute", axes->recompute, axes->recompute_count,
                    erg_recompute_names, err) != 0)
        return -1;
    if (axes->optimisations && (axes->overlap || axes->recompute)) {
        struct study_place place = place_of(prefix, axes->overlap ? "overlap" : "recompute", 0);
        return erg_yaml_fail(
            yaml, place.key, err,
            "'optimisations' sets overlap and recomputation as well; expected one of both");
    }
    return 0;
}

/* A layout's split of layers: a name, or numbers separated by commas. */
static bool is_split(const char *text)
{
    return !strcmp(text, "equal") || !strcmp(text, "alternate+1") ||
           (strspn(text, "0123456789,") == strlen(text) && *text != ',');
}

static int check_layers(const struct study_axes *axes, const struct erg_yaml *yaml,
                        const char *prefix, struct erg_error *err)
{
    for (unsigned i = 0; i < axes->layers_count; i++) {
        struct study_place place = place_of(prefix, "layers", i);
        if (!is_split(axes->layers[i]))
            return erg_yaml_fail(yaml, place.key, err,
                                 "expected equal, alternate+1, or the layers of each stage like "
                                 "\"21,19,21,19\", got '%.80s'",
                                 axes->layers[i]);
    }
    return 0;
}

static int check_lora(const struct study_lora *lora, const struct erg_yaml *yaml,
                      const char *prefix, struct erg_error *err)
{
    char key[96];
    if (!lora)
        return 0;
    for (unsigned i = 0; i < lora->targets_count; i++) {
        snprintf(key, sizeof key, "%slora.targets[%u]", prefix, i);
        if (check_name(yaml, key, lora->targets[i], erg_lora_target_names, err) != 0)
            return -1;
    }
    snprintf(key, sizeof key, "%slora.rank", prefix);
    return erg_yaml_check_range(yaml, key, lora->rank, 0, 65536, err);
}

static int check_whole(const struct erg_yaml *yaml, const char *prefix, const char *name,
                       double value, double least, double most, struct erg_error *err)
{
    char key[96];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    return erg_yaml_has(yaml, key) ? erg_yaml_check_range(yaml, key, value, least, most, err) : 0;
}

static int check_axes(const struct study_axes *axes, const struct erg_yaml *yaml,
                      const char *prefix, struct erg_error *err)
{
    if (check_whole(yaml, prefix, "sequence", axes->sequence, 1, 1e8, err) != 0 ||
        check_whole(yaml, prefix, "vocabulary", axes->vocabulary, 2, 1e8, err) != 0 ||
        check_optimisations(axes, yaml, prefix, err) != 0 ||
        check_names(yaml, prefix, "placement", axes->placement, axes->placement_count,
                    erg_study_placement_names, err) != 0 ||
        check_numbers(yaml, prefix, "clocks", axes->clocks, axes->clocks_count, 1, 1e5, err) != 0 ||
        check_numbers(yaml, prefix, "power_w", axes->power_w, axes->power_w_count, 1, 1e5, err) !=
            0 ||
        check_numbers(yaml, prefix, "inlet_c", axes->inlet_c, axes->inlet_c_count, -40, 100, err) !=
            0 ||
        check_layers(axes, yaml, prefix, err) != 0 ||
        check_lora(axes->lora, yaml, prefix, err) != 0)
        return -1;
    for (unsigned i = 0; i < axes->microbatch_count; i++) {
        struct study_place place = place_of(prefix, "microbatch", i);
        if (erg_yaml_check_range(yaml, place.key, axes->microbatch[i], 1, 1000000, err) != 0)
            return -1;
    }
    for (unsigned i = 0; i < axes->faults_count; i++) {
        char key[96];
        snprintf(key, sizeof key, "%sfaults[%u].clock_share", prefix, i);
        if (erg_yaml_check_range(yaml, key, axes->faults[i].clock_share, 0.01, 1, err) != 0)
            return -1;
    }
    return 0;
}

static int check_figures(const struct study_file *file, const struct erg_yaml *yaml,
                         struct erg_error *err)
{
    for (unsigned i = 0; i < file->figures_count; i++) {
        struct study_place place = place_of("", "figures", i);
        if (!erg_study_has_figure(file->figures[i]))
            return erg_yaml_fail(yaml, place.key, err,
                                 "expected one of 4, 5, 8, 10, 13, 15 and 17, got %d",
                                 file->figures[i]);
    }
    return 0;
}

/* Sets defaults. */
static void set_defaults(struct study_file *file, const struct erg_yaml *yaml)
{
    if (!erg_yaml_has(yaml, "seed"))
        file->seed = 1;
    if (!erg_yaml_has(yaml, "repeats"))
        file->repeats = 3;
    if (!erg_yaml_has(yaml, "settle.slope_k_per_min"))
        file->settle.slope_k_per_min = 0.5;
    if (!erg_yaml_has(yaml, "settle.seconds"))
        file->settle.seconds = 60;
    if (!erg_yaml_has(yaml, "record.window_s"))
        file->record.window_s = 5;
    if (!erg_yaml_has(yaml, "settle.most_iterations"))
        file->settle.most_iterations = 400;
    if (!erg_yaml_has(yaml, "record.period_ms"))
        file->record.period_ms = 50;
}

static int check_measuring(const struct study_file *file, const struct erg_yaml *yaml,
                           struct erg_error *err)
{
    if (erg_yaml_check_range(yaml, "batch", file->batch, 1, 1e9, err) != 0 ||
        erg_yaml_check_range(yaml, "seed", file->seed, 0, 0x1p53, err) != 0 ||
        erg_yaml_check_range(yaml, "repeats", file->repeats, 1, 1000, err) != 0 ||
        erg_yaml_check_range(yaml, "settle.slope_k_per_min", file->settle.slope_k_per_min, 1e-3,
                             100, err) != 0 ||
        erg_yaml_check_range(yaml, "settle.most_iterations", file->settle.most_iterations, 1, 1e6,
                             err) != 0 ||
        erg_yaml_check_range(yaml, "record.period_ms", file->record.period_ms, 1, 60000, err) !=
            0 ||
        erg_yaml_check_range(yaml, "settle.seconds", file->settle.seconds, 0, 86400, err) != 0 ||
        erg_yaml_check_range(yaml, "record.window_s", file->record.window_s, 0.001, 86400, err) !=
            0)
        return -1;
    if (file->seed != floor(file->seed))
        return erg_yaml_fail(yaml, "seed", err, "expected a whole number, got %g", file->seed);
    if (file->record.sensor &&
        check_name(yaml, "record.sensor", file->record.sensor, erg_study_sensor_names, err) != 0)
        return -1;
    return file->trace.ranks ? check_name(yaml, "trace.ranks", file->trace.ranks, trace_names, err)
                             : 0;
}

/* The name becomes a folder. */
static int check_study_name(const struct study_file *file, const struct erg_yaml *yaml,
                            struct erg_error *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (*file->name != '.' && *file->name != '-' &&
        strspn(file->name, letters) == strlen(file->name))
        return 0;
    return erg_yaml_fail(
        yaml, "name", err,
        "expected letters, digits, '.', '_' and '-', with a letter or digit first, "
        "got '%.80s'",
        file->name);
}

static int check_file(const struct study_file *file, const struct erg_yaml *yaml,
                      struct erg_error *err)
{
    if (check_study_name(file, yaml, err) != 0)
        return -1;
    if (check_measuring(file, yaml, err) != 0 || check_axes(&file->axes, yaml, "", err) != 0 ||
        check_figures(file, yaml, err) != 0)
        return -1;
    for (unsigned i = 0; i < file->points_count; i++) {
        char prefix[32], key[48];
        snprintf(prefix, sizeof prefix, "points[%u].", i);
        if (check_axes(&file->points[i].axes, yaml, prefix, err) != 0)
            return -1;
        snprintf(key, sizeof key, "points[%u]", i);
        if (!file->axes.sequence && !file->points[i].axes.sequence)
            return erg_yaml_fail(yaml, key, err,
                                 "expected the key 'sequence', the tokens per sequence, in the "
                                 "entry or at the top level");
    }
    return 0;
}

int erg_study_file_read(struct study_file **out, const struct erg_yaml *yaml, struct erg_error *err)
{
    void *value;
    if (erg_yaml_read(yaml, &schema, &value, err) != 0)
        return -1;
    struct study_file *file = value;
    set_defaults(file, yaml);
    if (check_file(file, yaml, err) != 0) {
        erg_study_file_free(file);
        return -1;
    }
    *out = file;
    return 0;
}

void erg_study_file_free(struct study_file *file)
{
    erg_yaml_free(&schema, file);
}
