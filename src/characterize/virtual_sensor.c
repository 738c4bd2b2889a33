/* Sensors of emulated GPUs: a duty cycle over power, a counter in steps. */
#include "characterize/virtual_sensor.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>

/* ---- courses ---- */

void erg_power_course_init(struct erg_power_course *course, const double *ends_s,
                           const double *values, size_t count)
{
    double sum = 0, before_s = 0;
    *course = (struct erg_power_course){ends_s, values, erg_xcalloc(count, sizeof(double)), count};
    for (size_t i = 0; i < count; i++) {
        sum += values[i] * (ends_s[i] - before_s);
        course->sums[i] = sum;
        before_s = ends_s[i];
    }
}

void erg_power_course_release(struct erg_power_course *course)
{
    free(course->sums);
    *course = (struct erg_power_course){0};
}

/* The piece that a time of the first period lies in. */
static size_t piece_at(const struct erg_power_course *course, double time_s)
{
    size_t low = 0, high = course->count - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (course->ends_s[middle] > time_s)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

double erg_power_course_integral(const struct erg_power_course *course, double time_s)
{
    const double period_s = course->ends_s[course->count - 1];
    const double whole = floor(time_s / period_s), rest_s = time_s - whole * period_s;
    const size_t i = piece_at(course, rest_s);
    return whole * course->sums[course->count - 1] + course->sums[i] -
           course->values[i] * (course->ends_s[i] - rest_s);
}

/* ---- sensors ---- */

struct erg_virtual_sensor erg_virtual_sensor_hopper(double counter_s, uint64_t key)
{
    const double refresh_s = 0.092 + 0.008 * erg_hash_uniform(erg_hash_at(key, 0));
    return (struct erg_virtual_sensor){
        .window_s = 0.025,
        .refresh_s = refresh_s,
        .phase_s = refresh_s * erg_hash_uniform(erg_hash_at(key, 1)),
        .counter_s = counter_s,
        .counter_phase_s = counter_s * erg_hash_uniform(erg_hash_at(key, 2)),
    };
}

struct erg_virtual_sensor erg_virtual_sensor_exact(void)
{
    return (struct erg_virtual_sensor){0};
}

double erg_virtual_power(const struct erg_virtual_sensor *sensor,
                         const struct erg_power_course *course, double time_s)
{
    const double period_s = course->ends_s[course->count - 1];
    if (!(sensor->window_s > 0))
        return course->values[piece_at(course, time_s - floor(time_s / period_s) * period_s)];
    const double steps = floor((time_s - sensor->phase_s) / sensor->refresh_s);
    const double seen_s = sensor->phase_s + steps * sensor->refresh_s;
    return (erg_power_course_integral(course, seen_s) -
            erg_power_course_integral(course, seen_s - sensor->window_s)) /
           sensor->window_s;
}

double erg_virtual_energy(const struct erg_virtual_sensor *sensor,
                          const struct erg_power_course *course, double time_s)
{
    if (!(sensor->counter_s > 0))
        return erg_power_course_integral(course, time_s);
    const double steps = floor((time_s - sensor->counter_phase_s) / sensor->counter_s);
    return erg_power_course_integral(course, sensor->counter_phase_s + steps * sensor->counter_s);
}

struct erg_virtual_window erg_virtual_look(const struct erg_virtual_sensor *sensor,
                                           const struct erg_power_course *course, double from_s,
                                           double to_s, double period_s)
{
    struct erg_virtual_window seen = {
        .energy_j =
            erg_virtual_energy(sensor, course, to_s) - erg_virtual_energy(sensor, course, from_s),
    };
    double sum_j = 0;
    for (size_t i = 0;; i++) {
        const double at_s = from_s + (double)i * period_s;
        if (at_s >= to_s)
            break;
        const double power_w = erg_virtual_power(sensor, course, at_s);
        sum_j += power_w * (fmin(at_s + period_s, to_s) - at_s);
        seen.peak_w = fmax(seen.peak_w, power_w);
    }
    seen.mean_w = sum_j / (to_s - from_s);
    return seen;
}
