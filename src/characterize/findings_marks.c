/* Selects the points that findings check. */
#include "characterize/findings_internal.h"

#include <stdarg.h>
#include <stdio.h>

/* Returns true if an earlier study has the same mark, so that it is checked once. */
static bool is_repeated(const struct erg_finding_check *at, size_t collection, erg_mark mark)
{
    for (size_t c = 0; c < collection; c++)
        for (size_t i = 0; i < at->collections[c]->count; i++)
            if (!strcmp(at->collections[c]->marks[i].id, mark->id) &&
                !strcmp(at->collections[c]->marks[i].name, mark->name))
                return true;
    return false;
}

void erg_marks_visit(struct erg_finding_check *at, const struct erg_mark_visit *visit)
{
    for (size_t c = 0; c < at->count; c++) {
        const struct erg_collection *collection = at->collections[c];
        if (visit->cluster && !strstr(collection->cluster, visit->cluster))
            continue;
        for (size_t i = 0; i < collection->count; i++) {
            erg_mark mark = &collection->marks[i];
            if (mark->result->status == ERG_RESULT_OK && !is_repeated(at, c, mark))
                visit->each(at, mark, visit->context);
        }
    }
}

static bool alike(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool is_same_but(erg_mark a, erg_mark b, unsigned of)
{
    return !strcmp(a->model, b->model) && !strcmp(a->label, b->label) &&
           a->sequence == b->sequence && a->batch == b->batch && alike(a->inlet_c, b->inlet_c) &&
           (of & ERG_MARK_OPTIMISATION || !strcmp(a->optimisation, b->optimisation)) &&
           (of & ERG_MARK_MICROBATCH || a->microbatch == b->microbatch) &&
           (of & ERG_MARK_PLACEMENT || !strcmp(a->placement, b->placement)) &&
           (of & ERG_MARK_SPLIT || a->split == b->split) &&
           (of & ERG_MARK_FAULT || alike(a->fault_clock_share, b->fault_clock_share)) &&
           (of & ERG_MARK_LORA || a->lora_rank == b->lora_rank);
}

/* The study of a mark. */
static const struct erg_collection *study_of(const struct erg_finding_check *at, erg_mark mark)
{
    size_t c = 0;
    while (mark < at->collections[c]->marks ||
           mark >= at->collections[c]->marks + at->collections[c]->count)
        c++;
    return at->collections[c];
}

erg_mark erg_mark_find(const struct erg_finding_check *at, erg_mark like, unsigned of,
                       bool (*fits)(erg_mark mark, const void *context), const void *context)
{
    const char *cluster = study_of(at, like)->cluster;
    for (size_t c = 0; c < at->count; c++) {
        const struct erg_collection *collection = at->collections[c];
        if (strcmp(collection->cluster, cluster) != 0)
            continue;
        for (size_t i = 0; i < collection->count; i++) {
            erg_mark mark = &collection->marks[i];
            if (mark->result->status == ERG_RESULT_OK && is_same_but(like, mark, of) &&
                fits(mark, context))
                return mark;
        }
    }
    return NULL;
}

erg_mark erg_mark_find_wanted(const struct erg_finding_check *at,
                              const struct erg_mark_wanted *wanted)
{
    for (size_t c = 0; c < at->count; c++) {
        const struct erg_collection *collection = at->collections[c];
        if (wanted->cluster && !strstr(collection->cluster, wanted->cluster))
            continue;
        for (size_t i = 0; i < collection->count; i++) {
            erg_mark mark = &collection->marks[i];
            if (mark->result->status == ERG_RESULT_OK && erg_mark_is_usual(mark) &&
                erg_mark_inlet(mark) == 29 && erg_mark_is_model(mark, wanted->model) &&
                !strcmp(mark->label, wanted->label) &&
                (!wanted->optimisation || !strcmp(mark->optimisation, wanted->optimisation)) &&
                (!wanted->microbatch || mark->microbatch == wanted->microbatch))
                return mark;
        }
    }
    return NULL;
}

void erg_finding_say(struct erg_finding_check *at, const char *format, ...)
{
    char part[512];
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof part, format, args);
    va_end(args);
    if (at->ours.count)
        erg_text_add(&at->ours, "; ");
    erg_text_add(&at->ours, part);
}
