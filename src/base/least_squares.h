/*
 * Damped least squares (Levenberg-Marquardt) with numerical derivatives, for models of few
 * parameters that already have the right scale: parameters are log factors around 0.
 */
#ifndef ERG_BASE_LEAST_SQUARES_H
#define ERG_BASE_LEAST_SQUARES_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Fills residuals[residual_count], each in units of its own standard deviation. A residual that is
 * not finite makes a step unacceptable, nothing worse.
 */
typedef int erg_residual_function(void *context, const double *parameters, double *residuals,
                                  struct erg_error *err);

/*
 * Minimises |residuals|^2 + sum_k (x_k / sd_k)^2 from `x` in place.
 * Stops after `iterations` or when an accepted step improves by less than one part in 10^6.
 */
int erg_least_squares(erg_residual_function *function, void *context, size_t parameter_count,
                      const double *sd, size_t residual_count, int iterations, double *x,
                      struct erg_error *err);

/*
 * The uncertainty of the solution: left[k] is the standard deviation of x_k, sqrt of the diagonal
 * of (J'J + 1 / sd^2)^-1 at `x`; sd[k] where they do not depend on it.
 */
int erg_least_squares_left(erg_residual_function *function, void *context, size_t parameter_count,
                           const double *sd, size_t residual_count, const double *x, double *left,
                           struct erg_error *err);

/* Solves the symmetric positive definite a x = b (row-major, n x n, destroyed) into b. False where
 * a is not positive definite. */
bool erg_solve_positive(double *a, double *b, size_t n);

#endif
