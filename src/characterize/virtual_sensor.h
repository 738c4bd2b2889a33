/*
 * What the sensors of an emulated GPU show of a power that is known exactly.
 *
 * The power is a course: constant in pieces, and again from the beginning when it ends. A sensor
 * like Hopper's looks at 25 ms of every refresh, which comes every 92 to 100 ms, at a phase that
 * nobody knows; who reads it between refreshes gets the last value again. The energy counter misses
 * nothing, but moves in steps. The exact sensor shows the power itself.
 */
#ifndef ERG_CHARACTERIZE_VIRTUAL_SENSOR_H
#define ERG_CHARACTERIZE_VIRTUAL_SENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_power_course {
    const double *ends_s; /* of the pieces, rising; the last is the period */
    const double *values; /* in each piece */
    double *sums;         /* integral up to the end of each; erg_power_course_init() */
    size_t count;
};

/* Both arrays are borrowed. To be released. */
void erg_power_course_init(struct erg_power_course *course, const double *ends_s,
                           const double *values, size_t count);
void erg_power_course_release(struct erg_power_course *course);

/* Integral from 0 to any time. */
double erg_power_course_integral(const struct erg_power_course *course, double time_s);

struct erg_virtual_sensor {
    double window_s; /* what it averages before each refresh; 0: it shows what is */
    double refresh_s, phase_s;
    double counter_s, counter_phase_s; /* steps of the energy counter; 0: none */
};

/* Of a GPU in a repeat: equal keys, equal sensors. `counter_s`: as the GPU has it. */
struct erg_virtual_sensor erg_virtual_sensor_hopper(double counter_s, uint64_t key);
struct erg_virtual_sensor erg_virtual_sensor_exact(void);

/* The power that it shows at a time. */
double erg_virtual_power(const struct erg_virtual_sensor *sensor,
                         const struct erg_power_course *course, double time_s);
/* What the energy counter shows at a time. */
double erg_virtual_energy(const struct erg_virtual_sensor *sensor,
                          const struct erg_power_course *course, double time_s);

/* What is seen from `from_s` to `to_s` by reading every `period_s`. */
struct erg_virtual_window {
    double mean_w, peak_w; /* of the readings, each held until the next */
    double energy_j;       /* by the counter */
};
struct erg_virtual_window erg_virtual_look(const struct erg_virtual_sensor *sensor,
                                           const struct erg_power_course *course, double from_s,
                                           double to_s, double period_s);

#endif
