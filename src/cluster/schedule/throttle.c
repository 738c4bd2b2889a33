/* Keeps a power cap under any policy. */
#include "cluster/schedule/throttle.h"

double erg_throttled_power(const struct erg_power_draw *draws, size_t count, double idle_w,
                           double slowdown)
{
    double power_w = idle_w;
    for (size_t i = 0; i < count; i++) {
        const struct erg_power_draw *draw = &draws[i];
        double own = erg_speed_slowdown(draw->speed, draw->point, slowdown);
        power_w += draw->gpus * draw->share *
                   (erg_speed_power(draw->speed, draw->idle_w, own) - draw->idle_w);
    }
    return power_w;
}

/*
 * Power is a piecewise linear function of speed, so a secant through both ends soon lies on the
 * right piece; halving the interval in between makes both ends converge.
 */
double erg_throttle_for(const struct erg_power_draw *draws, size_t count, double idle_w,
                        double cap_w)
{
    enum { STEPS_MOST = 100 };
    double tolerance_w = 1e-7 * cap_w;
    double slow = 0, slow_w = idle_w; /* speed of the slowdown that keeps the cap */
    double fast = 1, fast_w = erg_throttled_power(draws, count, idle_w, 1);
    if (fast_w <= cap_w)
        return 1;
    for (int step = 0; step < STEPS_MOST && cap_w - slow_w > tolerance_w; step++) {
        double speed = step % 3 == 2 ? (slow + fast) / 2
                                     : slow + (fast - slow) * (cap_w - slow_w) / (fast_w - slow_w);
        double power_w = erg_throttled_power(draws, count, idle_w, 1 / speed);
        if (power_w <= cap_w) {
            slow = speed;
            slow_w = power_w;
        } else {
            fast = speed;
            fast_w = power_w;
        }
    }
    return 1 / slow;
}
