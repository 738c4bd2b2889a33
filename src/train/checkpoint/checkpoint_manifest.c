/* Reads the manifest of a checkpoint. */
#include "train/checkpoint/checkpoint_internal.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *const erg_checkpoint_kinds[ERG_CHECKPOINT_KINDS] = {"master", "m", "v"};

char *erg_checkpoint_model(const struct erg_model *model)
{
    struct erg_text text = {0};
    erg_text_printf(
        &text,
        "%s layers=%ld hidden=%ld heads=%ld kv_heads=%ld head_dim=%ld ffn=%ld vocab=%ld "
        "tied=%d",
        model->architecture, model->layers, model->hidden, model->heads, model->kv_heads,
        model->head_dim, model->ffn, erg_model_words(model), model->tied);
    return text.data;
}

void erg_checkpoint_piece_name(char *text, size_t capacity,
                               const struct erg_checkpoint_piece *piece)
{
    snprintf(text, capacity, "%s/%s@%" PRIu64 ":%" PRIu64 ",%" PRIu64 ":%" PRIu64,
             erg_checkpoint_kinds[piece->kind], piece->name, piece->row, piece->row_end,
             piece->column, piece->column_end);
}

uint64_t erg_checkpoint_manifest_hash(const json_t *document)
{
    json_t *rest = json_copy((json_t *)(uintptr_t)document);
    json_object_del(rest, "xxh3");
    char *text = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = XXH3_64bits(text, strlen(text));
    free(text);
    json_decref(rest);
    return hash;
}

static int read_count(const struct erg_json_place *place, const char *key, uint64_t *value,
                      struct erg_error *err)
{
    long number;
    if (erg_json_long(place, key, 0, INT64_MAX, &number, err) != 0)
        return -1;
    *value = (uint64_t)number;
    return 0;
}

/* 16 hexadecimal digits. */
static int read_hash(const struct erg_json_place *place, const char *key, uint64_t *hash,
                     struct erg_error *err)
{
    const char *text;
    if (erg_json_string(place, key, &text, err) != 0)
        return -1;
    char *end;
    *hash = strtoull(text, &end, 16);
    return strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16
               ? 0
               : erg_json_fail(place, key, err, "expected 16 hexadecimal digits");
}

static int read_piece(struct erg_checkpoint_manifest *manifest, const struct erg_json_place *place,
                      struct erg_error *err)
{
    struct erg_checkpoint_piece piece = {0};
    const char *name, *kind, *file;
    if (erg_json_string(place, "name", &name, err) || erg_json_string(place, "kind", &kind, err) ||
        erg_json_string(place, "file", &file, err) || read_count(place, "row", &piece.row, err) ||
        read_count(place, "row_end", &piece.row_end, err) ||
        read_count(place, "column", &piece.column, err) ||
        read_count(place, "column_end", &piece.column_end, err) ||
        read_hash(place, "xxh3", &piece.hash, err))
        return -1;
    while (piece.kind < ERG_CHECKPOINT_KINDS && strcmp(erg_checkpoint_kinds[piece.kind], kind) != 0)
        piece.kind++;
    if (piece.kind == ERG_CHECKPOINT_KINDS)
        return erg_json_fail(place, "kind", err, "expected 'master', 'm' or 'v', got '%s'", kind);
    if (piece.row_end <= piece.row || piece.column_end <= piece.column)
        return erg_json_fail(place, "row_end", err, "expected a rectangle that is not empty");
    if (strchr(file, '/') || !*file)
        return erg_json_fail(place, "file", err, "expected the name of a file in this folder");
    piece.name = erg_xstrdup(name);
    piece.file = erg_xstrdup(file);
    ERG_PUSH(manifest, pieces, piece);
    return 0;
}

static int read_manifest(struct erg_checkpoint_manifest *manifest,
                         const struct erg_json_place *root, struct erg_error *err)
{
    const char *schema, *model, *data = NULL;
    const json_t *pieces;
    long version;
    if (erg_json_string(root, "schema", &schema, err) ||
        erg_json_long(root, "schema_version", 1, INT32_MAX, &version, err))
        return -1;
    if (strcmp(schema, "ergon.checkpoint") != 0 || version != ERG_CHECKPOINT_VERSION)
        return erg_json_fail(root, "schema", err,
                             "expected ergon.checkpoint of version %d, got %s of version %ld",
                             ERG_CHECKPOINT_VERSION, schema, version);
    if (read_count(root, "step", &manifest->place.step, err) ||
        read_count(root, "updates", &manifest->place.updates, err) ||
        read_count(root, "samples", &manifest->place.samples, err) ||
        read_count(root, "tokens", &manifest->place.tokens, err) ||
        read_count(root, "seed", &manifest->seed, err) ||
        erg_json_long(root, "batch", 1, INT64_MAX, &manifest->batch, err) ||
        erg_json_long(root, "sequence", 1, INT64_MAX, &manifest->sequence, err) ||
        erg_json_string(root, "model", &model, err) ||
        (erg_json_has(root, "data") && erg_json_string(root, "data", &data, err)) ||
        erg_json_array(root, "pieces", &pieces, err) ||
        read_hash(root, "xxh3", &manifest->hash, err))
        return -1;
    if (manifest->place.updates > manifest->place.step)
        return erg_json_fail(root, "updates", err,
                             "expected at most one for each of the %" PRIu64 " steps, got %" PRIu64,
                             manifest->place.step, manifest->place.updates);
    if (erg_json_has(root, "config_xxh3") &&
        read_hash(root, "config_xxh3", &manifest->config_hash, err))
        return -1;
    manifest->has_config_hash = erg_json_has(root, "config_xxh3");
    manifest->found_hash = erg_checkpoint_manifest_hash(root->object);
    manifest->model = erg_xstrdup(model);
    manifest->data = data ? erg_xstrdup(data) : NULL;
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        struct erg_json_place place;
        if (erg_json_enter_item(&place, root, "pieces", i, err) != 0 ||
            read_piece(manifest, &place, err) != 0)
            return -1;
    }
    return 0;
}

int erg_checkpoint_parse(struct erg_checkpoint_manifest **manifest, const char *name,
                         const char *text, size_t length, struct erg_error *err)
{
    json_t *document;
    struct erg_json_place root;
    if (erg_json_open(&root, &document, name, text, length, err) != 0)
        return -1;
    struct erg_checkpoint_manifest *made = erg_xcalloc(1, sizeof *made);
    int result = read_manifest(made, &root, err);
    json_decref(document);
    if (result == 0)
        *manifest = made;
    else
        erg_checkpoint_manifest_free(made);
    return result;
}

void erg_checkpoint_manifest_free(struct erg_checkpoint_manifest *manifest)
{
    if (!manifest)
        return;
    for (size_t i = 0; i < manifest->count; i++) {
        free(manifest->pieces[i].name);
        free(manifest->pieces[i].file);
    }
    free(manifest->pieces);
    free(manifest->model);
    free(manifest->data);
    free(manifest);
}
