/*
 * Power hold: how long the ranks of a managed job pause between two steps, so that their GPUs keep
 * the watts of the scheduler's plan (docs/formats/live.md).
 *
 * The pace is a factor s >= 1: after a step of b seconds all ranks pause for (s - 1) b. Without a
 * limit, and until power is measured, s is that of the plan. With one, power is measured over
 * windows of whole steps with their pauses, of a second or more, in which s is constant. After a
 * window with the mean power M under the limit W
 *
 *     s <- s * max(M / W, 0.8), not below 1, not above 4 times the plan's
 *
 * M falls as s grows, from full power towards that of an idle GPU, P: near W each window leaves
 * P / W of the error. A window that held a checkpoint or a validation has little power: the 0.8
 * keeps the next one from a leap.
 *
 * All ranks make the same calls with the same numbers, so they pause alike.
 */
#ifndef ERG_TRAIN_ENGINE_POWER_HOLD_H
#define ERG_TRAIN_ENGINE_POWER_HOLD_H

#include <stdbool.h>

struct erg_power_hold {
    double planned;  /* s by the plan, at least 1 */
    double limit_w;  /* of a GPU, on the mean; INFINITY: none */
    double slowdown; /* s in force */
    double window_s; /* of the steps and pauses since the window began */
    bool saturated;  /* pauses as long as allowed did not keep the limit */
};

/* Another plan; the first window begins now. */
void erg_power_hold_plan(struct erg_power_hold *hold, double slowdown, double limit_w);

/* How long to pause after a step of `busy_s`, which every rank was told alike; counts both. */
double erg_power_hold_pause(struct erg_power_hold *hold, double busy_s);

/* Before a step: whether the window ends now, at its mean power. False where there is no limit. */
bool erg_power_hold_due(const struct erg_power_hold *hold);

/* The window has ended and the next one has begun: the mean power in it; NaN: not known. */
void erg_power_hold_measured(struct erg_power_hold *hold, double power_w);

#endif
