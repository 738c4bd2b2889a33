/*
 * Loss watch: detects a loss far above those of the previous steps, for example because of a bad
 * batch or too high a learning rate. It is only a hint for people who watch the run.
 */
#ifndef ERG_TRAIN_LOG_LOSS_WATCH_H
#define ERG_TRAIN_LOG_LOSS_WATCH_H

#include <stddef.h>

enum { ERG_LOSS_WATCH_STEPS = 128 };

/* All-zero: no step yet. */
struct erg_loss_watch {
    double losses[ERG_LOSS_WATCH_STEPS]; /* of the latest steps, a ring */
    size_t count;                        /* steps so far */
};

/*
 * Adds the loss of a step. Returns the number of standard deviations by which it exceeds the mean
 * of the previous 128 steps, if above 6, and sets the mean; otherwise returns 0. Ignores a loss
 * that is not finite.
 */
double erg_loss_watch_add(struct erg_loss_watch *watch, double loss, double *mean);

#endif
