/*
 * Throttling: keeps a power cap under any policy. It limits the clocks of all GPUs to one share of
 * the highest clock, the largest share that keeps the cap; lower clocks stay unchanged.
 */
#ifndef ERG_CLUSTER_SCHEDULE_THROTTLE_H
#define ERG_CLUSTER_SCHEDULE_THROTTLE_H

#include "cluster/speed_table.h"

#include <stddef.h>

/* A running job's GPUs. */
struct erg_power_draw {
    const struct erg_speed *speed; /* of its shape */
    int point;                     /* its own operating point */
    int gpus;
    double share;  /* share of the time in which they compute; else they idle */
    double idle_w; /* of one GPU */
};

/* Power of all GPUs if their computation takes at least `slowdown` times as long; `idle_w`: of all
 * that are up, if none had a job. */
double erg_throttled_power(const struct erg_power_draw *draws, size_t count, double idle_w,
                           double slowdown);

/* The least slowdown that keeps the cap, or very little more; 1: the cap is kept without one. The
 * cap must be above idle_w. */
double erg_throttle_for(const struct erg_power_draw *draws, size_t count, double idle_w,
                        double cap_w);

#endif
