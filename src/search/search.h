/*
 * Search: the time-energy behaviour of one partition over all its schedules, from as few
 * measurements as possible.
 *
 * A schedule (here: a config) is a clock, a number of communication SMs and a launch slot. The
 * search does not access devices: it requests measurements from the caller's oracle and returns a
 * table with an estimate for every config. Objectives, both minimised: time t and the energy beyond
 * blocking power, e = E - Ps t; the frontier of (E, t) is a subset of that of (e, t).
 *
 * Methods:
 *   GP          two Gaussian processes on ln t and ln E over the whole grid, a time-only sweep at
 *               the top clock, Latin-hypercube start, exact expected hypervolume improvement; the
 *               table predicts every config, measured or not. The default.
 *   TREES       boosted trees in four passes (Kareus), repaired (rescaled targets,
 *               normalised uncertainty) or in raw units; only measured configs are in the table.
 *   RANDOM, EXHAUSTIVE   yardsticks.
 *
 * Held: where readings show that a GPU ran below the requested clock (power cap, heat), all higher
 * clocks with the same SMs and slot are equivalent. Their configs share readings and estimates, are
 * measured once, and count as measured together.
 *
 * Resume: a search is a pure function of its inputs, its seed and the oracle's answers. It keeps no
 * files. With an oracle that returns earlier measurements from its store, and stores each new one
 * before it returns, a killed search continues exactly where it was. Interrupt: a failing oracle
 * ends the search with the oracle's error.
 *
 * Threads: no shared state; run as many searches at once as there are cores.
 */
#ifndef ERG_SEARCH_SEARCH_H
#define ERG_SEARCH_SEARCH_H

#include "ergon/error.h"
#include "ergon/frontier.h"
#include "io/measurement.h"
#include "job/search_method.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The grid. Clocks and SM counts strictly increasing; slots are numbered in launch order. */
struct erg_space {
    const int *clocks_mhz;
    size_t clock_count;
    const int *sms;
    size_t sms_count;
    size_t slot_count;
};

struct erg_choice { /* indices into the grid's axes */
    size_t clock, sm, slot;
};

size_t erg_space_size(const struct erg_space *space);
size_t erg_space_index(const struct erg_space *space, struct erg_choice choice);
struct erg_choice erg_space_choice(const struct erg_space *space, size_t config);

struct erg_oracle {
    int (*measure)(void *context, size_t config, struct erg_measurement *out,
                   struct erg_error *err);
    /* A short run that gives the time alone (fills time_s, time_sd); needed for a sweep only. */
    int (*measure_time)(void *context, size_t config, struct erg_measurement *out,
                        struct erg_error *err);
    void *context;
};

/*
 * A parametric model of the device as prior of GP: fills time_s[i], energy_j[i] for configs[i]
 * under constants c_k exp(log_factors[k]). With parameter_count > 0 the search first fits the
 * factors to the sweep and the start points (damped least squares, penalty (log factor / sd)^2),
 * then learns only the remainder. With 0 the model is not corrected: its constants are wrong by
 * 10-30 %.
 */
struct erg_prior {
    int (*predict)(void *context, const double *log_factors, const size_t *configs, size_t count,
                   double *time_s, double *energy_j, struct erg_error *err);
    void *context;
    size_t parameter_count;
    const double *parameter_sd; /* [parameter_count] */
};

struct erg_search_options {
    enum erg_search_method method;
    uint64_t seed;
    double blocking_power_w; /* Ps */
    size_t budget;           /* measurements at most, the sweep not counted; all for EXHAUSTIVE */
    size_t start;            /* GP, TREES: measurements before the first model */
    size_t batch;            /* GP, TREES: measurements between two fits */

    /*
     * Stop early when a batch promises (GP: best expected improvement) or the last two batches
     * brought (TREES: mean) less than this share of the hypervolume; 0 = use the whole budget.
     */
    double stop_ratio;
    size_t minimum; /* not before this many measurements */

    size_t sweep_clocks; /* GP: clocks of the time-only sweep: 0 none, 1 the highest, … */
    const struct erg_prior *prior; /* GP: NULL = none */
    bool raw_units;                /* TREES: as published, without the repairs */
};

/* Sensible values for a method; `run_ops` sizes TREES as published (1, 2-3, more). */
void erg_search_defaults(struct erg_search_options *options, enum erg_search_method method,
                         size_t run_ops);

extern const char *const erg_search_method_names[]; /* by enum erg_search_method, ends with NULL */
/* NULL for another value. */
const char *erg_search_method_name(enum erg_search_method method);

enum erg_knowledge {
    ERG_UNKNOWN,   /* neither measured nor predicted: not for a plan */
    ERG_PREDICTED, /* by the model */
    ERG_MEASURED,  /* at least once */
};

struct erg_estimate {
    double time_s, energy_j;   /* GP: exp of the posterior mean; else the mean reading */
    double time_sd, energy_sd; /* relative, of the true value's uncertainty */
    enum erg_knowledge knowledge;
};

struct erg_search_result {
    struct erg_estimate *table; /* [config_count] */
    size_t config_count;
    size_t *order; /* [evaluation_count] configs in the order of measurement */
    size_t evaluation_count;
    /* [evaluation_count] share of the final front's hypervolume within reach of the first i + 1 */
    double *progress;
    size_t swept_count;             /* time-only measurements */
    size_t full_count;              /* others, those added after the search too */
    double promise;                 /* GP: last best expected improvement / hypervolume */
    struct erg_search_model *model; /* private */
};

int erg_search_run(struct erg_search_result **result, const struct erg_space *space,
                   const struct erg_search_options *options, const struct erg_oracle *oracle,
                   struct erg_error *err);
void erg_search_free(struct erg_search_result *result);

/*
 * Adds a measurement made after the search (the configs that a plan uses are measured before the
 * plan is final) and refreshes the whole table. It is not part of `order`.
 */
int erg_search_add(struct erg_search_result *result, size_t config,
                   const struct erg_measurement *observation, struct erg_error *err);

/*
 * The front of the estimates that are not ERG_UNKNOWN, in (t, E - blocking_power_w t); recipe =
 * config. The energies in `front` are those beyond blocking power.
 */
void erg_search_front(const struct erg_search_result *result, double blocking_power_w,
                      struct erg_frontier *front);

#endif
