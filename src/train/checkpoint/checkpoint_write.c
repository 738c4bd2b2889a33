/* Writes checkpoints. */
#include "train/checkpoint/checkpoint_internal.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "train/files/model_file.h"
#include "train/files/safetensors.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- the state ---- */

/* Pieces of this rank in writing order. */
struct piece_source {
    const struct erg_checkpoint_state *state;
    const struct erg_weight_span **spans; /* [count] */
    struct erg_checkpoint_piece *pieces;  /* [count] */
    size_t count;
    const atomic_bool *given_up;
};

static const float *values_of(const struct erg_checkpoint_state *state, int kind)
{
    return kind == 0 ? state->master : kind == 1 ? state->m : state->v;
}

/* Pieces are [outputs, inputs], even if the model's checkpoint stores them transposed. */
static int fill(void *context, size_t index, float *values, struct erg_error *err)
{
    struct piece_source *source = context;
    if (source->given_up && atomic_load(source->given_up))
        return erg_fail(err, ERG_FAILED, "writing a checkpoint: it was abandoned");
    struct erg_checkpoint_piece *piece = &source->pieces[index];
    const struct erg_weight_span *span = source->spans[index];
    const float *from = values_of(source->state, piece->kind);
    for (size_t row = 0; row < span->rows; row++)
        for (size_t column = 0; column < span->columns; column++)
            values[row * span->columns + column] = from[erg_weight_span_here(span, row, column)];
    piece->hash = XXH3_64bits(values, span->rows * span->columns * sizeof *values);
    return 0;
}

/* Lists all pieces that no other rank writes. */
static void list_pieces(struct piece_source *source, int kinds, const char *file)
{
    const struct erg_weight_spans *spans = source->state->spans;
    source->spans = erg_xcalloc((size_t)kinds * spans->count + 1, sizeof *source->spans);
    source->pieces = erg_xcalloc((size_t)kinds * spans->count + 1, sizeof *source->pieces);
    for (int kind = 0; kind < kinds; kind++)
        for (size_t i = 0; i < spans->count; i++) {
            const struct erg_weight_span *span = &spans->items[i];
            if (span->copy || !span->rows)
                continue;
            source->spans[source->count] = span;
            source->pieces[source->count++] = (struct erg_checkpoint_piece){
                .name = (char *)(uintptr_t)span->name,
                .kind = kind,
                .row = span->row,
                .row_end = span->row + span->rows,
                .column = span->column,
                .column_end = span->column + span->columns,
                .file = (char *)(uintptr_t)file,
            };
        }
}

static int write_state(const char *path, struct piece_source *source, struct erg_error *err)
{
    char(*names)[192] = erg_xcalloc(source->count, sizeof *names);
    struct erg_safetensor_spec *specs = erg_xcalloc(source->count, sizeof *specs);
    for (size_t i = 0; i < source->count; i++) {
        const struct erg_checkpoint_piece *piece = &source->pieces[i];
        erg_checkpoint_piece_name(names[i], sizeof names[i], piece);
        specs[i] = (struct erg_safetensor_spec){
            names[i],
            ERG_SAFETENSOR_F32,
            2,
            {piece->row_end - piece->row, piece->column_end - piece->column}};
    }
    int result = erg_safetensors_write(path, specs, source->count, fill, source, err);
    free(specs);
    free(names);
    return result;
}

static json_t *pieces_document(const struct piece_source *source)
{
    json_t *pieces = json_array();
    for (size_t i = 0; i < source->count; i++) {
        const struct erg_checkpoint_piece *piece = &source->pieces[i];
        char hash[17];
        snprintf(hash, sizeof hash, "%016" PRIx64, piece->hash);
        json_array_append_new(
            pieces,
            erg_json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:s}", "name", piece->name, "kind",
                          erg_checkpoint_kinds[piece->kind], "row", (json_int_t)piece->row,
                          "row_end", (json_int_t)piece->row_end, "column",
                          (json_int_t)piece->column, "column_end", (json_int_t)piece->column_end,
                          "file", piece->file, "xxh3", hash));
    }
    return pieces;
}

/* World call: `pieces` of rank 0 gets those of all ranks. */
static int gather_pieces(json_t *pieces, const struct erg_checkpoint_state *state,
                         struct erg_error *err)
{
    struct erg_rendezvous *rendezvous = state->rendezvous;
    if (!rendezvous)
        return 0;
    size_t world = (size_t)erg_rendezvous_world(rendezvous), most = 0;
    char *own = json_dumps(pieces, JSON_COMPACT);
    size_t length = strlen(own), *lengths = erg_xcalloc(world, sizeof *lengths);
    int result = erg_rendezvous_all_gather(rendezvous, &length, sizeof length, lengths,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    for (size_t i = 0; i < world; i++)
        most = lengths[i] > most ? lengths[i] : most;
    most = result == 0 ? most : length; /* after a failure the other lengths are unknown */
    char *mine = erg_xcalloc(most + 1, 1), *all = erg_xcalloc(world, most + 1);
    memcpy(mine, own, length + 1);
    if (result == 0)
        result = erg_rendezvous_all_gather(rendezvous, mine, most + 1, all,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    for (size_t i = 1; i < world && result == 0 && state->rank == 0; i++) {
        json_t *others;
        result = erg_json_parse(&others, "pieces of another rank", all + i * (most + 1), lengths[i],
                                err);
        if (result == 0) {
            json_array_extend(pieces, others);
            json_decref(others);
        }
    }
    free(all);
    free(mine);
    free(lengths);
    free(own);
    return result;
}

static int write_manifest(const char *path, const struct erg_job *job,
                          const struct erg_checkpoint_place *place, const char *data,
                          json_t *pieces, struct erg_error *err)
{
    const struct erg_layout *layout = &job->layout;
    char hash[17], *model = erg_checkpoint_model(job->model);
    json_t *document = erg_json_pack(
        "{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:{s:I, s:I, s:I, s:I, s:I}, "
        "s:O}",
        "schema", "ergon.checkpoint", "schema_version", ERG_CHECKPOINT_VERSION, "step",
        (json_int_t)place->step, "updates", (json_int_t)place->updates, "samples",
        (json_int_t)place->samples, "tokens", (json_int_t)place->tokens, "skipped",
        (json_int_t)(place->step - place->updates), "seed", (json_int_t)job->training->seed,
        "batch", (json_int_t)erg_layout_batch(layout), "sequence", (json_int_t)layout->sequence,
        "model", model, "data", data, "layout", "tensor", (json_int_t)layout->tensor, "context",
        (json_int_t)layout->context, "pipeline", (json_int_t)layout->pipeline, "virtual_stages",
        (json_int_t)layout->virtual_stages, "data", (json_int_t)layout->data, "pieces", pieces);
    snprintf(hash, sizeof hash, "%016" PRIx64,
             (uint64_t)XXH3_64bits(job->model->config, job->model->config_length));
    json_object_set_new(document, "config_xxh3", erg_json_new_string(hash));
    snprintf(hash, sizeof hash, "%016" PRIx64, erg_checkpoint_manifest_hash(document));
    json_object_set_new(document, "xxh3", erg_json_new_string(hash));
    int result = erg_json_write(path, document, err);
    json_decref(document);
    free(model);
    return result;
}

static int write_text(const char *folder, const char *name, const char *text, size_t length,
                      struct erg_error *err)
{
    char *path = erg_file_path(folder, name);
    int result = erg_file_write(path, text, length, err);
    free(path);
    return result;
}

/* Writes the files as they were at the start of the run, even if they have changed since. */
static int write_inputs(const char *folder, const struct erg_job *job,
                        const struct erg_checkpoint_state *state, struct erg_error *err)
{
    const struct erg_model *model = job->model;
    return write_text(folder, "job.yaml", job->text, job->text_length, err) ||
                   write_text(folder, "config.json", model->config, model->config_length, err) ||
                   (state->plan &&
                    write_text(folder, "plan.json", state->plan, strlen(state->plan), err)) ||
                   (model->path && erg_model_file_copy_others(model->path, folder, err))
               ? -1
               : 0;
}

/* ---- folders ---- */

void erg_checkpoint_remove(const char *folder)
{
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;)
        unlinkat(dirfd(listing), entry->d_name, 0);
    if (listing)
        closedir(listing);
    rmdir(folder);
}

static int newest_first(const void *a, const void *b)
{
    return strcmp(*(char *const *)b, *(char *const *)a);
}

char **erg_checkpoint_steps(const char *run, bool leftovers)
{
    struct {
        char **items;
        size_t count, capacity;
    } names = {0};
    DIR *listing = opendir(run);
    for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;) {
        const char *name = entry->d_name;
        size_t digits = strncmp(name, "step-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
        const char *rest = name + 5 + digits;
        if (digits >= 8 && (leftovers ? strncmp(rest, ".tmp-", 5) == 0 : !*rest))
            ERG_PUSH(&names, items, erg_xstrdup(name));
    }
    if (listing)
        closedir(listing);
    if (names.count)
        qsort(names.items, names.count, sizeof *names.items, newest_first);
    ERG_PUSH(&names, items, NULL);
    return names.items;
}

void erg_checkpoint_free_steps(char **names)
{
    for (char **name = names; *name; name++)
        free(*name);
    free(names);
}

/* Detects a full disk before anything is written. */
static int check_space(const char *folder, const struct erg_checkpoint_state *state, int kinds,
                       struct erg_error *err)
{
    struct statvfs info;
    double wanted = 1.02 * kinds * sizeof(float) * (double)state->weights->state;
    if (statvfs(folder, &info) != 0 || (double)info.f_bavail * (double)info.f_frsize >= wanted)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "writing a checkpoint into '%s': rank %d needs %.3g GB, but %.3g GB are free",
                    folder, state->rank, 1e-9 * wanted,
                    1e-9 * (double)info.f_bavail * (double)info.f_frsize);
}

int erg_checkpoint_write_share(const char *folder, const struct erg_checkpoint_state *state,
                               int kinds, const atomic_bool *given_up, json_t **pieces,
                               struct erg_error *err)
{
    char name[40];
    struct piece_source source = {.state = state, .given_up = given_up};
    snprintf(name, sizeof name, "state-%05d.safetensors", state->rank);
    list_pieces(&source, kinds, name);
    char *path = erg_file_path(folder, name);
    int result = check_space(folder, state, kinds, err);
    if (result == 0 && source.count)
        result = write_state(path, &source, err);
    *pieces = pieces_document(&source);
    free(path);
    free(source.spans);
    free(source.pieces);
    return result;
}

int erg_checkpoint_make_folder(const char *folder, const struct erg_checkpoint_state *state,
                               struct erg_error *err)
{
    int result = 0;
    if (state->rank == 0) {
        erg_checkpoint_remove(folder);
        result = erg_dir_make(folder, err);
    }
    return erg_rendezvous_agree(state->rendezvous, result, err);
}

int erg_checkpoint_write_manifest(const char *folder, const struct erg_job *job,
                                  const struct erg_checkpoint_place *place,
                                  const struct erg_checkpoint_state *state, json_t *pieces,
                                  int result, struct erg_error *err)
{
    if (erg_rendezvous_agree(state->rendezvous, result, err) != 0)
        return -1;
    result = gather_pieces(pieces, state, err);
    if (result == 0 && state->rank == 0) {
        char *manifest = erg_file_path(folder, "manifest.json");
        result = write_inputs(folder, job, state, err) ||
                         write_manifest(manifest, job, place, state->data, pieces, err)
                     ? -1
                     : 0;
        free(manifest);
    }
    return erg_rendezvous_agree(state->rendezvous, result, err);
}

int erg_checkpoint_write_folder(const char *folder, const struct erg_job *job,
                                const struct erg_checkpoint_place *place,
                                const struct erg_checkpoint_state *state, int kinds,
                                struct erg_error *err)
{
    json_t *pieces;
    if (erg_checkpoint_make_folder(folder, state, err) != 0)
        return -1;
    int result = erg_checkpoint_write_share(folder, state, kinds, NULL, &pieces, err);
    result = erg_checkpoint_write_manifest(folder, job, place, state, pieces, result, err);
    json_decref(pieces);
    return result;
}

int erg_checkpoint_temporary(char **name, const char *prefix,
                             const struct erg_checkpoint_state *state, struct erg_error *err)
{
    long number = (long)getpid();
    struct erg_text text = {0};
    int result = erg_rendezvous_broadcast(state->rendezvous, 0, &number, sizeof number,
                                          ERG_RENDEZVOUS_PATIENCE_S, err);
    erg_text_printf(&text, "%s.tmp-%ld", prefix, number);
    *name = text.data;
    return result;
}
