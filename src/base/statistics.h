/*
 * Statistics: the mean of a few repetitions and how well it is known.
 */
#ifndef ERG_BASE_STATISTICS_H
#define ERG_BASE_STATISTICS_H

#include <stddef.h>

/* For qsort(): rising; of structs, too, whose first member is the number. */
int erg_compare_doubles(const void *a, const void *b);
int erg_compare_ints(const void *a, const void *b);

/* Sorts the values. 0 for none. */
double erg_median(double *values, size_t count);

/* The t with P(|T| <= t) = `confidence` for Student's distribution with `degrees` of freedom, at
 * least 1 (finite sums: Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 and 4). */
double erg_student_critical(size_t degrees, double confidence);

struct erg_interval {
    size_t count;      /* of the values that are numbers */
    double mean;       /* NAN without any */
    double half_width; /* of the mean's confidence interval; NAN with fewer than two */
};

/* The mean of independent values, without those that are NAN, and how sure it is. */
struct erg_interval erg_interval_of_mean(const double *values, size_t count, double confidence);

/* Statistics of a quantity over repeated runs; NaN is not counted. A zeroed struct is valid and
 * empty. */
struct erg_spread {
    size_t count;
    double mean;
    double squares; /* sum of squared differences from the mean */
    double least, most;
};

void erg_spread_add(struct erg_spread *spread, double value);

double erg_spread_mean(const struct erg_spread *spread); /* NaN of none */
double erg_spread_sd(const struct erg_spread *spread);   /* NaN of fewer than two */

#endif
