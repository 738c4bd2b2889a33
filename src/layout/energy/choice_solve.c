/* Solves layouts: their order and their deadlines. */
#include "layout/energy/choice_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "layout/energy/candidate.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS = 12, SLOWER_POINTS = 6 };

static bool has_budget(const struct erg_goal *query)
{
    return query->energy_j > 0 || query->power_w > 0;
}

/* ---- the deadlines of a layout ---- */

/*
 * Adds some close deadlines from the bound's own answer on, closest if the bound is the optimum: a
 * frontier meets a budget between two of them. The least power is that of the slowest plan within
 * budgets, so there plans meet them earlier than the bound.
 */
static void add_steps(struct erg_bounded_layout *layout, struct erg_goal query)
{
    enum { STEPS = 8 };
    static const double steps[][STEPS] = {{1, 1.004, 1.008, 1.012, 1.016, 1.02, 1.028, 1.035},
                                          {1, 1.0003, 1.001, 1.002, 1.004, 1.006, 1.01, 1.015}};
    const bool early = query.objective == ERG_LEAST_POWER;
    struct erg_bound_point answer;
    if (query.objective == ERG_LEAST_ENERGY) /* the answer lies between the fastest and this time */
        query.objective = ERG_FASTEST;
    if (!erg_layout_bound_answer(&answer, &layout->bound, &query))
        return;
    const bool close = erg_layout_bound_is_optimum(&layout->bound, &query);
    for (size_t i = 0; i < STEPS; i++) {
        double step = steps[close][i];
        ERG_PUSH(&layout->deadlines, items, early ? answer.time_s / step : answer.time_s * step);
    }
}

static void ask(struct erg_bounded_layout *layout, const struct erg_layout_question *question)
{
    const struct erg_goal *query = &question->query;
    if (question->of_union && query->deadline_s > 0)
        ERG_PUSH(&layout->times, items, query->deadline_s);
    else if (query->deadline_s > 0)
        ERG_PUSH(&layout->deadlines, items, query->deadline_s);
    if (has_budget(query))
        add_steps(layout, *query);
}

/* ---- several layouts at the same time ---- */

/*
 * The number of layouts solved at a time, on all cores; constant, so that the result is the same on
 * every machine.
 */
enum { BATCH = 4 };

struct solve_batch {
    const struct erg_choice_state *at;
    struct erg_bounded_layout *layouts[BATCH];
    struct erg_layout_frontier frontiers[BATCH];
    size_t count, added; /* added: not solved before */
};

/* Skips layouts that are already solved. */
static int solve_one(void *context, size_t i, struct erg_error *err)
{
    struct solve_batch *batch = context;
    const struct erg_layout_choice_request *asked = batch->at->request;
    const struct erg_bounded_layout *layout = batch->layouts[i];
    const size_t points = layout->solved ? 0 : POINTS;
    struct erg_layout_frontier_request request = {
        .points = points,
        .slower_points = points && asked->query.power_w > 0 ? SLOWER_POINTS : 0,
        .clocks = ERG_LAYOUT_CHOICE_CLOCKS,
        .deadlines_s = layout->deadlines.items,
        .deadline_count = layout->deadlines.count,
        .times_s = layout->times.items,
        .time_count = layout->times.count,
    };
    void *held = erg_layout_locate(&request, asked->searches, &layout->candidate);
    int status = erg_layout_frontier_init(&batch->frontiers[i], &request, err);
    free(held);
    return status;
}

/*
 * A layout that is only displayed need not end exactly at the deadline, so its curve counts, not
 * its points.
 */
static void note_best(struct erg_layout_question *question, const struct erg_layout_option *option)
{
    const struct erg_goal *query = &question->query;
    const double within_s = query->deadline_s > 0 ? query->deadline_s : INFINITY;
    struct erg_layout_pick pick;
    if (question->of_union)
        question->best =
            fmin(question->best, erg_layout_frontier_optimum(option->frontier, within_s));
    else if (erg_layout_pick(&pick, option, 1, query, NULL) == 0)
        question->best = fmin(question->best, erg_layout_pick_value(&pick, query->objective));
}

/* Takes the reference of a layout that was not solved before. */
static void enter(struct erg_choice_state *at, struct erg_bounded_layout *layout,
                  struct erg_layout_frontier *frontier)
{
    struct erg_layout_choice *choice = at->choice;
    if (layout->solved) {
        erg_layout_frontier_take(&choice->layouts[layout->option].frontier, frontier);
    } else {
        struct erg_layout_planned *planned = &choice->layouts[choice->count];
        *planned = (struct erg_layout_planned){layout->candidate, *frontier};
        choice->options[choice->count] = (struct erg_layout_option){
            &planned->candidate.layout, &planned->frontier, planned->candidate.peak_bytes};
        at->solved[choice->count] = layout;
        layout->solved = true;
        layout->option = choice->count++;
    }
    layout->deadlines.count = layout->times.count = 0;
    for (size_t i = 0; i < at->questions.count; i++)
        note_best(&at->questions.items[i], &choice->options[layout->option]);
}

static int solve(struct erg_choice_state *at, struct solve_batch *batch, struct erg_error *err)
{
    int status = erg_parallel_for(batch->count, 0, solve_one, batch, err);
    for (size_t i = 0; i < batch->count; i++) {
        if (status == 0)
            enter(at, batch->layouts[i], &batch->frontiers[i]);
        else
            erg_layout_frontier_release(&batch->frontiers[i]);
        if (status != 0 && !batch->layouts[i]->solved)
            erg_bounded_layout_drop(batch->layouts[i]);
    }
    return status;
}

/* Adds the question's first layout to the batch unless the batch is full. The query lists all
 * solved layouts, so each is solved for the query, too. */
static void claim(struct solve_batch *batch, struct erg_layout_question *question, size_t left)
{
    struct erg_bounded_layout *layout = question->entries[0].layout;
    size_t place = 0;
    while (place < batch->count && batch->layouts[place] != layout)
        place++;
    if (place == BATCH || (place == batch->count && !layout->solved && batch->added == left))
        return;
    erg_question_take_first(question);
    ask(layout, question);
    if (layout->solved || place < batch->count)
        erg_bounded_layout_drop(layout); /* another owner has a reference */
    if (place == batch->count) {
        if (question->of_union && !layout->solved)
            ask(layout, &batch->at->questions.items[0]);
        batch->layouts[batch->count++] = layout;
        batch->added += !layout->solved;
    }
}

/*
 * Answers to the query and to the question for the least energy of all rule out candidates of the
 * other questions, so these two come first, alone.
 */
enum { ALONE = 2 };

/*
 * Collects the first layouts of open questions: at most `left` unsolved ones, or `left_for_others`
 * if the query does not need them.
 */
static int fill_batch(struct solve_batch *batch, struct erg_choice_state *at, size_t left,
                      size_t left_for_others, struct erg_error *err)
{
    *batch = (struct solve_batch){.at = at};
    for (size_t i = 0; i < at->questions.count; i++) {
        struct erg_layout_question *question = &at->questions.items[i];
        if (question->of_union && isinf(at->questions.items[0].best))
            return 0; /* the union is displayed only with an answer */
        if (erg_question_settle(at, question, err) != 0)
            return -1;
        if (!question->count || erg_question_gap(question) <= question->tolerance)
            continue;
        claim(batch, question, i == 0 ? left : left_for_others);
        if (batch->count && i < ALONE)
            break;
    }
    return 0;
}

int erg_choice_solve(struct erg_choice_state *at, struct erg_error *err)
{
    struct erg_layout_choice *choice = at->choice;
    const size_t others_most = choice->count + at->request->most;
    const size_t most = others_most + at->request->more;
    for (;;) {
        struct solve_batch batch;
        size_t left_for_others = choice->count < others_most ? others_most - choice->count : 0;
        if (fill_batch(&batch, at, most - choice->count, left_for_others, err) != 0)
            return -1;
        if (!batch.count)
            return 0;
        if (solve(at, &batch, err) != 0)
            return -1;
        erg_progress("layouts over clocks", choice->count, most);
    }
}

/* Only the optimum shows where a frontier meets a budget. */
int erg_choice_solve_one(struct erg_choice_state *at, struct erg_bounded_layout *layout,
                         struct erg_error *err)
{
    struct solve_batch batch = {.at = at, .layouts = {layout}, .count = 1};
    const struct erg_layout_question *question = at->questions.items;
    struct erg_question_entry entry = {.layout = layout};
    for (int step = 0; step < 2 && has_budget(&question->query) && !entry.settled; step++)
        if (erg_question_raise(&entry, at, &question->query, INFINITY, err) != 0) {
            erg_bounded_layout_drop(layout);
            return -1;
        }
    ask(layout, question);
    return solve(at, &batch, err);
}

/* ---- the union, as fine as the frontier of one layout ---- */

/* The distance in time of the union's points, as a share. */
#define STEP 0.015

/*
 * If some layout could be more than `tolerance` below the union at a time, the one that could need
 * the least energy is solved for that time.
 */
static void ask_at(struct erg_choice_state *at, const struct erg_frontier *all, double time_s,
                   double tolerance)
{
    const struct erg_layout_choice *choice = at->choice;
    size_t option = 0;
    double least_j = INFINITY; /* no layout is that fast */
    for (size_t i = 0; i < choice->count; i++) {
        double optimum_j = erg_layout_frontier_optimum(&choice->layouts[i].frontier, time_s);
        if (optimum_j < least_j) {
            least_j = optimum_j;
            option = i;
        }
    }
    ptrdiff_t has = erg_frontier_pick_deadline(all, time_s);
    if (isfinite(least_j) && (has < 0 || all->points[has].energy_j > (1 + tolerance) * least_j))
        ERG_PUSH(&at->solved[option]->times, items, time_s);
}

int erg_choice_fill_union(struct erg_choice_state *at, struct erg_error *err)
{
    const struct erg_layout_choice *choice = at->choice;
    struct solve_batch batch = {.at = at};
    struct erg_frontier all = {0};
    int status = 0;
    for (size_t i = 0; i < choice->count; i++)
        erg_frontier_union(&all, &choice->options[i].frontier->points, 0);
    const double last_s = all.count ? all.points[all.count - 1].time_s : 0;
    for (size_t i = 0; i < all.count; i++)
        ask_at(at, &all, all.points[i].time_s, at->request->tolerance);
    for (double s = all.count ? all.points[0].time_s : INFINITY; s < last_s; s *= 1 + STEP)
        ask_at(at, &all, s, ERG_LAYOUT_TIE);
    erg_frontier_release(&all);
    for (size_t i = 0; i < choice->count && status == 0; i++) {
        if (at->solved[i]->times.count)
            batch.layouts[batch.count++] = at->solved[i];
        if (batch.count == BATCH || (batch.count && i + 1 == choice->count)) {
            status = solve(at, &batch, err);
            batch.count = 0;
        }
    }
    return status;
}
