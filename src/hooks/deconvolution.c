/* The power of each class of work, by least squares. */
#include "hooks/deconvolution.h"

#include "base/statistics.h"

#include <assert.h>
#include <math.h>

/* Each new increment multiplies the weight of older ones by this. */
#define FADES 0.999

/* Beyond this condition number, or with fewer increments for each class, classes are not
 * distinguished. */
#define MOST_CONDITION 100
enum { LEAST_INCREMENTS = 3, MOST = ERG_DECONVOLUTION_CLASSES };

void erg_deconvolution_add(struct erg_deconvolution *sums, const double *seconds, double energy_j)
{
    assert(sums->classes <= MOST);
    for (size_t a = 0; a < sums->classes; a++) {
        for (size_t b = 0; b < sums->classes; b++)
            sums->normal[a][b] = FADES * sums->normal[a][b] + seconds[a] * seconds[b];
        sums->right[a] = FADES * sums->right[a] + seconds[a] * energy_j;
        sums->seen[a] += seconds[a] > 0;
    }
    sums->squares_j2 = FADES * sums->squares_j2 + energy_j * energy_j;
    sums->weight = FADES * sums->weight + 1;
}

/* The classes that occurred, scaled so that each column has length 1. */
struct system {
    size_t count, class[MOST];
    double length[MOST]; /* s */
    double matrix[MOST][MOST], inverse[MOST][MOST];
};

static void scale_system(struct system *system, const struct erg_deconvolution *sums)
{
    system->count = 0;
    for (size_t c = 0; c < sums->classes; c++)
        if (sums->normal[c][c] > 0) {
            system->length[system->count] = sqrt(sums->normal[c][c]);
            system->class[system->count++] = c;
        }
    for (size_t a = 0; a < system->count; a++)
        for (size_t b = 0; b < system->count; b++)
            system->matrix[a][b] = sums->normal[system->class[a]][system->class[b]] /
                                   (system->length[a] * system->length[b]);
}

/* Turns rows and columns p and q so that the element between them vanishes (Jacobi). */
static void rotate(double m[MOST][MOST], double vectors[MOST][MOST], size_t count, size_t p,
                   size_t q)
{
    if (fabs(m[p][q]) < 1e-300)
        return;
    const double theta = (m[q][q] - m[p][p]) / (2 * m[p][q]);
    const double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;
    for (size_t k = 0; k < count; k++) {
        const double kp = m[k][p], kq = m[k][q];
        m[k][p] = c * kp - s * kq;
        m[k][q] = s * kp + c * kq;
    }
    for (size_t k = 0; k < count; k++) {
        const double pk = m[p][k], qk = m[q][k];
        m[p][k] = c * pk - s * qk;
        m[q][k] = s * pk + c * qk;
        const double vp = vectors[k][p], vq = vectors[k][q];
        vectors[k][p] = c * vp - s * vq;
        vectors[k][q] = s * vp + c * vq;
    }
}

/* Inverts by eigenvalues; their ratio shows how well the classes are distinguished. */
static double invert(struct system *system)
{
    double m[MOST][MOST], vectors[MOST][MOST] = {{0}}, least = INFINITY, most = 0;
    for (size_t a = 0; a < system->count; a++) {
        vectors[a][a] = 1;
        for (size_t b = 0; b < system->count; b++)
            m[a][b] = system->matrix[a][b];
    }
    for (int sweep = 0; sweep < 30; sweep++)
        for (size_t p = 0; p < system->count; p++)
            for (size_t q = p + 1; q < system->count; q++)
                rotate(m, vectors, system->count, p, q);
    for (size_t k = 0; k < system->count; k++) {
        least = fmin(least, m[k][k]);
        most = fmax(most, m[k][k]);
    }
    if (!(least > 1e-12 * most))
        return INFINITY;
    for (size_t a = 0; a < system->count; a++)
        for (size_t b = 0; b < system->count; b++) {
            system->inverse[a][b] = 0;
            for (size_t k = 0; k < system->count; k++)
                system->inverse[a][b] += vectors[a][k] * vectors[b][k] / m[k][k];
        }
    return sqrt(most / least);
}

double erg_deconvolution_solve(const struct erg_deconvolution *sums, double gain_error,
                               struct erg_class_power *powers)
{
    struct system system;
    double solved[MOST], explained_j2 = 0;
    for (size_t c = 0; c < sums->classes; c++)
        powers[c] = (struct erg_class_power){(double)NAN, (double)NAN, false};
    scale_system(&system, sums);
    const double condition = system.count ? invert(&system) : INFINITY;
    if (isinf(condition))
        return condition;
    for (size_t a = 0; a < system.count; a++) {
        solved[a] = 0;
        for (size_t b = 0; b < system.count; b++)
            solved[a] += system.inverse[a][b] * sums->right[system.class[b]] / system.length[b];
        explained_j2 += solved[a] * sums->right[system.class[a]] / system.length[a];
    }
    const double freedom = sums->weight - (double)system.count;
    const double variance_j2 =
        freedom >= 1 ? fmax(sums->squares_j2 - explained_j2, 0) / freedom : INFINITY;
    const double critical = erg_student_critical(freedom >= 1 ? (size_t)freedom : 1, 0.95);
    for (size_t a = 0; a < system.count; a++) {
        struct erg_class_power *power = &powers[system.class[a]];
        power->power_w = solved[a] / system.length[a];
        power->uncertainty_w =
            critical * sqrt(variance_j2 * system.inverse[a][a]) / system.length[a] +
            gain_error * fabs(power->power_w);
        power->measured = condition <= MOST_CONDITION && freedom >= 1 &&
                          sums->seen[system.class[a]] >= LEAST_INCREMENTS;
    }
    return condition;
}
