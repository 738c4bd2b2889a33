/*
 * Watches whether steps wait for their tokens: reading goes on while the device computes, so that
 * they should not.
 */
#ifndef ERG_TRAIN_LOG_DATA_WATCH_H
#define ERG_TRAIN_LOG_DATA_WATCH_H

#include <stdbool.h>
#include <stddef.h>

/* All-zero: no step has been made. */
struct erg_data_watch {
    size_t steps; /* that were made */
    double waited_s, spent_s;
    bool said;
};

/* Adds a step: the share of the time that the latest steps, of a second at least, have waited, once
 * that is above 2 %; then and else 0. The first step, for which nothing is read ahead, does not
 * count. */
double erg_data_watch_add(struct erg_data_watch *watch, double waited_s, double step_s);

#endif
