/*
 * Gradient-boosted regression trees on a small table, through libxgboost, on one thread.
 *
 * Only the published search needs it, so nothing links with it: erg_boost_open() opens it.
 * Parameters of the published search (Kareus): 100 rounds, depth 6, rate 0.3, 80% of rows and
 * columns per round, base score = mean of the targets.
 */
#ifndef ERG_SEARCH_BOOST_INTERNAL_H
#define ERG_SEARCH_BOOST_INTERNAL_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The library's functions; 0 is success. */
struct erg_boost {
    const char *(*last_error)(void);
    int (*matrix_new)(const float *data, uint64_t rows, uint64_t columns, float missing,
                      void **matrix);
    int (*matrix_free)(void *matrix);
    int (*matrix_set)(void *matrix, const char *field, const float *values, uint64_t count);
    int (*booster_new)(void *const matrices[], uint64_t count, void **booster);
    int (*booster_free)(void *booster);
    int (*booster_set)(void *booster, const char *name, const char *value);
    int (*booster_update)(void *booster, int round, void *matrix);
    int (*booster_predict)(void *booster, void *matrix, int options, unsigned trees, int training,
                           uint64_t *count, const float **values);
};

/* libxgboost.so.0, or what $ERGON_XGBOOST names. ERG_FAILED, naming the package, where it is not.
 */
int erg_boost_open(struct erg_boost *boost, struct erg_error *err);

/* A matrix of rows to learn from or to predict for; row-major features. */
struct erg_boost_rows {
    const struct erg_boost *boost; /* borrowed */
    void *handle;
    size_t count;
};

int erg_boost_rows_init(struct erg_boost_rows *rows, const struct erg_boost *boost,
                        const float *features, size_t count, size_t columns, struct erg_error *err);
void erg_boost_rows_release(struct erg_boost_rows *rows);

/*
 * Fits trees to targets[count] over features and predicts `ask` into predictions[ask->count].
 * `rescale` maps the targets to 0 … 10 while fitting: the library refuses splits that gain less
 * than 1e-6, which in seconds and joules is nearly all of them.
 */
int erg_boost_fit_predict(const float *features, const double *targets, size_t count,
                          size_t columns, bool rescale, unsigned seed,
                          const struct erg_boost_rows *ask, double *predictions,
                          struct erg_error *err);

#endif
