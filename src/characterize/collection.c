/* Collections: reads a study's folder. */
#include "characterize/collection.h"
#include "characterize/study_run.h"

#include "io/file.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DOCUMENT_BYTES = 256 << 20 };

struct collecting {
    struct erg_collection *collection;
    const char *folder;
    size_t root_capacity;
};

static void keep_root(struct collecting *at, json_t *root)
{
    struct erg_collection *collection = at->collection;
    if (collection->root_count == at->root_capacity) {
        at->root_capacity = erg_grow_capacity(at->root_capacity, collection->root_count + 1);
        collection->roots =
            erg_xrealloc(collection->roots, at->root_capacity, sizeof *collection->roots);
    }
    collection->roots[collection->root_count++] = root;
}

/* ---- results ---- */

/* *result stays unchanged if there is no such file. */
static int read_result(struct collecting *at, struct erg_study_result *result, const char *path,
                       struct erg_error *err)
{
    json_t *root;
    if (access(path, F_OK) != 0)
        return 0;
    if (erg_study_result_read(result, &root, path, &at->collection->arena, err) != 0)
        return -1;
    keep_root(at, root);
    return 0;
}

static int find_twin(struct collecting *at, struct erg_collected *mark, struct erg_error *err)
{
    struct erg_study_result *twin = erg_arena_alloc(&at->collection->arena, sizeof *twin);
    char *path = erg_arena_printf(&at->collection->arena, "%s/twins/%s.json", at->folder, mark->id);
    erg_study_result_init(twin);
    twin->status = ERG_RESULT_SKIPPED;
    if (read_result(at, twin, path, err) != 0)
        return -1;
    mark->twin = twin->status == ERG_RESULT_OK ? twin : NULL;
    return 0;
}

/* The result of an ID: that of an earlier mark with the same ID, or read from its file. */
static int find_result(struct collecting *at, struct erg_collected *mark, struct erg_error *err)
{
    struct erg_collection *collection = at->collection;
    for (size_t i = 0; mark->equal && i < collection->count; i++)
        if (!strcmp(collection->marks[i].id, mark->id)) {
            mark->result = collection->marks[i].result;
            mark->twin = collection->marks[i].twin;
            return 0;
        }
    struct erg_study_result *result = erg_arena_alloc(&collection->arena, sizeof *result);
    char *path = erg_study_point_path(at->folder, mark->id);
    erg_study_result_init(result);
    result->status = ERG_RESULT_SKIPPED;
    result->message = "the point was not run";
    mark->result = result;
    int status = read_result(at, result, path, err);
    free(path);
    return status == 0 && result->source == ERG_RESULT_MEASURED ? find_twin(at, mark, err) : status;
}

/* ---- marks ---- */

static int read_text(const struct erg_json_place *place, const char *key, const char **text,
                     struct erg_arena *arena, struct erg_error *err)
{
    const char *borrowed;
    if (erg_json_string(place, key, &borrowed, err) != 0)
        return -1;
    *text = erg_arena_strdup(arena, borrowed);
    return 0;
}

static int read_layout(struct erg_collected *mark, const struct erg_json_place *point,
                       struct erg_arena *arena, struct erg_error *err)
{
    struct erg_json_place layout;
    const long most = 100000000;
    if (erg_json_enter(&layout, point, "layout", err) != 0 ||
        read_text(&layout, "recompute", &mark->recompute, arena, err) != 0 ||
        erg_json_long(&layout, "microbatch", 0, most, &mark->microbatch, err) != 0)
        return -1;
    mark->split = erg_json_has(&layout, "layers");
    return erg_json_long(&layout, "tensor", 0, most, &mark->tensor, err) != 0 ||
                   erg_json_long(&layout, "pipeline", 0, most, &mark->pipeline, err) != 0 ||
                   erg_json_long(&layout, "expert", 1, most, &mark->expert, err) != 0 ||
                   erg_json_long(&layout, "fsdp", 1, most, &mark->fsdp, err) != 0 ||
                   (erg_json_has(&layout, "data") &&
                    erg_json_long(&layout, "data", 1, most, &mark->data, err) != 0)
               ? -1
               : 0;
}

static int read_unusual(struct erg_collected *mark, const struct erg_json_place *point,
                        struct erg_error *err)
{
    struct erg_json_place inner;
    mark->inlet_c = mark->fault_clock_share = NAN;
    if (erg_json_has(point, "inlet_c") &&
        erg_json_double(point, "inlet_c", -1000, 1000, &mark->inlet_c, err) != 0)
        return -1;
    if (erg_json_has(point, "fault") &&
        (erg_json_enter(&inner, point, "fault", err) != 0 ||
         erg_json_double(&inner, "clock_share", 0, 1, &mark->fault_clock_share, err) != 0))
        return -1;
    if (erg_json_has(point, "lora") &&
        (erg_json_enter(&inner, point, "lora", err) != 0 ||
         erg_json_long(&inner, "rank", 1, 1000000, &mark->lora_rank, err) != 0))
        return -1;
    return 0;
}

static int read_mark(struct collecting *at, struct erg_collected *mark,
                     const struct erg_json_place *place, struct erg_error *err)
{
    struct erg_arena *arena = &at->collection->arena;
    struct erg_json_place point;
    if (read_text(place, "name", &mark->name, arena, err) != 0 ||
        read_text(place, "id", &mark->id, arena, err) != 0 ||
        read_text(place, "model", &mark->model, arena, err) != 0 ||
        read_text(place, "label", &mark->label, arena, err) != 0 ||
        read_text(place, "optimisation", &mark->optimisation, arena, err) != 0 ||
        read_text(place, "variant", &mark->variant, arena, err) != 0 ||
        erg_json_bool(place, "equal", &mark->equal, err) != 0 ||
        erg_json_enter(&point, place, "point", err) != 0 ||
        read_text(&point, "overlap", &mark->overlap, arena, err) != 0 ||
        read_text(&point, "placement", &mark->placement, arena, err) != 0 ||
        erg_json_long(&point, "batch", 1, 2000000000, &mark->batch, err) != 0 ||
        erg_json_long(&point, "sequence", 1, 2000000000, &mark->sequence, err) != 0 ||
        read_layout(mark, &point, arena, err) != 0 || read_unusual(mark, &point, err) != 0)
        return -1;
    /* The ID becomes a file name. */
    if (strspn(mark->id, "0123456789abcdef") != 16 || mark->id[16])
        return erg_json_fail(place, "id", err, "expected 16 hexadecimal digits, got '%.40s'",
                             mark->id);
    return find_result(at, mark, err);
}

/* ---- the document ---- */

static int read_figures(struct erg_collection *collection, const struct erg_json_place *root,
                        struct erg_error *err)
{
    const json_t *figures, *figure;
    size_t i;
    if (erg_json_array(root, "figures", &figures, err) != 0)
        return -1;
    collection->figures =
        erg_arena_alloc(&collection->arena, (json_array_size(figures) + 1) * sizeof(int));
    json_array_foreach(figures, i, figure) if (json_is_integer(figure))
        collection->figures[collection->figure_count++] = (int)json_integer_value(figure);
    return 0;
}

static int read_document(struct collecting *at, const struct erg_json_place *root,
                         struct erg_error *err)
{
    struct erg_collection *collection = at->collection;
    const char *schema;
    const json_t *marks;
    long version;
    if (erg_json_string(root, "schema", &schema, err) != 0 ||
        erg_json_long(root, "schema_version", 0, 1000000, &version, err) != 0)
        return -1;
    if (strcmp(schema, "ergon.characterize") != 0 || version != 1)
        return erg_json_fail(root, "schema", err,
                             "expected \"ergon.characterize\" of version 1, got \"%s\" of version "
                             "%ld",
                             schema, version);
    if (read_text(root, "name", &collection->name, &collection->arena, err) != 0 ||
        read_text(root, "cluster", &collection->cluster, &collection->arena, err) != 0 ||
        erg_json_long(root, "seed", 0, 1L << 53, &collection->seed, err) != 0 ||
        read_figures(collection, root, err) != 0 || erg_json_array(root, "marks", &marks, err) != 0)
        return -1;
    const size_t count = json_array_size(marks);
    collection->marks =
        erg_arena_alloc(&collection->arena, (count + 1) * sizeof(struct erg_collected));
    for (size_t i = 0; i < count; i++) {
        struct erg_json_place place;
        if (erg_json_enter_item(&place, root, "marks", i, err) != 0 ||
            read_mark(at, &collection->marks[i], &place, err) != 0)
            return -1;
        collection->count++;
    }
    return 0;
}

int erg_collection_load(struct erg_collection **out, const char *folder, struct erg_error *err)
{
    struct collecting at = {.folder = folder};
    char *path = erg_file_path(folder, "sweep.json"), *text;
    size_t length;
    json_t *document;
    struct erg_json_place root;
    int result = erg_file_read(path, DOCUMENT_BYTES, &text, &length, err);
    if (result == 0) {
        at.collection = erg_xcalloc(1, sizeof *at.collection);
        result = erg_json_open(&root, &document, path, text, length, err);
        if (result == 0) {
            result = read_document(&at, &root, err);
            json_decref(document);
        }
        free(text);
        if (result == 0)
            *out = at.collection;
        else
            erg_collection_free(at.collection);
    }
    free(path);
    return result;
}

void erg_collection_free(struct erg_collection *collection)
{
    if (!collection)
        return;
    for (size_t i = 0; i < collection->root_count; i++)
        json_decref(collection->roots[i]);
    free(collection->roots);
    erg_arena_release(&collection->arena);
    free(collection);
}
