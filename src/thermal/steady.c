/* Steady states: the final temperatures, and the highest clocks that power cap and heat allow. */
#include "thermal/thermal_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Above it, a die counts as a thermal runaway. */
static const double runaway_c = 1000;

double erg_thermal_sink_factor(double fan_speed)
{
    return pow(fan_speed, -0.8);
}

double erg_thermal_inlet(const struct erg_chassis *chassis, unsigned slot)
{
    const int sink = chassis->slots[slot].sink;
    assert(sink >= 0 && (unsigned)sink < chassis->gpus);
    return chassis->inlet_c + chassis->slots[sink].preheat_k;
}

unsigned erg_thermal_lanes(const struct erg_chassis *chassis)
{
    uint32_t seen = 0;
    for (unsigned i = 0; i < chassis->gpus; i++)
        seen |= UINT32_C(1) << chassis->slots[i].lane;
    return (unsigned)__builtin_popcount(seen);
}

double erg_thermal_air(const struct erg_chassis *chassis, unsigned lanes, unsigned slot,
                       unsigned from)
{
    const struct erg_chassis_slot *warmed = &chassis->slots[slot], *source = &chassis->slots[from];
    if (warmed->position != ERG_SLOT_REAR || source->position != ERG_SLOT_FRONT)
        return 0;
    const double mix = lanes > 1 ? chassis->lane_mix : 0;
    return chassis->air_k_per_w * (warmed->lane == source->lane ? 1 - mix : mix / (lanes - 1));
}

void erg_thermal_matrix(const struct erg_chassis *chassis, double fan_speed, double *k_per_w)
{
    const unsigned n = chassis->gpus, lanes = erg_thermal_lanes(chassis);
    const double sink = erg_thermal_sink_factor(fan_speed);
    for (unsigned g = 0; g < n; g++)
        for (unsigned j = 0; j < n; j++) {
            const struct erg_chassis_slot *slot = &chassis->slots[g];
            double rise = erg_thermal_air(chassis, lanes, g, j) / fan_speed;
            if (slot->sink == chassis->slots[j].sink)
                rise += chassis->slots[slot->sink].sink_k_per_w * sink;
            if (g == j)
                rise += slot->die_k_per_w;
            k_per_w[g * n + j] = rise;
        }
}

/* Temperatures at a fan speed; returns the highest. */
static double settle(const struct erg_chassis *chassis, double fan_speed, const double *power_w,
                     double *temperature_c)
{
    const unsigned n = chassis->gpus;
    double matrix[ERG_CHASSIS_GPUS * ERG_CHASSIS_GPUS], hottest = -INFINITY;
    erg_thermal_matrix(chassis, fan_speed, matrix);
    for (unsigned g = 0; g < n; g++) {
        double t = erg_thermal_inlet(chassis, g);
        for (unsigned j = 0; j < n; j++)
            t += matrix[g * n + j] * power_w[j];
        temperature_c[g] = t;
        hottest = fmax(hottest, t);
    }
    return hottest;
}

/* Temperatures fall with the fan's speed. */
double erg_thermal_steady(const struct erg_chassis *chassis, const double *power_w,
                          double *temperature_c)
{
    const struct erg_fan *fan = &chassis->fan;
    assert(chassis->gpus <= ERG_CHASSIS_GPUS);
    double low = fan->slowest, high = fan->fastest;
    if (!(fan->target_c > 0)) {
        settle(chassis, 1, power_w, temperature_c);
        return 1;
    }
    if (settle(chassis, low, power_w, temperature_c) <= fan->target_c)
        return low;
    if (settle(chassis, high, power_w, temperature_c) >= fan->target_c)
        return high;
    for (int i = 0; i < 60 && high - low > 1e-9; i++) {
        const double middle = 0.5 * (low + high);
        *(settle(chassis, middle, power_w, temperature_c) > fan->target_c ? &low : &high) = middle;
    }
    assert(low <= high);
    settle(chassis, high, power_w, temperature_c);
    return high;
}

/* ---- the highest clock ---- */

struct clock_search {
    const struct erg_heat_limit *limit;
    const struct erg_thermal_load *load;
    double base_c, k_per_w, step_mhz;
    bool over_cap, too_hot; /* at the last clock tried */
};

/* The final die temperature at a clock. Power rises with temperature, so the iteration from below
 * rises to the lowest solution. */
static void settle_at(const struct clock_search *at, double clock_mhz,
                      struct erg_thermal_point *point)
{
    const struct erg_thermal_load *load = at->load;
    double t = at->base_c;
    point->clock_mhz = clock_mhz;
    for (int i = 0; i < 200; i++) {
        load->power(load->context, clock_mhz, t, &point->busy_w, &point->mean_w);
        double next = at->base_c + at->k_per_w * point->mean_w;
        double moved = fabs(next - t);
        t = next;
        if (moved < 1e-9 || t > runaway_c)
            break;
    }
    point->temperature_c = t;
}

static bool allowed(struct clock_search *at, double clock_mhz, struct erg_thermal_point *point)
{
    const struct erg_heat_limit *limit = at->limit;
    settle_at(at, clock_mhz, point);
    double t = point->temperature_c;
    at->over_cap = point->busy_w > at->load->cap_w;
    if (limit->law == ERG_HEAT_HOLD)
        at->too_hot = t > limit->hold_c;
    else
        at->too_hot =
            t > limit->hold_c + limit->slowdown_k ||
            clock_mhz > at->load->highest_mhz - limit->slope_mhz_per_k * fmax(0, t - limit->soft_c);
    return !at->over_cap && !at->too_hot;
}

static double clock_at(const struct clock_search *at, int64_t steps)
{
    return fmax(at->load->request_mhz - (double)steps * at->step_mhz, at->load->lowest_mhz);
}

/*
 * With a large static power, the energy of a fixed piece of work need not rise with the clock. So
 * the search for the highest allowed clock starts at the top, in coarse strides.
 */
void erg_thermal_limit(const struct erg_heat_limit *limit, const struct erg_thermal_load *load,
                       double base_c, double k_per_w, struct erg_thermal_point *point)
{
    enum { STRIDES = 24 };
    const double range = fmax(load->request_mhz - load->lowest_mhz, 0);
    struct clock_search at = {limit, load, base_c, k_per_w, load->step_mhz, false, false};
    if (!(at.step_mhz > 0))
        at.step_mhz = fmax(ldexp(range, -26), 1e-9);
    int64_t last = (int64_t)ceil(range / at.step_mhz - 1e-9);
    int64_t stride = last / STRIDES + 1, refused = 0, taken = 0;
    enum erg_clock_cause cause = ERG_CLOCK_REQUEST;
    while (!allowed(&at, clock_at(&at, taken), point)) {
        cause = at.over_cap ? ERG_CLOCK_CAP : ERG_CLOCK_HEAT;
        refused = taken;
        if (taken >= last)
            break;
        taken = taken + stride < last ? taken + stride : last;
    }
    while (taken - refused > 1) {
        int64_t middle = refused + (taken - refused) / 2;
        assert(refused < middle && middle < taken);
        if (allowed(&at, clock_at(&at, middle), point)) {
            taken = middle;
        } else {
            refused = middle;
            cause = at.over_cap ? ERG_CLOCK_CAP : ERG_CLOCK_HEAT;
        }
    }
    settle_at(&at, clock_at(&at, taken), point);
    point->cause = cause;
}
