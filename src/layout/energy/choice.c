/* Chooses the layout and its clocks: the questions about all layouts, and the answer. */
#include "layout/energy/choice.h"

#include "base/memory.h"
#include "layout/energy/choice_internal.h"

#include <math.h>
#include <stdlib.h>

/* The deadline of the query, seconds; 0: none. */
static double limit_s(const struct erg_choice_state *at)
{
    double limit_s = 0;
    for (size_t i = 0; i < at->questions.count; i++) {
        if (!(at->questions.items[i].query.deadline_s > 0))
            return 0;
        limit_s = fmax(limit_s, at->questions.items[i].query.deadline_s);
    }
    return limit_s;
}

/* On several kinds of GPUs: the recomputations whose frontiers may be among the best. */
static unsigned wanted_recomputes(void *context, const struct erg_layout *degrees,
                                  const struct erg_layout_block *blocks, size_t count)
{
    struct erg_choice_state *at = context;
    const struct erg_layout_search *search = at->rows.search;
    unsigned wanted = 0;
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
        const unsigned tried = search->per_stage ? search->recomputes : 1u << recompute;
        struct erg_layout_bound bound;
        if (!(search->recomputes & 1u << recompute) || (wanted & tried))
            continue;
        erg_mixed_rows_bound(&bound, &at->rows, degrees, blocks, count, tried);
        if (erg_questions_want(at, &bound))
            wanted |= tried;
        erg_layout_bound_release(&bound);
        if (search->per_stage)
            break;
    }
    return wanted;
}

/*
 * On several kinds of GPUs the search skips layouts that cannot be among those with the best
 * bounds, or are slower than all deadlines. If none is left, the fastest shows whether any fits.
 */
static int search_mixed(struct erg_layout_results *found, struct erg_choice_state *at,
                        struct erg_layout_search *search, struct erg_error *err)
{
    struct erg_error own = {0};
    search->top = 1;
    if (search->each) {
        erg_mixed_rows_init(&at->rows, search);
        search->wanted = wanted_recomputes;
        search->limit_s = limit_s(at);
        if (erg_layout_search(found, search, &own) == 0)
            return 0;
        if (own.status != ERG_INFEASIBLE)
            return erg_fail(err, own.status, "%s", own.message);
    }
    search->each = NULL;
    search->wanted = NULL;
    return erg_layout_search(found, search, err);
}

static int search_one(struct erg_layout_results *found, struct erg_choice_state *at, size_t index,
                      bool consider, struct erg_error *err)
{
    struct erg_layout_search search = at->request->searches[index];
    search.each = consider ? erg_questions_consider : NULL;
    search.context = at;
    return search.kind_count > 1 ? search_mixed(found, at, &search, err)
                                 : erg_layout_search(found, &search, err);
}

/*
 * `consider`: adds all layouts that fit and may answer a question. `range_s`: the least and the
 * most time of the fastest layouts of all searches.
 */
static int search_all(struct erg_choice_state *at, bool consider, double *range_s,
                      struct erg_error *err)
{
    bool found_any = false;
    range_s[0] = INFINITY;
    range_s[1] = 0;
    for (size_t i = 0; i < at->request->search_count; i++) {
        struct erg_layout_results found;
        struct erg_error own = {0};
        if (search_one(&found, at, i, consider, &own) == 0) {
            range_s[0] = fmin(range_s[0], found.items[0].time.total);
            range_s[1] = fmax(range_s[1], found.items[0].time.total);
            erg_layout_results_release(&found);
            found_any = true;
        } else if (own.status != ERG_INFEASIBLE ||
                   (!found_any && i + 1 == at->request->search_count)) {
            return erg_fail(err, own.status, "%s", own.message);
        }
    }
    return 0;
}

/*
 * Adds the questions for the least energy, and for the least energy within deadlines, from the
 * fastest of all layouts on up to the time at which even layouts on the fewest GPUs need the least.
 * Later deadlines cannot save more.
 */
static void add_union_questions(struct erg_choice_state *at, const double *range_s)
{
    const double beyond = 2, step = 0.08; /* for the proof of the union */
    struct erg_goal query = {.objective = ERG_LEAST_ENERGY};
    erg_question_add(at, &query, true);
    for (double s = range_s[0]; s < beyond * range_s[1]; s *= 1 + step) {
        query.deadline_s = s;
        erg_question_add(at, &query, true);
    }
}

/* Replaces the questions so far. */
static int ask_all(struct erg_choice_state *at, struct erg_error *err)
{
    double range_s[2];
    at->choice->fitting = 0; /* and numbered in the same order again */
    if (search_all(at, true, range_s, err) != 0)
        return -1;
    if (at->request->searches->kind_count > 1) /* which skips layouts that cannot be nearest */
        at->choice->fitting = 0;
    return erg_choice_solve(at, err);
}

/*
 * If nothing is within the bounds, solves the layout nearest to each bound within the others, so
 * that the message is right; if there is none, either, the best layout by the first bound.
 */
static int solve_nearest(struct erg_choice_state *at, double fastest_s, struct erg_error *err)
{
    const struct erg_goal *query = &at->request->query;
    struct erg_goal fastest = *query, least = *query, weakest = *query;
    struct erg_goal any = {.objective = ERG_LEAST_ENERGY};
    erg_questions_release(at);
    fastest.objective = ERG_FASTEST;
    least.objective = ERG_LEAST_ENERGY;
    weakest.objective = ERG_LEAST_POWER;
    fastest.deadline_s = least.energy_j = weakest.power_w = 0;
    if (query->deadline_s > 0)
        any = (struct erg_goal){ERG_FASTEST, .deadline_s = fastest_s * (1 + 1e-6)};
    if (query->deadline_s > 0 && (query->energy_j > 0 || query->power_w > 0))
        erg_question_add(at, &fastest, false);
    if (query->energy_j > 0)
        erg_question_add(at, &least, false);
    if (query->power_w > 0)
        erg_question_add(at, &weakest, false);
    if (query->deadline_s > 0 || at->questions.count > 1)
        erg_question_add(at, &any, false);
    return ask_all(at, err);
}

static int choose(struct erg_choice_state *at, struct erg_error *err)
{
    const struct erg_layout_choice_request *request = at->request;
    struct erg_layout_choice *choice = at->choice;
    double range_s[2];
    if (request->whole_union) {
        if (search_all(at, false, range_s, err) != 0)
            return -1;
        add_union_questions(at, range_s);
    }
    if (search_all(at, true, range_s, err) != 0 || erg_choice_solve(at, err) != 0)
        return -1;
    const struct erg_layout_question *questions = at->questions.items;
    choice->gap = erg_question_gap(&questions[0]);
    for (size_t i = 1; i < at->questions.count; i++)
        if (isfinite(questions[i].best))
            choice->union_gap = fmax(choice->union_gap, erg_question_gap(&questions[i]));
    if (isinf(questions[0].best))
        return solve_nearest(at, range_s[0], err);
    return request->whole_union ? erg_choice_fill_union(at, err) : 0;
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

/* Makes the picks of solved layouts; fails if none is within the query's bounds. */
static int rank(struct erg_layout_choice *choice, const struct erg_goal *query,
                struct erg_error *err)
{
    static int (*const compare[])(const void *, const void *) = {
        [ERG_FASTEST] = compare_times,
        [ERG_LEAST_ENERGY] = compare_energies,
        [ERG_LEAST_POWER] = compare_powers,
    };
    choice->pick_count = 0;
    for (size_t i = 0; i < choice->count; i++) {
        struct erg_layout_pick *pick = &choice->picks[choice->pick_count];
        if (erg_layout_pick(pick, &choice->options[i], 1, query, NULL) == 0) {
            pick->option = i;
            choice->pick_count++;
        }
    }
    qsort(choice->picks, choice->pick_count, sizeof *choice->picks, compare[query->objective]);
    if (choice->pick_count)
        return 0;
    return erg_layout_fail_pick(choice->options, choice->count, query, choice->fitting, err);
}

static void start(struct erg_choice_state *at, struct erg_layout_choice *choice,
                  const struct erg_layout_choice_request *request)
{
    size_t most = 2 * (request->most + request->more); /* doubled, for the nearest layouts */
    *at = (struct erg_choice_state){.request = request, .choice = choice};
    *choice = (struct erg_layout_choice){0};
    const struct erg_layout_search *search = request->searches;
    const struct erg_layout_kind *kind = &search->kinds[0];
    at->energy = (struct erg_layout_energy_request){
        .time = {search->model, kind->engine, &kind->machine}, .gpu = kind->gpu};
    choice->layouts = erg_xcalloc(most, sizeof *choice->layouts);
    choice->options = erg_xcalloc(most, sizeof *choice->options);
    choice->picks = erg_xcalloc(most, sizeof *choice->picks);
    at->solved = erg_xcalloc(most, sizeof(struct erg_bounded_layout *));
    erg_question_add(at, &request->query, false);
}

static void finish(struct erg_choice_state *at)
{
    erg_questions_release(at);
    erg_clock_table_release(&at->table);
    for (size_t i = 0; i < at->choice->count; i++)
        erg_bounded_layout_drop(at->solved[i]);
    free(at->solved);
}

int erg_layout_choose(struct erg_layout_choice *choice,
                      const struct erg_layout_choice_request *request, struct erg_error *err)
{
    struct erg_choice_state at;
    start(&at, choice, request);
    int status = choose(&at, err) || rank(choice, &request->query, err) ? -1 : 0;
    finish(&at);
    return status;
}

int erg_layout_choose_point(struct erg_layout_choice *choice,
                            const struct erg_layout_choice_request *request,
                            struct erg_layout_candidate *candidate, struct erg_error *err)
{
    struct erg_choice_state at;
    start(&at, choice, request);
    choice->fitting = 1;
    struct erg_bounded_layout *layout = erg_bounded_layout_new(candidate);
    erg_layout_candidate_release(candidate);
    int status = erg_choice_solve_one(&at, layout, err) ||
                         (request->whole_union && erg_choice_fill_union(&at, err)) ||
                         rank(choice, &request->query, err)
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
