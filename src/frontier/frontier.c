/* Frontiers: Pareto filter, hull, sum, union and hypervolume. */
#include "ergon/frontier.h"

#include "base/memory.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void erg_frontier_init(struct erg_frontier *frontier)
{
    *frontier = (struct erg_frontier){0};
}

void erg_frontier_release(struct erg_frontier *frontier)
{
    free(frontier->points);
    erg_frontier_init(frontier);
}

void erg_frontier_clear(struct erg_frontier *frontier)
{
    frontier->count = 0;
}

void erg_frontier_copy(struct erg_frontier *to, const struct erg_frontier *from)
{
    if (to == from)
        return;
    erg_frontier_clear(to);
    ERG_RESERVE(to, points, from->count);
    if (from->count)
        memcpy(to->points, from->points, from->count * sizeof *from->points);
    to->count = from->count;
}

void erg_frontier_add(struct erg_frontier *frontier, double time_s, double energy_j, int64_t recipe)
{
    ERG_PUSH(frontier, points, (struct erg_point){time_s, energy_j, recipe});
}

static int compare_points(const void *left, const void *right)
{
    const struct erg_point *a = left, *b = right;
    if (a->time_s != b->time_s)
        return a->time_s < b->time_s ? -1 : 1;
    if (a->energy_j != b->energy_j)
        return a->energy_j < b->energy_j ? -1 : 1;
    return (a->recipe > b->recipe) - (a->recipe < b->recipe);
}

void erg_frontier_filter(struct erg_frontier *frontier)
{
    if (!frontier->count)
        return;
    qsort(frontier->points, frontier->count, sizeof *frontier->points, compare_points);
    size_t kept = 1;
    for (size_t i = 1; i < frontier->count; i++)
        if (frontier->points[i].energy_j < frontier->points[kept - 1].energy_j)
            frontier->points[kept++] = frontier->points[i];
    frontier->count = kept;
}

/* > 0 when b lies strictly below the line from a to c. */
static double below_chord(const struct erg_point *a, const struct erg_point *b,
                          const struct erg_point *c)
{
    return (a->energy_j - b->energy_j) * (c->time_s - a->time_s) -
           (a->energy_j - c->energy_j) * (b->time_s - a->time_s);
}

void erg_frontier_hull(struct erg_frontier *frontier)
{
    erg_frontier_filter(frontier);
    struct erg_point *p = frontier->points;
    size_t kept = 0;
    for (size_t i = 0; i < frontier->count; i++) {
        while (kept >= 2 && below_chord(&p[kept - 2], &p[kept - 1], &p[i]) <= 0)
            kept--;
        p[kept++] = p[i];
    }
    frontier->count = kept;
}

/* Merges two filtered lists into a filtered one, in one pass. Returns its length. */
static size_t merge_filtered(struct erg_point *out, const struct erg_point *a, size_t a_count,
                             const struct erg_point *b, size_t b_count)
{
    size_t i = 0, j = 0, kept = 0;
    while (i < a_count || j < b_count) {
        bool take_a = j == b_count || (i < a_count && compare_points(&a[i], &b[j]) <= 0);
        const struct erg_point *next = take_a ? &a[i++] : &b[j++];
        if (!kept || next->energy_j < out[kept - 1].energy_j)
            out[kept++] = *next;
    }
    return kept;
}

/*
 * Rows [low, high) of the sum into `out`: row r is all of `columns` shifted by rows->points[r].
 * Halves are merged, so each point takes part in log(rows) merges and dies early when dominated.
 * `scratch` has the size of `out`.
 */
static size_t sum_rows(struct erg_point *out, struct erg_point *scratch,
                       const struct erg_frontier *rows, const struct erg_frontier *columns,
                       size_t low, size_t high, bool rows_are_a)
{
    if (high - low == 1) {
        const struct erg_point *row = &rows->points[low];
        for (size_t c = 0; c < columns->count; c++) {
            size_t i = rows_are_a ? low : c, j = rows_are_a ? c : low;
            size_t b_count = rows_are_a ? columns->count : rows->count;
            out[c] = (struct erg_point){row->time_s + columns->points[c].time_s,
                                        row->energy_j + columns->points[c].energy_j,
                                        (int64_t)(i * b_count + j)};
        }
        return columns->count;
    }
    assert(low < high && high <= rows->count);
    size_t middle = low + (high - low) / 2, split = (middle - low) * columns->count;
    size_t left = sum_rows(scratch, out, rows, columns, low, middle, rows_are_a);
    size_t right = sum_rows(scratch + split, out + split, rows, columns, middle, high, rows_are_a);
    return merge_filtered(out, scratch, left, scratch + split, right);
}

void erg_frontier_sum(struct erg_frontier *out, const struct erg_frontier *a,
                      const struct erg_frontier *b)
{
    erg_frontier_clear(out);
    if (!a->count || !b->count)
        return;
    bool rows_are_a = a->count <= b->count;
    const struct erg_frontier *rows = rows_are_a ? a : b, *columns = rows_are_a ? b : a;
    size_t most = a->count * b->count;
    ERG_RESERVE(out, points, most);
    struct erg_point *scratch = erg_xcalloc(most, sizeof *scratch);
    out->count = sum_rows(out->points, scratch, rows, columns, 0, rows->count, rows_are_a);
    free(scratch);
    assert(out->count > 0 && out->count <= most);
    /* Rounding can make two sums equal that were strictly ordered; one more pass settles it. */
    erg_frontier_filter(out);
}

void erg_frontier_union(struct erg_frontier *into, const struct erg_frontier *from,
                        int64_t recipe_offset)
{
    assert(into != from);
    ERG_RESERVE(into, points, from->count);
    for (size_t i = 0; i < from->count; i++)
        erg_frontier_add(into, from->points[i].time_s, from->points[i].energy_j,
                         from->points[i].recipe + recipe_offset);
    erg_frontier_filter(into);
}

double erg_frontier_hypervolume(const struct erg_frontier *frontier, double ref_time_s,
                                double ref_energy_j)
{
    struct erg_frontier front = {0};
    erg_frontier_copy(&front, frontier);
    erg_frontier_filter(&front);
    double area = 0, ceiling = ref_energy_j;
    for (size_t i = 0; i < front.count && front.points[i].time_s < ref_time_s; i++) {
        double energy_j = front.points[i].energy_j;
        if (energy_j < ceiling) {
            area += (ref_time_s - front.points[i].time_s) * (ceiling - energy_j);
            ceiling = energy_j;
        }
    }
    erg_frontier_release(&front);
    return area;
}

ptrdiff_t erg_frontier_pick_deadline(const struct erg_frontier *frontier, double deadline_s)
{
    /* Energy falls with time, so the slowest point that still fits is the cheapest. */
    size_t low = 0, high = frontier->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (frontier->points[middle].time_s <= deadline_s)
            low = middle + 1;
        else
            high = middle;
    }
    assert(low <= frontier->count);
    return (ptrdiff_t)low - 1;
}

ptrdiff_t erg_frontier_pick_budget(const struct erg_frontier *frontier, double budget_j)
{
    size_t low = 0, high = frontier->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (frontier->points[middle].energy_j <= budget_j)
            high = middle;
        else
            low = middle + 1;
    }
    return low < frontier->count ? (ptrdiff_t)low : -1;
}

ptrdiff_t erg_frontier_pick_knee(const struct erg_frontier *frontier)
{
    if (!frontier->count)
        return -1;
    const struct erg_point *first = &frontier->points[0];
    const struct erg_point *last = &frontier->points[frontier->count - 1];
    size_t knee = 0;
    double farthest = 0;
    for (size_t i = 1; i + 1 < frontier->count; i++) {
        double depth = below_chord(first, &frontier->points[i], last);
        if (depth > farthest) {
            farthest = depth;
            knee = i;
        }
    }
    return (ptrdiff_t)knee;
}
