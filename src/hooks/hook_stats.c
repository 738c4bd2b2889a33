/* The measurements of a hook. */
#include "hooks/hook_internal.h"

#include "base/sized.h"
#include "base/statistics.h"
#include "ergon/telemetry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double erg_hook_median_of_steps(const struct erg_hook *hook, const _Atomic double *ring,
                                size_t most)
{
    double values[HOOK_STEPS];
    size_t count = 0;
    for (int64_t i = 1; i <= hook->steps && i <= (int64_t)most; i++) {
        const double value = ring[(hook->steps - i) % HOOK_STEPS];
        if (!isnan(value))
            values[count++] = value;
    }
    return count ? erg_median(values, count) : (double)NAN;
}

static double seconds(const _Atomic uint64_t *ns)
{
    return 1e-9 * (double)atomic_load(ns);
}

static void read_clocks(struct erg_hook *hook, struct erg_hook_stats *stats)
{
    struct hook_clock *clock = &hook->clock;
    struct erg_clock_thread_numbers numbers;
    if (!clock->thread)
        return;
    erg_clock_thread_read(clock->thread, &numbers);
    stats->lease = hook->trouble[0]         ? ERG_HOOK_LEASE_ENDED
                   : hook_sets_clocks(hook) ? ERG_HOOK_LEASE_DIRECT
                                            : ERG_HOOK_LEASE_NONE;
    stats->clock_requests = (int64_t)atomic_load(&clock->requests);
    stats->clock_changes = (int64_t)numbers.set;
    stats->clock_superseded = (int64_t)atomic_load(&clock->superseded);
    stats->clock_late = (int64_t)atomic_load(&clock->late);
    stats->clock_refused = erg_clock_thread_refused(clock->thread, NULL);
    stats->clock_call_mean_s = numbers.call_mean_s;
    stats->clock_call_worst_s = numbers.call_worst_s;
    stats->below = (struct erg_hook_below){
        .power_cap_s = seconds(&clock->below_ns[ERG_HOOK_CAUSE_POWER_CAP]),
        .thermal_s = seconds(&clock->below_ns[ERG_HOOK_CAUSE_THERMAL]),
        .power_brake_s = seconds(&clock->below_ns[ERG_HOOK_CAUSE_POWER_BRAKE]),
        .other_s = seconds(&clock->below_ns[ERG_HOOK_CAUSE_UNKNOWN])};
    stats->below_s = stats->below.power_cap_s + stats->below.thermal_s +
                     stats->below.power_brake_s + stats->below.other_s;
}

static void read_programme(const struct erg_hook *hook, struct erg_hook_stats *stats)
{
    const struct erg_programme *programme = hook_programme(hook);
    if (!programme)
        return;
    stats->step_planned_s = programme->step_s;
    stats->programme_changes = (int32_t)programme->changes;
    stats->planned_changes = (int32_t)programme->planned_changes;
    stats->programme_energy_j = programme->energy_j;
    stats->planned_energy_j = programme->planned_j;
    stats->point = (int32_t)hook->running;
}

int erg_hook_stats(struct erg_hook *hook, struct erg_hook_stats *stats)
{
    struct erg_hook_stats found = {
        .steps = hook->steps,
        .step_last_s = NAN,
        .step_median_s = erg_hook_median_of_steps(hook, hook->step_s, HOOK_STATS_STEPS),
        .step_planned_s = NAN,
        .busy_s = NAN,
        .passes = hook->passes,
        .clock_call_mean_s = NAN,
        .clock_call_worst_s = NAN,
        .classes = (int32_t)hook->class_count,
        .order_errors = hook->order_errors,
        .waiting_w =
            hook->energy ? erg_hook_energy_of(hook->energy, ERG_HOOK_WAITING).power_w : (double)NAN,
        .programme_energy_j = NAN,
        .planned_energy_j = NAN,
        .planned_times_hold = !hook->options.clocks_only,
        .point = -1,
    };
    if (erg_hook_check(hook, "reading a hook", NULL) != 0 && !hook->lost)
        return -1; /* a child of fork() */
    if (hook->steps > 0) {
        found.step_last_s = hook->step_s[(hook->steps - 1) % HOOK_STEPS];
        found.busy_s = hook->step_busy_s[(hook->steps - 1) % HOOK_STEPS];
    }
    read_programme(hook, &found);
    read_clocks(hook, &found);
    snprintf(found.trouble, sizeof found.trouble, "%s", hook->trouble);
    if (hook->profile) {
        found.profile_clocks = (int32_t)hook->profile->rows.count;
        found.profile_over = hook->profile->over;
        snprintf(found.profile, sizeof found.profile, "%s", hook->profile->said);
    }
    erg_sized_give32(stats, &found, sizeof found);
    return 0;
}

/* Energy of one pass of a class. */
static void read_energy(const struct erg_hook *hook, size_t index, struct erg_hook_class *about)
{
    if (!hook->energy)
        return;
    const struct erg_class_power power = erg_hook_energy_of(hook->energy, index);
    about->power_w = power.power_w;
    about->energy_j = power.power_w * about->mean_s;
    about->uncertainty_j = power.uncertainty_w * about->mean_s;
    about->quality = isnan(power.power_w) ? ERG_ENERGY_MISSING
                     : power.measured     ? ERG_ENERGY_MEASURED
                                          : ERG_ENERGY_ESTIMATED;
}

int erg_hook_class(const struct erg_hook *hook, int32_t index, struct erg_hook_class *about)
{
    if (index < 0 || (size_t)index >= hook->class_count)
        return -1;
    const struct hook_class *class = &hook->classes[index];
    const struct hook_tally tally = erg_hook_read_class(class);
    struct erg_hook_class found = {
        .kind = class->kind,
        .chunk = class->chunk,
        .clock_mhz = class->clock_mhz,
        .count = (int64_t)tally.count,
        .mean_s = tally.count ? tally.total_s / (double)tally.count : (double)NAN,
        .planned_s = class->planned_s,
        .power_w = NAN,
        .energy_j = NAN,
        .uncertainty_j = NAN,
    };
    read_energy(hook, (size_t)index, &found);
    erg_sized_give32(about, &found, sizeof found);
    return 0;
}
