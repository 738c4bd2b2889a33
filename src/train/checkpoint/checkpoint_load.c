/* Loads checkpoints of any layout. */
#include "train/checkpoint/checkpoint_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "io/file.h"
#include "train/files/model_file.h"
#include "train/files/safetensors.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Open files of a checkpoint. */
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

/* The checked values of a piece; free them. NULL after a failure. */
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
        erg_fail(err, ERG_FAILED, "%s/%s: the piece '%s' is missing or has another size",
                 files->folder, piece->file, name);
        return NULL;
    }
    if (XXH3_64bits(tensor->data, tensor->bytes) != piece->hash) {
        erg_fail(err, ERG_FAILED,
                 "%s/%s: the piece '%s' is damaged: its hash differs from the manifest's",
                 files->folder, piece->file, name);
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

/* Copies a piece's part of a span; *covered counts elements. */
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
    assert(row_end <= piece->row_end && column_end <= piece->column_end);
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
    memset(values, 0, state->weights->state * sizeof *values); /* checkpoints contain no padding */
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

/* Checks that it is of the same model and data. */
static int check_job(const char *folder, const struct erg_checkpoint_manifest *manifest,
                     const struct erg_job *job, const struct erg_checkpoint_state *state,
                     struct erg_error *err)
{
    static const char allowed[] = "expected the job's, or --allow-change";
    const struct erg_model_terms terms = {
        .changed = state->changed, .checkpoint = true, .tells = state->rank == 0};
    const struct erg_layout *layout = &job->layout;
    long batch = erg_layout_batch(layout);
    char *model = erg_checkpoint_model(job->model);
    int result = 0;
    if (strcmp(model, manifest->model) != 0)
        result = erg_fail(err, ERG_FAILED, "%s is of another model: %s, expected %s", folder,
                          manifest->model, model);
    else if (manifest->sequence != layout->sequence ||
             (manifest->batch != batch && !state->changed))
        result =
            erg_fail(err, ERG_FAILED,
                     "%s: steps of %ld sequences of %ld tokens, expected those of the job, %ld of "
                     "%ld%s",
                     folder, manifest->batch, manifest->sequence, batch, layout->sequence,
                     manifest->sequence == layout->sequence ? ", or --allow-change" : "");
    else if (manifest->seed != job->training->seed && !state->changed)
        result =
            erg_fail(err, ERG_FAILED, "%s: the seed is %" PRIu64 ", the job's is %" PRIu64 "; %s",
                     folder, manifest->seed, job->training->seed, allowed);
    else if (manifest->data && state->data && strcmp(manifest->data, state->data) != 0 &&
             !state->changed)
        result = erg_fail(err, ERG_FAILED, "%s: the data are %s, the job's are %s; %s", folder,
                          manifest->data, state->data, allowed);
    free(model);
    return result || erg_model_file_check_config(folder, job, &terms, err) ? -1 : 0;
}

/* Checks the config's hash: only the original describes the trained run. */
static int check_config_hash(const char *folder, const struct erg_checkpoint_manifest *manifest,
                             struct erg_error *err)
{
    char *path = erg_file_path(folder, "config.json");
    int result = 0;
    if (manifest->has_config_hash) {
        char *text = NULL;
        size_t length;
        result = erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, err);
        if (result == 0 && XXH3_64bits(text, length) != manifest->config_hash)
            result =
                erg_fail(err, ERG_FAILED,
                         "%s: this file is damaged: its hash differs from the manifest's", path);
        free(text);
    }
    free(path);
    return result;
}

int erg_checkpoint_read_manifest(const char *folder, struct erg_checkpoint_manifest **manifest,
                                 struct erg_error *err)
{
    char *path = erg_file_path(folder, "manifest.json"), *text;
    size_t length;
    *manifest = NULL;
    int result = erg_file_read(path, 0, &text, &length, err);
    if (result == 0) {
        result = erg_checkpoint_parse(manifest, path, text, length, err);
        free(text);
    }
    if (result == 0 && (*manifest)->hash != (*manifest)->found_hash) {
        result = erg_fail(err, ERG_FAILED,
                          "%s: this manifest is damaged: its hash is %016" PRIx64
                          ", expected %016" PRIx64 ", which it contains",
                          path, (*manifest)->found_hash, (*manifest)->hash);
    }
    if (result == 0)
        result = check_config_hash(folder, *manifest, err);
    if (result != 0 && *manifest) {
        erg_checkpoint_manifest_free(*manifest);
        *manifest = NULL;
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

/* World call. *damaged: only this checkpoint failed, and another one may work. */
static int load_one(const char *folder, const struct erg_job *job,
                    struct erg_checkpoint_place *place, const struct erg_checkpoint_state *state,
                    bool *damaged, struct erg_error *err)
{
    struct erg_checkpoint_manifest *manifest = NULL;
    int result = erg_checkpoint_read_manifest(folder, &manifest, err);
    *damaged = result != 0 || check_job(folder, manifest, job, state, err) == 0;
    if (result == 0)
        result = *damaged ? erg_checkpoint_read_pieces(folder, manifest, state,
                                                       ERG_CHECKPOINT_KINDS, err)
                          : -1;
    if (manifest)
        *place = manifest->place;
    erg_checkpoint_manifest_free(manifest);
    return erg_rendezvous_agree(state->rendezvous, result, err);
}

/* ---- choice ---- */

/* Candidates in order; the name is "." if the folder itself is a checkpoint. */
struct candidates {
    bool behind_link; /* the caller named a run's link `latest`; they are in that run's folder */
    size_t count;
    char (*names)[32];
};

/* The folder of a path, and its last part; free both. */
static void split(const char *path, char **folder, char **last)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    *last = erg_xmemdup(path + begin, end - begin);
    *folder = begin > 1   ? erg_xmemdup(path, begin - 1)
              : begin > 0 ? erg_xstrdup("/")
                          : erg_xstrdup(".");
}

/* Whether a path is a run's link to its newest checkpoint; `newest` gets that name. */
static bool is_latest(const char *path, char newest[32])
{
    char *folder, *last;
    split(path, &folder, &last);
    char *link = erg_file_path(folder, last);
    ssize_t length = strcmp(last, "latest") == 0 ? readlink(link, newest, 31) : -1;
    newest[length > 0 ? length : 0] = '\0';
    free(link);
    free(last);
    free(folder);
    return strncmp(newest, "step-", strlen("step-")) == 0;
}

/* Lists checkpoints of a run that are not newer than `newest`; NULL: all. */
static int look_in_run(struct candidates *candidates, const char *run, const char *newest,
                       struct erg_error *err)
{
    DIR *listing = opendir(run);
    if (!listing && errno != ENOENT && errno != ENOTDIR)
        return erg_fail(err, ERG_FAILED, "looking for checkpoints in '%s': %s", run,
                        strerror(errno));
    if (!listing)
        return 0;
    closedir(listing);
    char **steps = erg_checkpoint_steps(run, false);
    size_t count = 0;
    while (steps[count])
        count++;
    candidates->names = erg_xcalloc(count + 1, sizeof *candidates->names);
    for (size_t i = 0; i < count; i++)
        if (!newest || strcmp(steps[i], newest) <= 0)
            snprintf(candidates->names[candidates->count++], sizeof *candidates->names, "%s",
                     steps[i]);
    erg_checkpoint_free_steps(steps);
    return 0;
}

static int look(struct candidates *candidates, const char *path, struct erg_error *err)
{
    char newest[32], *folder, *last;
    candidates->behind_link = is_latest(path, newest);
    if (candidates->behind_link) {
        split(path, &folder, &last);
        int result = look_in_run(candidates, folder, newest, err);
        free(last);
        free(folder);
        return result;
    }
    char *manifest = erg_file_path(path, "manifest.json");
    struct stat info;
    bool single = stat(manifest, &info) == 0;
    int result = 0;
    if (!single && errno != ENOENT && errno != ENOTDIR)
        result = erg_fail(err, ERG_FAILED, "reading '%s': %s", manifest, strerror(errno));
    free(manifest);
    if (result != 0 || !single)
        return result ? result : look_in_run(candidates, path, NULL, err);
    candidates->count = 1;
    candidates->names = erg_xcalloc(2, sizeof *candidates->names);
    candidates->names[0][0] = '.'; /* and zeros */
    return 0;
}

/*
 * World call. Only rank 0 looks, so that all use the same: another machine may see a folder later.
 */
static int find_candidates(struct candidates *candidates, const char *path,
                           const struct erg_checkpoint_state *state, struct erg_error *err)
{
    struct erg_rendezvous *rendezvous = state->rendezvous;
    int result = state->rank == 0 ? look(candidates, path, err) : 0;
    if (erg_rendezvous_agree(rendezvous, result, err) != 0)
        return -1;
    struct {
        uint64_t count, behind_link;
    } found = {candidates->count, candidates->behind_link};
    if (erg_rendezvous_broadcast(rendezvous, 0, &found, sizeof found, ERG_RENDEZVOUS_PATIENCE_S,
                                 err) != 0)
        return -1;
    candidates->count = (size_t)found.count;
    candidates->behind_link = found.behind_link != 0;
    if (!candidates->names)
        candidates->names = erg_xcalloc(candidates->count + 1, sizeof *candidates->names);
    return candidates->count
               ? erg_rendezvous_broadcast(rendezvous, 0, candidates->names,
                                          candidates->count * sizeof *candidates->names,
                                          ERG_RENDEZVOUS_PATIENCE_S, err)
               : 0;
}

/* The folder of a candidate; free it. */
static char *folder_of(const struct candidates *candidates, size_t i, const char *path)
{
    char *run, *last;
    if (strcmp(candidates->names[i], ".") == 0)
        return erg_xstrdup(path);
    if (!candidates->behind_link)
        return erg_file_path(path, candidates->names[i]);
    split(path, &run, &last);
    char *folder = erg_file_path(run, candidates->names[i]);
    free(last);
    free(run);
    return folder;
}

int erg_checkpoint_load(const char *path, const struct erg_job *job,
                        struct erg_checkpoint_place *place,
                        const struct erg_checkpoint_state *state, char **found,
                        struct erg_error *err)
{
    struct candidates candidates = {0};
    int result = find_candidates(&candidates, path, state, err);
    *found = NULL;
    for (size_t i = 0, count = result == 0 ? candidates.count : 0; i < count && !*found; i++) {
        bool damaged;
        char *step = folder_of(&candidates, i, path);
        result = load_one(step, job, place, state, &damaged, err);
        if (result == 0 || !damaged) {
            *found = step;
            continue;
        }
        if (i + 1 < count && state->rank == 0)
            erg_log(ERG_LOG_WARNING, "%s; using the previous checkpoint", err->message);
        free(step);
    }
    free(candidates.names);
    return result;
}
