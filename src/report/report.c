/*
 * The page: the compiled-in HTML with the plan document inside it. The page needs no order of
 * every single instruction of every point (megabytes on long pipelines), so the instructions of a
 * point travel as runs of equal options.
 */
#include "report/report_internal.h"

#include "io/file.h"
#include "io/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int erg_report_check(const json_t *plan, struct erg_error *err)
{
    struct erg_json_place root;
    const char *schema;
    long version;
    if (erg_json_root(&root, plan, "plan document", err) ||
        erg_json_string(&root, "schema", &schema, err))
        return -1;
    if (strcmp(schema, "ergon.plan") != 0)
        return erg_json_fail(&root, "schema", err, "expected \"ergon.plan\", got \"%s\"", schema);
    if (erg_json_long(&root, "schema_version", 0, 1000000, &version, err))
        return -1;
    if (version != ERG_PLAN_SCHEMA_VERSION)
        return erg_json_fail(&root, "schema_version", err,
                             "this ergon reads version %d, got %ld; make the plan again with "
                             "ergon optimize",
                             ERG_PLAN_SCHEMA_VERSION, version);
    return 0;
}

const char *erg_report_string(const json_t *object, const char *key, const char *fallback)
{
    const json_t *value = json_object_get(object, key);
    return json_is_string(value) ? json_string_value(value) : fallback;
}

long erg_report_long(const json_t *object, const char *key, long fallback)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? (long)json_integer_value(value) : fallback;
}

const json_t *erg_report_stage_kind(const json_t *plan, size_t stage)
{
    const json_t *entry = json_array_get(json_object_get(plan, "stages"), stage);
    long kind = erg_report_long(entry, "kind", 0);
    return kind < 0 ? NULL : json_array_get(json_object_get(plan, "kinds"), (size_t)kind);
}

/* [option, count, option, count, …] of one direction and chunk of a stage, in execution order. */
static json_t *option_runs(const json_t *schedule, const json_t *options, const char *direction,
                           long chunk)
{
    json_t *runs = json_array();
    json_int_t last = -1, count = 0;
    for (size_t i = 0; i < json_array_size(schedule); i++) {
        const json_t *instruction = json_array_get(schedule, i), *own = json_array_get(options, i);
        json_int_t option = json_is_integer(own) ? json_integer_value(own) : -1;
        if (strcmp(erg_report_string(instruction, "type", ""), direction) != 0 ||
            erg_report_long(instruction, "chunk", 0) != chunk || option < 0)
            continue;
        if (option == last) {
            json_array_set_new(runs, json_array_size(runs) - 1, json_integer(++count));
            continue;
        }
        last = option;
        count = 1;
        json_array_append_new(runs, json_integer(option));
        json_array_append_new(runs, json_integer(count));
    }
    return runs;
}

/* The point without its options, but with `uses`: for each entry of the document's stages the
 * runs forward and backward. */
static json_t *point_view(const json_t *point, const json_t *plan)
{
    json_t *view = json_copy((json_t *)(uintptr_t)point), *uses = json_array(), *entry;
    const json_t *schedule = json_object_get(plan, "schedule");
    const json_t *options = json_object_get(point, "options");
    size_t i;
    json_array_foreach(json_object_get(plan, "stages"), i, entry)
    {
        size_t stage = (size_t)erg_report_long(entry, "stage", 0);
        long chunk = erg_report_long(entry, "chunk", 0);
        const json_t *order = json_array_get(schedule, stage);
        const json_t *own = json_array_get(options, stage);
        json_array_append_new(
            uses, erg_json_pack("{s:o, s:o}", "forward", option_runs(order, own, "forward", chunk),
                                "backward", option_runs(order, own, "backward", chunk)));
    }
    json_object_del(view, "options");
    json_object_set_new(view, "uses", uses);
    return view;
}

/* The document as the page reads it: the order of instructions is that of the timelines. */
static json_t *plan_view(const json_t *plan)
{
    json_t *view = json_copy((json_t *)(uintptr_t)plan), *methods = json_object(), *method, *point;
    const char *name;
    size_t i;
    json_object_foreach(json_object_get(plan, "methods"), name, method)
    {
        json_t *copy = json_copy(method), *points = json_array();
        json_array_foreach(json_object_get(method, "points"), i, point)
            json_array_append_new(points, point_view(point, plan));
        json_object_set_new(copy, "points", points);
        json_object_del(copy, "slower"); /* drawn nowhere */
        json_object_set_new(methods, name, copy);
    }
    json_object_set_new(view, "methods", methods);
    json_object_del(view, "schedule");
    json_object_del(view, "stage_profile");
    return view;
}

/* JSON inside a <script> element: only '<' could end it, and in JSON it only stands in strings. */
static void add_escaped(struct erg_text *out, const char *json)
{
    for (const char *rest = json; *rest;) {
        size_t plain = strcspn(rest, "<");
        erg_text_add_bytes(out, rest, plain);
        rest += plain;
        if (*rest == '<') {
            erg_text_add(out, "\\u003c");
            rest++;
        }
    }
}

/* Adds a page with a document inside it, which is JSON. */
static void add_page(struct erg_text *out, const char *page, const char *json)
{
    const char *marker = "@PLAN@", *place = strstr(page, marker);
    erg_text_add_bytes(out, page, (size_t)(place - page));
    add_escaped(out, json);
    erg_text_add(out, place + strlen(marker));
}

/* Writes a page with the document inside it. */
static int write_page(const char *path, const char *page, const json_t *document,
                      struct erg_error *err)
{
    /* Seven digits are more than a screen shows. */
    char *json = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(7));
    if (!json)
        return erg_fail(err, ERG_FAILED,
                        "writing the report %s: the document holds a value that is not JSON", path);
    struct erg_text text = {0};
    add_page(&text, page, json);
    free(json);
    int status = erg_file_write(path, text.data, text.count, err);
    erg_text_release(&text);
    return status;
}

int erg_report_write(const char *path, const json_t *plan, struct erg_error *err)
{
    if (erg_report_check(plan, err))
        return erg_fail_context(err, "writing the report %s", path);
    json_t *view = plan_view(plan);
    int status = write_page(path, erg_report_page, view, err);
    json_decref(view);
    return status;
}

/* Writes the page of a document other than a plan, if it has this schema and version. */
static int write_document(const char *path, const char *page, const json_t *document,
                          const char *wanted, long wanted_version, struct erg_error *err)
{
    struct erg_json_place root;
    const char *schema;
    long version;
    if (erg_json_root(&root, document, "document", err) ||
        erg_json_string(&root, "schema", &schema, err) ||
        erg_json_long(&root, "schema_version", 0, 1000000, &version, err))
        return erg_fail_context(err, "writing the report %s", path);
    if (strcmp(schema, wanted) != 0 || version != wanted_version)
        return erg_json_fail(&root, "schema", err,
                             "expected \"%s\" of version %ld, got \"%s\" of version %ld", wanted,
                             wanted_version, schema, version);
    return write_page(path, page, document, err);
}

int erg_report_memory_write(const char *path, const json_t *memory, struct erg_error *err)
{
    return write_document(path, erg_report_memory_page, memory, "ergon.memory",
                          ERG_MEMORY_SCHEMA_VERSION, err);
}

int erg_report_layouts_write(const char *path, const json_t *layouts, struct erg_error *err)
{
    return write_document(path, erg_report_layouts_page, layouts, "ergon.layouts",
                          ERG_LAYOUTS_SCHEMA_VERSION, err);
}

int erg_report_cluster_write(const char *path, const json_t *cluster, struct erg_error *err)
{
    return write_document(path, erg_report_cluster_page, cluster, "ergon.cluster",
                          ERG_CLUSTER_SCHEMA_VERSION, err);
}

int erg_report_sweep_write(const char *path, const json_t *sweep, struct erg_error *err)
{
    return write_document(path, erg_report_sweep_page, sweep, "ergon.sweep",
                          ERG_SWEEP_SCHEMA_VERSION, err);
}

int erg_report_training_write(const char *path, const json_t *training, struct erg_error *err)
{
    return write_document(path, erg_report_training_page, training, "ergon.training",
                          ERG_TRAINING_SCHEMA_VERSION, err);
}

void erg_report_live(struct erg_text *out, const char *status)
{
    add_page(out, erg_report_live_page, status ? status : "{}");
}
