/*
 * Power hold: the pause of a managed job's ranks between two steps, which keeps their GPUs at the
 * power of the scheduler's plan (docs/formats/live.md).
 *
 * The pace is a factor s >= 1: after a step of b seconds all ranks pause for (s - 1) b. Without a
 * limit, and until power is measured, s is the plan's. With one, power is measured over windows of
 * complete steps with their pauses, of a second or more, in which s is constant. After a window
 * with the mean power M under the limit W
 *
 *     s <- s * max(M / W, 0.8), not below 1, not above 4 times the plan's
 *
 * M falls as s grows, from full power towards that of an idle GPU, P: near W each window leaves P /
 * W of the error. A window with a checkpoint or a validation has little power: the 0.8 prevents a
 * jump in the next one.
 *
 * All ranks make the same calls with the same numbers, so they pause alike.
 */
#ifndef ERG_TRAIN_ENGINE_POWER_HOLD_H
#define ERG_TRAIN_ENGINE_POWER_HOLD_H

#include <stdbool.h>

struct erg_power_hold {
    double planned;  /* s by the plan, at least 1 */
    double limit_w;  /* mean of a GPU; INFINITY: none */
    double slowdown; /* current s */
    double window_s; /* of the steps and pauses since the window began */
    bool saturated;  /* the longest allowed pauses did not keep the limit */
};

/* Sets a plan; the first window begins now. */
void erg_power_hold_plan(struct erg_power_hold *hold, double slowdown, double limit_w);

/* The pause after a step of `busy_s`, which is equal on all ranks; counts both. */
double erg_power_hold_pause(struct erg_power_hold *hold, double busy_s);

/* Call it before a step: whether the window ends now. False without a limit. */
bool erg_power_hold_due(const struct erg_power_hold *hold);

/* Ends the window with its mean power (NaN: unknown) and begins the next one. */
void erg_power_hold_measured(struct erg_power_hold *hold, double power_w);

#endif
