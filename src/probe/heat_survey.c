/* Which GPU warms which: temperatures as linear sums of delayed powers, by least squares. */
#include "probe/heat_fit.h"

#include "base/least_squares.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns of a GPU's regression; then one for each GPU that may warm its air. */
enum { AIR, DIE, SINK, BEGINNING, OTHERS };
enum { MOST_COLUMNS = OTHERS + ERG_CHASSIS_GPUS };

static const double die_times_s[] = {0.7, 1.5, 3, 6, 12};
static const double sink_times_s[] = {12, 18, 27, 40, 60, 90, 135, 200};
enum {
    DIE_TIMES = sizeof die_times_s / sizeof *die_times_s,
    SINK_TIMES = sizeof sink_times_s / sizeof *sink_times_s
};

/* The error of a temperature in one step. Errors of neighbouring steps are correlated, so this
 * exceeds their noise. */
static const double error_k = 2;
/* The expected effect of a watt of another GPU. */
static const double prior_k_per_w = 0.03;
/* The least coupling: 2.5 K at 600 W. */
static const double least_coupling = 0.004, least_known = 0.008;
static const double alike = 0.9; /* correlation of powers above which couplings cannot be
                                  * separated */

/* One pair of time constants. */
struct delays {
    double *die, *sink, *air; /* [gpu * count + step]: powers delayed once, once, twice */
};

struct regression {
    size_t columns;
    double a[MOST_COLUMNS * MOST_COLUMNS], b[MOST_COLUMNS], squares;
};

/* The value in the middle of each step of a signal that follows `input` with a delay. */
static void delay(const double *input, double *output, size_t count, double step_s, double time_s)
{
    const double half = -expm1(-0.5 * step_s / time_s), whole = -expm1(-step_s / time_s);
    double at = input[0];
    for (size_t i = 0; i < count; i++) {
        output[i] = at + (input[i] - at) * half;
        at += (input[i] - at) * whole;
    }
}

static void take_delays(const struct erg_heat_tracks *tracks, struct delays *delays, double die_s,
                        double sink_s)
{
    const size_t n = tracks->count;
    for (size_t g = 0; g < tracks->gpus; g++) {
        delay(&tracks->power_w[g * n], &delays->die[g * n], n, tracks->step_s, die_s);
        delay(&tracks->power_w[g * n], &delays->sink[g * n], n, tracks->step_s, sink_s);
        delay(&delays->sink[g * n], &delays->air[g * n], n, tracks->step_s, sink_s);
    }
}

/* Normal equations of one GPU. */
static void regress(const struct erg_heat_tracks *tracks, const bool *used,
                    const struct delays *delays, double sink_s, size_t gpu, struct regression *out)
{
    const size_t n = tracks->count, m = OTHERS + tracks->gpus;
    double row[MOST_COLUMNS];
    memset(out, 0, sizeof *out);
    out->columns = m;
    for (size_t i = 0; i < n; i++) {
        const double t = tracks->temperature_c[gpu * n + i];
        if (isnan(t) || !used[i])
            continue;
        row[AIR] = 1;
        row[DIE] = delays->die[gpu * n + i];
        row[SINK] = delays->sink[gpu * n + i];
        row[BEGINNING] = 100 * exp(-((double)i + 0.5) * tracks->step_s / sink_s);
        for (size_t j = 0; j < tracks->gpus; j++)
            row[OTHERS + j] = j == gpu ? 0 : delays->air[j * n + i];
        for (size_t k = 0; k < m; k++) {
            for (size_t l = 0; l <= k; l++)
                out->a[k * m + l] += row[k] * row[l];
            out->b[k] += row[k] * t;
        }
        out->squares += t * t;
    }
    for (size_t k = 0; k < m; k++) {
        for (size_t l = 0; l < k; l++)
            out->a[l * m + k] = out->a[k * m + l];
        out->a[k * m + k] +=
            k < OTHERS ? 1e-9 * (1 + out->a[k * m + k]) : pow(error_k / prior_k_per_w, 2);
    }
}

/* Coefficients, and the residual sum of squares; infinite without a solution. */
static double solve_regression(const struct regression *of, double *coefficients)
{
    double a[MOST_COLUMNS * MOST_COLUMNS], left = of->squares;
    memcpy(a, of->a, sizeof a);
    memcpy(coefficients, of->b, of->columns * sizeof *coefficients);
    if (!erg_solve_positive(a, coefficients, of->columns))
        return INFINITY;
    for (size_t k = 0; k < of->columns; k++)
        left -= coefficients[k] * of->b[k];
    return left;
}

static double standard_error(const struct regression *of, size_t column)
{
    double a[MOST_COLUMNS * MOST_COLUMNS], unit[MOST_COLUMNS] = {0};
    memcpy(a, of->a, sizeof a);
    unit[column] = 1;
    return erg_solve_positive(a, unit, of->columns) ? error_k * sqrt(fmax(unit[column], 0))
                                                    : INFINITY;
}

/* The pair of time constants, the same for all GPUs, with the least sum of squared residuals. */
static void find_times(const struct erg_heat_tracks *tracks, const bool *used,
                       struct delays *delays, struct erg_heat_survey *survey)
{
    struct regression *regression = erg_xcalloc(1, sizeof *regression);
    double coefficients[MOST_COLUMNS], least = INFINITY;
    for (int d = 0; d < DIE_TIMES; d++)
        for (int s = 0; s < SINK_TIMES; s++) {
            double left = 0;
            if (sink_times_s[s] < 4 * die_times_s[d])
                continue;
            take_delays(tracks, delays, die_times_s[d], sink_times_s[s]);
            for (size_t g = 0; g < tracks->gpus; g++) {
                regress(tracks, used, delays, sink_times_s[s], g, regression);
                left += solve_regression(regression, coefficients);
            }
            if (left < least) {
                least = left;
                survey->die_time_s = die_times_s[d];
                survey->sink_time_s = sink_times_s[s];
            }
        }
    free(regression);
}

static double correlation(const struct erg_heat_tracks *tracks, size_t a, size_t b)
{
    const double *x = &tracks->power_w[a * tracks->count], *y = &tracks->power_w[b * tracks->count];
    const double n = (double)tracks->count;
    double sx = 0, sy = 0, xx = 0, yy = 0, xy = 0;
    for (size_t i = 0; i < tracks->count; i++) {
        sx += x[i];
        sy += y[i];
        xx += x[i] * x[i];
        yy += y[i] * y[i];
        xy += x[i] * y[i];
    }
    const double spread = (xx - sx * sx / n) * (yy - sy * sy / n);
    return spread > 0 ? (xy - sx * sy / n) / sqrt(spread) : 1; /* powers that never change */
}

/* The measurement of one pair. */
struct pair_seen {
    struct erg_heat_pair pair;
    bool certain, unknown;
};

static int by_strength(const void *left, const void *right)
{
    const struct pair_seen *a = left, *b = right;
    return (a->pair.k_per_w < b->pair.k_per_w) - (a->pair.k_per_w > b->pair.k_per_w);
}

/* The strongest coupling of each rear GPU, so that no GPU is both front and rear. */
static void choose_pairs(struct pair_seen *seen, size_t count, struct erg_heat_survey *survey)
{
    bool front[ERG_CHASSIS_GPUS] = {false}, rear[ERG_CHASSIS_GPUS] = {false}, unknown = false;
    qsort(seen, count, sizeof *seen, by_strength);
    for (size_t i = 0; i < count; i++) {
        const struct erg_heat_pair *pair = &seen[i].pair;
        unknown |= seen[i].unknown;
        if (!seen[i].certain || rear[pair->rear] || front[pair->rear] || rear[pair->front])
            continue;
        front[pair->front] = rear[pair->rear] = true;
        survey->pairs[survey->pair_count++] = *pair;
    }
    survey->coupling = survey->pair_count ? ERG_HEAT_COUPLED
                       : unknown          ? ERG_HEAT_UNKNOWN
                                          : ERG_HEAT_APART;
}

void erg_heat_survey(const struct erg_heat_tracks *tracks, const bool *used,
                     struct erg_heat_survey *survey)
{
    const size_t cells = tracks->gpus * tracks->count;
    struct delays delays = {erg_xcalloc(cells, sizeof(double)), erg_xcalloc(cells, sizeof(double)),
                            erg_xcalloc(cells, sizeof(double))};
    struct regression *regression = erg_xcalloc(1, sizeof *regression);
    struct pair_seen *seen = erg_xcalloc(tracks->gpus * tracks->gpus, sizeof *seen);
    double coefficients[MOST_COLUMNS];
    size_t count = 0;
    *survey = (struct erg_heat_survey){0};
    find_times(tracks, used, &delays, survey);
    take_delays(tracks, &delays, survey->die_time_s, survey->sink_time_s);
    for (size_t g = 0; g < tracks->gpus; g++) {
        regress(tracks, used, &delays, survey->sink_time_s, g, regression);
        solve_regression(regression, coefficients);
        survey->die_k_per_w[g] = coefficients[DIE];
        survey->sink_k_per_w[g] = coefficients[SINK];
        survey->air_c[g] = coefficients[AIR];
        for (size_t j = 0; j < tracks->gpus; j++) {
            if (j == g)
                continue;
            const double k = coefficients[OTHERS + j], se = standard_error(regression, OTHERS + j);
            const bool same = fabs(correlation(tracks, g, j)) > alike;
            struct pair_seen *at = &seen[count++];
            *at = (struct pair_seen){.pair = {j, g, k},
                                     .certain = !same && k > least_coupling && k > 4 * se};
            if (!at->certain) {
                at->unknown = same || fabs(k) + 2 * se > least_known;
                survey->least_k_per_w = fmax(survey->least_k_per_w, fabs(k) + 2 * se);
            }
        }
    }
    choose_pairs(seen, count, survey);
    free(seen);
    free(regression);
    free(delays.die);
    free(delays.sink);
    free(delays.air);
}
