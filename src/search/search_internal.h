/* Declarations shared by the files of the search room. Private to the room. */
#ifndef ERG_SEARCH_INTERNAL_H
#define ERG_SEARCH_INTERNAL_H

#include "search/search.h"

#include "base/random.h"

int erg_space_check(const struct erg_space *space, struct erg_error *err);

/*
 * Latin-hypercube design of `count` distinct configs: every stratum of clocks and of SM counts
 * once, slots in turn, the lowest and highest clock always among them. count <= size of the grid.
 */
void erg_space_latin(const struct erg_space *space, size_t count, struct erg_rng *rng,
                     size_t *configs);

/* A reading of a config; its energy is NAN when only the time was measured. */
struct erg_search_reading {
    size_t config;
    struct erg_measurement seen;
};

/* The state that a result keeps for later measurements. */
struct erg_search_model {
    struct erg_space space; /* with axes of its own */
    int *axes;
    struct erg_search_reading *items; /* in the order of measurement */
    size_t count, capacity;
    size_t *same_as;        /* [configs] the config that stands for it: itself, or see below */
    bool *measured;         /* [configs] it or one like it has a full measurement */
    struct erg_gp_pair *gp; /* NULL for the methods that use only measured configs */
};

/* A search while it runs: all methods append to its result. */
struct erg_search_run {
    struct erg_space space;
    const struct erg_search_options *options;
    const struct erg_oracle *oracle;
    struct erg_rng rng;
    struct erg_search_result *result;
};

/* Fails unless what was seen of a config makes sense; `energy`: its energy, too. */
int erg_search_check(const struct erg_space *space, size_t config,
                     const struct erg_measurement *seen, bool energy, struct erg_error *err);

/*
 * Ask the oracle, check its answers and append them to the result: about these configs, about
 * `count` of all in order or shuffled, about a Latin-hypercube design of `count`, about the time
 * of one.
 */
int erg_search_measure(struct erg_search_run *run, const size_t *configs, size_t count,
                       struct erg_error *err);
int erg_search_measure_in_order(struct erg_search_run *run, bool shuffled, size_t count,
                                struct erg_error *err);
int erg_search_measure_latin(struct erg_search_run *run, size_t count, struct erg_error *err);
int erg_search_measure_time(struct erg_search_run *run, size_t config, struct erg_error *err);

/* Whether a GPU was held below the clock that was asked for, by the power cap or by heat. */
bool erg_search_is_held(const struct erg_space *space, const struct erg_search_reading *reading);

/*
 * A held GPU does the same at all higher clocks: one config stands for all of them, from all
 * readings up to now. A planner would otherwise take the luckiest of a dozen readings of one thing,
 * and a model bend its curves around a kink.
 */
void erg_search_merge_held(struct erg_search_model *model);

/*
 * The error of time-only readings of a held GPU, in ln t: a burst ends before the GPU is hot, and a
 * cool GPU leaks less and so is held at a higher clock. Estimated from the schedules with a full
 * reading, too; 0 without any.
 */
double erg_search_cool_offset(const struct erg_search_model *model);

/* Method loops. They return when done; erg_search_run() fills the table afterwards. */
int erg_search_run_gp(struct erg_search_run *run, struct erg_error *err);
int erg_search_run_trees(struct erg_search_run *run, struct erg_error *err);

/*
 * Expected hypervolume improvement in two objectives, exact for independent normals.
 *
 * Against a staircase of k points (time up, energy down) within the reference (r_t, r_e), the
 * plane splits into k + 1 vertical strips [x_i, x_i+1] with ceiling u_i; the improvement of a
 * point (t, e) is sum_i max(0, x_i+1 - max(x_i, t)) max(0, u_i - e), and with
 * psi(c; m, s) = E max(0, c - N(m, s^2)) its expectation is
 * sum_i [psi(x_i+1; t) - psi(x_i; t)] psi(u_i; e).
 */

struct erg_reference {
    double time_s, energy_j;
};

/* Worst point of a filtered, non-empty front plus `margin` times its range, per objective. */
struct erg_reference erg_reference_of(const struct erg_frontier *front, double margin);

/* `front` filtered. Standard deviations may be 0: then it is the plain improvement. */
double erg_ehvi(const struct erg_frontier *front, struct erg_reference reference, double time_s,
                double time_sd_s, double energy_j, double energy_sd_j);

/*
 * Surrogate of a partition: Gaussian processes on ln t and ln E (or on the logs' remainder over a
 * prior), the energy's with the time's posterior mean as a feature, which carries over where the
 * communication stops being exposed.
 */

/* `space` must outlive the pair. */
struct erg_gp_pair *erg_gp_pair_new(const struct erg_space *space);
void erg_gp_pair_free(struct erg_gp_pair *pair); /* NULL is fine */

/* Takes all readings of the model into account; fits the kernels anew when they grew by a fifth. */
void erg_gp_pair_refit(struct erg_gp_pair *pair, const struct erg_search_model *model);

/* Calibrates the prior on the model's readings where it has parameters, and takes it on. */
int erg_gp_pair_set_prior(struct erg_gp_pair *pair, const struct erg_prior *prior,
                          const struct erg_search_model *model, struct erg_rng *rng,
                          struct erg_error *err);

/* Both processes treat their own prediction at `config` as if it had been measured, until the next
 * refit. */
void erg_gp_pair_pretend(struct erg_gp_pair *pair, size_t config);

/* Never ERG_MEASURED: only the model of the readings can set that. */
struct erg_estimate erg_gp_pair_estimate(const struct erg_gp_pair *pair, size_t config);

/* The split of a batch of the published tree search over its four passes. */

struct erg_pass_sizes {
    size_t total;     /* hypervolume improvement in (E, t) */
    size_t dynamic;   /* … in (E - Ps t, t) */
    size_t fastest;   /* smallest predicted time */
    size_t uncertain; /* largest spread of the ensemble */
};

struct erg_pass_sizes erg_pass_sizes(size_t batch);

#endif
