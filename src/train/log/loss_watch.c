/* Compares each loss with those of the steps before. */
#include "train/log/loss_watch.h"

#include <math.h>

double erg_loss_watch_add(struct erg_loss_watch *watch, double loss)
{
    const double most = 6;
    double sum = 0, squares = 0, above = 0;
    if (!isfinite(loss))
        return 0;
    for (size_t i = 0; i < ERG_LOSS_WATCH_STEPS; i++)
        sum += watch->losses[i];
    watch->mean = sum / ERG_LOSS_WATCH_STEPS;
    for (size_t i = 0; i < ERG_LOSS_WATCH_STEPS; i++)
        squares += pow(watch->losses[i] - watch->mean, 2);
    watch->deviation = sqrt(squares / (ERG_LOSS_WATCH_STEPS - 1));
    if (watch->count >= ERG_LOSS_WATCH_STEPS && watch->deviation > 0)
        above = (loss - watch->mean) / watch->deviation;
    watch->losses[watch->count++ % ERG_LOSS_WATCH_STEPS] = loss;
    return above > most ? above : 0;
}
