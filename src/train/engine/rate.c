/* Learning rates: warm-up and decay. */
#include "train/engine/rate.h"

#include <math.h>

/* The rate as a share: 1 is the highest, 0 the lowest. */
static double factor_at(const struct erg_learning_rate *rate, uint64_t u)
{
    static const double pi = 3.14159265358979323846;
    double r = (double)(u - rate->warmup) / (double)(rate->updates - rate->warmup), q = 0;
    uint64_t begin = rate->updates > rate->decay ? rate->updates - rate->decay : 0;
    if (u > begin)
        q = (double)(u - begin) / (double)rate->decay;
    switch (rate->schedule) {
    case ERG_RATE_COSINE:
        return (1 + cos(pi * r)) / 2;
    case ERG_RATE_LINEAR:
        return 1 - r;
    case ERG_RATE_WSD_LINEAR:
        return 1 - q;
    case ERG_RATE_WSD_SQRT:
        return 1 - sqrt(q);
    default:
        return 1;
    }
}

double erg_rate_at(const struct erg_learning_rate *rate, uint64_t u)
{
    if (u < rate->warmup)
        return rate->highest * (double)(u + !rate->warmup_from_zero) / (double)rate->warmup;
    if (u >= rate->updates)
        return rate->lowest;
    return rate->lowest + factor_at(rate, u) * (rate->highest - rate->lowest);
}
