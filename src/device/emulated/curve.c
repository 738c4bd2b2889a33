/* The instruction-level curve and its fit. */
#include "device/emulated/emulated_internal.h"

#include <math.h>
#include <string.h>

/* The share of the dynamic energy that voltage does not change. */
static const double fixed_share = 0.2;

struct curve_context {
    const struct erg_gpu_curve *device;
    const struct erg_emulated_curve *curve;
};

static double energy_factor(const struct erg_gpu_curve *device, double clock_mhz)
{
    double volt = erg_voltage(device->voltage_knee_mhz, device->voltage_slope_per_ghz,
                              device->voltage_slope_low_per_ghz, clock_mhz);
    return fixed_share + (1 - fixed_share) * volt * volt;
}

static void evaluate_curve(const void *context, double clock_mhz, double *time_s, double *energy_j)
{
    const struct curve_context *at = context;
    *time_s = at->curve->fixed_s + at->curve->clocked_s_mhz / clock_mhz;
    *energy_j = at->device->static_power_w * *time_s +
                at->curve->energy_j * energy_factor(at->device, clock_mhz);
}

static void run_curve(const struct erg_gpu *gpu, const struct erg_emulated_curve *curve,
                      double clock_mhz, struct erg_emulated_result *out)
{
    struct curve_context context = {&gpu->curve, curve};
    struct erg_cap cap = {.power_w = gpu->curve.power_cap_w,
                          .softness_mhz = gpu->curve.cap_softness_mhz,
                          .dither_mhz = gpu->cap_dither_mhz,
                          .static_w = gpu->curve.static_power_w,
                          .evaluate = evaluate_curve,
                          .context = &context};
    erg_cap_run(&cap, clock_mhz, out);
    out->exposed_s = 0;
}

int erg_emulated_curve_run(const struct erg_gpu *gpu, const struct erg_emulated_curve *curve,
                           int clock_mhz, struct erg_emulated_result *out, struct erg_error *err)
{
    if (clock_mhz < 1)
        return erg_fail(err, ERG_FAILED,
                        "running an instruction on %s at %d MHz: the clock must be above 0",
                        gpu->name, clock_mhz);
    run_curve(gpu, curve, clock_mhz, out);
    return 0;
}

/* Sum of squared relative errors; `residuals` holds two per row. */
static double residuals_of(const struct erg_gpu *gpu, const struct erg_emulated_curve *curve,
                           const struct erg_curve_row *row, double residual[2])
{
    struct erg_emulated_result result;
    run_curve(gpu, curve, row->clock_mhz, &result);
    residual[0] = result.time_s / row->time_s - 1;
    residual[1] = result.energy_j / row->energy_j - 1;
    return residual[0] * residual[0] + residual[1] * residual[1];
}

static double cost_of(const struct erg_gpu *gpu, const struct erg_emulated_curve *curve,
                      const struct erg_curve_row *rows, size_t count)
{
    double cost = 0, residual[2];
    for (size_t i = 0; i < count; i++)
        cost += residuals_of(gpu, curve, &rows[i], residual);
    return cost;
}

static struct erg_emulated_curve curve_of(const double p[3])
{
    return (struct erg_emulated_curve){p[0], p[1], p[2]};
}

/* Solves the symmetric 3 x 3 system by Gaussian elimination; false when it is singular. */
static bool solve3(double a[3][3], double b[3], double x[3])
{
    for (int k = 0; k < 3; k++) {
        int pivot = k;
        for (int i = k + 1; i < 3; i++)
            if (fabs(a[i][k]) > fabs(a[pivot][k]))
                pivot = i;
        if (!(fabs(a[pivot][k]) > 0))
            return false;
        for (int j = 0; j < 3; j++) {
            double swapped = a[k][j];
            a[k][j] = a[pivot][j];
            a[pivot][j] = swapped;
        }
        double swapped = b[k];
        b[k] = b[pivot];
        b[pivot] = swapped;
        for (int i = k + 1; i < 3; i++) {
            double factor = a[i][k] / a[k][k];
            for (int j = k; j < 3; j++)
                a[i][j] -= factor * a[k][j];
            b[i] -= factor * b[k];
        }
    }
    for (int i = 2; i >= 0; i--) {
        x[i] = b[i];
        for (int j = i + 1; j < 3; j++)
            x[i] -= a[i][j] * x[j];
        x[i] /= a[i][i];
    }
    return true;
}

/* Ordinary least squares of time on 1/clock, as if the cap did not act. */
static void first_guess(const struct erg_gpu *gpu, const struct erg_curve_row *rows, size_t count,
                        double p[3])
{
    double n = (double)count, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0, energy = 0;
    for (size_t i = 0; i < count; i++) {
        double x = 1 / rows[i].clock_mhz, y = rows[i].time_s;
        sum_x += x;
        sum_y += y;
        sum_xx += x * x;
        sum_xy += x * y;
        energy += (rows[i].energy_j - gpu->curve.static_power_w * y) /
                  energy_factor(&gpu->curve, rows[i].clock_mhz);
    }
    double slope = (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
    p[1] = fmax(slope, 0.05 * sum_y / sum_x);
    p[0] = fmax((sum_y - p[1] * sum_x) / n, 0);
    p[2] = fmax(energy / n, 1e-3 * rows[0].energy_j);
}

int erg_emulated_curve_fit(const struct erg_gpu *gpu, const struct erg_curve_row *rows,
                           size_t count, struct erg_emulated_curve *curve, struct erg_error *err)
{
    bool varied = false;
    for (size_t i = 0; i < count; i++) {
        if (!(rows[i].clock_mhz > 0) || !(rows[i].time_s > 0) || !(rows[i].energy_j > 0))
            return erg_fail(err, ERG_FAILED,
                            "fitting an instruction's curve on %s: row %zu has clock %g MHz, time "
                            "%g s and energy %g J, expected numbers above 0",
                            gpu->name, i, rows[i].clock_mhz, rows[i].time_s, rows[i].energy_j);
        varied |= rows[i].clock_mhz != rows[0].clock_mhz;
    }
    if (!varied)
        return erg_fail(err, ERG_FAILED,
                        "fitting an instruction's curve on %s: %zu rows at one clock, expected at "
                        "least two clocks",
                        gpu->name, count);

    double p[3], damping = 1e-3;
    first_guess(gpu, rows, count, p);
    struct erg_emulated_curve best = curve_of(p);
    double cost = cost_of(gpu, &best, rows, count);
    double scale[3] = {p[0] + p[1] / gpu->curve.voltage_knee_mhz, p[1], p[2]};
    for (int round = 0; round < 60; round++) {
        double normal[3][3] = {{0}}, gradient[3] = {0};
        for (size_t i = 0; i < count; i++) {
            double at[2], moved[2], slope[3][2];
            residuals_of(gpu, &best, &rows[i], at);
            for (int k = 0; k < 3; k++) {
                double q[3] = {p[0], p[1], p[2]}, step = 1e-5 * scale[k];
                q[k] += step;
                struct erg_emulated_curve shifted = curve_of(q);
                residuals_of(gpu, &shifted, &rows[i], moved);
                for (int r = 0; r < 2; r++)
                    slope[k][r] = (moved[r] - at[r]) / 1e-5; /* per unit of scale */
            }
            for (int j = 0; j < 3; j++)
                for (int r = 0; r < 2; r++) {
                    gradient[j] -= slope[j][r] * at[r];
                    for (int k = 0; k < 3; k++)
                        normal[j][k] += slope[j][r] * slope[k][r];
                }
        }
        bool improved = false;
        for (int attempt = 0; attempt < 12 && !improved; attempt++) {
            double a[3][3], b[3], delta[3];
            memcpy(a, normal, sizeof a);
            memcpy(b, gradient, sizeof b);
            for (int k = 0; k < 3; k++)
                a[k][k] *= 1 + damping;
            if (!solve3(a, b, delta))
                break;
            double q[3];
            for (int k = 0; k < 3; k++)
                q[k] = fmax(p[k] + delta[k] * scale[k], k ? 1e-3 * scale[k] : 0);
            struct erg_emulated_curve candidate = curve_of(q);
            double candidate_cost = cost_of(gpu, &candidate, rows, count);
            improved = candidate_cost < cost * (1 - 1e-10);
            if (improved) {
                memcpy(p, q, sizeof p);
                best = candidate;
                cost = candidate_cost;
                damping = fmax(damping * 0.3, 1e-12);
            } else {
                damping *= 4;
            }
        }
        if (!improved)
            break;
    }
    *curve = best;
    return 0;
}
