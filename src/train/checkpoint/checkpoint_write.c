/* Writes checkpoints. */
#define _DEFAULT_SOURCE /* symlink */

#include "train/checkpoint/checkpoint_internal.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "train/files/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

char *erg_checkpoint_path(const char *folder, const char *name)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/%s", folder, name);
    return path.data;
}

/* ---- the state ---- */

/* Pieces of this rank in the order in which they are written. */
struct piece_source {
    const struct erg_checkpoint_state *state;
    struct erg_checkpoint_piece *pieces; /* [kinds * spans] */
    size_t count;
};

static const float *values_of(const struct erg_checkpoint_state *state, int kind)
{
    return kind == 0 ? state->master : kind == 1 ? state->m : state->v;
}

/* Pieces are [outputs, inputs], however the checkpoint of the model keeps them. */
static int fill(void *context, size_t index, float *values, struct erg_error *err)
{
    (void)err;
    struct piece_source *source = context;
    struct erg_checkpoint_piece *piece = &source->pieces[index];
    const struct erg_checkpoint_state *state = source->state;
    const struct erg_weight_span *span = &state->spans->items[index % state->spans->count];
    const struct erg_weight *weight = &state->weights->items[span->weight];
    const float *from = values_of(state, piece->kind) + weight->offset;
    for (size_t row = 0; row < span->rows; row++)
        for (size_t column = 0; column < span->columns; column++)
            values[row * span->columns + column] =
                from[erg_weight_span_here(span, weight, row, column)];
    piece->hash = XXH3_64bits(values, span->rows * span->columns * sizeof *values);
    return 0;
}

static void list_pieces(struct piece_source *source, const char *file)
{
    const struct erg_weight_spans *spans = source->state->spans;
    source->count = ERG_CHECKPOINT_KINDS * spans->count;
    source->pieces = erg_xcalloc(source->count, sizeof *source->pieces);
    for (size_t i = 0; i < source->count; i++) {
        const struct erg_weight_span *span = &spans->items[i % spans->count];
        source->pieces[i] = (struct erg_checkpoint_piece){
            .name = (char *)(uintptr_t)span->name,
            .kind = (int)(i / spans->count),
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

static int write_manifest(const char *path, const struct erg_job *job,
                          const struct erg_checkpoint_place *place,
                          const struct piece_source *source, struct erg_error *err)
{
    const struct erg_layout *layout = &job->layout;
    char *model = erg_checkpoint_model(job->model);
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
    json_t *document = erg_json_pack(
        "{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:{s:I, s:I, s:I, s:I, s:I}, s:o}",
        "schema", "ergon.checkpoint", "schema_version", ERG_CHECKPOINT_VERSION, "step",
        (json_int_t)place->step, "updates", (json_int_t)place->updates, "samples",
        (json_int_t)place->samples, "tokens", (json_int_t)place->tokens, "skipped",
        (json_int_t)place->skipped, "seed", (json_int_t)job->training->seed, "batch",
        (json_int_t)(layout->microbatch * layout->microbatches * layout->data), "sequence",
        (json_int_t)layout->sequence, "model", model, "layout", "tensor",
        (json_int_t)layout->tensor, "context", (json_int_t)layout->context, "pipeline",
        (json_int_t)layout->pipeline, "virtual_stages", (json_int_t)layout->virtual_stages, "data",
        (json_int_t)layout->data, "pieces", pieces);
    int result = erg_json_write(path, document, err);
    json_decref(document);
    free(model);
    return result;
}

static int copy_file(const char *from, const char *folder, const char *name, struct erg_error *err)
{
    char *text, *path = erg_checkpoint_path(folder, name);
    size_t length;
    int result = erg_file_read(from, ERG_FILE_SMALL_BYTES, &text, &length, err);
    if (result == 0) {
        result = erg_file_write(path, text, length, err);
        free(text);
    }
    free(path);
    return result;
}

/* ---- folders ---- */

/* Removes a folder of files. */
static void remove_folder(const char *folder)
{
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;)
        unlinkat(dirfd(listing), entry->d_name, 0);
    if (listing)
        closedir(listing);
    rmdir(folder);
}

static void sync_folder(const char *folder)
{
    int handle = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0)
        return;
    fsync(handle);
    close(handle);
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

/* Removes all but the newest `keep`, under another name first: none is ever half there. */
static void remove_old(const char *run, int keep)
{
    char **names = erg_checkpoint_steps(run, false), **leftovers = erg_checkpoint_steps(run, true);
    for (int i = 0; names[i]; i++) {
        if (i < keep)
            continue;
        char *folder = erg_checkpoint_path(run, names[i]);
        struct erg_text old = {0};
        erg_text_printf(&old, "%s.tmp-old", folder);
        if (rename(folder, old.data) == 0)
            remove_folder(old.data);
        erg_text_release(&old);
        free(folder);
    }
    for (char **name = leftovers; *name; name++) {
        char *folder = erg_checkpoint_path(run, *name);
        remove_folder(folder);
        free(folder);
    }
    erg_checkpoint_free_steps(names);
    erg_checkpoint_free_steps(leftovers);
}

/* The link `latest` in one step. */
static int point_latest(const char *run, const char *name, struct erg_error *err)
{
    char *link = erg_checkpoint_path(run, "latest"),
         *temporary = erg_checkpoint_path(run, "latest.tmp");
    unlink(temporary);
    int result = symlink(name, temporary) != 0 || rename(temporary, link) != 0 ? -1 : 0;
    if (result != 0)
        erg_fail(err, ERG_FAILED, "writing '%s': %s", link, strerror(errno));
    free(temporary);
    free(link);
    return result;
}

/* A full disk is noticed before anything is written. */
static int check_space(const char *run, const struct erg_checkpoint_state *state,
                       struct erg_error *err)
{
    struct statvfs info;
    double wanted = 1.02 * 12 * (double)state->weights->elements;
    if (statvfs(run, &info) != 0 || (double)info.f_bavail * (double)info.f_frsize >= wanted)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "writing a checkpoint into '%s': it needs %.3g GB, but %.3g GB are free", run,
                    1e-9 * wanted, 1e-9 * (double)info.f_bavail * (double)info.f_frsize);
}

static int write_files(const char *folder, const struct erg_job *job,
                       const struct erg_checkpoint_place *place,
                       const struct erg_checkpoint_state *state, struct erg_error *err)
{
    static const char state_name[] = "state-00000.safetensors";
    struct piece_source source = {.state = state};
    list_pieces(&source, state_name);
    char *state_path = erg_checkpoint_path(folder, state_name),
         *manifest = erg_checkpoint_path(folder, "manifest.json");
    int result = write_state(state_path, &source, err) ||
                         copy_file(job->path, folder, "job.yaml", err) ||
                         copy_file(job->model->path, folder, "config.json", err) ||
                         write_manifest(manifest, job, place, &source, err)
                     ? -1
                     : 0;
    free(manifest);
    free(state_path);
    free(source.pieces);
    return result;
}

int erg_checkpoint_write(const char *run, const struct erg_job *job,
                         const struct erg_checkpoint_place *place,
                         const struct erg_checkpoint_state *state, int keep, struct erg_error *err)
{
    char name[32];
    struct erg_text temporary = {0};
    snprintf(name, sizeof name, "step-%08" PRIu64, place->step);
    erg_text_printf(&temporary, "%s/%s.tmp-%ld", run, name, (long)getpid());
    char *folder = erg_checkpoint_path(run, name);
    int result = check_space(run, state, err);
    if (result == 0) {
        remove_folder(temporary.data);
        result =
            erg_dir_make(temporary.data, err) || write_files(temporary.data, job, place, state, err)
                ? -1
                : 0;
        sync_folder(temporary.data);
        if (result == 0 && access(folder, F_OK) == 0)
            remove_folder(folder); /* of the same step, damaged: else the run would have gone on */
        if (result == 0 && rename(temporary.data, folder) != 0)
            result = erg_fail(err, ERG_FAILED, "writing '%s': %s", folder, strerror(errno));
        if (result != 0)
            remove_folder(temporary.data);
    }
    if (result == 0) {
        sync_folder(run);
        result = point_latest(run, name, err);
    }
    if (result == 0)
        remove_old(run, keep);
    free(folder);
    erg_text_release(&temporary);
    return result;
}
