/* What the replays of Gavel and Sia have in common: how the best table is found. */
#include "tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void replay_table_forget_ended(struct replay_table *table, const struct erg_scheduler *scheduler)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++)
        if (scheduler->jobs[table->items[i].job].state == ERG_JOB_RUNNING)
            table->items[kept++] = table->items[i];
    table->count = kept;
}

static int compare_moves(const void *a, const void *b)
{
    const struct replay_move *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound > y->bound ? -1 : 1;
    return x->row != y->row ? x->row - y->row : x->to - y->to;
}

void replay_moves_sort(struct replay_moves *moves)
{
    if (moves->count > 0)
        qsort(moves->items, moves->count, sizeof *moves->items, compare_moves);
}

/* ---- the search ---- */

static bool fits(const struct replay_search *search)
{
    for (int type = 0; type < search->types; type++)
        if (search->left[type] < 0)
            return false;
    return true;
}

static bool is_moved(const struct replay_search *search, int row)
{
    for (int i = 0; i < search->count; i++)
        if (search->moves->items[search->chosen[i]].row == row)
            return true;
    return false;
}

static int after(const struct replay_search *search, const int *moves, int count, int row)
{
    for (int i = 0; i < count; i++)
        if (search->moves->items[moves[i]].row == row)
            return search->moves->items[moves[i]].to;
    return search->table->items[row].now;
}

/* Whether the oldest job of which the choice and the best one differ has an earlier configuration.
 */
static bool precedes(const struct replay_search *search)
{
    for (int row = 0; row < (int)search->table->count; row++) {
        int chosen = after(search, search->chosen, search->count, row);
        int best = after(search, search->best, search->best_count, row);
        if (chosen != best)
            return chosen < best;
    }
    return search->entry < search->best_entry;
}

static bool is_better(const struct replay_search *search, double value)
{
    if (fabs(value - search->best_value) > search->equal)
        return value > search->best_value;
    return precedes(search);
}

/* Tries all sets of moves that go on with those from `first` on. */
static void descend(struct replay_search *search, size_t first, double value, double most)
{
    if (is_better(search, value) && fits(search)) {
        search->best_value = value;
        search->best_entry = search->entry;
        search->best_count = search->count;
        memcpy(search->best, search->chosen, sizeof search->best);
    }
    int open = search->most_count - search->count;
    for (size_t i = first; i < search->moves->count && open > 0; i++) {
        const struct replay_move *move = &search->moves->items[i];
        /* Of those that are left none can add more than this one. */
        if (most + (move->bound > 0 ? open : 1) * move->bound < search->best_value - search->equal)
            return;
        if (is_moved(search, move->row))
            continue;
        search->chosen[search->count++] = (int)i;
        search->left[move->gives.type] += move->gives.count;
        search->left[move->takes.type] -= move->takes.count;
        descend(search, i + 1, value + move->gain, most + move->bound);
        search->left[move->takes.type] += move->takes.count;
        search->left[move->gives.type] -= move->gives.count;
        search->count--;
    }
}

void replay_search_try(struct replay_search *search, double value, double most)
{
    descend(search, 0, value, most);
}

static int compare_changed(const void *a, const void *b)
{
    return ((const struct replay_changed *)a)->row - ((const struct replay_changed *)b)->row;
}

void replay_table_change(struct replay_table *table, const struct replay_search *search,
                         struct replay_changed *changed)
{
    for (int i = 0; i < search->best_count; i++) {
        const struct replay_move *move = &search->moves->items[search->best[i]];
        changed[i] = (struct replay_changed){move->row, table->items[move->row].now};
        table->items[move->row].now = move->to;
    }
    qsort(changed, (size_t)search->best_count, sizeof *changed, compare_changed);
}
