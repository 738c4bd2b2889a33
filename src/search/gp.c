/* Gaussian processes: covariance, conditioning on measurements, and predictions. */
#include "search/gp_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double clock_unit_mhz = 1150.0, sm_unit = 8.0, smooth_length = 0.3;

void erg_gp_data_add(struct erg_gp_data *data, size_t config, double value, double variance)
{
    if (data->count == data->capacity) {
        data->capacity = erg_grow_capacity(data->capacity, data->count + 1);
        data->config = erg_xrealloc(data->config, data->capacity, sizeof *data->config);
        data->value = erg_xrealloc(data->value, data->capacity, sizeof *data->value);
        data->variance = erg_xrealloc(data->variance, data->capacity, sizeof *data->variance);
    }
    data->config[data->count] = config;
    data->value[data->count] = value;
    data->variance[data->count++] = variance;
}

void erg_gp_data_release(struct erg_gp_data *data)
{
    free(data->config);
    free(data->value);
    free(data->variance);
    *data = (struct erg_gp_data){0};
}

void erg_gp_init(struct erg_gp *gp, const struct erg_space *space)
{
    size_t clocks = space->clock_count, sms = space->sms_count;
    *gp = (struct erg_gp){.space = space, .size = erg_space_size(space)};
    gp->clock_coordinate = erg_xcalloc(clocks, sizeof(double));
    gp->sm_coordinate = erg_xcalloc(sms, sizeof(double));
    gp->surface_clock = erg_xcalloc(clocks * clocks, sizeof(double));
    gp->smooth = erg_xcalloc(clocks * clocks, sizeof(double));
    gp->quirk = erg_xcalloc(clocks * clocks, sizeof(double));
    gp->surface_sm = erg_xcalloc(sms * sms, sizeof(double));
    gp->trend_sm = erg_xcalloc(sms * sms, sizeof(double));
    gp->mean = erg_xcalloc(gp->size, sizeof(double));
    gp->variance = erg_xcalloc(gp->size, sizeof(double));
    for (size_t i = 0; i < clocks; i++)
        gp->clock_coordinate[i] = log(space->clocks_mhz[i] / clock_unit_mhz);
    for (size_t i = 0; i < sms; i++)
        gp->sm_coordinate[i] = log(space->sms[i] / sm_unit);
}

void erg_gp_release(struct erg_gp *gp)
{
    free(gp->clock_coordinate);
    free(gp->sm_coordinate);
    free(gp->surface_clock);
    free(gp->smooth);
    free(gp->quirk);
    free(gp->surface_sm);
    free(gp->trend_sm);
    free(gp->mean);
    free(gp->variance);
    free(gp->rows);
    *gp = (struct erg_gp){0};
}

static double matern(double r)
{
    double x = sqrt(5.0) * r;
    return (1.0 + x + x * x / 3.0) * exp(-x);
}

static double square(double x)
{
    return x * x;
}

static double trend(double x, double y)
{
    return x * y + square(x * y) / 4.0;
}

/* Everything that depends on the two clocks or the two SM counts only. */
static void fill_tables(struct erg_gp *gp)
{
    const double *p = gp->p;
    size_t clocks = gp->space->clock_count, sms = gp->space->sms_count;
    double s2 = square(p[ERG_GP_S]), sf2 = square(p[ERG_GP_SF]), sq2 = square(p[ERG_GP_SQ]),
           sc2 = square(p[ERG_GP_SC]), sl2 = square(p[ERG_GP_SL]);
    for (size_t i = 0; i < clocks; i++)
        for (size_t j = 0; j <= i; j++) { /* the same both ways */
            double x = gp->clock_coordinate[i], y = gp->clock_coordinate[j];
            double smooth = matern(fabs(x - y) / smooth_length);
            size_t at = i * clocks + j, across = j * clocks + i;
            gp->surface_clock[at] = gp->surface_clock[across] =
                s2 * matern(fabs(x - y) / p[ERG_GP_LF]);
            gp->smooth[at] = gp->smooth[across] = sf2 * smooth + sc2 + sl2 * trend(x, y);
            gp->quirk[at] = gp->quirk[across] = sq2 * smooth;
        }
    for (size_t i = 0; i < sms; i++)
        for (size_t j = 0; j <= i; j++) {
            double x = gp->sm_coordinate[i], y = gp->sm_coordinate[j];
            size_t at = i * sms + j, across = j * sms + i;
            gp->surface_sm[at] = gp->surface_sm[across] = matern(fabs(x - y) / p[ERG_GP_LN]);
            gp->trend_sm[at] = gp->trend_sm[across] = sl2 * trend(x, y);
        }
}

static double covariance(const struct erg_gp *gp, struct erg_choice x, struct erg_choice y)
{
    size_t clock = x.clock * gp->space->clock_count + y.clock;
    size_t sm = x.sm * gp->space->sms_count + y.sm;
    double k = gp->smooth[clock] + gp->trend_sm[sm];
    double surface = gp->surface_clock[clock] * gp->surface_sm[sm];
    if (x.slot != y.slot)
        return k + gp->p[ERG_GP_RHO] * surface;
    return k + surface + (x.sm == y.sm ? gp->quirk[clock] : 0.0);
}

double erg_gp_covariance(const struct erg_gp *gp, size_t i, size_t j)
{
    double k = covariance(gp, erg_space_choice(gp->space, i), erg_space_choice(gp->space, j));
    return gp->feature ? k + square(gp->p[ERG_GP_SZ]) * gp->feature[i] * gp->feature[j] : k;
}

void erg_gp_reset(struct erg_gp *gp, const double p[ERG_GP_PARAMETERS], const double *feature)
{
    memcpy(gp->p, p, sizeof gp->p);
    gp->feature = feature;
    gp->count = 0;
    fill_tables(gp);
    for (size_t i = 0; i < gp->size; i++) {
        gp->mean[i] = 0.0;
        gp->variance[i] = erg_gp_covariance(gp, i, i);
    }
}

/* Covariance of one config with the whole grid. */
static void covariance_row(const struct erg_gp *gp, size_t config, double *row)
{
    const struct erg_space *space = gp->space;
    struct erg_choice y = erg_space_choice(space, config), x;
    size_t i = 0;
    for (x.clock = 0; x.clock < space->clock_count; x.clock++)
        for (x.sm = 0; x.sm < space->sms_count; x.sm++)
            for (x.slot = 0; x.slot < space->slot_count; x.slot++)
                row[i++] = covariance(gp, x, y);
    if (gp->feature) {
        double weight = square(gp->p[ERG_GP_SZ]) * gp->feature[config];
        for (i = 0; i < gp->size; i++)
            row[i] += weight * gp->feature[i];
    }
}

/* Takes weight x row off, of each of the first `count` rows in order: four at a time, so that less
 * of `row` is moved. */
static void take_off(double *restrict row, const double *rows, size_t count, size_t size,
                     size_t config)
{
    size_t m = 0;
    for (; m + 4 <= count; m += 4) {
        const double *a = rows + m * size, *b = a + size, *c = b + size, *d = c + size;
        const double of_a = a[config], of_b = b[config], of_c = c[config], of_d = d[config];
        for (size_t i = 0; i < size; i++)
            row[i] = row[i] - of_a * a[i] - of_b * b[i] - of_c * c[i] - of_d * d[i];
    }
    for (; m < count; m++) {
        const double *other = rows + m * size, weight = other[config];
        for (size_t i = 0; i < size; i++)
            row[i] -= weight * other[i];
    }
}

void erg_gp_add(struct erg_gp *gp, size_t config, double value, double noise_variance)
{
    size_t size = gp->size;
    if (gp->count == gp->capacity) {
        gp->capacity = erg_grow_capacity(gp->capacity, gp->count + 1);
        gp->rows = erg_xrealloc(gp->rows, gp->capacity * size, sizeof *gp->rows);
    }
    assert(config < size && gp->count < gp->capacity && gp->variance[config] + noise_variance > 0);
    double *row = gp->rows + gp->count * size;
    covariance_row(gp, config, row);
    take_off(row, gp->rows, gp->count, size, config);
    double scale = 1.0 / sqrt(gp->variance[config] + noise_variance);
    double step = (value - gp->mean[config]) * scale;
    for (size_t i = 0; i < size; i++) {
        row[i] *= scale;
        gp->mean[i] += row[i] * step;
        gp->variance[i] -= row[i] * row[i];
        if (gp->variance[i] < 0.0) /* rounding, where the noise is tiny */
            gp->variance[i] = 0.0;
    }
    gp->count++;
}

/*
 * Right-looking Cholesky on the upper triangle, in rows, so that the inner loop runs over
 * contiguous memory; the right-hand side is carried along as a last column.
 */
double erg_gp_log_likelihood(struct erg_gp *scratch, const struct erg_gp_data *data,
                             const double *feature, const double p[ERG_GP_PARAMETERS])
{
    size_t n = data->count, width = n + 1;
    assert(n > 0);
    memcpy(scratch->p, p, sizeof scratch->p);
    fill_tables(scratch);
    double *u = erg_xcalloc(n * width, sizeof *u), sz2 = square(p[ERG_GP_SZ]);
    struct erg_choice *choices = erg_xcalloc(n, sizeof *choices);
    for (size_t i = 0; i < n; i++)
        choices[i] = erg_space_choice(scratch->space, data->config[i]);
    for (size_t i = 0; i < n; i++) {
        assert(data->config[i] < scratch->size);
        double *row = u + i * width;
        for (size_t j = i; j < n; j++) {
            row[j] = covariance(scratch, choices[i], choices[j]);
            if (feature)
                row[j] += sz2 * feature[data->config[i]] * feature[data->config[j]];
        }
        row[i] += data->variance[i];
        row[n] = data->value[i];
    }
    double result = 0.0;
    for (size_t k = 0; k < n; k++) {
        double *pivot = u + k * width;
        if (!(pivot[k] > 0.0)) { /* parameters that double precision cannot tell apart */
            result = -INFINITY;
            break;
        }
        double scale = 1.0 / sqrt(pivot[k]);
        for (size_t j = k; j < width; j++)
            pivot[j] *= scale;
        for (size_t i = k + 1; i < n; i++) {
            double weight = pivot[i], *row = u + i * width;
            for (size_t j = i; j < width; j++)
                row[j] -= weight * pivot[j];
        }
        result -= log(pivot[k]) + 0.5 * square(pivot[n]);
    }
    free(choices);
    free(u);
    return result;
}

/* ---- parameters of the kernel from the data: pattern search on the penalised likelihood ---- */

static const double first_step[ERG_GP_FITTED] = {0.7, 0.6, 0.6, 0.96, 0.7, 0.7};
static const double worthwhile = 1e-3; /* improvement of the log-likelihood that counts */
static const double rho_limit = 0.995;

static double to_free(size_t parameter, double natural)
{
    assert(natural > 0);
    return parameter == ERG_GP_RHO ? log(natural / (1.0 - natural)) : log(natural);
}

static double to_natural(size_t parameter, double free_value)
{
    if (parameter != ERG_GP_RHO)
        return exp(free_value);
    double rho = 1.0 / (1.0 + exp(-free_value));
    return rho < rho_limit ? rho : rho_limit;
}

static double score(struct erg_gp *scratch, const struct erg_gp_data *data, const double *feature,
                    const double centre[ERG_GP_PARAMETERS], const double width[ERG_GP_FITTED],
                    const double p[ERG_GP_PARAMETERS])
{
    double result = erg_gp_log_likelihood(scratch, data, feature, p);
    for (size_t k = 0; k < ERG_GP_FITTED; k++)
        if (width[k] > 0.0) {
            double off = (to_free(k, p[k]) - to_free(k, centre[k])) / width[k];
            result -= 0.5 * off * off;
        }
    return result;
}

void erg_gp_fit(const struct erg_space *space, const struct erg_gp_data *data,
                const double *feature, const double centre[ERG_GP_PARAMETERS],
                const double width[ERG_GP_FITTED], int rounds, double p[ERG_GP_PARAMETERS])
{
    struct erg_gp scratch;
    erg_gp_init(&scratch, space);
    double best = score(&scratch, data, feature, centre, width, p), shrink = 1.0;
    for (int round = 0; round < rounds; round++) {
        bool improved = false;
        for (size_t k = 0; k < ERG_GP_FITTED; k++) {
            if (!(width[k] > 0.0))
                continue;
            for (int sign = 1; sign >= -1; sign -= 2) {
                double trial[ERG_GP_PARAMETERS];
                memcpy(trial, p, sizeof trial);
                trial[k] = to_natural(k, to_free(k, p[k]) + sign * shrink * first_step[k]);
                double value = score(&scratch, data, feature, centre, width, trial);
                if (value > best + worthwhile) {
                    best = value;
                    p[k] = trial[k];
                    improved = true;
                    break;
                }
            }
        }
        if (!improved)
            shrink *= 0.5;
    }
    erg_gp_release(&scratch);
}
