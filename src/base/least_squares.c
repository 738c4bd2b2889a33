/* Damped least squares: Levenberg-Marquardt steps with numerical derivatives. */
#include "base/least_squares.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const double derivative_step = 1e-4;

struct problem {
    erg_residual_function *function;
    void *context;
    size_t p, n;
    const double *sd;
};

/* The penalised sum of squares; infinite where a residual is not finite. */
static double cost(const struct problem *problem, const double *x, const double *residuals)
{
    double sum = 0.0;
    for (size_t i = 0; i < problem->n; i++)
        sum += residuals[i] * residuals[i];
    for (size_t k = 0; k < problem->p; k++)
        sum += x[k] / problem->sd[k] * (x[k] / problem->sd[k]);
    return isfinite(sum) ? sum : INFINITY;
}

bool erg_solve_positive(double *a, double *b, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        if (!(a[j * n + j] > 0.0))
            return false;
        double pivot = sqrt(a[j * n + j]);
        for (size_t i = j; i < n; i++)
            a[i * n + j] /= pivot;
        for (size_t i = j + 1; i < n; i++)
            for (size_t k = j + 1; k <= i; k++)
                a[i * n + k] -= a[i * n + j] * a[k * n + j];
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            b[i] -= a[i * n + k] * b[k];
        b[i] /= a[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; k++)
            b[i] -= a[k * n + i] * b[k];
        b[i] /= a[i * n + i];
    }
    return true;
}

/* Normal equations at x: a = J'J + D, g = J'r + D x, with D = 1 / sd^2; `jacobian` is p x n. */
static int linearise(const struct problem *problem, const double *x, const double *residuals,
                     double *jacobian, double *a, double *g, struct erg_error *err)
{
    size_t p = problem->p, n = problem->n;
    double *moved = erg_xcalloc(p, sizeof *moved);
    memcpy(moved, x, p * sizeof *moved);
    int status = 0;
    for (size_t k = 0; k < p && !status; k++) {
        double *column = jacobian + k * n;
        moved[k] = x[k] + derivative_step;
        status = problem->function(problem->context, moved, column, err);
        moved[k] = x[k];
        for (size_t i = 0; i < n && !status; i++)
            column[i] = (column[i] - residuals[i]) / derivative_step;
    }
    free(moved);
    if (status)
        return -1;
    for (size_t k = 0; k < p; k++) {
        for (size_t l = 0; l < p; l++) {
            double sum = 0.0;
            for (size_t i = 0; i < n; i++)
                sum += jacobian[k * n + i] * jacobian[l * n + i];
            a[k * p + l] = sum;
        }
        assert(problem->sd[k] > 0);
        double weight = 1.0 / (problem->sd[k] * problem->sd[k]), sum = 0.0;
        for (size_t i = 0; i < n; i++)
            sum += jacobian[k * n + i] * residuals[i];
        a[k * p + k] += weight;
        g[k] = sum + weight * x[k];
    }
    return 0;
}

int erg_least_squares(erg_residual_function *function, void *context, size_t parameter_count,
                      const double *sd, size_t residual_count, int iterations, double *x,
                      struct erg_error *err)
{
    struct problem problem = {function, context, parameter_count, residual_count, sd};
    size_t p = parameter_count, n = residual_count;
    double *memory = erg_xcalloc(2 * n + p * n + 2 * p * p + 3 * p + 1, sizeof *memory);
    double *residuals = memory, *trial_residuals = residuals + n, *jacobian = trial_residuals + n,
           *a = jacobian + p * n, *damped = a + p * p, *g = damped + p * p, *step = g + p,
           *trial = step + p;
    double damping = 1e-3, best = INFINITY;
    int status = function(context, x, residuals, err);
    if (!status)
        best = cost(&problem, x, residuals);
    for (int round = 0; round < iterations && !status; round++) {
        status = linearise(&problem, x, residuals, jacobian, a, g, err);
        double before = best;
        bool accepted = false;
        for (int attempt = 0; attempt < 8 && !accepted && !status; attempt++) {
            memcpy(damped, a, p * p * sizeof *a);
            for (size_t k = 0; k < p; k++) {
                damped[k * p + k] *= 1.0 + damping;
                step[k] = g[k];
            }
            if (!erg_solve_positive(damped, step, p)) {
                damping *= 10.0;
                continue;
            }
            for (size_t k = 0; k < p; k++)
                trial[k] = x[k] - step[k];
            status = function(context, trial, trial_residuals, err);
            double value = status ? INFINITY : cost(&problem, trial, trial_residuals);
            accepted = value < best;
            damping = accepted ? fmax(damping * 0.2, 1e-9) : damping * 10.0;
            if (accepted) {
                best = value;
                memcpy(x, trial, p * sizeof *x);
                memcpy(residuals, trial_residuals, n * sizeof *residuals);
            }
        }
        if (!accepted || best > before * (1.0 - 1e-6))
            break;
    }
    free(memory);
    return status;
}

int erg_least_squares_left(erg_residual_function *function, void *context, size_t parameter_count,
                           const double *sd, size_t residual_count, const double *x, double *left,
                           struct erg_error *err)
{
    const struct problem problem = {function, context, parameter_count, residual_count, sd};
    size_t p = parameter_count, n = residual_count;
    double *memory = erg_xcalloc(n + p * n + 2 * p * p + 2 * p + 1, sizeof *memory);
    double *residuals = memory, *jacobian = residuals + n, *a = jacobian + p * n,
           *destroyed = a + p * p, *g = destroyed + p * p, *column = g + p;
    int status = function(context, x, residuals, err) ||
                         linearise(&problem, x, residuals, jacobian, a, g, err)
                     ? -1
                     : 0;
    for (size_t k = 0; k < p && !status; k++) {
        memcpy(destroyed, a, p * p * sizeof *a);
        memset(column, 0, p * sizeof *column);
        column[k] = 1;
        left[k] =
            erg_solve_positive(destroyed, column, p) && column[k] > 0 ? sqrt(column[k]) : sd[k];
    }
    free(memory);
    return status;
}
