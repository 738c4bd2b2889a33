/* The data of an energy log. Private to the room. */
#ifndef ERG_TELEMETRY_ENERGY_LOG_INTERNAL_H
#define ERG_TELEMETRY_ENERGY_LOG_INTERNAL_H

#include "telemetry/energy_log.h"

/* The last 100 s of a counter that moves every 100 ms; 20 s of power read every 5 ms. */
enum { STEPS = 1024, POWERS = 4096, LATENCIES = 64 };

/* The counter moved after `low_s` and not after `high_s`; it was read between `call_s` and then. */
struct counter_step {
    double low_s, call_s, high_s, energy_j;
};

struct power {
    double time_s, power_w;
    double integral_j; /* up to time_s; see erg_energy_held() */
    double missed_j2;  /* up to time_s: the moments of changes are unknown */
};

struct erg_energy_log {
    struct counter_step steps[STEPS]; /* rings: item i of all so far is at i % size */
    struct power powers[POWERS];
    double latencies_s[LATENCIES];
    size_t step_count, power_count, latency_count; /* of all so far */

    bool has_energy;
    size_t run;          /* how often the counter has restarted */
    double energy_j;     /* the latest reading */
    double read_begin_s; /* when its call began */
    double limit_w;

    double period_s, period_error_s, jitter_s; /* of the counter; see learn() */
    size_t learned_from;
};

static inline size_t first_of(size_t count, size_t size)
{
    return count > size ? count - size : 0;
}

static inline const struct counter_step *step_at(const struct erg_energy_log *log, size_t i)
{
    return &log->steps[i % STEPS];
}

static inline const struct power *reading_at(const struct erg_energy_log *log, size_t i)
{
    return &log->powers[i % POWERS];
}

static inline double middle_of(const struct counter_step *step)
{
    return 0.5 * (step->low_s + step->high_s);
}

static inline double half_of(const struct counter_step *step)
{
    return 0.5 * (step->high_s - step->low_s);
}

/*
 * Energy from one power reading until `away_s` later, which is not after the next reading. The
 * power changed at some moment between the two, so it is interpolated; over a long gap it is
 * constant for most of the time.
 */
double erg_energy_held(const struct power *power, const struct power *next, double away_s);

#endif
