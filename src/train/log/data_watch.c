/* Detects steps that wait for their tokens (train/log/data_watch.h). */
#include "train/log/data_watch.h"

static const double window_s = 1, most_share = 0.02;

double erg_data_watch_add(struct erg_data_watch *watch, double waited_s, double step_s)
{
    if (watch->said || watch->steps++ == 0)
        return 0;
    watch->waited_s += waited_s;
    watch->spent_s += step_s;
    if (watch->spent_s < window_s)
        return 0;
    double share = watch->waited_s / watch->spent_s;
    watch->waited_s = watch->spent_s = 0;
    watch->said = share > most_share;
    return watch->said ? share : 0;
}
