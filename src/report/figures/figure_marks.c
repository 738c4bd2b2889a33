/* Figures: which marks they show, in which order, and how these are called. */
#include "report/figures/figures_internal.h"

#include "io/csv.h"

#include <stdlib.h>
#include <string.h>

bool erg_figure_is_ok(const struct erg_collected *mark)
{
    return mark->result->status == ERG_RESULT_OK;
}

const char *erg_figure_lack(const struct erg_collected *mark)
{
    static const char *const words[] = {
        [ERG_RESULT_OK] = "",
        [ERG_RESULT_MEMORY] = "OOM",
        [ERG_RESULT_IMPOSSIBLE] = "n/a",
        [ERG_RESULT_FAILED] = "failed",
        [ERG_RESULT_SKIPPED] = "not run",
    };
    return words[mark->result->status];
}

void erg_figure_describe(struct erg_text *out, const struct erg_collected *mark)
{
    erg_text_printf(out, "%s %s, microbatch %ld, %s", mark->model, mark->label, mark->microbatch,
                    mark->optimisation);
    if (*mark->variant)
        erg_text_printf(out, ", %s", mark->variant);
    if (mark->equal)
        erg_text_add(out, " (equal to another point)");
}

bool erg_figure_has_optimisation(const struct erg_collection *collection, const char *name)
{
    for (size_t i = 0; i < collection->count; i++)
        if (!strcmp(collection->marks[i].optimisation, name))
            return true;
    return false;
}

/* ---- order ---- */

/* The place of a model, an optimisation or a variant in the study: that of its first mark. */
static size_t first_of(const struct erg_collection *collection, const struct erg_collected *mark,
                       const char *(*key)(const struct erg_collected *mark))
{
    size_t i = 0;
    while (strcmp(key(&collection->marks[i]), key(mark)) != 0)
        i++;
    return i;
}

static const char *model_of(const struct erg_collected *mark)
{
    return mark->model;
}

static const char *optimisation_of(const struct erg_collected *mark)
{
    return mark->optimisation;
}

static const char *variant_of(const struct erg_collected *mark)
{
    return mark->variant;
}

/* A mark and its sort keys, the most important first. */
struct ranked {
    const struct erg_collected *mark;
    long rank[9];
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    for (size_t i = 0; i < sizeof x->rank / sizeof *x->rank; i++)
        if (x->rank[i] != y->rank[i])
            return x->rank[i] < y->rank[i] ? -1 : 1;
    return 0;
}

static struct ranked rank(const struct erg_collection *collection, const struct erg_collected *mark)
{
    return (struct ranked){mark,
                           {(long)first_of(collection, mark, model_of), mark->fsdp > 1 ? 0 : 1,
                            mark->pipeline, -mark->tensor, -mark->expert,
                            (long)first_of(collection, mark, variant_of), mark->microbatch,
                            (long)first_of(collection, mark, optimisation_of),
                            (long)(mark - collection->marks)}};
}

static long least_microbatch(const struct erg_collection *collection,
                             const struct erg_collected *mark)
{
    long least = mark->microbatch;
    for (size_t i = 0; i < collection->count; i++)
        if (!strcmp(collection->marks[i].model, mark->model) &&
            collection->marks[i].microbatch < least)
            least = collection->marks[i].microbatch;
    return least;
}

void erg_figure_choose(struct figure_marks *marks, const struct erg_collection *collection,
                       unsigned axes, const char *wanted)
{
    struct ranked *ranked = erg_xcalloc(collection->count + 1, sizeof *ranked);
    size_t count = 0;
    if (collection->count > 0 && !erg_figure_has_optimisation(collection, wanted))
        wanted = collection->marks[0].optimisation;
    for (size_t i = 0; i < collection->count; i++) {
        const struct erg_collected *mark = &collection->marks[i];
        if ((axes & FIGURE_OPTIMISATIONS || !strcmp(mark->optimisation, wanted)) &&
            (axes & FIGURE_MICROBATCHES || mark->microbatch == least_microbatch(collection, mark)))
            ranked[count++] = rank(collection, mark);
    }
    qsort(ranked, count, sizeof *ranked, compare_ranked);
    for (size_t i = 0; i < count; i++)
        ERG_PUSH(marks, items, ranked[i].mark);
    free(ranked);
}

size_t erg_figure_model_end(const struct figure_marks *marks, size_t first)
{
    size_t end = first;
    while (end < marks->count && !strcmp(marks->items[end]->model, marks->items[first]->model))
        end++;
    return end;
}

size_t erg_figure_layout_end(const struct figure_marks *marks, size_t first)
{
    const struct erg_collected *mark = marks->items[first];
    size_t end = first;
    while (end < marks->count && !strcmp(marks->items[end]->model, mark->model) &&
           !strcmp(marks->items[end]->label, mark->label) &&
           !strcmp(marks->items[end]->variant, mark->variant))
        end++;
    return end;
}

double erg_figure_variant_width(const struct figure_marks *marks)
{
    static const double of_letter = 5.3;
    size_t most = 0;
    for (size_t i = 0; i < marks->count; i++) {
        const size_t own = strlen(marks->items[i]->variant);
        most = own > most ? own : most;
    }
    return of_letter * (double)most;
}

/* ---- tables ---- */

void erg_figure_csv_head(struct figure *figure, const char *columns)
{
    erg_text_printf(&figure->csv,
                    "name,id,model,layout,microbatch,optimisation,variant,equal,status,%s\n",
                    columns);
}

void erg_figure_csv_mark(struct figure *figure, const struct erg_collected *mark)
{
    struct erg_text *csv = &figure->csv;
    erg_csv_add(csv, mark->name);
    erg_csv_add(csv, mark->id);
    erg_csv_add(csv, mark->model);
    erg_csv_add(csv, mark->label);
    erg_csv_add_long(csv, mark->microbatch);
    erg_csv_add(csv, mark->optimisation);
    erg_csv_add(csv, mark->variant);
    erg_csv_add(csv, mark->equal ? "=" : "");
    erg_csv_add(csv, erg_result_status_names[mark->result->status]);
}
