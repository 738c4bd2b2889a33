/*
 * The least value that the largest of some linear functions has in a box, where the numbers that
 * they are functions of add up to a given sum: a linear program in as many variables.
 *
 * Every function that is convex has such a bound from below: its tangents, here called cuts, at any
 * points. Those that are needed become rows one by one (Kelley 1960), and Clp's dual simplex method
 * goes on from where it was. What is returned is not the simplex method's value but that of its
 * multipliers: a weighted mean of cuts is a linear function, of which the least value in the box is
 * that of a knapsack, so no rounding error and no tolerance can make the bound too high.
 *
 * A bound takes Clp 67 µs in the mean over the searches of tests/test_layout_uneven.c and 150 to
 * 190 µs over those of the jobs in examples/kwai, mostly to factor its first basis. A dual simplex
 * method of our own that kept its tableau took 3.5 and 9 to 12 µs, but what that bought was little:
 * with more than 16 numbers hardly any bound gets higher by such programs, and most that cannot are
 * known beforehand (refine.c).
 */
#ifndef ERG_LAYOUT_SEARCH_CUTS_H
#define ERG_LAYOUT_SEARCH_CUTS_H

#include <stddef.h>
#include <stdint.h>

struct erg_cuts {
    size_t width;               /* numbers */
    size_t count;               /* cuts */
    double *constants, *slopes; /* [count], [count][width] */
    uint64_t programs;          /* solved so far */
    size_t room;
    struct erg_cuts_program *program;
};

void erg_cuts_init(struct erg_cuts *cuts, size_t width);
void erg_cuts_release(struct erg_cuts *cuts);

/* The slopes of one more cut, to be filled. */
double *erg_cuts_add(struct erg_cuts *cuts, double constant);

/* Takes all cuts away. Others in the same order are expected to matter where those did. */
void erg_cuts_clear(struct erg_cuts *cuts);

/*
 * A lower bound of the largest cut wherever least <= x <= most and x adds up to `sum`, and a point
 * where the linear program has its least value. INFINITY: there is no such x. Stops as soon as the
 * bound is above `limit`, with any point. There is at least one cut.
 */
double erg_cuts_bound(struct erg_cuts *cuts, const long *least, const long *most, long sum,
                      double limit, double *point);

#endif
