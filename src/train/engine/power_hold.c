/* Holds the measured mean power of a managed job to its plan by pauses (power_hold.h). */
#include "train/engine/power_hold.h"

#include <assert.h>
#include <math.h>

static const double window_s = 1;         /* minimum, for counters that move every 100 ms */
static const double slowest = 4;          /* limit, in multiples of the plan's slowdown */
static const double least_of_limit = 0.8; /* lower limit of M / W */

void erg_power_hold_plan(struct erg_power_hold *hold, double slowdown, double limit_w)
{
    assert(slowdown >= 1 && limit_w > 0);
    *hold = (struct erg_power_hold){.planned = slowdown, .limit_w = limit_w, .slowdown = slowdown};
}

double erg_power_hold_pause(struct erg_power_hold *hold, double busy_s)
{
    hold->window_s += hold->slowdown * busy_s;
    return (hold->slowdown - 1) * busy_s;
}

bool erg_power_hold_due(const struct erg_power_hold *hold)
{
    return isfinite(hold->limit_w) && hold->window_s >= window_s;
}

void erg_power_hold_measured(struct erg_power_hold *hold, double power_w)
{
    const double most = slowest * hold->planned;
    hold->window_s = 0;
    if (isnan(power_w))
        return;
    const double wanted = hold->slowdown * fmax(power_w / hold->limit_w, least_of_limit);
    hold->saturated = wanted > most;
    hold->slowdown = fmin(fmax(wanted, 1), most);
}
