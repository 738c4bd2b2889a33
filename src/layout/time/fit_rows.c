/* The table of measured iterations. */
#include "layout/time/fit.h"

#include "io/csv.h"

#include <stdlib.h>
#include <string.h>

/* A share of the peak. A row below it is an error in the table, since no training is so slow. */
static const double LEAST_UTILISATION = 0.05;

/* Columns of the table; missing optional ones are -1. */
struct fit_columns {
    size_t model, sequence, gpus, batch, t, c, p;
    ptrdiff_t time, tokens, l, v, microbatch, recompute, offload, device, e;
};

static int find_columns(struct fit_columns *columns, const struct erg_csv *csv, const char *path,
                        struct erg_error *err)
{
    if (erg_csv_require(csv, "model", &columns->model, err) ||
        erg_csv_require(csv, "sequence", &columns->sequence, err) ||
        erg_csv_require(csv, "gpus", &columns->gpus, err) ||
        erg_csv_require(csv, "batch", &columns->batch, err) ||
        erg_csv_require(csv, "t", &columns->t, err) ||
        erg_csv_require(csv, "c", &columns->c, err) || erg_csv_require(csv, "p", &columns->p, err))
        return -1;
    columns->time = erg_csv_find(csv, "time_s");
    columns->tokens = erg_csv_find(csv, "tokens_per_s");
    columns->l = erg_csv_find(csv, "l");
    columns->v = erg_csv_find(csv, "v");
    columns->microbatch = erg_csv_find(csv, "microbatch");
    columns->recompute = erg_csv_find(csv, "recompute");
    columns->offload = erg_csv_find(csv, "offload");
    columns->device = erg_csv_find(csv, "device");
    columns->e = erg_csv_find(csv, "e");
    if ((columns->time < 0) == (columns->tokens < 0))
        return erg_fail(err, ERG_FAILED,
                        "%s:1: expected one of the columns 'time_s' and 'tokens_per_s'", path);
    if (columns->l >= 0 && columns->v >= 0)
        return erg_fail(err, ERG_FAILED,
                        "%s:1: the header has both columns 'l' and 'v'; expected one of them, "
                        "since layers = p x "
                        "v x l",
                        path);
    return 0;
}

static int find_model(struct erg_fit_rows *rows, const char *name, const struct erg_model **model,
                      struct erg_error *err)
{
    for (size_t i = 0; i < rows->models.count; i++) {
        if (!strcmp(rows->models.items[i].name, name)) {
            *model = rows->models.items[i].model;
            return 0;
        }
    }
    struct erg_model *loaded;
    if (erg_model_load(&loaded, name, err) != 0)
        return -1;
    ERG_PUSH(&rows->models, items, (struct erg_fit_model){loaded, erg_xstrdup(name)});
    *model = loaded;
    return 0;
}

/* A whole number from an optional column; 1 if the column is missing. */
static int optional_long(const struct erg_csv *csv, size_t row, ptrdiff_t column, long *value,
                         struct erg_error *err)
{
    *value = 1;
    return column < 0 ? 0 : erg_csv_long(csv, row, (size_t)column, value, err);
}

static int read_recompute(struct erg_layout *layout, const struct erg_csv *csv, size_t row,
                          const struct fit_columns *columns, struct erg_error *err)
{
    if (columns->offload >= 0 &&
        erg_csv_double(csv, row, (size_t)columns->offload, &layout->offload, err) != 0)
        return -1;
    if (columns->recompute < 0)
        return 0;
    const char *name = erg_csv_text(csv, row, (size_t)columns->recompute);
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
        if (!strcmp(erg_recompute_name((enum erg_recompute)recompute), name)) {
            layout->recompute = (enum erg_recompute)recompute;
            return 0;
        }
    }
    return erg_csv_fail(
        csv, row, err,
        "column 'recompute': expected none, norms, activation, balanced or full, got "
        "'%s'",
        name);
}

static int read_time(struct erg_fit_row *out, const struct erg_csv *csv, size_t row,
                     const struct fit_columns *columns, struct erg_error *err)
{
    ptrdiff_t column = columns->time >= 0 ? columns->time : columns->tokens;
    double value;
    if (erg_csv_double(csv, row, (size_t)column, &value, err) != 0)
        return -1;
    if (!(value > 0))
        return erg_csv_fail(csv, row, err, "column '%s': expected a number above 0, got %g",
                            erg_csv_header(csv, (size_t)column), value);
    out->time_s =
        columns->time >= 0 ? value : (double)out->batch * (double)out->layout.sequence / value;
    return 0;
}

static int read_row(struct erg_fit_rows *rows, const struct erg_csv *csv, size_t row,
                    const struct fit_columns *columns, const char *path, struct erg_error *err)
{
    struct erg_fit_row out = {.weight = 1, .line = erg_csv_line(csv, row), .path = path};
    struct erg_layout *layout = &out.layout;
    const char *name = erg_csv_text(csv, row, columns->model);
    long gpus, layers;
    if (erg_csv_long(csv, row, columns->sequence, &layout->sequence, err) ||
        erg_csv_long(csv, row, columns->gpus, &gpus, err) ||
        erg_csv_long(csv, row, columns->batch, &out.batch, err) ||
        erg_csv_long(csv, row, columns->t, &layout->tensor, err) ||
        erg_csv_long(csv, row, columns->c, &layout->context, err) ||
        erg_csv_long(csv, row, columns->p, &layout->pipeline, err) ||
        optional_long(csv, row, columns->v, &layout->virtual_stages, err) ||
        optional_long(csv, row, columns->l, &layers, err) ||
        optional_long(csv, row, columns->microbatch, &layout->microbatch, err) ||
        optional_long(csv, row, columns->e, &layout->expert, err) ||
        read_recompute(layout, csv, row, columns, err) || read_time(&out, csv, row, columns, err))
        return -1;
    if (layout->tensor < 1 || layout->context < 1 || layout->pipeline < 1 ||
        layout->microbatch < 1 || layout->expert < 1 || layers < 1)
        return erg_csv_fail(csv, row, err, "expected degrees, layers and microbatch of at least 1");
    int status = find_model(rows, name, &out.model, err);
    if (!status && columns->l >= 0) {
        long chunk = layout->pipeline * layers;
        if (out.model->layers % chunk != 0)
            return erg_csv_fail(
                csv, row, err,
                "column 'l': the %ld layers of %s are not a multiple of %ld stages x %ld layers",
                out.model->layers, name, layout->pipeline, layers);
        layout->virtual_stages = out.model->layers / chunk;
    }
    status = status || erg_layout_fill(layout, gpus, out.batch, err) ||
             erg_layout_check(layout, out.model, err);
    if (status)
        return erg_fail_context(err, "%s:%zu", path, out.line);
    const char *device = columns->device < 0 ? "" : erg_csv_text(csv, row, (size_t)columns->device);
    out.device = *device ? erg_arena_strdup(&rows->arena, device) : NULL;
    ERG_PUSH(rows, items, out);
    return 0;
}

int erg_fit_rows_load(struct erg_fit_rows *rows, const char *path, struct erg_error *err)
{
    struct erg_csv *csv;
    struct fit_columns columns;
    *rows = (struct erg_fit_rows){0};
    if (erg_csv_load(&csv, path, err) != 0)
        return -1;
    int status = find_columns(&columns, csv, path, err);
    rows->of_tokens = columns.tokens >= 0;
    const char *kept = erg_arena_strdup(&rows->arena, path);
    for (size_t row = 0; row < erg_csv_rows(csv) && !status; row++)
        status = read_row(rows, csv, row, &columns, kept, err);
    erg_csv_free(csv);
    return status;
}

const char *erg_fit_row_place(const struct erg_fit_row *row, struct erg_arena *arena)
{
    return row->line ? erg_arena_printf(arena, "%s:%zu", row->path, row->line) : row->path;
}

/* "PLACE: MESSAGE" */
static int fail_at(const struct erg_fit_row *row, struct erg_error *err)
{
    struct erg_arena arena = {0};
    erg_fail_context(err, "%s", erg_fit_row_place(row, &arena));
    erg_arena_release(&arena);
    return -1;
}

int erg_fit_rows_check(const struct erg_fit_rows *rows, const struct erg_time_machine *machine,
                       struct erg_error *err)
{
    for (size_t i = 0; i < rows->count; i++)
        if (erg_time_machine_check(machine, erg_layout_gpus(&rows->items[i].layout), err) != 0)
            return fail_at(&rows->items[i], err);
    return 0;
}

/* The name of a device in a sentence. */
static const char *device_words(const char *device)
{
    return strcmp(device, "host") == 0 ? "the host's CPU" : device;
}

/* Checks that two rows can be fitted together: constants are for one device and type. */
static int check_pair(const struct erg_fit_row *a, const struct erg_fit_row *b,
                      struct erg_error *err)
{
    struct erg_arena arena = {0};
    int status = 0;
    const char *place = erg_fit_row_place(a, &arena);
    if (strcmp(a->device, b->device) != 0)
        status = erg_fail(err, ERG_FAILED,
                          "it was measured on %s, and %s on %s; expected rows of one kind of "
                          "device, since an engine's constants are for one",
                          device_words(b->device), place, device_words(a->device));
    else if (a->run && b->run && strcmp(a->run->type, b->run->type) != 0)
        status = erg_fail(err, ERG_FAILED,
                          "it was trained in %s, and %s in %s; expected rows of one type",
                          b->run->type, place, a->run->type);
    erg_arena_release(&arena);
    return status;
}

int erg_fit_rows_check_devices(const struct erg_fit_rows *rows, const struct erg_gpu *gpu,
                               struct erg_error *err)
{
    const struct erg_fit_row *first = NULL;
    for (size_t i = 0; i < rows->count; i++) {
        const struct erg_fit_row *row = &rows->items[i];
        if (!row->device)
            continue;
        if (first && check_pair(first, row, err) != 0)
            return fail_at(row, err);
        first = first && first->run ? first : row;
    }
    if (!first || erg_gpu_is_device(gpu, first->device))
        return 0;
    erg_fail(err, ERG_FAILED,
             "it was measured on %s, and the cluster's GPU is %s; expected rows of that GPU, or "
             "--cluster FILE with a GPU whose file has \"%s\" among its driver_names",
             device_words(first->device), gpu->name, first->device);
    return fail_at(first, err);
}

int erg_fit_rows_check_times(const struct erg_fit_rows *rows, const struct erg_engine *engine,
                             struct erg_error *err)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct erg_fit_row *row = &rows->items[i];
        const long gpus = erg_layout_gpus(&row->layout);
        const double tokens_per_s = (double)row->batch * (double)row->layout.sequence / row->time_s;
        const double share = erg_time_mfu(row->model, row->layout.sequence,
                                          tokens_per_s / (double)gpus, engine->peak_flops);
        const char *path = row->path;
        if (share >= LEAST_UTILISATION || row->run)
            continue;
        if (rows->of_tokens)
            return erg_fail(err, ERG_FAILED,
                            "%s:%zu: column 'tokens_per_s': %.6g tokens per second on %ld GPUs are "
                            "%.2g %% of their peak, expected at least %.0f %%; the column is that "
                            "of all GPUs together, so multiply a number per GPU by %ld",
                            path, row->line, tokens_per_s, gpus, 100 * share,
                            100 * LEAST_UTILISATION, gpus);
        return erg_fail(err, ERG_FAILED,
                        "%s:%zu: column 'time_s': %.6g s of an iteration of %ld sequences are "
                        "%.2g %% of the peak of %ld GPUs, expected at least %.0f %%; is it in "
                        "seconds, of one iteration, and 'batch' that of all GPUs together?",
                        path, row->line, row->time_s, row->batch, 100 * share, gpus,
                        100 * LEAST_UTILISATION);
    }
    return 0;
}

void erg_fit_rows_release(struct erg_fit_rows *rows)
{
    for (size_t i = 0; i < rows->models.count; i++) {
        erg_model_free(rows->models.items[i].model);
        free(rows->models.items[i].name);
    }
    free(rows->models.items);
    free(rows->items);
    erg_arena_release(&rows->arena);
}
