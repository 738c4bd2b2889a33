/* The questions about all layouts and their candidates: the layouts with the best bounds. */
#include "layout/energy/choice_internal.h"

#include "base/memory.h"
#include "base/thread.h"
#include "layout/energy/candidate.h"
#include "layout/search/layout_search_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- bounds ---- */

/* A search on one kind of GPUs finds many consecutive layouts with the same degrees. */
static const struct erg_clock_table *table_for(struct erg_choice_state *at,
                                               const struct erg_layout *layout)
{
    const struct erg_layout *old = &at->table_degrees;
    if (old->tensor != layout->tensor || old->context != layout->context ||
        old->microbatch != layout->microbatch || old->sequence != layout->sequence ||
        erg_layout_shards(old) != erg_layout_shards(layout) ||
        erg_layout_experts(old) != erg_layout_experts(layout) ||
        erg_layout_gpus(old) != erg_layout_gpus(layout)) {
        erg_clock_table_release(&at->table);
        erg_clock_table_init(&at->table, &at->energy, layout, ERG_LAYOUT_CHOICE_CLOCKS);
        at->table_degrees = *layout;
    }
    return &at->table;
}

/*
 * A layout with its own tables; returns the memory that they point to, which the caller frees after
 * them.
 */
static void *locate(struct erg_clocked_layout *clocked,
                    const struct erg_layout_choice_request *request,
                    const struct erg_layout_candidate *candidate)
{
    struct erg_layout_frontier_request on = {.clocks = ERG_LAYOUT_CHOICE_CLOCKS};
    void *held = erg_layout_locate(&on, request->searches, candidate);
    erg_clocked_layout_init(clocked, &on);
    return held;
}

/* The bound of a layout that a search found. Release it. */
static void bound_candidate(struct erg_layout_bound *bound, struct erg_choice_state *at,
                            const struct erg_layout_candidate *candidate, bool exact)
{
    struct erg_clocked_layout clocked;
    void *held = NULL;
    if (at->request->searches->kind_count > 1)
        held = locate(&clocked, at->request, candidate);
    else
        erg_clocked_layout_on(&clocked, table_for(at, &candidate->layout), &candidate->layout,
                              candidate->time.items[ERG_TIME_UNEVEN]);
    erg_layout_bound_init(bound, &clocked, exact);
    erg_clocked_layout_release(&clocked);
    free(held);
}

struct erg_bounded_layout *erg_bounded_layout_new(const struct erg_layout_candidate *candidate)
{
    struct erg_bounded_layout *layout = erg_xcalloc(1, sizeof *layout);
    layout->candidate = *candidate;
    layout->references = 1;
    erg_layout_own_lists(&layout->candidate);
    return layout;
}

void erg_bounded_layout_drop(struct erg_bounded_layout *layout)
{
    if (--layout->references)
        return;
    if (!layout->solved)
        erg_layout_candidate_release(&layout->candidate);
    erg_layout_bound_release(&layout->bound);
    free(layout->deadlines.items);
    free(layout->times.items);
    free(layout);
}

/*
 * Whether the continuous problem gives a tighter bound on the answer than the chains. A sweep of
 * longer pipelines takes longer than the solution of their shorter replacement.
 */
static bool has_optimum(const struct erg_layout *layout, const struct erg_goal *query)
{
    bool fastest = query->objective == ERG_FASTEST && query->energy_j == 0 && query->power_w == 0;
    return !fastest && erg_layout_instructions(layout) <= (long)ERG_LAYOUT_MOST_INSTRUCTIONS;
}

static void note_bound(struct erg_question_entry *entry, const struct erg_goal *query)
{
    const struct erg_layout_bound *bound = &entry->layout->bound;
    entry->bound = fmax(entry->bound, erg_layout_bound_objective(bound, query));
    entry->settled = !has_optimum(&entry->layout->candidate.layout, query) ||
                     erg_layout_bound_is_optimum(bound, query);
}

int erg_question_raise(struct erg_question_entry *entry, const struct erg_choice_state *at,
                       const struct erg_goal *query, double enough, struct erg_error *err)
{
    struct erg_layout_bound *bound = &entry->layout->bound;
    struct erg_clocked_layout clocked;
    int status = 0;
    if (bound->points) /* possibly raised for another question */
        note_bound(entry, query);
    if (bound->points && (entry->settled || entry->bound >= enough))
        return 0;
    void *held = locate(&clocked, at->request, &entry->layout->candidate);
    if (bound->points)
        status = erg_layout_bound_raise(bound, &clocked, query, enough, err);
    else
        erg_layout_bound_init(bound, &clocked, true);
    erg_clocked_layout_release(&clocked);
    free(held);
    note_bound(entry, query);
    return status;
}

/* ---- entries ---- */

/* Takes the entry's reference. */
static void insert(struct erg_layout_question *question, const struct erg_question_entry *entry)
{
    size_t place = question->count;
    while (place > 0 && entry->bound < question->entries[place - 1].bound)
        place--;
    memmove(&question->entries[place + 1], &question->entries[place],
            (question->count - place) * sizeof *question->entries);
    question->entries[place] = *entry;
    if (++question->count > ERG_QUESTION_ENTRIES) {
        struct erg_question_entry *last = &question->entries[--question->count];
        question->dropped = fmin(question->dropped, last->bound);
        erg_bounded_layout_drop(last->layout);
    }
}

static bool has_place(const struct erg_layout_question *question, double bound)
{
    return question->count < ERG_QUESTION_ENTRIES ||
           bound < question->entries[ERG_QUESTION_ENTRIES - 1].bound;
}

/* Without a deadline only exact bounds give the slowest time of plans, and so their least power. */
static double least_of(const struct erg_layout_question *question,
                       const struct erg_layout_bound *bound)
{
    struct erg_goal query = question->query;
    if (query.objective != ERG_LEAST_POWER || query.deadline_s > 0)
        return erg_layout_bound_objective(bound, &query);
    query.objective = ERG_FASTEST;
    return isfinite(erg_layout_bound_objective(bound, &query)) ? erg_layout_bound_least_power(bound)
                                                               : INFINITY;
}

bool erg_questions_want(struct erg_choice_state *at, const struct erg_layout_bound *bound)
{
    for (size_t i = 0; i < at->questions.count; i++) {
        const struct erg_layout_question *question = &at->questions.items[i];
        double least = least_of(question, bound);
        if (isfinite(least) && has_place(question, least))
            return true;
    }
    for (size_t i = 0; i < at->questions.count; i++) {
        struct erg_layout_question *question = &at->questions.items[i];
        question->dropped = fmin(question->dropped, least_of(question, bound));
    }
    return false;
}

/* Ranks layouts by the bound that takes a hundredth of the time of an exact one. */
static bool may_be_wanted(struct erg_choice_state *at, const struct erg_layout_candidate *candidate)
{
    struct erg_layout_bound bound;
    bound_candidate(&bound, at, candidate, false);
    bool wanted = erg_questions_want(at, &bound);
    erg_layout_bound_release(&bound);
    return wanted;
}

void erg_questions_consider(void *context, const struct erg_layout_candidate *candidate)
{
    struct erg_choice_state *at = context;
    bool exact = at->request->query.power_w > 0; /* has the slowest time of plans */
    struct erg_bounded_layout *layout = NULL;
    struct erg_layout_bound bound;
    at->choice->fitting++;
    if (exact && !may_be_wanted(at, candidate))
        return;
    bound_candidate(&bound, at, candidate, exact);
    for (size_t i = 0; i < at->questions.count; i++) {
        struct erg_layout_question *question = &at->questions.items[i];
        struct erg_question_entry entry = {
            .bound = erg_layout_bound_objective(&bound, &question->query)};
        if (isinf(entry.bound))
            continue;
        if (!has_place(question, entry.bound)) {
            question->dropped = fmin(question->dropped, entry.bound);
            continue;
        }
        if (layout)
            layout->references++;
        else
            layout = erg_bounded_layout_new(candidate);
        entry.layout = layout;
        insert(question, &entry);
    }
    erg_layout_bound_release(&bound);
}

void erg_question_add(struct erg_choice_state *at, const struct erg_goal *query, bool of_union)
{
    const struct erg_layout_question question = {.query = *query,
                                                 .of_union = of_union,
                                                 .tolerance = at->request->tolerance,
                                                 .dropped = INFINITY,
                                                 .best = INFINITY};
    ERG_PUSH(&at->questions, items, question);
}

void erg_questions_release(struct erg_choice_state *at)
{
    for (size_t i = 0; i < at->questions.count; i++)
        for (size_t k = 0; k < at->questions.items[i].count; k++)
            erg_bounded_layout_drop(at->questions.items[i].entries[k].layout);
    free(at->questions.items);
    at->questions.items = NULL;
    at->questions.count = at->questions.capacity = 0;
}

struct erg_bounded_layout *erg_question_take_first(struct erg_layout_question *question)
{
    struct erg_bounded_layout *first = question->entries[0].layout;
    question->count--;
    memmove(&question->entries[0], &question->entries[1],
            question->count * sizeof *question->entries);
    return first;
}

/* ---- raising bounds ---- */

/*
 * The number of layouts whose bounds are raised at the same time, on all cores; constant, so that
 * the result is the same on every machine.
 */
enum { TOGETHER = 4 };

struct raise_batch {
    const struct erg_choice_state *at;
    const struct erg_goal *query;
    struct erg_question_entry *entries[TOGETHER];
    double enough;
};

static int raise_one(void *context, size_t i, struct erg_error *err)
{
    const struct raise_batch *batch = context;
    return erg_question_raise(batch->entries[i], batch->at, batch->query, batch->enough, err);
}

/*
 * A layout with this bound or a higher one is not the best. This is the lowest value, within the
 * tolerance, of a solved layout or one whose bound cannot be raised.
 */
static double enough_for(const struct erg_layout_question *question)
{
    double enough = question->best / (1 + question->tolerance);
    for (size_t i = 0; i < question->count; i++)
        if (question->entries[i].settled)
            enough = fmin(enough, question->entries[i].bound);
    return enough;
}

/* Sorts again, and drops layouts that are no longer within the query's bounds. */
static void sort(struct erg_layout_question *question)
{
    size_t count = question->count;
    question->count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_question_entry entry = question->entries[i];
        if (isfinite(entry.bound))
            insert(question, &entry);
        else
            erg_bounded_layout_drop(entry.layout);
    }
}

int erg_question_settle(struct erg_choice_state *at, struct erg_layout_question *question,
                        struct erg_error *err)
{
    for (;;) {
        struct raise_batch batch = {at, &question->query, {0}, enough_for(question)};
        /* The optimum of the first one limits how far others are raised. */
        const size_t most = isfinite(batch.enough) ? TOGETHER : 1;
        size_t count = 0;
        for (size_t i = 0; i < question->count && count < most; i++) {
            struct erg_question_entry *entry = &question->entries[i];
            if (!entry->settled && entry->bound < batch.enough)
                batch.entries[count++] = entry;
        }
        if (count == 0)
            return 0;
        int status = erg_parallel_for(count, 0, raise_one, &batch, err);
        sort(question);
        if (status != 0)
            return -1;
    }
}

double erg_question_gap(const struct erg_layout_question *question)
{
    double bound = fmin(question->dropped, question->count ? question->entries[0].bound : INFINITY);
    return bound < question->best ? question->best / bound - 1 : 0;
}
