/* Loads checkpoints, whatever layout wrote them. */
#include "train/checkpoint/checkpoint_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "io/file.h"
#include "train/files/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Files of a checkpoint that are open. */
struct files {
    const char *folder;
    struct {
        struct open_file {
            char *name;
            struct erg_safetensors set;
        } * items;
        size_t count, capacity;
    } open;
};

static void files_release(struct files *files)
{
    for (size_t i = 0; i < files->open.count; i++) {
        free(files->open.items[i].name);
        erg_safetensors_release(&files->open.items[i].set);
    }
    free(files->open.items);
}

static const struct erg_safetensors *open_file(struct files *files, const char *name,
                                               struct erg_error *err)
{
    for (size_t i = 0; i < files->open.count; i++)
        if (strcmp(files->open.items[i].name, name) == 0)
            return &files->open.items[i].set;
    struct open_file file = {0};
    char *path = erg_file_path(files->folder, name);
    int result = erg_safetensors_open(&file.set, path, err);
    free(path);
    if (result != 0)
        return NULL;
    file.name = erg_xstrdup(name);
    ERG_PUSH(&files->open, items, file);
    return &files->open.items[files->open.count - 1].set;
}

/* The values of a piece, checked; to be freed. NULL after a failure. */
static float *read_piece(struct files *files, const struct erg_checkpoint_piece *piece,
                         struct erg_error *err)
{
    char name[192];
    uint64_t rows = piece->row_end - piece->row, columns = piece->column_end - piece->column;
    erg_checkpoint_piece_name(name, sizeof name, piece);
    const struct erg_safetensors *set = open_file(files, piece->file, err);
    const struct erg_safetensor *tensor = set ? erg_safetensors_find(set, name) : NULL;
    if (!set)
        return NULL;
    if (!tensor || tensor->type != ERG_SAFETENSOR_F32 || tensor->dimensions != 2 ||
        tensor->shape[0] != rows || tensor->shape[1] != columns) {
        erg_fail(err, ERG_FAILED, "%s/%s: the piece '%s' is not there in its size", files->folder,
                 piece->file, name);
        return NULL;
    }
    if (XXH3_64bits(tensor->data, tensor->bytes) != piece->hash) {
        erg_fail(err, ERG_FAILED,
                 "%s/%s: the piece '%s' is damaged: its hash is not the manifest's", files->folder,
                 piece->file, name);
        return NULL;
    }
    float *values = erg_xmalloc((size_t)tensor->bytes);
    memcpy(values, tensor->data, (size_t)tensor->bytes);
    return values;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Copies what a piece has of a span; *covered counts elements. */
static int copy_common(struct files *files, const struct erg_checkpoint_piece *piece,
                       const struct erg_weight_span *span, float *state, uint64_t *covered,
                       struct erg_error *err)
{
    uint64_t row = larger(piece->row, span->row), column = larger(piece->column, span->column);
    uint64_t row_end = smaller(piece->row_end, span->row + span->rows);
    uint64_t column_end = smaller(piece->column_end, span->column + span->columns);
    if (row >= row_end || column >= column_end)
        return 0;
    float *values = read_piece(files, piece, err);
    if (!values)
        return -1;
    uint64_t width = piece->column_end - piece->column;
    for (uint64_t r = row; r < row_end; r++)
        for (uint64_t c = column; c < column_end; c++)
            state[erg_weight_span_here(span, (size_t)(r - span->row), (size_t)(c - span->column))] =
                values[(r - piece->row) * width + c - piece->column];
    *covered += (row_end - row) * (column_end - column);
    free(values);
    return 0;
}

static int load_kind(struct files *files, const struct erg_checkpoint_manifest *manifest, int kind,
                     const struct erg_checkpoint_state *state, float *values, struct erg_error *err)
{
    memset(values, 0, state->weights->state * sizeof *values); /* padding is in no checkpoint */
    for (size_t i = 0; i < state->spans->count; i++) {
        const struct erg_weight_span *span = &state->spans->items[i];
        uint64_t covered = 0, wanted = (uint64_t)span->rows * span->columns;
        for (size_t p = 0; p < manifest->count; p++) {
            const struct erg_checkpoint_piece *piece = &manifest->pieces[p];
            if (piece->kind == kind && strcmp(piece->name, span->name) == 0 &&
                copy_common(files, piece, span, values, &covered, err))
                return -1;
        }
        if (covered != wanted)
            return erg_fail(err, ERG_FAILED,
                            "%s: the pieces of %s of '%s' have %" PRIu64
                            " of this rank's elements, expected %" PRIu64,
                            files->folder, erg_checkpoint_kinds[kind], span->name, covered, wanted);
    }
    return 0;
}

/* Whether it is of the same model and data. */
static int check_job(const char *folder, const struct erg_checkpoint_manifest *manifest,
                     const struct erg_job *job, struct erg_error *err)
{
    const struct erg_layout *layout = &job->layout;
    long batch = erg_layout_batch(layout);
    char *model = erg_checkpoint_model(job->model);
    int result = 0;
    if (strcmp(model, manifest->model) != 0)
        result = erg_fail(err, ERG_FAILED, "%s is of another model: %s, expected %s", folder,
                          manifest->model, model);
    else if (manifest->batch != batch || manifest->sequence != layout->sequence)
        result =
            erg_fail(err, ERG_FAILED,
                     "%s: steps of %ld sequences of %ld tokens, expected those of the job, %ld of "
                     "%ld",
                     folder, manifest->batch, manifest->sequence, batch, layout->sequence);
    else if (manifest->seed != job->training->seed)
        result =
            erg_fail(err, ERG_FAILED, "%s: the seed is %" PRIu64 ", expected the job's %" PRIu64,
                     folder, manifest->seed, job->training->seed);
    free(model);
    return result;
}

int erg_checkpoint_read_manifest(const char *folder, struct erg_checkpoint_manifest **manifest,
                                 struct erg_error *err)
{
    char *path = erg_file_path(folder, "manifest.json"), *text;
    size_t length;
    int result = erg_file_read(path, 0, &text, &length, err);
    if (result == 0) {
        result = erg_checkpoint_parse(manifest, path, text, length, err);
        free(text);
    }
    free(path);
    return result;
}

int erg_checkpoint_read_pieces(const char *folder, const struct erg_checkpoint_manifest *manifest,
                               const struct erg_checkpoint_state *state, int kinds,
                               struct erg_error *err)
{
    struct files files = {.folder = folder};
    float *const values[ERG_CHECKPOINT_KINDS] = {state->master, state->m, state->v};
    int result = 0;
    for (int kind = 0; kind < kinds && result == 0; kind++)
        result = load_kind(&files, manifest, kind, state, values[kind], err);
    files_release(&files);
    return result;
}

/* World call. *damaged: the failure is of this checkpoint, and another one may do. */
static int load_one(const char *folder, const struct erg_job *job,
                    struct erg_checkpoint_place *place, const struct erg_checkpoint_state *state,
                    bool *damaged, struct erg_error *err)
{
    struct erg_checkpoint_manifest *manifest = NULL;
    int result = erg_checkpoint_read_manifest(folder, &manifest, err);
    *damaged = result != 0 || check_job(folder, manifest, job, err) == 0;
    if (result == 0)
        result = *damaged ? erg_checkpoint_read_pieces(folder, manifest, state,
                                                       ERG_CHECKPOINT_KINDS, err)
                          : -1;
    if (manifest)
        *place = manifest->place;
    erg_checkpoint_manifest_free(manifest);
    return erg_rendezvous_agree(state->rendezvous, result, err);
}

/* World call: the newest checkpoint of a run that is whole. */
static int load_newest(const char *run, const struct erg_job *job,
                       struct erg_checkpoint_place *place, const struct erg_checkpoint_state *state,
                       char **found, struct erg_error *err)
{
    char **names = erg_checkpoint_steps(run, false);
    bool damaged;
    int result = 0;
    for (char **name = names; *name && !*found; name++) {
        char *step = erg_file_path(run, *name);
        result = load_one(step, job, place, state, &damaged, err);
        if (result == 0 || !damaged) {
            *found = step;
            continue;
        }
        if (name[1] && state->rank == 0)
            erg_log(ERG_LOG_WARNING, "%s; the checkpoint before it is taken", err->message);
        free(step);
    }
    erg_checkpoint_free_steps(names);
    return result;
}

int erg_checkpoint_load(const char *folder, const struct erg_job *job,
                        struct erg_checkpoint_place *place,
                        const struct erg_checkpoint_state *state, char **found,
                        struct erg_error *err)
{
    bool damaged;
    char *manifest = erg_file_path(folder, "manifest.json");
    bool single = access(manifest, F_OK) == 0;
    free(manifest);
    *found = NULL;
    if (!single)
        return load_newest(folder, job, place, state, found, err);
    *found = erg_xstrdup(folder);
    return load_one(folder, job, place, state, &damaged, err);
}
