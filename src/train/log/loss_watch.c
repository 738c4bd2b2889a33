/* Compares each loss with those of earlier steps. */
#include "train/log/loss_watch.h"

#include <math.h>

double erg_loss_watch_add(struct erg_loss_watch *watch, double loss, double *mean)
{
    const double most = 6;
    double sum = 0, squares = 0, above = 0;
    if (!isfinite(loss))
        return 0;
    for (size_t i = 0; i < ERG_LOSS_WATCH_STEPS; i++)
        sum += watch->losses[i];
    *mean = sum / ERG_LOSS_WATCH_STEPS;
    for (size_t i = 0; i < ERG_LOSS_WATCH_STEPS; i++)
        squares += pow(watch->losses[i] - *mean, 2);
    const double deviation = sqrt(squares / (ERG_LOSS_WATCH_STEPS - 1));
    if (watch->count >= ERG_LOSS_WATCH_STEPS && deviation > 0)
        above = (loss - *mean) / deviation;
    watch->losses[watch->count++ % ERG_LOSS_WATCH_STEPS] = loss;
    return above > most ? above : 0;
}
