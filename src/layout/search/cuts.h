/*
 * The least value that the largest of some linear functions has in a box, where the numbers that
 * they are functions of add up to a given sum: a linear program in as many variables.
 *
 * Every function that is convex has such a bound from below: its tangents, here called cuts, at any
 * points. Those that are needed become rows one by one (Kelley 1960); the dual simplex method with
 * bounded variables goes on from where it was. What is returned is not the simplex method's value
 * but that of its multipliers: a weighted mean of cuts is a linear function, of which the least
 * value in the box is that of a knapsack, so no rounding error of the tableau can make the bound
 * too high.
 */
#ifndef ERG_LAYOUT_SEARCH_CUTS_H
#define ERG_LAYOUT_SEARCH_CUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_cuts {
    size_t width;               /* numbers */
    size_t count;               /* cuts */
    double *constants, *slopes; /* [count], [count][width] */
    uint64_t work;              /* multiplications so far, about */
    size_t room;
    struct erg_cuts_tableau *tableau;
};

void erg_cuts_init(struct erg_cuts *cuts, size_t width);
void erg_cuts_release(struct erg_cuts *cuts);

/* The slopes of one more cut, to be filled. */
double *erg_cuts_add(struct erg_cuts *cuts, double constant);

/* Takes all cuts away. */
void erg_cuts_clear(struct erg_cuts *cuts);

/*
 * A lower bound of the largest cut wherever least <= x <= most and x adds up to `sum`, and a point
 * where the linear program has its least value. INFINITY: there is no such x. Stops as soon as the
 * bound reaches `limit`. There is at least one cut.
 */
double erg_cuts_bound(struct erg_cuts *cuts, const long *least, const long *most, long sum,
                      double limit, double *point);

#endif
