/* Which layouts are solved, and at which deadlines. */
#include "layout/energy/choice_internal.h"
#include "layout/energy/candidate.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS = 12, SLOWER_POINTS = 6 };

/* ---- what a layout is to meet ---- */

/*
 * From the bound's own answer on, some deadlines close to each other, closest where the bound is
 * the optimum: where a frontier meets a budget is between two of them. The least power is that of
 * the slowest plan within budgets, so there plans meet them earlier than the bound.
 */
static void add_steps(struct erg_layout_contender *contender, struct erg_goal query)
{
    enum { STEPS = 5 };
    static const double steps[][STEPS] = {{1, 1.006, 1.012, 1.02, 1.035},
                                          {1, 1.0003, 1.001, 1.003, 1.01}};
    const bool early = query.objective == ERG_LEAST_POWER;
    struct erg_layout_bend answer;
    if (query.objective == ERG_LEAST_ENERGY) /* it is on the way there from the fastest */
        query.objective = ERG_FASTEST;
    if (!erg_layout_bound_answer(&answer, &contender->bound, &query))
        return;
    const bool close = erg_layout_bound_is_optimum(&contender->bound, &query);
    for (size_t i = 0; i < STEPS; i++) {
        double step = steps[close][i];
        ERG_PUSH(&contender->deadlines, items, early ? answer.time_s / step : answer.time_s * step);
    }
}

static void ask(struct erg_layout_contender *contender, const struct erg_layout_target *target)
{
    const struct erg_goal *query = &target->query;
    if (target->shows && query->deadline_s > 0)
        ERG_PUSH(&contender->times, items, query->deadline_s);
    else if (query->deadline_s > 0)
        ERG_PUSH(&contender->deadlines, items, query->deadline_s);
    if (query->energy_j > 0 || query->power_w > 0)
        add_steps(contender, *query);
}

/* By the query all that are solved are listed. Where a frontier meets a budget is known from the
 * optimum alone. */
static int ask_for_query(struct erg_layout_contender *contender,
                         const struct erg_layout_choosing *at, struct erg_error *err)
{
    const struct erg_layout_target *target = at->targets.items;
    const struct erg_goal *query = &target->query;
    struct erg_layout_entry entry = {.contender = contender};
    erg_layout_entry_price(&entry, at, query);
    if ((query->energy_j > 0 || query->power_w > 0) && !entry.settled && isfinite(entry.bound)) {
        struct erg_prices prices = {0};
        int status = erg_layout_entry_raise(&entry, at, query, INFINITY, &prices, err);
        erg_prices_release(&prices);
        if (status != 0)
            return -1;
    }
    ask(contender, target);
    return 0;
}

/* ---- some layouts at the same time ---- */

/* On as many cores as there are: always so many, so that the answer is the same everywhere. */
enum { BATCH = 4 };

struct batch {
    const struct erg_layout_choosing *at;
    struct erg_layout_contender *contenders[BATCH];
    struct erg_layout_frontier frontiers[BATCH];
    bool unasked[BATCH]; /* for the query */
    size_t count, added; /* added: that were not solved before */
};

int erg_layout_choosing_solve(struct erg_layout_frontier *frontier,
                              const struct erg_layout_choice_request *asked,
                              const struct erg_layout_contender *contender, size_t points,
                              bool tries, struct erg_error *err)
{
    const struct erg_layout_candidate *candidate = &contender->candidate;
    struct erg_layout_frontier_request request = {
        .energy = asked->energy,
        .layout = &candidate->layout,
        .uneven_s = candidate->time.items[ERG_TIME_UNEVEN],
        .points = points,
        .slower_points = points && asked->query.power_w > 0 ? SLOWER_POINTS : 0,
        .clocks = ERG_LAYOUT_CHOICE_CLOCKS,
        .deadlines_s = contender->deadlines.items,
        .deadline_count = contender->deadlines.count,
        .times_s = contender->times.items,
        .time_count = contender->times.count,
        .tries = tries,
    };
    void *held = asked->searches->kind_count > 1
                     ? erg_layout_locate(&request, asked->searches, candidate)
                     : NULL;
    int status = erg_layout_frontier_init(frontier, &request, err);
    free(held);
    return status;
}

/* What was solved before is not solved again. */
static int solve_one(void *context, size_t i, struct erg_error *err)
{
    struct batch *batch = context;
    struct erg_layout_contender *contender = batch->contenders[i];
    if (batch->unasked[i] && ask_for_query(contender, batch->at, err) != 0)
        return -1;
    return erg_layout_choosing_solve(&batch->frontiers[i], batch->at->request, contender,
                                     contender->solved ? 0 : POINTS, true, err);
}

/* What is only shown need not end just at the deadline, so not the points but the curve counts: the
 * continuous problem's, where that is known; else the lines between plans. */
static double shown_value(const struct erg_goal *query,
                          const struct erg_layout_contender *contender,
                          const struct erg_layout_frontier *frontier)
{
    if (erg_layout_bound_is_optimum(&contender->bound, query))
        return erg_layout_bound_objective(&contender->bound, query);
    return erg_layout_frontier_optimum(frontier,
                                       query->deadline_s > 0 ? query->deadline_s : INFINITY);
}

static void note_best(struct erg_layout_target *target,
                      const struct erg_layout_contender *contender,
                      const struct erg_layout_option *option)
{
    struct erg_layout_pick pick;
    if (target->shows)
        target->best = fmin(target->best, shown_value(&target->query, contender, option->frontier));
    else if (erg_layout_pick(&pick, option, 1, &target->query, NULL) == 0)
        target->best = fmin(target->best, erg_layout_pick_value(&pick, target->query.objective));
}

/* Takes the reference of one that was not solved before. */
static void enter(struct erg_layout_choosing *at, struct erg_layout_contender *contender,
                  struct erg_layout_frontier *frontier)
{
    struct erg_layout_choice *choice = at->choice;
    if (contender->solved) {
        erg_layout_frontier_take(&choice->layouts[contender->option].frontier, frontier);
    } else {
        struct erg_layout_planned *planned = &choice->layouts[choice->count];
        *planned = (struct erg_layout_planned){contender->candidate, *frontier};
        choice->options[choice->count] = (struct erg_layout_option){
            &planned->candidate.layout, &planned->frontier, planned->candidate.peak_bytes};
        at->solved[choice->count] = contender;
        contender->solved = true;
        contender->option = choice->count++;
    }
    contender->deadlines.count = contender->times.count = 0;
    for (size_t i = 0; i < at->targets.count; i++)
        note_best(&at->targets.items[i], contender, &choice->options[contender->option]);
}

static int solve(struct erg_layout_choosing *at, struct batch *batch, struct erg_error *err)
{
    int status = erg_parallel_for(batch->count, 0, solve_one, batch, err);
    for (size_t i = 0; i < batch->count; i++) {
        if (status == 0)
            enter(at, batch->contenders[i], &batch->frontiers[i]);
        else
            erg_layout_frontier_release(&batch->frontiers[i]);
        if (status != 0 && !batch->contenders[i]->solved)
            erg_layout_contender_drop(batch->contenders[i]);
    }
    return status;
}

/* Takes the target's first contender into the batch, unless that is full. */
static void claim(struct batch *batch, struct erg_layout_target *target, size_t left)
{
    struct erg_layout_contender *contender = target->entries[0].contender;
    size_t place = 0;
    while (place < batch->count && batch->contenders[place] != contender)
        place++;
    if (place == BATCH || (place == batch->count && !contender->solved && batch->added == left))
        return;
    erg_layout_target_take_first(target);
    ask(contender, target);
    if (contender->solved || place < batch->count)
        erg_layout_contender_drop(contender); /* somebody else has a reference */
    if (place == batch->count) {
        batch->unasked[place] = !contender->solved && target->shows;
        batch->contenders[batch->count++] = contender;
        batch->added += !contender->solved;
    }
}

/* What the query and the least energy of all find closes others: so they come first, alone. */
enum { ALONE = 2 };

/* The first contenders of open targets: of at most `left` layouts that are not solved yet, or
 * `left_for_others` where the query does not need them. */
static int fill_batch(struct batch *batch, struct erg_layout_choosing *at, size_t left,
                      size_t left_for_others, struct erg_error *err)
{
    *batch = (struct batch){.at = at};
    for (size_t i = 0; i < at->targets.count; i++) {
        struct erg_layout_target *target = &at->targets.items[i];
        if (target->shows && isinf(at->targets.items[0].best))
            return 0; /* the union is shown beside an answer only */
        if (erg_layout_target_settle(at, target, err) != 0)
            return -1;
        if (!erg_layout_target_is_open(target))
            continue;
        claim(batch, target, i == 0 ? left : left_for_others);
        if (batch->count && i < ALONE)
            break;
    }
    return 0;
}

int erg_layout_choosing_solve_promising(struct erg_layout_choosing *at, struct erg_error *err)
{
    struct erg_layout_choice *choice = at->choice;
    const size_t others_most = choice->count + at->request->most;
    const size_t most = others_most + at->request->more;
    for (;;) {
        struct batch batch;
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

int erg_layout_choosing_solve_again(struct erg_layout_choosing *at, struct erg_error *err)
{
    struct batch batch = {.at = at};
    for (size_t i = 0; i < at->choice->count; i++) {
        if (at->solved[i]->times.count)
            batch.contenders[batch.count++] = at->solved[i];
        if (batch.count && (batch.count == BATCH || i + 1 == at->choice->count)) {
            if (solve(at, &batch, err) != 0)
                return -1;
            batch = (struct batch){.at = at};
        }
    }
    return 0;
}

int erg_layout_choosing_solve_one(struct erg_layout_choosing *at,
                                  struct erg_layout_contender *contender, struct erg_error *err)
{
    struct batch batch = {.at = at, .contenders = {contender}, .unasked = {true}, .count = 1};
    return solve(at, &batch, err);
}
