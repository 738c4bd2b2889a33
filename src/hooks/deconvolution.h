/*
 * Deconvolution: the power of each class of work, from a counter that is too slow to measure a
 * single piece of work. Between two steps of the counter a GPU spent known seconds in each class
 * and used a known energy: E_i = sum over c of P_c t_ci. Because the pieces and the counter are not
 * synchronised, many such increments determine the power of each class.
 *
 * Method: least squares on the normal equations, which add each increment while older ones fade
 * (recursive least squares with a forgetting factor). The interval is Student's, from the
 * residuals, plus the counter's gain error.
 */
#ifndef ERG_HOOKS_DECONVOLUTION_H
#define ERG_HOOKS_DECONVOLUTION_H

#include <stdbool.h>
#include <stddef.h>

enum { ERG_DECONVOLUTION_CLASSES = 32 };

/* A zeroed struct with only the number of classes set is valid and empty. */
struct erg_deconvolution {
    size_t classes;
    double normal[ERG_DECONVOLUTION_CLASSES][ERG_DECONVOLUTION_CLASSES]; /* s^2 */
    double right[ERG_DECONVOLUTION_CLASSES];                             /* J s */
    double squares_j2, weight;
    size_t seen[ERG_DECONVOLUTION_CLASSES]; /* increments that contained the class */
};

/* One increment of the counter: seconds of each class, [classes]. */
void erg_deconvolution_add(struct erg_deconvolution *sums, const double *seconds, double energy_j);

struct erg_class_power {
    double power_w, uncertainty_w; /* 95 %; NaN: the class never occurred */
    bool measured;                 /* false: the increments cannot separate it from other classes */
};

/*
 * Fills `powers`, [classes]. `gain_error`: of the counter, as a share. Returns the condition number
 * of the classes that occurred, INFINITY if they cannot be separated.
 */
double erg_deconvolution_solve(const struct erg_deconvolution *sums, double gain_error,
                               struct erg_class_power *powers);

#endif
