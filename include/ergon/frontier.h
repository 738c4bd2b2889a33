/*
 * Frontiers: the ways of doing a piece of work that no other way beats.
 *
 * A point is a time, an energy and the recipe that leads to it. A frontier is a list of
 * points, strictly increasing in time and strictly decreasing in energy. Both objectives are
 * minimised. The caller decides what "energy" means (total energy, or energy beyond
 * blocking power). Frontiers that are added must use the same meaning.
 *
 * The algebra is exact: no tolerance, no rounding beyond that of double addition. It is the
 * one data type of all scales (partition, microbatch, iteration, layout, cluster): a point's
 * recipe is an index into the list that it was built from, as the frontier's builder defines it.
 *
 * Source: Pareto sets and composition, Kareus.
 */
#ifndef ERGON_FRONTIER_H
#define ERGON_FRONTIER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Both structs are part of the ABI: no fields will be added. */
struct erg_point {
    double time_s;
    double energy_j;
    int64_t recipe; /* index into the list that it was built from */
};

struct erg_frontier {
    struct erg_point *points; /* after erg_frontier_filter(): time up, energy strictly down */
    size_t count;
    size_t capacity;
};

/* Storage: release frees the points; clear keeps the memory. A frontier of zero bytes is empty and
 * valid. */
void erg_frontier_init(struct erg_frontier *frontier);
void erg_frontier_release(struct erg_frontier *frontier);
void erg_frontier_clear(struct erg_frontier *frontier);
void erg_frontier_copy(struct erg_frontier *to, const struct erg_frontier *from);

/* Appends a candidate. Call erg_frontier_filter() before the list is used as a frontier. */
void erg_frontier_add(struct erg_frontier *frontier, double time_s, double energy_j,
                      int64_t recipe);

/*
 * Pareto filter: sorts and drops every point that another point equals or beats in both
 * objectives. Among equal points, the one with the smallest recipe stays, so the result does
 * not depend on the order of insertion. O(n log n).
 */
void erg_frontier_filter(struct erg_frontier *frontier);

/* Like filter, then keeps only the vertices of the lower convex hull. */
void erg_frontier_hull(struct erg_frontier *frontier);

/*
 * Minkowski sum of two filtered frontiers: the sum of every pair of points, filtered.
 * The recipe of a result is i * b->count + j for points i of a and j of b.
 * An empty operand gives an empty sum. `out` must be neither operand.
 * O(|a| |b| log(|a| |b|)) time.
 */
void erg_frontier_sum(struct erg_frontier *out, const struct erg_frontier *a,
                      const struct erg_frontier *b);

/* Adds the points of `from` (another list), recipe_offset added to their recipes, and filters. */
void erg_frontier_union(struct erg_frontier *into, const struct erg_frontier *from,
                        int64_t recipe_offset);

/*
 * Area dominated by the frontier within the reference point (ref_time_s, ref_energy_j);
 * points outside the reference contribute nothing. The points need not be filtered.
 */
double erg_frontier_hypervolume(const struct erg_frontier *frontier, double ref_time_s,
                                double ref_energy_j);

/*
 * Picks, on a filtered frontier: return the index, or -1 when no point qualifies.
 * deadline: least energy with time <= deadline; budget: least time with energy <= budget.
 */
ptrdiff_t erg_frontier_pick_deadline(const struct erg_frontier *frontier, double deadline_s);
ptrdiff_t erg_frontier_pick_budget(const struct erg_frontier *frontier, double budget_j);

/*
 * The knee: the point farthest below the chord from the fastest to the cheapest point, both
 * axes scaled to the frontier's range. -1 when empty; the fastest point when none lies below the
 * chord.
 */
ptrdiff_t erg_frontier_pick_knee(const struct erg_frontier *frontier);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
