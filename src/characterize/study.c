/* Studies: loads the files that a study names, and computes the IDs of points and their JSON. */
#include "characterize/study.h"
#include "characterize/study_internal.h"

#include "base/random.h"
#include "base/text.h"
#include "ergon/ergon.h"
#include "io/file.h"
#include "io/json.h"
#include "thermal/thermal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Change it with every change of results that the version of ergon does not show. */
enum { RESULT_SCHEMA_VERSION = 1, STUDY_SCHEMA_VERSION = 1 };

struct erg_study_models {
    struct erg_study_models *next;
    const char *name;
    long vocabulary;
    struct erg_model *model;
};

/* ---- names of files ---- */

static bool is_path(const char *name)
{
    size_t length = strlen(name);
    return strchr(name, '/') || (length > 5 && !strcmp(name + length - 5, ".yaml")) ||
           (length > 5 && !strcmp(name + length - 5, ".json"));
}

/* Resolves a path relative to the study's file, or returns a name unchanged. Free it. */
static char *seen_from(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    struct erg_text text = {0};
    if (is_path(name) && *name != '/' && slash)
        erg_text_add_bytes(&text, path, (size_t)(slash - path) + 1);
    erg_text_add(&text, name);
    return text.data;
}

/* The file for a name of the data folder, or for a path; free it. */
static char *find_file(const char *kind, const char *path, const char *name,
                       const struct erg_yaml *yaml, const char *key, struct erg_error *err)
{
    char *seen = seen_from(path, name);
    char *found = is_path(name) ? seen : erg_data_find(kind, name);
    if (found != seen)
        free(seen);
    if (found)
        return found;
    struct erg_arena arena = {0};
    struct erg_text known = {0};
    const char *const *names = erg_data_names(kind, &arena);
    const char *meant = erg_closest(name, names);
    erg_text_add_names(&known, names);
    if (meant)
        erg_yaml_fail(yaml, key, err, "'%s' was not found; did you mean '%s'? Expected one of: %s",
                      name, meant, known.data);
    else
        erg_yaml_fail(yaml, key, err, "'%s' was not found, expected one of %s, or a file", name,
                      known.data);
    erg_text_release(&known);
    erg_arena_release(&arena);
    return NULL;
}

static int hash_file(uint64_t *hash, const char *path, struct erg_error *err)
{
    char *text;
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, NULL, err) != 0)
        return -1;
    *hash = erg_hash_text(text);
    free(text);
    return 0;
}

/* Errors in a named file are reported at the key that names it. */
static int said_of(const struct erg_yaml *yaml, const char *key, const struct erg_error *inner,
                   struct erg_error *err)
{
    return erg_yaml_fail(yaml, key, err, "%.700s", inner->message);
}

static int load_machine(struct erg_study *study, const struct study_file *file, const char *path,
                        const struct erg_yaml *yaml, struct erg_error *err)
{
    struct erg_study_machine *machine = &study->machine;
    struct erg_error inner;
    machine->cluster_name = erg_arena_strdup(&study->arena, file->cluster);
    machine->engine_name = erg_arena_strdup(&study->arena, file->engine);
    char *cluster = find_file("clusters", path, file->cluster, yaml, "cluster", err);
    if (!cluster)
        return -1;
    char *engine = find_file("engines", path, file->engine, yaml, "engine", err);
    int result = engine ? 0 : -1;
    if (result == 0 && (erg_cluster_load(&machine->cluster, cluster, &inner) != 0 ||
                        hash_file(&study->cluster_hash, cluster, &inner) != 0 ||
                        erg_gpu_load(&machine->gpu, machine->cluster->gpu, &inner) != 0))
        result = said_of(yaml, "cluster", &inner, err);
    if (result == 0 && machine->cluster->chassis &&
        erg_chassis_load(&study->chassis, machine->cluster->chassis, &inner) != 0)
        result = said_of(yaml, "cluster", &inner, err);
    machine->chassis = study->chassis;
    if (result == 0 && machine->cluster->more_count > 0)
        result = erg_yaml_fail(yaml, "cluster", err,
                               "expected a cluster of nodes of one kind, but %s has more_nodes",
                               file->cluster);
    if (result == 0 && (erg_engine_load(&machine->engine, engine, &inner) != 0 ||
                        erg_engine_check_gpu(machine->engine, machine->gpu, &inner) != 0 ||
                        hash_file(&study->engine_hash, engine, &inner) != 0))
        result = said_of(yaml, "engine", &inner, err);
    free(cluster);
    free(engine);
    return result;
}

int erg_study_model(struct erg_study *study, const struct erg_model **model, const char *name,
                    long vocabulary, const char *path, const struct erg_yaml *yaml, unsigned entry,
                    struct erg_error *err)
{
    struct erg_study_models *known = study->models;
    struct erg_error inner;
    char key[48];
    while (known && (strcmp(known->name, name) != 0 || known->vocabulary != vocabulary))
        known = known->next;
    if (!known) {
        struct erg_model *loaded;
        char *seen = seen_from(path, name);
        int result = erg_model_load(&loaded, seen, &inner);
        free(seen);
        snprintf(key, sizeof key, "points[%u].model", entry);
        if (result != 0)
            return said_of(yaml, key, &inner, err);
        if (vocabulary) {
            loaded->vocab = vocabulary;
            loaded->vocab_is_padded = false;
            loaded->words = 0;
        }
        known = erg_arena_alloc(&study->arena, sizeof *known);
        *known = (struct erg_study_models){study->models, erg_arena_strdup(&study->arena, name),
                                           vocabulary, loaded};
        study->models = known;
    }
    *model = known->model;
    return 0;
}

/* ---- keys and IDs ---- */

static json_t *layers_json(const struct erg_layout *layout)
{
    if (!layout->chunk_layers)
        return json_null();
    json_t *list = json_array();
    for (long i = 0; i < layout->pipeline * layout->virtual_stages; i++)
        json_array_append_new(list, json_integer(layout->chunk_layers[i]));
    return list;
}

/* Numbers for which 0 means the GPU's own value. */
static json_t *asked(double value)
{
    return value > 0 ? erg_json_number(value) : json_null();
}

/* The degrees of an impossible layout, if its text could be parsed. */
static json_t *layout_json(const struct erg_study_point *point)
{
    const struct erg_layout *layout = &point->layout;
    json_t *keys = erg_json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "tensor", (json_int_t)layout->tensor, "context",
        (json_int_t)layout->context, "expert", (json_int_t)erg_layout_experts(layout), "fsdp",
        (json_int_t)erg_layout_shards(layout), "pipeline", (json_int_t)layout->pipeline,
        "virtual_stages", (json_int_t)layout->virtual_stages, "microbatch",
        (json_int_t)layout->microbatch, "recompute", erg_recompute_name(layout->recompute));
    if (point->impossible) {
        json_object_set_new(keys, "degrees", erg_json_new_string(point->degrees));
        return keys;
    }
    json_object_set_new(keys, "data", json_integer(layout->data));
    json_object_set_new(keys, "microbatches", json_integer(layout->microbatches));
    json_object_set_new(keys, "layers", layers_json(layout));
    return keys;
}

json_t *erg_study_keys(const struct erg_study_point *point)
{
    const struct erg_study_measurement *measuring = point->measuring;
    json_t *fault = json_null(), *lora = json_null();
    if (point->fault_node != ERG_STUDY_NO_NODE)
        fault = erg_json_pack("{s:I, s:f}", "node", (json_int_t)point->fault_node, "clock_share",
                              point->fault_clock_share);
    if (point->lora_rank)
        lora = erg_json_pack("{s:I, s:s}", "rank", (json_int_t)point->lora_rank, "targets",
                             point->lora_targets);
    json_t *keys = erg_json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:f, "
        "s:I, s:f,"
        " s:s, s:b, s:o}",
        "device", measuring->device, "model", point->model_name, "cluster",
        point->machine->cluster_name, "engine", point->machine->engine_name, "layout",
        layout_json(point), "batch", (json_int_t)point->batch, "sequence",
        (json_int_t)point->layout.sequence, "vocabulary", (json_int_t)point->model->vocab,
        "overlap", erg_study_overlap_names[point->overlap], "placement",
        erg_study_placement_names[point->placement], "clock_mhz", asked(point->clock_mhz),
        "power_w", asked(point->power_w), "inlet_c", erg_json_number(point->inlet_c), "fault",
        fault, "lora", lora, "repeats", (json_int_t)measuring->repeats, "settle_k_per_min",
        measuring->settle_k_per_min, "settle_most_iterations",
        (json_int_t)measuring->settle_most_iterations, "record_period_ms",
        measuring->record_period_ms, "sensor", measuring->sensor, "trace_stages",
        measuring->trace_stages, "transient_s", erg_json_number(measuring->transient_s));
    if (strcmp(measuring->device, "emulated") != 0) {
        json_object_set_new(keys, "settle_s", erg_json_number(measuring->settle_s));
        json_object_set_new(keys, "window_s", erg_json_number(measuring->window_s));
    }
    return keys;
}

static json_t *hash_json(uint64_t hash)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%016" PRIx64, hash);
    return erg_json_new_string(digits);
}

json_t *erg_study_identity(const struct erg_study *study, const struct erg_study_point *point)
{
    return erg_json_pack(
        "{s:s, s:i, s:I, s:o, s:o, s:o, s:o, s:o}", "ergon", erg_version(), "schema_version",
        RESULT_SCHEMA_VERSION, "seed", (json_int_t)study->measuring.seed, "model",
        hash_json(erg_hash_text(point->model->config)), "cluster", hash_json(study->cluster_hash),
        "gpu", hash_json(erg_gpu_fingerprint(study->machine.gpu)), "engine",
        hash_json(study->engine_hash), "chassis",
        study->chassis ? hash_json(erg_chassis_fingerprint(study->chassis)) : json_null());
}

void erg_study_set_id(const struct erg_study *study, struct erg_study_point *point)
{
    json_t *all = erg_json_pack("{s:o, s:o}", "point", erg_study_keys(point), "identity",
                                erg_study_identity(study, point));
    char *text = erg_json_text(all);
    snprintf(point->id, sizeof point->id, "%016" PRIx64, erg_hash_text(text));
    free(text);
    json_decref(all);
}

/* ---- loading ---- */

static void set_measuring(struct erg_study *study, const struct study_file *file,
                          const struct erg_study_change *change)
{
    const char *sensor = change->sensor        ? change->sensor
                         : file->record.sensor ? file->record.sensor
                                               : "hopper";
    study->measuring = (struct erg_study_measurement){
        .device = erg_arena_strdup(&study->arena, change->device ? change->device : "emulated"),
        .seed = change->seeded ? change->seed : (uint64_t)file->seed,
        .repeats = file->repeats,
        .settle_k_per_min = file->settle.slope_k_per_min,
        .settle_most_iterations = file->settle.most_iterations,
        .record_period_ms = file->record.period_ms,
        .settle_s = file->settle.seconds,
        .window_s = file->record.window_s,
        .sensor = erg_arena_strdup(&study->arena, sensor),
        .trace_stages = file->trace.ranks && strcmp(file->trace.ranks, "stages") == 0,
        .transient_s = change->transient_s,
    };
}

static int load(struct erg_study *study, const struct study_file *file, const char *path,
                const struct erg_yaml *yaml, const struct erg_study_change *change,
                struct erg_error *err)
{
    study->name = erg_arena_strdup(&study->arena, file->name);
    set_measuring(study, file, change);
    if (load_machine(study, file, path, yaml, err) != 0)
        return -1;
    if (file->figures_count) {
        int *figures = erg_arena_alloc(&study->arena, file->figures_count * sizeof *figures);
        memcpy(figures, file->figures, file->figures_count * sizeof *figures);
        study->figures = figures;
        study->figure_count = file->figures_count;
    }
    return erg_study_expand(study, file, yaml, path, err);
}

int erg_study_load(struct erg_study **out, const char *path, const struct erg_study_change *change,
                   struct erg_error *err)
{
    struct erg_yaml *yaml;
    struct study_file *file;
    if (erg_yaml_open(&yaml, path, err) != 0)
        return -1;
    int result = erg_study_file_read(&file, yaml, err);
    if (result == 0) {
        struct erg_study *study = erg_xcalloc(1, sizeof *study);
        result = load(study, file, path, yaml, change, err);
        if (result == 0)
            *out = study;
        else
            erg_study_free(study);
        erg_study_file_free(file);
    }
    erg_yaml_close(yaml);
    return result;
}

void erg_study_free(struct erg_study *study)
{
    if (!study)
        return;
    for (struct erg_study_models *model = study->models; model; model = model->next)
        erg_model_free(model->model);
    if (study->machine.engine)
        erg_engine_free(study->machine.engine);
    if (study->machine.gpu)
        erg_gpu_free(study->machine.gpu);
    if (study->machine.cluster)
        erg_cluster_free(study->machine.cluster);
    if (study->chassis)
        erg_chassis_free(study->chassis);
    free(study->points);
    free(study->marks);
    erg_arena_release(&study->arena);
    free(study);
}

/* ---- the document ---- */

static json_t *mark_json(const struct erg_study *study, const struct erg_study_mark *mark)
{
    const struct erg_study_point *point = &study->points[mark->point];
    return erg_json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s?, s:o}", "name", mark->name, "id",
                         point->id, "model", point->model_name, "label", mark->label,
                         "optimisation", mark->optimisation, "variant", mark->variant, "equal",
                         mark->equal, "impossible", point->impossible, "point",
                         erg_study_keys(point));
}

json_t *erg_study_document(const struct erg_study *study)
{
    json_t *marks = json_array(), *figures = json_array();
    for (size_t i = 0; i < study->mark_count; i++)
        json_array_append_new(marks, mark_json(study, &study->marks[i]));
    for (size_t i = 0; i < study->figure_count; i++)
        json_array_append_new(figures, json_integer(study->figures[i]));
    return erg_json_pack(
        "{s:s, s:i, s:s, s:s, s:I, s:I, s:s, s:o, s:o}", "schema", "ergon.characterize",
        "schema_version", STUDY_SCHEMA_VERSION, "name", study->name, "ergon", erg_version(), "seed",
        (json_int_t)study->measuring.seed, "points", (json_int_t)study->point_count, "cluster",
        study->machine.cluster_name, "figures", figures, "marks", marks);
}
