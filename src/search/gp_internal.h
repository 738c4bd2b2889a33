/*
 * Gaussian process over the finite grid of one partition.
 *
 * With a = ln(clock / 1150 MHz), b = ln(SMs / 8), slot q and the Matern 5/2 function
 * M(r) = (1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r), the covariance of configs i and j is
 *
 *   s^2 M(|da|/lf) M(|db|/ln) (q equal ? 1 : rho)           response surface
 * + sf^2 M(|da|/0.3)                                        curve in the clock common to all
 * + [q and n equal] sq^2 M(|da|/0.3)                        quirk of one launch
 * + sc^2 + sl^2 (aa' + a^2 a'^2 / 4 + bb' + b^2 b'^2 / 4)   constant and trend
 * + sz^2 z z'                                               given feature of the config
 *
 * The posterior on the whole grid is kept by growing a Cholesky factor, one row v_m(x) per datum:
 * adding a datum costs O(data x grid).
 */
#ifndef ERG_SEARCH_GP_INTERNAL_H
#define ERG_SEARCH_GP_INTERNAL_H

#include "search/search.h"

/* The kernel's parameters. The first ERG_GP_FITTED are fitted, in ln (rho: logit). */
enum erg_gp_parameter {
    ERG_GP_S,
    ERG_GP_LF,
    ERG_GP_LN,
    ERG_GP_RHO,
    ERG_GP_SF,
    ERG_GP_SQ,
    ERG_GP_FITTED,
    ERG_GP_SC = ERG_GP_FITTED,
    ERG_GP_SL,
    ERG_GP_SZ,
    ERG_GP_PARAMETERS,
};

struct erg_gp_data {
    size_t *config;
    double *value;    /* centred by the caller */
    double *variance; /* of the noise */
    size_t count, capacity;
};

void erg_gp_data_add(struct erg_gp_data *data, size_t config, double value, double variance);
void erg_gp_data_release(struct erg_gp_data *data);

struct erg_gp {
    const struct erg_space *space;
    size_t size;                 /* configs */
    double p[ERG_GP_PARAMETERS]; /* natural units, rho in (0, 1) */
    const double *feature;       /* z[size]; NULL = 0 everywhere */
    double *clock_coordinate, *sm_coordinate;
    /* Tables over pairs of clocks and of SM counts, from the parameters. */
    double *surface_clock, *surface_sm, *smooth, *quirk, *trend_sm;
    /* Posterior. */
    double *mean, *variance; /* [size] */
    double *rows;            /* v: count rows of `size` */
    size_t count, capacity;
};

void erg_gp_init(struct erg_gp *gp, const struct erg_space *space);
void erg_gp_release(struct erg_gp *gp);

/* Sets the parameters and forgets all data: back to the prior. */
void erg_gp_reset(struct erg_gp *gp, const double p[ERG_GP_PARAMETERS], const double *feature);
double erg_gp_covariance(const struct erg_gp *gp, size_t i, size_t j);
void erg_gp_add(struct erg_gp *gp, size_t config, double value, double noise_variance);

/*
 * Maximises likelihood x log-normal prior around `centre` by pattern search from p, in place.
 * `width` in ln (logit for rho); 0 holds a parameter at its value. At most `rounds` rounds.
 */
void erg_gp_fit(const struct erg_space *space, const struct erg_gp_data *data,
                const double *feature, const double centre[ERG_GP_PARAMETERS],
                const double width[ERG_GP_FITTED], int rounds, double p[ERG_GP_PARAMETERS]);

/* ln p(data | parameters), up to a constant of the data's count. */
double erg_gp_log_likelihood(struct erg_gp *scratch, const struct erg_gp_data *data,
                             const double *feature, const double p[ERG_GP_PARAMETERS]);

#endif
