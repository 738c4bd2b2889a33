/*
 * Loss watch: notices a loss that is far above those of the steps before it, as when a batch is bad
 * or the learning rate too high. It is a hint for people who watch the run; nothing changes.
 */
#ifndef ERG_TRAIN_LOG_LOSS_WATCH_H
#define ERG_TRAIN_LOG_LOSS_WATCH_H

#include <stddef.h>

enum { ERG_LOSS_WATCH_STEPS = 128 };

/* All-zero: has seen no step. */
struct erg_loss_watch {
    double losses[ERG_LOSS_WATCH_STEPS]; /* of the latest steps, in turn */
    size_t count;                        /* seen so far */
};

/* Takes the loss of a step. Returns the standard deviations by which it exceeds the mean of the 128
 * steps before, if these are more than 6, and sets the mean; else returns 0. Ignores a loss that is
 * not finite. */
double erg_loss_watch_add(struct erg_loss_watch *watch, double loss, double *mean);

#endif
