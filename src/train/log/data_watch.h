/*
 * Detects steps that wait for their tokens. They should not, since tokens are read while the device
 * computes.
 */
#ifndef ERG_TRAIN_LOG_DATA_WATCH_H
#define ERG_TRAIN_LOG_DATA_WATCH_H

#include <stdbool.h>
#include <stddef.h>

/* All-zero: no step yet. */
struct erg_data_watch {
    size_t steps; /* number of steps */
    double waited_s, spent_s;
    bool said;
};

/*
 * Adds a step. Returns the share of time that the latest steps, over at least a second, have
 * waited, the first time that it exceeds 2 %; otherwise 0. The first step, whose tokens are not
 * read ahead, does not count.
 */
double erg_data_watch_add(struct erg_data_watch *watch, double waited_s, double step_s);

#endif
