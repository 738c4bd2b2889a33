#include "layout/energy_choice.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "layout/energy_bound.h"
#include "layout/search_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tenths of a per cent of energy are lost to so few clocks, and half of the time is saved. */
enum { CLOCKS = 6, POINTS = 12, SLOWER_POINTS = 6 };

/* A layout that may be the best of a target. */
struct entry {
    double bound;    /* of the target's objective */
    bool exact;      /* with the pipeline's own time in it */
    uint64_t number; /* in the order of the searches */
    struct erg_layout_candidate candidate;
};

/* A question to all layouts: the query, or the least energy within a deadline. */
enum { KEPT = 64 };
struct target {
    struct erg_layout_query query;
    struct entry entries[KEPT + 1]; /* the lowest bound first */
    size_t count;
    double tolerance; /* with which it is proven */
    double dropped;   /* the lowest bound of those that had no place */
    double best;      /* of the layouts that were solved */
};

/* The union is made right at so many deadlines. */
enum { UNION_DEADLINES = 8, TARGETS = 2 + UNION_DEADLINES };

struct choosing {
    const struct erg_layout_choice_request *request;
    struct erg_layout_choice *choice;
    struct target *targets; /* the query's first */
    size_t target_count;
    struct erg_layout_ladder ladder; /* of the layout that came last */
    struct erg_layout climber;       /* whose degrees the ladder has; tensor 0: none yet */
    uint64_t *numbers;               /* of the choice's layouts */
};

/* ---- bounds ---- */

static const struct erg_layout_ladder *ladder_for(struct choosing *at,
                                                  const struct erg_layout *layout)
{
    const struct erg_layout *old = &at->climber;
    if (old->tensor != layout->tensor || old->context != layout->context ||
        old->microbatch != layout->microbatch || old->sequence != layout->sequence ||
        erg_layout_gpus(old) != erg_layout_gpus(layout)) {
        erg_layout_ladder_release(&at->ladder);
        erg_layout_ladder_init(&at->ladder, at->request->energy, layout, CLOCKS);
        at->climber = *layout;
    }
    return &at->ladder;
}

/* Of a layout that a search found. */
static void bound_found(struct erg_layout_bound *bound, struct choosing *at,
                        const struct erg_layout *layout, bool exact)
{
    const struct erg_layout_ladder *ladder = ladder_for(at, layout);
    const struct erg_time_place place = erg_layout_ladder_place(ladder, layout);
    const struct erg_layout_climb climb = {ladder, &place, 1,
                                           erg_layout_ladder_time(ladder, layout)};
    erg_layout_bound_init(bound, &climb, layout, exact);
}

/* Of one of the list. */
static void bound_listed(struct erg_layout_bound *bound, const struct erg_layout_list *list,
                         const struct erg_layout_candidate *candidate, bool exact)
{
    struct erg_layout_frontier_request lies = {0};
    struct erg_layout_ladder ladders[ERG_LAYOUT_MOST_KINDS];
    void *held = list->locate(&lies, list->context, candidate);
    const struct erg_layout_climb climb = {ladders, lies.places, lies.place_count, lies.closed_s};
    for (size_t i = 0; i < climb.count; i++)
        erg_layout_ladder_init(&ladders[i], &lies.energy[i], &candidate->layout, CLOCKS);
    erg_layout_bound_init(bound, &climb, &candidate->layout, exact);
    for (size_t i = 0; i < climb.count; i++)
        erg_layout_ladder_release(&ladders[i]);
    free(held);
}

static void bound_of(struct erg_layout_bound *bound, struct choosing *at,
                     const struct erg_layout_candidate *candidate, bool exact)
{
    if (at->request->list)
        bound_listed(bound, at->request->list, candidate, exact);
    else
        bound_found(bound, at, &candidate->layout, exact);
}

/* Takes the candidate's lists. */
static void insert(struct target *target, const struct entry *entry)
{
    size_t place = target->count;
    while (place > 0 && entry->bound < target->entries[place - 1].bound)
        place--;
    memmove(&target->entries[place + 1], &target->entries[place],
            (target->count - place) * sizeof *target->entries);
    target->entries[place] = *entry;
    if (++target->count > KEPT) {
        struct entry *last = &target->entries[--target->count];
        target->dropped = fmin(target->dropped, last->bound);
        erg_layout_candidate_release(&last->candidate);
    }
}

static void remove_first(struct target *target)
{
    target->count--;
    memmove(&target->entries[0], &target->entries[1], target->count * sizeof *target->entries);
}

/* Called with every layout that fits. */
static void consider(void *context, const struct erg_layout_candidate *candidate)
{
    struct choosing *at = context;
    bool exact = at->request->query.power_w > 0; /* only that says how slow plans can be */
    struct erg_layout_bound bound;
    bound_of(&bound, at, candidate, exact);
    for (size_t i = 0; i < at->target_count; i++) {
        struct target *target = &at->targets[i];
        struct entry entry = {.bound = erg_layout_bound_objective(&bound, &target->query),
                              .exact = exact,
                              .number = at->choice->fitting,
                              .candidate = *candidate};
        if (isinf(entry.bound))
            continue;
        if (target->count == KEPT && entry.bound >= target->entries[KEPT - 1].bound) {
            target->dropped = fmin(target->dropped, entry.bound);
            continue;
        }
        erg_layout_own_lists(&entry.candidate);
        insert(target, &entry);
    }
    erg_layout_bound_release(&bound);
    at->choice->fitting++;
}

/* ---- solving ---- */

/* From the bound's own answer on, some deadlines close to each other: where a frontier meets a
 * budget is between two of them. The least power is that of the slowest plan within budgets, so
 * there plans meet them earlier than the bound. */
static const double steps[] = {1, 1.006, 1.012, 1.02, 1.035};
enum { STEPS = sizeof steps / sizeof *steps, DEADLINES = (1 + STEPS) * TARGETS };

static size_t list_deadlines(double *deadlines_s, struct choosing *at, const struct entry *entry)
{
    size_t count = 0;
    for (size_t i = 0; i < at->target_count; i++) {
        struct erg_layout_query query = at->targets[i].query;
        struct erg_layout_bound bound;
        struct erg_layout_bend answer;
        if (query.time_s > 0)
            deadlines_s[count++] = query.time_s;
        if (query.energy_j == 0 && query.power_w == 0)
            continue;
        if (query.goal == ERG_LAYOUT_LEAST_ENERGY) /* it is on the way there from the fastest */
            query.goal = ERG_LAYOUT_FASTEST;
        bound_of(&bound, at, &entry->candidate, true);
        bool any = erg_layout_bound_answer(&answer, &bound, &query);
        bool early = query.goal == ERG_LAYOUT_LEAST_POWER;
        for (size_t k = 0; k < STEPS && any; k++)
            deadlines_s[count++] = early ? answer.time_s / steps[k] : answer.time_s * steps[k];
        erg_layout_bound_release(&bound);
    }
    return count;
}

static void note_best(struct target *target, const struct erg_layout_option *option)
{
    struct erg_layout_pick pick;
    if (erg_layout_pick(&pick, option, 1, &target->query, NULL) == 0)
        target->best = fmin(target->best, erg_layout_pick_value(&pick, target->query.goal));
}

/* Layouts that are solved at the same time, on as many cores as there are: always so many, so that
 * the answer is the same everywhere. */
enum { BATCH = 4 };

struct batch {
    const struct choosing *at;
    size_t first, count; /* of the choice's layouts */
    double deadlines_s[BATCH][DEADLINES];
    size_t deadline_counts[BATCH];
};

/* Takes the candidate. */
static void claim(struct batch *batch, struct choosing *at, const struct entry *entry)
{
    struct erg_layout_choice *choice = at->choice;
    struct erg_layout_planned *planned = &choice->layouts[choice->count];
    planned->candidate = entry->candidate;
    choice->options[choice->count] = (struct erg_layout_option){
        &planned->candidate.layout, &planned->frontier, planned->candidate.peak_bytes};
    at->numbers[choice->count++] = entry->number;
    batch->deadline_counts[batch->count] =
        list_deadlines(batch->deadlines_s[batch->count], at, entry);
    batch->count++;
}

static int solve_frontier(struct erg_layout_frontier *frontier,
                          const struct erg_layout_choice_request *asked,
                          const struct erg_layout_candidate *candidate, const double *deadlines_s,
                          size_t deadline_count, bool tries, struct erg_error *err)
{
    struct erg_layout_frontier_request request = {
        .energy = asked->energy,
        .layout = &candidate->layout,
        .points = POINTS,
        .slower_points = asked->query.power_w > 0 ? SLOWER_POINTS : 0,
        .clocks = CLOCKS,
        .deadlines_s = deadlines_s,
        .deadline_count = deadline_count,
        .tries = tries,
    };
    void *held =
        asked->list ? asked->list->locate(&request, asked->list->context, candidate) : NULL;
    int status = erg_layout_frontier_init(frontier, &request, err);
    free(held);
    return status;
}

static int solve_one(void *context, size_t i, struct erg_error *err)
{
    const struct batch *batch = context;
    struct erg_layout_planned *planned = &batch->at->choice->layouts[batch->first + i];
    return solve_frontier(&planned->frontier, batch->at->request, &planned->candidate,
                          batch->deadlines_s[i], batch->deadline_counts[i], true, err);
}

static int solve(struct choosing *at, struct batch *batch, struct erg_error *err)
{
    if (erg_parallel_for(batch->count, 0, solve_one, batch, err) != 0)
        return -1;
    for (size_t i = 0; i < batch->count; i++)
        for (size_t k = 0; k < at->target_count; k++)
            note_best(&at->targets[k], &at->choice->options[batch->first + i]);
    return 0;
}

static bool is_solved(const struct choosing *at, uint64_t number)
{
    for (size_t i = 0; i < at->choice->count; i++)
        if (at->numbers[i] == number)
            return true;
    return false;
}

/* Until the first entry is one that was not solved and whose bound has all that is known in it. */
static void settle_first(struct choosing *at, struct target *target)
{
    while (target->count) {
        struct entry first = target->entries[0];
        bool solved = is_solved(at, first.number);
        if (first.exact && !solved)
            return;
        remove_first(target);
        if (solved) {
            erg_layout_candidate_release(&first.candidate);
            continue;
        }
        struct erg_layout_bound bound;
        bound_of(&bound, at, &first.candidate, true);
        first.bound = fmax(first.bound, erg_layout_bound_objective(&bound, &target->query));
        first.exact = true;
        erg_layout_bound_release(&bound);
        if (isfinite(first.bound))
            insert(target, &first);
        else
            erg_layout_candidate_release(&first.candidate);
    }
}

/* How much better a layout that was not solved could be; INFINITY while none was within bounds. */
static double gap(const struct target *target)
{
    double bound = fmin(target->dropped, target->count ? target->entries[0].bound : INFINITY);
    return bound < target->best ? target->best / bound - 1 : 0;
}

static bool is_open(const struct target *target)
{
    return target->count && gap(target) > target->tolerance;
}

/* The query's most promising layouts; when it is proven one of every other target in turn. */
static void fill_batch(struct batch *batch, struct choosing *at, size_t most)
{
    size_t before;
    *batch = (struct batch){.at = at, .first = at->choice->count};
    do {
        before = batch->count;
        for (size_t i = 0; i < at->target_count && batch->count < most; i++) {
            struct target *target = &at->targets[i];
            settle_first(at, target);
            if (!is_open(target))
                continue;
            struct entry entry = target->entries[0];
            remove_first(target);
            claim(batch, at, &entry);
            if (i == 0)
                break;
        }
    } while (batch->count > before && batch->count < most);
}

static int solve_promising(struct choosing *at, struct erg_error *err)
{
    struct erg_layout_choice *choice = at->choice;
    size_t most = choice->count + at->request->most;
    for (;;) {
        struct batch batch;
        size_t left = most - choice->count;
        fill_batch(&batch, at, left < BATCH ? left : BATCH);
        if (!batch.count)
            return 0;
        if (solve(at, &batch, err) != 0)
            return -1;
        erg_progress("layouts over clocks", choice->count, most);
    }
}

/* ---- the whole ---- */

static void add_target(struct choosing *at, struct erg_layout_query query, double tolerance)
{
    assert(at->target_count < TARGETS);
    at->targets[at->target_count++] = (struct target){
        .query = query, .tolerance = tolerance, .dropped = INFINITY, .best = INFINITY};
}

static void release_targets(struct choosing *at)
{
    for (size_t i = 0; i < at->target_count; i++)
        for (size_t k = 0; k < at->targets[i].count; k++)
            erg_layout_candidate_release(&at->targets[i].entries[k].candidate);
    at->target_count = 0;
}

/* Calls `each`, which may be NULL, with all layouts that fit. `range_s`: of the fastest layouts of
 * all searches, or of the list, the least and the most time. */
static int search_all(struct choosing *at,
                      void (*each)(void *, const struct erg_layout_candidate *), double *range_s,
                      struct erg_error *err)
{
    const struct erg_layout_list *list = at->request->list;
    bool found_any = false;
    range_s[0] = INFINITY;
    range_s[1] = 0;
    for (size_t i = 0; list && i < list->count; i++) {
        range_s[0] = range_s[1] = fmin(range_s[0], list->items[i].time.total);
        if (each)
            each(at, &list->items[i]);
    }
    if (list)
        return 0;
    for (size_t i = 0; i < at->request->search_count; i++) {
        struct erg_layout_search search = at->request->searches[i];
        struct erg_layout_found found;
        struct erg_error own = {0};
        search.top = 1;
        search.each = each;
        search.context = at;
        if (erg_layout_search(&found, &search, &own) == 0) {
            range_s[0] = fmin(range_s[0], found.items[0].time.total);
            range_s[1] = fmax(range_s[1], found.items[0].time.total);
            erg_layout_found_release(&found);
            found_any = true;
        } else if (own.status != ERG_INFEASIBLE ||
                   (!found_any && i + 1 == at->request->search_count)) {
            return erg_fail(err, own.status, "%s", own.message);
        }
    }
    return 0;
}

/* From the fastest to well beyond where energy is least, denser towards the fastest. */
static void add_union_targets(struct choosing *at, const double *range_s)
{
    const double beyond = 1.4, tolerance = 0.01;
    double whole = beyond * range_s[1] / range_s[0];
    add_target(at, (struct erg_layout_query){.goal = ERG_LAYOUT_LEAST_ENERGY}, tolerance);
    for (int i = 0; i < UNION_DEADLINES; i++) {
        double share = (double)i / (UNION_DEADLINES - 1);
        double deadline_s = range_s[0] * pow(whole, share * sqrt(share));
        const struct erg_layout_query query = {.goal = ERG_LAYOUT_LEAST_ENERGY,
                                               .time_s = deadline_s};
        add_target(at, query, tolerance);
    }
}

/*
 * Where nothing is within the bounds, what is nearest to each of them within the others is solved,
 * so that the message is right.
 */
static int solve_nearest(struct choosing *at, struct erg_error *err)
{
    const struct erg_layout_query *query = &at->request->query;
    double range_s[2];
    release_targets(at);
    at->choice->fitting = 0; /* and numbered again in the same order */
    struct erg_layout_query fastest = *query, least = *query, weakest = *query;
    fastest.goal = ERG_LAYOUT_FASTEST;
    least.goal = ERG_LAYOUT_LEAST_ENERGY;
    weakest.goal = ERG_LAYOUT_LEAST_POWER;
    fastest.time_s = least.energy_j = weakest.power_w = 0;
    if (query->time_s > 0)
        add_target(at, fastest, at->request->tolerance);
    if (query->energy_j > 0)
        add_target(at, least, at->request->tolerance);
    if (query->power_w > 0)
        add_target(at, weakest, at->request->tolerance);
    return search_all(at, consider, range_s, err) || solve_promising(at, err) ? -1 : 0;
}

static int choose(struct choosing *at, struct erg_error *err)
{
    const struct erg_layout_choice_request *request = at->request;
    struct erg_layout_choice *choice = at->choice;
    double range_s[2];
    if (request->whole_union) {
        if (search_all(at, NULL, range_s, err) != 0)
            return -1;
        add_union_targets(at, range_s);
    }
    if (search_all(at, consider, range_s, err) != 0 || solve_promising(at, err) != 0)
        return -1;
    choice->gap = gap(&at->targets[0]);
    for (size_t i = 1; i < at->target_count; i++)
        if (isfinite(at->targets[i].best))
            choice->union_gap = fmax(choice->union_gap, gap(&at->targets[i]));
    if (isinf(at->targets[0].best) && solve_nearest(at, err) != 0)
        return -1;
    return 0;
}

static int compare_times(const void *left, const void *right)
{
    const struct erg_layout_pick *a = left, *b = right;
    if (a->time_s != b->time_s)
        return a->time_s < b->time_s ? -1 : 1;
    return (a->option > b->option) - (a->option < b->option);
}

static int compare_energies(const void *left, const void *right)
{
    const struct erg_layout_pick *a = left, *b = right;
    if (a->energy_j != b->energy_j)
        return a->energy_j < b->energy_j ? -1 : 1;
    return compare_times(left, right);
}

static int compare_powers(const void *left, const void *right)
{
    const struct erg_layout_pick *a = left, *b = right;
    if (a->power_w != b->power_w)
        return a->power_w < b->power_w ? -1 : 1;
    return compare_times(left, right);
}

int erg_layout_choice_rank(struct erg_layout_choice *choice, const struct erg_layout_query *query,
                           struct erg_error *err)
{
    static int (*const compare[])(const void *, const void *) = {
        [ERG_LAYOUT_FASTEST] = compare_times,
        [ERG_LAYOUT_LEAST_ENERGY] = compare_energies,
        [ERG_LAYOUT_LEAST_POWER] = compare_powers,
    };
    struct erg_layout_pick none;
    choice->pick_count = 0;
    for (size_t i = 0; i < choice->count; i++) {
        struct erg_layout_pick *pick = &choice->picks[choice->pick_count];
        if (erg_layout_pick(pick, &choice->options[i], 1, query, NULL) == 0) {
            pick->option = i;
            choice->pick_count++;
        }
    }
    qsort(choice->picks, choice->pick_count, sizeof *choice->picks, compare[query->goal]);
    if (choice->pick_count)
        return 0;
    if (choice->count == 0) /* so their bounds say */
        return erg_fail(err, ERG_INFEASIBLE,
                        "none of the %llu layouts that fit the GPUs is within all bounds, and "
                        "raising any one of them alone is not enough",
                        (unsigned long long)choice->fitting);
    erg_layout_pick(&none, choice->options, choice->count, query, err);
    return choice->fitting > choice->count
               ? erg_fail_context(err,
                                  "%llu layouts that fit the GPUs were looked at, of which the %zu "
                                  "nearest to what was asked were planned over clocks",
                                  (unsigned long long)choice->fitting, choice->count)
               : -1;
}

/* The answer's plan is searched harder than those that were only compared. */
static int polish(struct choosing *at, struct erg_error *err)
{
    struct erg_layout_choice *choice = at->choice;
    const struct erg_layout_query *query = &at->request->query;
    const struct erg_layout_pick *best = &choice->picks[0];
    const double deadlines_s[] = {best->time_s, 0.996 * best->time_s, 0.992 * best->time_s};
    bool budget = query->goal == ERG_LAYOUT_FASTEST && (query->energy_j > 0 || query->power_w > 0);
    struct erg_layout_planned *planned = &choice->layouts[best->option];
    struct erg_layout_frontier polished;
    struct erg_layout_pick pick;
    if (solve_frontier(&polished, at->request, &planned->candidate, deadlines_s, budget ? 3 : 1,
                       false, err) != 0)
        return -1;
    const struct erg_layout_option option = {&planned->candidate.layout, &polished,
                                             planned->candidate.peak_bytes};
    bool better =
        erg_layout_pick(&pick, &option, 1, query, NULL) == 0 &&
        erg_layout_pick_value(&pick, query->goal) <= erg_layout_pick_value(best, query->goal);
    erg_layout_frontier_release(better ? &planned->frontier : &polished);
    if (better)
        planned->frontier = polished;
    return better ? erg_layout_choice_rank(choice, query, err) : 0;
}

static void start(struct choosing *at, struct erg_layout_choice *choice,
                  const struct erg_layout_choice_request *request)
{
    size_t most = 2 * request->most; /* once more for what is nearest */
    *at = (struct choosing){.request = request, .choice = choice};
    *choice = (struct erg_layout_choice){0};
    choice->layouts = erg_xcalloc(most, sizeof *choice->layouts);
    choice->options = erg_xcalloc(most, sizeof *choice->options);
    choice->picks = erg_xcalloc(most, sizeof *choice->picks);
    at->numbers = erg_xcalloc(most, sizeof *at->numbers);
    at->targets = erg_xcalloc(TARGETS, sizeof *at->targets);
    add_target(at, request->query, request->tolerance);
}

static void finish(struct choosing *at)
{
    release_targets(at);
    erg_layout_ladder_release(&at->ladder);
    free(at->targets);
    free(at->numbers);
}

int erg_layout_choose(struct erg_layout_choice *choice,
                      const struct erg_layout_choice_request *request, struct erg_error *err)
{
    struct choosing at;
    start(&at, choice, request);
    int status =
        choose(&at, err) || erg_layout_choice_rank(choice, &request->query, err) || polish(&at, err)
            ? -1
            : 0;
    finish(&at);
    return status;
}

int erg_layout_choose_point(struct erg_layout_choice *choice,
                            const struct erg_layout_choice_request *request,
                            struct erg_layout_candidate *candidate, struct erg_error *err)
{
    struct choosing at;
    const struct entry entry = {.candidate = *candidate};
    start(&at, choice, request);
    choice->fitting = 1;
    struct batch batch = {.at = &at};
    claim(&batch, &at, &entry);
    int status = solve(&at, &batch, err) || erg_layout_choice_rank(choice, &request->query, err) ||
                         polish(&at, err)
                     ? -1
                     : 0;
    finish(&at);
    return status;
}

void erg_layout_choice_release(struct erg_layout_choice *choice)
{
    for (size_t i = 0; i < choice->count; i++) {
        erg_layout_frontier_release(&choice->layouts[i].frontier);
        erg_layout_candidate_release(&choice->layouts[i].candidate);
    }
    free(choice->layouts);
    free(choice->options);
    free(choice->picks);
    *choice = (struct erg_layout_choice){0};
}
