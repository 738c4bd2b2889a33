/*
 * Gradient-boosted regression trees on a small table, through libxgboost, on one thread.
 *
 * Parameters of Kareus section 3.2: 100 rounds, depth 6, rate 0.3, 80% of rows and columns per
 * round, base score = mean of the targets.
 */
#ifndef ERG_SEARCH_BOOST_INTERNAL_H
#define ERG_SEARCH_BOOST_INTERNAL_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>

/* A matrix of rows to learn from or to predict for; row-major features. */
struct erg_boost_rows {
    void *handle;
    size_t count;
};

int erg_boost_rows_init(struct erg_boost_rows *rows, const float *features, size_t count,
                        size_t columns, struct erg_error *err);
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
