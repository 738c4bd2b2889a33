/* Parameters of the kernel from the data: pattern search on the penalised likelihood. */
#include "search/gp_internal.h"

#include <math.h>
#include <string.h>

static const double first_step[ERG_GP_FITTED] = {0.7, 0.6, 0.6, 0.96, 0.7, 0.7};
static const double worthwhile = 1e-3; /* improvement of the log-likelihood that counts */
static const double rho_limit = 0.995;

static double to_free(size_t parameter, double natural)
{
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
