#include "layout/energy/choice.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "layout/energy/choice_internal.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS = 12, SLOWER_POINTS = 6 };

/* ---- solving ---- */

/* From the bound's own answer on, some deadlines close to each other: where a frontier meets a
 * budget is between two of them. The least power is that of the slowest plan within budgets, so
 * there plans meet them earlier than the bound. */
static const double steps[] = {1, 1.006, 1.012, 1.02, 1.035};
enum { STEPS = sizeof steps / sizeof *steps, DEADLINES = (1 + STEPS) * ERG_LAYOUT_TARGETS };

/* Of the targets of which the layout may be a better answer than what was solved: at the others its
 * frontier has points enough. */
static size_t list_deadlines(double *deadlines_s, struct erg_layout_choosing *at,
                             const struct erg_layout_entry *entry)
{
    struct erg_layout_bound bound;
    size_t count = 0;
    erg_layout_choosing_bound(&bound, at, &entry->candidate, true);
    for (size_t i = 0; i < at->target_count; i++) {
        struct erg_layout_query query = at->targets[i].query;
        struct erg_layout_bend answer;
        if (erg_layout_bound_objective(&bound, &query) >= at->targets[i].best)
            continue;
        if (query.time_s > 0)
            deadlines_s[count++] = query.time_s;
        if (query.energy_j == 0 && query.power_w == 0)
            continue;
        if (query.goal == ERG_LAYOUT_LEAST_ENERGY) /* it is on the way there from the fastest */
            query.goal = ERG_LAYOUT_FASTEST;
        bool any = erg_layout_bound_answer(&answer, &bound, &query);
        bool early = query.goal == ERG_LAYOUT_LEAST_POWER;
        for (size_t k = 0; k < STEPS && any; k++)
            deadlines_s[count++] = early ? answer.time_s / steps[k] : answer.time_s * steps[k];
    }
    erg_layout_bound_release(&bound);
    return count;
}

static void note_best(struct erg_layout_target *target, const struct erg_layout_option *option)
{
    struct erg_layout_pick pick;
    if (erg_layout_pick(&pick, option, 1, &target->query, NULL) == 0)
        target->best = fmin(target->best, erg_layout_pick_value(&pick, target->query.goal));
}

/* Layouts that are solved at the same time, on as many cores as there are: always so many, so that
 * the answer is the same everywhere. */
enum { BATCH = 4 };

struct batch {
    const struct erg_layout_choosing *at;
    size_t first, count; /* of the choice's layouts */
    double deadlines_s[BATCH][DEADLINES];
    size_t deadline_counts[BATCH];
};

/* Takes the candidate. */
static void claim(struct batch *batch, struct erg_layout_choosing *at,
                  const struct erg_layout_entry *entry)
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

int erg_layout_choosing_solve(struct erg_layout_frontier *frontier,
                              const struct erg_layout_choice_request *asked,
                              const struct erg_layout_candidate *candidate,
                              const double *deadlines_s, size_t deadline_count, bool tries,
                              struct erg_error *err)
{
    struct erg_layout_frontier_request request = {
        .energy = asked->energy,
        .layout = &candidate->layout,
        .uneven_s = candidate->time.items[ERG_TIME_UNEVEN],
        .points = POINTS,
        .slower_points = asked->query.power_w > 0 ? SLOWER_POINTS : 0,
        .clocks = ERG_LAYOUT_CHOICE_CLOCKS,
        .deadlines_s = deadlines_s,
        .deadline_count = deadline_count,
        .tries = tries,
    };
    const struct erg_layout_source *source = asked->source;
    void *held = source ? source->locate(&request, source->context, candidate) : NULL;
    int status = erg_layout_frontier_init(frontier, &request, err);
    free(held);
    return status;
}

static int solve_one(void *context, size_t i, struct erg_error *err)
{
    const struct batch *batch = context;
    struct erg_layout_planned *planned = &batch->at->choice->layouts[batch->first + i];
    return erg_layout_choosing_solve(&planned->frontier, batch->at->request, &planned->candidate,
                                     batch->deadlines_s[i], batch->deadline_counts[i], true, err);
}

static int solve(struct erg_layout_choosing *at, struct batch *batch, struct erg_error *err)
{
    if (erg_parallel_for(batch->count, 0, solve_one, batch, err) != 0)
        return -1;
    for (size_t i = 0; i < batch->count; i++)
        for (size_t k = 0; k < at->target_count; k++)
            note_best(&at->targets[k], &at->choice->options[batch->first + i]);
    return 0;
}

/* The query's most promising layouts, at most `left`; when it is proven one of every other target
 * in turn, at most `left_for_others`. */
static void fill_batch(struct batch *batch, struct erg_layout_choosing *at, size_t left,
                       size_t left_for_others)
{
    const size_t most = left < BATCH ? left : BATCH;
    size_t before;
    *batch = (struct batch){.at = at, .first = at->choice->count};
    do {
        before = batch->count;
        for (size_t i = 0; i < at->target_count && batch->count < most; i++) {
            struct erg_layout_target *target = &at->targets[i];
            erg_layout_target_settle_first(at, target);
            if (!erg_layout_target_is_open(target) || (i > 0 && batch->count >= left_for_others))
                continue;
            struct erg_layout_entry entry = target->entries[0];
            erg_layout_target_remove_first(target);
            claim(batch, at, &entry);
            if (i == 0)
                break;
        }
    } while (batch->count > before && batch->count < most);
}

static int solve_promising(struct erg_layout_choosing *at, struct erg_error *err)
{
    struct erg_layout_choice *choice = at->choice;
    const size_t others_most = choice->count + at->request->most;
    const size_t most = others_most + at->request->more;
    for (;;) {
        struct batch batch;
        fill_batch(&batch, at, most - choice->count,
                   choice->count < others_most ? others_most - choice->count : 0);
        if (!batch.count)
            return 0;
        if (solve(at, &batch, err) != 0)
            return -1;
        erg_progress("layouts over clocks", choice->count, most);
    }
}

/* ---- the whole ---- */

static int search_one(struct erg_layout_found *found, struct erg_layout_choosing *at, size_t index,
                      void (*each)(void *, const struct erg_layout_candidate *),
                      struct erg_error *err)
{
    const struct erg_layout_source *source = at->request->source;
    if (source) {
        const struct erg_layout_sink sink = {each, erg_layout_choosing_wants, at,
                                             erg_layout_choosing_limit(at)};
        return source->search(found, source->context, index, each ? &sink : NULL, err);
    }
    struct erg_layout_search search = at->request->searches[index];
    search.top = 1;
    search.each = each;
    search.context = at;
    return erg_layout_search(found, &search, err);
}

/* Calls `each`, which may be NULL, with all layouts that fit and may be wanted. `range_s`: of the
 * fastest layouts of all searches the least and the most time. */
static int search_all(struct erg_layout_choosing *at,
                      void (*each)(void *, const struct erg_layout_candidate *), double *range_s,
                      struct erg_error *err)
{
    bool found_any = false;
    range_s[0] = INFINITY;
    range_s[1] = 0;
    for (size_t i = 0; i < at->request->search_count; i++) {
        struct erg_layout_found found;
        struct erg_error own = {0};
        if (search_one(&found, at, i, each, &own) == 0) {
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
static void add_union_targets(struct erg_layout_choosing *at, const double *range_s)
{
    const double beyond = 1.4, tolerance = 0.01;
    double whole = beyond * range_s[1] / range_s[0];
    erg_layout_choosing_add(at, (struct erg_layout_query){.goal = ERG_LAYOUT_LEAST_ENERGY},
                            tolerance);
    for (int i = 0; i < ERG_LAYOUT_UNION_DEADLINES; i++) {
        double share = (double)i / (ERG_LAYOUT_UNION_DEADLINES - 1);
        double deadline_s = range_s[0] * pow(whole, share * sqrt(share));
        const struct erg_layout_query query = {.goal = ERG_LAYOUT_LEAST_ENERGY,
                                               .time_s = deadline_s};
        erg_layout_choosing_add(at, query, tolerance);
    }
}

/*
 * Where nothing is within the bounds, what is nearest to each of them within the others is solved,
 * so that the message is right.
 */
static int solve_nearest(struct erg_layout_choosing *at, struct erg_error *err)
{
    const struct erg_layout_query *query = &at->request->query;
    double range_s[2];
    erg_layout_choosing_release_targets(at);
    at->choice->fitting = 0; /* and numbered again in the same order */
    struct erg_layout_query fastest = *query, least = *query, weakest = *query;
    fastest.goal = ERG_LAYOUT_FASTEST;
    least.goal = ERG_LAYOUT_LEAST_ENERGY;
    weakest.goal = ERG_LAYOUT_LEAST_POWER;
    fastest.time_s = least.energy_j = weakest.power_w = 0;
    if (query->time_s > 0)
        erg_layout_choosing_add(at, fastest, at->request->tolerance);
    if (query->energy_j > 0)
        erg_layout_choosing_add(at, least, at->request->tolerance);
    if (query->power_w > 0)
        erg_layout_choosing_add(at, weakest, at->request->tolerance);
    return search_all(at, erg_layout_choosing_consider, range_s, err) || solve_promising(at, err)
               ? -1
               : 0;
}

static int choose(struct erg_layout_choosing *at, struct erg_error *err)
{
    const struct erg_layout_choice_request *request = at->request;
    struct erg_layout_choice *choice = at->choice;
    double range_s[2];
    if (request->whole_union) {
        if (search_all(at, NULL, range_s, err) != 0)
            return -1;
        add_union_targets(at, range_s);
    }
    if (search_all(at, erg_layout_choosing_consider, range_s, err) != 0 ||
        solve_promising(at, err) != 0)
        return -1;
    choice->gap = erg_layout_target_gap(&at->targets[0]);
    for (size_t i = 1; i < at->target_count; i++)
        if (isfinite(at->targets[i].best))
            choice->union_gap = fmax(choice->union_gap, erg_layout_target_gap(&at->targets[i]));
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

static void start(struct erg_layout_choosing *at, struct erg_layout_choice *choice,
                  const struct erg_layout_choice_request *request)
{
    size_t most = 2 * (request->most + request->more); /* once more for what is nearest */
    *at = (struct erg_layout_choosing){.request = request, .choice = choice};
    *choice = (struct erg_layout_choice){0};
    choice->layouts = erg_xcalloc(most, sizeof *choice->layouts);
    choice->options = erg_xcalloc(most, sizeof *choice->options);
    choice->picks = erg_xcalloc(most, sizeof *choice->picks);
    at->numbers = erg_xcalloc(most, sizeof *at->numbers);
    at->targets = erg_xcalloc(ERG_LAYOUT_TARGETS, sizeof *at->targets);
    erg_layout_choosing_add(at, request->query, request->tolerance);
}

static void finish(struct erg_layout_choosing *at)
{
    erg_layout_choosing_release_targets(at);
    erg_layout_ladder_release(&at->ladder);
    free(at->targets);
    free(at->numbers);
}

int erg_layout_choose(struct erg_layout_choice *choice,
                      const struct erg_layout_choice_request *request, struct erg_error *err)
{
    struct erg_layout_choosing at;
    start(&at, choice, request);
    int status = choose(&at, err) || erg_layout_choice_rank(choice, &request->query, err) ||
                         erg_layout_choosing_polish(&at, err)
                     ? -1
                     : 0;
    finish(&at);
    return status;
}

int erg_layout_choose_point(struct erg_layout_choice *choice,
                            const struct erg_layout_choice_request *request,
                            struct erg_layout_candidate *candidate, struct erg_error *err)
{
    struct erg_layout_choosing at;
    const struct erg_layout_entry entry = {.candidate = *candidate};
    start(&at, choice, request);
    choice->fitting = 1;
    struct batch batch = {.at = &at};
    claim(&batch, &at, &entry);
    int status = solve(&at, &batch, err) || erg_layout_choice_rank(choice, &request->query, err) ||
                         erg_layout_choosing_polish(&at, err)
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
