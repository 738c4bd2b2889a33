/* Estimates for configurations that were not measured: time and energy, with their errors. */
#include "search/search_internal.h"

#include "base/least_squares.h"
#include "base/memory.h"
#include "search/gp_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Where the kernels' parameters start, which is also the centre of their prior:
 *    s    lf   ln   rho  sf   sq    sc   sl   sz
 * sz: energy may grow up to in proportion to time where only the time grows.
 */
static const double without_prior[] = {.15, .6, 1.0, .7, .05, .005, .5, .7, 1.0};
static const double with_prior[] = {.1, .6, 1.0, .7, .1, .005, .3, .2, 1.0};
static const double with_calibrated[] = {.02, .6, 1.0, .7, .02, .005, .02, .02, 0};
static const double widths[ERG_GP_FITTED] = {1.0, .7, .7, 1.5, 1.0, 1.0}; /* ln, logit */

/* Assumed where a reading states no uncertainty. floor_sd comes on top of any: it is not noise, but
 * what lies below the model's resolution. */
static const double time_sd = 0.003, energy_sd = 0.010, swept_sd = 0.006, floor_sd = 0.004;
static const double jitter_variance = 4e-8;

/* Residuals of a calibrated device model: its assumed accuracy. */
static const double calibrated_time_sd = 0.009, calibrated_energy_sd = 0.012;
static const size_t calibration_sweep_rows = 90;

/* One process with its data. */
struct learner {
    struct erg_gp gp;
    double centre[ERG_GP_PARAMETERS], p[ERG_GP_PARAMETERS];
    double *offset; /* [size] ln of the prior; NULL = none */
    double mean;    /* of the data over the offset, without a prior */
    size_t fitted_count;
};

struct erg_gp_pair {
    size_t size;
    struct learner time, energy;
    double *feature;
    const size_t *same_as; /* of the model's configs */
};

static void learner_init(struct learner *learner, const struct erg_space *space,
                         const double centre[ERG_GP_PARAMETERS])
{
    *learner = (struct learner){0};
    erg_gp_init(&learner->gp, space);
    memcpy(learner->centre, centre, sizeof learner->centre);
    memcpy(learner->p, centre, sizeof learner->p);
}

struct erg_gp_pair *erg_gp_pair_new(const struct erg_space *space)
{
    struct erg_gp_pair *pair = erg_xcalloc(1, sizeof *pair);
    pair->size = erg_space_size(space);
    learner_init(&pair->time, space, without_prior);
    learner_init(&pair->energy, space, without_prior);
    pair->feature = erg_xcalloc(pair->size, sizeof *pair->feature);
    return pair;
}

void erg_gp_pair_free(struct erg_gp_pair *pair)
{
    if (!pair)
        return;
    erg_gp_release(&pair->time.gp);
    erg_gp_release(&pair->energy.gp);
    free(pair->time.offset);
    free(pair->energy.offset);
    free(pair->feature);
    free(pair);
}

/* Subtracts the offset or the mean, fits the parameters when the data grew enough, conditions. */
static void learn(struct learner *learner, struct erg_gp_data *data, const double *feature)
{
    learner->mean = 0.0;
    for (size_t i = 0; i < data->count && !learner->offset; i++)
        learner->mean += data->value[i] / (double)data->count;
    for (size_t i = 0; i < data->count; i++)
        data->value[i] -= learner->offset ? learner->offset[data->config[i]] : learner->mean;
    size_t before = learner->fitted_count;
    if (data->count > before && (5 * data->count >= 6 * before || data->count >= before + 16)) {
        erg_gp_fit(learner->gp.space, data, feature, learner->centre, widths, before ? 6 : 14,
                   learner->p);
        learner->fitted_count = data->count;
    }
    erg_gp_reset(&learner->gp, learner->p, feature);
    for (size_t i = 0; i < data->count; i++)
        erg_gp_add(&learner->gp, data->config[i], data->value[i], data->variance[i]);
}

static double noise_variance(double sd, double assumed)
{
    double used = sd > 0.0 ? sd : assumed;
    return used * used + floor_sd * floor_sd + jitter_variance;
}

/* The estimate for a hot GPU. */
static double log_time(const struct erg_search_model *model, const struct erg_search_reading *r,
                       double cool)
{
    bool off = isnan(r->seen.energy_j) && erg_search_is_held(&model->space, r);
    return log(r->seen.time_s) - (off ? cool : 0);
}

void erg_gp_pair_refit(struct erg_gp_pair *pair, const struct erg_search_model *model)
{
    struct erg_gp_data times = {0}, energies = {0};
    const double cool = erg_search_cool_offset(model);
    pair->same_as = model->same_as;
    for (size_t i = 0; i < model->count; i++) {
        const struct erg_search_reading *r = &model->items[i];
        const size_t config = model->same_as[r->config];
        bool swept = isnan(r->seen.energy_j);
        erg_gp_data_add(&times, config, log_time(model, r, cool),
                        noise_variance(r->seen.time_sd, swept ? swept_sd : time_sd));
        if (!swept)
            erg_gp_data_add(&energies, config, log(r->seen.energy_j),
                            noise_variance(r->seen.energy_sd, energy_sd));
    }
    learn(&pair->time, &times, NULL);
    double mean = 0.0;
    for (size_t i = 0; i < pair->size; i++)
        mean += pair->time.gp.mean[i] / (double)pair->size;
    for (size_t i = 0; i < pair->size; i++)
        pair->feature[i] = pair->time.gp.mean[i] - mean;
    learn(&pair->energy, &energies, pair->feature);
    erg_gp_data_release(&times);
    erg_gp_data_release(&energies);
}

void erg_gp_pair_pretend(struct erg_gp_pair *pair, size_t config)
{
    struct erg_gp *time = &pair->time.gp, *energy = &pair->energy.gp;
    config = pair->same_as[config];
    erg_gp_add(time, config, time->mean[config], noise_variance(0.0, time_sd));
    erg_gp_add(energy, config, energy->mean[config], noise_variance(0.0, energy_sd));
}

static double expected_log(const struct learner *learner, size_t config)
{
    return learner->gp.mean[config] + (learner->offset ? learner->offset[config] : learner->mean);
}

struct erg_estimate erg_gp_pair_estimate(const struct erg_gp_pair *pair, size_t config)
{
    config = pair->same_as[config];
    return (struct erg_estimate){
        .time_s = exp(expected_log(&pair->time, config)),
        .energy_j = exp(expected_log(&pair->energy, config)),
        .time_sd = sqrt(pair->time.gp.variance[config]),
        .energy_sd = sqrt(pair->energy.gp.variance[config]),
        .knowledge = ERG_PREDICTED,
    };
}

/* The readings that calibrate a prior, gathered for one call of the device model. */
struct calibration {
    const struct erg_prior *prior;
    size_t *configs, count;
    double *log_time, *log_energy; /* NAN = not measured */
    double *time_s, *energy_j;     /* room for predictions */
};

static int calibration_residuals(void *context, const double *parameters, double *residuals,
                                 struct erg_error *err)
{
    struct calibration *c = context;
    if (c->prior->predict(c->prior->context, parameters, c->configs, c->count, c->time_s,
                          c->energy_j, err))
        return -1;
    for (size_t i = 0; i < c->count; i++) {
        residuals[2 * i] = (log(c->time_s[i]) - c->log_time[i]) / calibrated_time_sd;
        residuals[2 * i + 1] = isnan(c->log_energy[i]) ? 0.0
                                                       : (log(c->energy_j[i]) - c->log_energy[i]) /
                                                             calibrated_energy_sd;
    }
    return 0;
}

/* All full readings and a random part of the sweep, which would outweigh them otherwise. */
static void gather(struct calibration *c, const struct erg_search_model *model, struct erg_rng *rng)
{
    size_t *order = erg_xcalloc(model->count, sizeof *order), swept = 0;
    const double cool = erg_search_cool_offset(model);
    for (size_t i = 0; i < model->count; i++)
        order[i] = i;
    erg_rng_shuffle(rng, order, model->count);
    for (size_t i = 0; i < model->count; i++) {
        const struct erg_search_reading *r = &model->items[order[i]];
        if (isnan(r->seen.energy_j) && swept++ >= calibration_sweep_rows)
            continue;
        c->configs[c->count] = r->config;
        c->log_time[c->count] = log_time(model, r, cool);
        c->log_energy[c->count++] = log(r->seen.energy_j);
    }
    free(order);
}

static int calibrate(const struct erg_prior *prior, const struct erg_search_model *model,
                     struct erg_rng *rng, double *factors, struct erg_error *err)
{
    double *memory = erg_xcalloc(4 * model->count, sizeof *memory);
    struct calibration c = {.prior = prior,
                            .configs = erg_xcalloc(model->count, sizeof *c.configs),
                            .log_time = memory,
                            .log_energy = memory + model->count,
                            .time_s = memory + 2 * model->count,
                            .energy_j = memory + 3 * model->count};
    gather(&c, model, rng);
    int status = erg_least_squares(calibration_residuals, &c, prior->parameter_count,
                                   prior->parameter_sd, 2 * c.count, 15, factors, err);
    free(c.configs);
    free(memory);
    return status;
}

int erg_gp_pair_set_prior(struct erg_gp_pair *pair, const struct erg_prior *prior,
                          const struct erg_search_model *model, struct erg_rng *rng,
                          struct erg_error *err)
{
    size_t *configs = erg_xcalloc(pair->size, sizeof *configs);
    double *factors = erg_xcalloc(prior->parameter_count + 1, sizeof *factors);
    pair->time.offset = erg_xcalloc(pair->size, sizeof(double));
    pair->energy.offset = erg_xcalloc(pair->size, sizeof(double));
    for (size_t i = 0; i < pair->size; i++)
        configs[i] = i;
    int status = prior->parameter_count ? calibrate(prior, model, rng, factors, err) : 0;
    if (!status)
        status = prior->predict(prior->context, factors, configs, pair->size, pair->time.offset,
                                pair->energy.offset, err);
    for (size_t i = 0; i < pair->size && !status; i++) {
        double time_s = pair->time.offset[i], energy_j = pair->energy.offset[i];
        if (!(time_s > 0.0 && energy_j > 0.0 && isfinite(time_s) && isfinite(energy_j)))
            status = erg_fail(err, ERG_FAILED,
                              "searching a partition: the prior predicts %g s and %g J for config "
                              "%zu, expected positive values",
                              time_s, energy_j, i);
        pair->time.offset[i] = log(time_s);
        pair->energy.offset[i] = log(energy_j);
    }
    const double *centre = prior->parameter_count ? with_calibrated : with_prior;
    struct learner *learners[] = {&pair->time, &pair->energy};
    for (size_t k = 0; k < 2; k++) {
        memcpy(learners[k]->centre, centre, sizeof learners[k]->centre);
        memcpy(learners[k]->p, centre, sizeof learners[k]->p);
    }
    free(factors);
    free(configs);
    return status ? erg_fail_context(err, "preparing the prior of a search") : 0;
}
