/* Spread: running mean and standard deviation of a quantity. */
#include "observe/spread.h"

#include <math.h>

/* Welford's update, which loses no digits where the spread is small beside the mean. */
void erg_spread_add(struct erg_spread *spread, double value)
{
    if (isnan(value))
        return;
    double before = value - spread->mean;
    spread->count++;
    spread->mean += before / (double)spread->count;
    spread->squares += before * (value - spread->mean);
    if (spread->count == 1 || value < spread->least)
        spread->least = value;
    if (spread->count == 1 || value > spread->most)
        spread->most = value;
}

double erg_spread_mean(const struct erg_spread *spread)
{
    return spread->count ? spread->mean : NAN;
}

double erg_spread_sd(const struct erg_spread *spread)
{
    return spread->count < 2 ? NAN : sqrt(spread->squares / (double)(spread->count - 1));
}
