/* What the files of the search room share and nobody else sees. */
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

/* What a result remembers to be able to take later measurements. */
struct erg_search_model {
    struct erg_space space; /* with axes of its own */
    int *axes;
    struct erg_search_reading *items; /* in the order of measurement */
    size_t count, capacity;
    size_t *same_as;        /* [configs] the config that stands for it: itself, or see below */
    bool *measured;         /* [configs] it or one like it has a full measurement */
    struct erg_gp_pair *gp; /* NULL for the methods that only know what they measured */
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
 * What a held GPU's time-only readings are off by, in ln t: a burst is over before the GPU is hot,
 * and a cool one leaks less and so is held at a higher clock. By the schedules that have a full
 * reading as well; 0 where none has.
 */
double erg_search_cool_offset(const struct erg_search_model *model);

/* Method loops. They return when done; erg_search_run() fills the table afterwards. */
int erg_search_run_gp(struct erg_search_run *run, struct erg_error *err);
int erg_search_run_trees(struct erg_search_run *run, struct erg_error *err);

#endif
