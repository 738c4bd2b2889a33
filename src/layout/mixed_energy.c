#include "layout/mixed_energy.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "layout/mixed_internal.h"

#include <math.h>
#include <stdlib.h>

/* As for layouts on one kind (energy_choice.c). */
enum { CLOCKS = 6, POINTS = 12, SLOWER_POINTS = 6 };

_Static_assert((int)ERG_MIXED_MOST_KINDS <= (int)ERG_LAYOUT_MOST_KINDS, "a frontier has places");

/* Of every place of a layout. */
static void fill_requests(struct erg_layout_energy_request *requests,
                          const struct erg_mixed_search *search,
                          const struct erg_mixed_candidate *candidate,
                          const struct erg_mixed_places *places)
{
    for (size_t i = 0; i < candidate->block_count; i++) {
        size_t kind = candidate->blocks[i].kind;
        requests[i] = (struct erg_layout_energy_request){.time = places->kinds[kind].time,
                                                         .gpu = search->kinds[kind].gpu};
    }
}

void erg_mixed_energy(struct erg_layout_energy *energy, const struct erg_mixed_search *search,
                      const struct erg_mixed_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->at.layout;
    struct erg_mixed_places places;
    struct erg_layout_energy_request requests[ERG_MIXED_MOST_KINDS];
    struct erg_layout_costs costs[ERG_MIXED_MOST_KINDS];
    struct erg_layout_energy_place on[ERG_MIXED_MOST_KINDS];
    erg_mixed_places_init(&places, search, candidate);
    fill_requests(requests, search, candidate, &places);
    for (size_t i = 0; i < candidate->block_count; i++) {
        struct erg_layout_work work;
        erg_layout_work_init(&work, &requests[i], places.at.time[i].parts, layout->tensor,
                             layout->context, layout->microbatch, layout->sequence,
                             places.at.on[i].search->gpus);
        erg_layout_costs_at(&costs[i], &requests[i], &work, 0);
        on[i] = (struct erg_layout_energy_place){&requests[i], &places.at.time[i], &costs[i]};
    }
    erg_layout_energy_compose(energy, on, candidate->block_count, layout);
}

/* ---- over clocks ---- */

struct solving {
    struct erg_layout_choice *choice;
    const struct erg_mixed_search *search;
    const struct erg_layout_query *query;
};

/* The frontier of a layout, right at the deadlines. */
static int plan(struct erg_layout_frontier *frontier, const struct solving *solving,
                const struct erg_layout_candidate *candidate, const double *deadlines_s,
                size_t deadline_count, bool tries, struct erg_error *err)
{
    struct erg_mixed_places places;
    struct erg_layout_energy_request requests[ERG_MIXED_MOST_KINDS];
    erg_mixed_places_init(&places, solving->search, candidate->mixed);
    fill_requests(requests, solving->search, candidate->mixed, &places);
    const struct erg_layout_frontier_request request = {
        .energy = requests,
        .layout = &candidate->layout,
        .places = places.at.time,
        .place_count = places.at.count,
        .closed_s = candidate->time.total,
        .points = POINTS,
        .slower_points = solving->query->power_w > 0 ? SLOWER_POINTS : 0,
        .clocks = CLOCKS,
        .deadlines_s = deadlines_s,
        .deadline_count = deadline_count,
        .tries = tries,
    };
    return erg_layout_frontier_init(frontier, &request, err);
}

static int solve_one(void *context, size_t index, struct erg_error *err)
{
    const struct solving *solving = context;
    const struct erg_layout_query *query = solving->query;
    struct erg_layout_planned *planned = &solving->choice->layouts[index];
    return plan(&planned->frontier, solving, &planned->candidate, &query->time_s, query->time_s > 0,
                true, err);
}

/* The answer's plan is searched harder than those that were only compared, and where it meets its
 * budget is between two deadlines that are close to each other. */
static int polish(struct solving *solving, struct erg_error *err)
{
    static const double shares[] = {1, 0.996, 0.992, 0.98, 0.965, 0.94};
    enum { DEADLINES = sizeof shares / sizeof *shares };
    struct erg_layout_choice *choice = solving->choice;
    const struct erg_layout_pick best = choice->picks[0];
    struct erg_layout_planned *planned = &choice->layouts[best.option];
    struct erg_layout_frontier polished;
    double deadlines_s[DEADLINES];
    for (size_t i = 0; i < DEADLINES; i++)
        deadlines_s[i] = shares[i] * best.time_s;
    if (plan(&polished, solving, &planned->candidate, deadlines_s, DEADLINES, false, err) != 0)
        return -1;
    const struct erg_layout_option option = {&planned->candidate.layout, &polished,
                                             planned->candidate.peak_bytes};
    struct erg_layout_pick pick;
    const enum erg_layout_goal goal = solving->query->goal;
    bool better = erg_layout_pick(&pick, &option, 1, solving->query, NULL) == 0 &&
                  erg_layout_pick_value(&pick, goal) <= erg_layout_pick_value(&best, goal);
    erg_layout_frontier_release(better ? &planned->frontier : &polished);
    if (better)
        planned->frontier = polished;
    return better ? erg_layout_choice_rank(choice, solving->query, err) : 0;
}

struct ranked {
    size_t index;
    double value;
};

static int by_value(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Which are planned: marks them. What was found is the fastest first. */
static void mark(bool *marks, const struct erg_mixed_search *search,
                 const struct erg_mixed_found *found, size_t most)
{
    struct ranked *ranked = erg_xcalloc(found->count, sizeof *ranked);
    for (size_t i = 0; i < found->count; i++) {
        struct erg_layout_energy energy;
        erg_mixed_energy(&energy, search, &found->items[i]);
        ranked[i] = (struct ranked){i, energy.total_j};
    }
    qsort(ranked, found->count, sizeof *ranked, by_value);
    for (size_t i = 0; i < found->count && i < most; i++)
        marks[i] = marks[ranked[i].index] = true;
    free(ranked);
}

int erg_mixed_choose(struct erg_layout_choice *choice, const struct erg_mixed_search *search,
                     const struct erg_mixed_found *found, const struct erg_layout_query *query,
                     size_t most, struct erg_error *err)
{
    struct solving solving = {choice, search, query};
    bool *marks = erg_xcalloc(found->count, sizeof *marks);
    *choice = (struct erg_layout_choice){0};
    mark(marks, search, found, most);
    choice->layouts = erg_xcalloc(found->count, sizeof *choice->layouts);
    choice->options = erg_xcalloc(found->count, sizeof *choice->options);
    choice->picks = erg_xcalloc(found->count, sizeof *choice->picks);
    for (size_t i = 0; i < found->count; i++) {
        struct erg_layout_planned *planned = &choice->layouts[choice->count];
        if (!marks[i])
            continue;
        planned->candidate = found->items[i].at;
        erg_layout_own_lists(&planned->candidate);
        choice->options[choice->count++] = (struct erg_layout_option){
            &planned->candidate.layout, &planned->frontier, planned->candidate.peak_bytes};
    }
    free(marks);
    choice->fitting = choice->count;
    int status = erg_parallel_for(choice->count, 0, solve_one, &solving, err);
    return status || erg_layout_choice_rank(choice, query, err) || polish(&solving, err) ? -1 : 0;
}
