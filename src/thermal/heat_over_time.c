/* Heat over time: dies, sinks, fans and the regulator of clocks. */
#include "thermal/thermal_internal.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Coefficients that stay constant while powers and the fan's speed do. */
struct heat {
    double die_c[ERG_CHASSIS_GPUS], sink_c[ERG_CHASSIS_GPUS], removed_j;
};

/* The node as numbers, at one fan speed. */
struct cooling {
    unsigned gpus;
    const struct erg_chassis_slot *slots;
    const double *power_w;
    double sink_k_per_w[ERG_CHASSIS_GPUS], inlet_c[ERG_CHASSIS_GPUS];
    double die_j_per_k[ERG_CHASSIS_GPUS], sink_j_per_k[ERG_CHASSIS_GPUS];
    double air_k_per_w[ERG_CHASSIS_GPUS][ERG_CHASSIS_GPUS];
    bool warmed; /* at least one slot's air is warmed */
};

static void take_capacities(const struct erg_chassis *chassis, double *die_j_per_k,
                            double *sink_j_per_k)
{
    for (unsigned g = 0; g < chassis->gpus; g++) {
        const struct erg_chassis_slot *slot = &chassis->slots[g];
        die_j_per_k[g] = chassis->die_time_s / slot->die_k_per_w;
        sink_j_per_k[g] = slot->sink == (int)g ? chassis->sink_time_s / slot->sink_k_per_w : 0;
    }
}

static void take_cooling(struct cooling *cooling, const struct erg_chassis *chassis, double speed,
                         const double *power_w)
{
    const unsigned lanes = erg_thermal_lanes(chassis);
    const double factor = erg_thermal_sink_factor(speed);
    assert(speed > 0 && chassis->gpus <= ERG_CHASSIS_GPUS);
    cooling->gpus = chassis->gpus;
    cooling->slots = chassis->slots;
    cooling->power_w = power_w;
    cooling->warmed = chassis->air_k_per_w > 0;
    take_capacities(chassis, cooling->die_j_per_k, cooling->sink_j_per_k);
    for (unsigned g = 0; g < chassis->gpus; g++) {
        cooling->inlet_c[g] = erg_thermal_inlet(chassis, g);
        cooling->sink_k_per_w[g] = chassis->slots[g].sink_k_per_w * factor;
        for (unsigned j = 0; j < chassis->gpus; j++)
            cooling->air_k_per_w[g][j] = erg_thermal_air(chassis, lanes, g, j) / speed;
    }
}

static bool owns_sink(const struct cooling *cooling, unsigned g)
{
    return cooling->slots[g].sink == (int)g;
}

/* Front sinks come first: their heat warms the air of the rear ones. */
static void differentiate(const struct cooling *cooling, const struct heat *at, struct heat *rate)
{
    const unsigned n = cooling->gpus;
    double given_w[ERG_CHASSIS_GPUS] = {0};
    for (unsigned g = 0; g < n; g++)
        rate->sink_c[g] = 0;
    rate->removed_j = 0;
    for (unsigned g = 0; g < n; g++) {
        const unsigned sink = (unsigned)cooling->slots[g].sink;
        double flow_w = (at->die_c[g] - at->sink_c[sink]) / cooling->slots[g].die_k_per_w;
        rate->die_c[g] = (cooling->power_w[g] - flow_w) / cooling->die_j_per_k[g];
        rate->sink_c[sink] += flow_w;
    }
    for (int position = ERG_SLOT_FRONT; position <= ERG_SLOT_REAR; position++)
        for (unsigned g = 0; g < n; g++) {
            if (!owns_sink(cooling, g) || (int)cooling->slots[g].position != position)
                continue;
            double air_c = cooling->inlet_c[g];
            if (position == ERG_SLOT_REAR && cooling->warmed)
                for (unsigned j = 0; j < n; j++)
                    air_c += cooling->air_k_per_w[g][j] * given_w[j];
            given_w[g] = (at->sink_c[g] - air_c) / cooling->sink_k_per_w[g];
            rate->sink_c[g] = (rate->sink_c[g] - given_w[g]) / cooling->sink_j_per_k[g];
            rate->removed_j += given_w[g];
        }
}

static void advance(struct heat *to, const struct heat *from, const struct heat *rate, double dt_s,
                    unsigned gpus)
{
    for (unsigned g = 0; g < gpus; g++) {
        to->die_c[g] = from->die_c[g] + dt_s * rate->die_c[g];
        to->sink_c[g] = from->sink_c[g] + dt_s * rate->sink_c[g];
    }
    to->removed_j = from->removed_j + dt_s * rate->removed_j;
}

/* One step of the classical fourth-order Runge-Kutta method; it conserves energy, up to
 * rounding. */
static void runge_kutta(const struct cooling *cooling, struct heat *heat, double dt_s)
{
    struct heat rates[4], at;
    differentiate(cooling, heat, &rates[0]);
    advance(&at, heat, &rates[0], 0.5 * dt_s, cooling->gpus);
    differentiate(cooling, &at, &rates[1]);
    advance(&at, heat, &rates[1], 0.5 * dt_s, cooling->gpus);
    differentiate(cooling, &at, &rates[2]);
    advance(&at, heat, &rates[2], dt_s, cooling->gpus);
    differentiate(cooling, &at, &rates[3]);
    for (int i = 0; i < 4; i++)
        advance(heat, heat, &rates[i], dt_s * (i == 0 || i == 3 ? 1 : 2) / 6, cooling->gpus);
}

/* Integrates while the fan's speed is constant. */
static void go_on(struct erg_thermal_state *state, const double *power_w, double dt_s)
{
    const struct erg_chassis *chassis = state->chassis;
    struct cooling cooling;
    struct heat heat = {.removed_j = 0};
    assert(dt_s > 0 && dt_s < INFINITY && state->fan_speed > 0);
    take_cooling(&cooling, chassis, state->fan_speed, power_w);
    memcpy(heat.die_c, state->die_c, sizeof heat.die_c);
    memcpy(heat.sink_c, state->sink_c, sizeof heat.sink_c);
    double longest = INFINITY; /* a quarter of the fastest time constant */
    for (unsigned g = 0; g < chassis->gpus; g++) {
        double die = 1 / (chassis->slots[g].die_k_per_w * cooling.die_j_per_k[g]);
        double sink = 0;
        if (owns_sink(&cooling, g))
            sink = (1 / cooling.sink_k_per_w[g] + 1 / chassis->slots[g].die_k_per_w) /
                   cooling.sink_j_per_k[g];
        longest = fmin(longest, 0.25 / (die + sink));
    }
    assert(longest > 0 && longest < INFINITY);
    const int64_t steps = (int64_t)fmax(ceil(dt_s / longest), 1);
    for (int64_t i = 0; i < steps; i++)
        runge_kutta(&cooling, &heat, dt_s / (double)steps);
    memcpy(state->die_c, heat.die_c, sizeof heat.die_c);
    memcpy(state->sink_c, heat.sink_c, sizeof heat.sink_c);
    state->removed_j += heat.removed_j;
    state->time_s += dt_s;
    for (unsigned g = 0; g < chassis->gpus; g++)
        state->taken_j += power_w[g] * dt_s;
}

/* The fan's controller sets a new speed. */
static void turn_fan(struct erg_thermal_state *state)
{
    const struct erg_fan *fan = &state->chassis->fan;
    double hottest = -INFINITY;
    for (unsigned g = 0; g < state->chassis->gpus; g++)
        hottest = fmax(hottest, state->die_c[g]);
    const double wanted = fan->gain_per_k * (hottest - fan->target_c);
    state->fan_integral =
        fmin(fmax(state->fan_integral + wanted * fan->period_s / fan->integral_s, fan->slowest),
             fan->fastest);
    const double speed = fmin(fmax(state->fan_integral + wanted, fan->slowest), fan->fastest);
    const double most = fan->slew_per_s * fan->period_s;
    state->fan_speed = fmin(fmax(speed, state->fan_speed - most), state->fan_speed + most);
    assert(state->fan_speed > 0);
}

void erg_thermal_begin(struct erg_thermal_state *state, const struct erg_chassis *chassis,
                       const double *power_w)
{
    static const double nothing[ERG_CHASSIS_GPUS];
    const double *powers = power_w ? power_w : nothing;
    *state = (struct erg_thermal_state){.chassis = chassis};
    state->fan_speed = state->fan_integral = erg_thermal_steady(chassis, powers, state->die_c);
    state->fan_due_s = chassis->fan.period_s;
    for (unsigned g = 0; g < chassis->gpus; g++)
        if (chassis->slots[g].sink == (int)g)
            state->sink_c[g] = state->die_c[g] - powers[g] * chassis->slots[g].die_k_per_w;
}

void erg_thermal_step(struct erg_thermal_state *state, const double *power_w, double dt_s)
{
    if (!(state->chassis->fan.target_c > 0)) {
        if (dt_s > 0)
            go_on(state, power_w, dt_s);
        return;
    }
    for (double left_s = dt_s; left_s > 0;) {
        const double part_s = fmin(left_s, fmax(state->fan_due_s, 0));
        if (part_s > 0)
            go_on(state, power_w, part_s);
        left_s -= part_s;
        state->fan_due_s -= part_s;
        if (state->fan_due_s <= 1e-9) {
            turn_fan(state);
            state->fan_due_s = state->chassis->fan.period_s;
        }
    }
}

/* ---- the regulator of a clock ---- */

static const double step_mhz = 15, most_down_mhz = 150, most_up_mhz = 60, filter_s = 0.075;
/* So much power above the cap lowers the clock at once. */
static const double fast_share = 1.15;

/* Lowers the clock by the step that the excess needs; power is about proportional to the square of
 * the clock. */
static double steps_for(double share, double clock_mhz, double most_mhz)
{
    double wanted = step_mhz * ceil(0.5 * share * clock_mhz / step_mhz);
    return fmin(fmax(wanted, step_mhz), most_mhz);
}

void erg_governor_tick(struct erg_thermal_governor *governor, const struct erg_heat_limit *limit,
                       const struct erg_thermal_load *load, double power_w, double temperature_c)
{
    const double tick_s = 1e-3 * ERG_GOVERNOR_TICK_MS;
    double highest = load->request_mhz, clock = governor->clock_mhz;
    governor->filtered_w += (power_w - governor->filtered_w) * -expm1(-tick_s / filter_s);
    if (temperature_c > limit->hold_c + limit->slowdown_k)
        governor->slowed = true;
    else if (temperature_c < limit->hold_c)
        governor->slowed = false;
    enum erg_clock_cause cause = ERG_CLOCK_REQUEST;
    if (limit->law == ERG_HEAT_PROPORTIONAL) {
        const double law =
            load->highest_mhz - limit->slope_mhz_per_k * fmax(0, temperature_c - limit->soft_c);
        cause = law < highest ? ERG_CLOCK_HEAT : cause;
        highest = fmin(highest, law);
    }
    if (governor->slowed) {
        cause = ERG_CLOCK_HEAT;
        highest = fmin(highest, 0.5 * load->highest_mhz);
    }
    const double over = governor->filtered_w / load->cap_w - 1;
    const bool hot = limit->law == ERG_HEAT_HOLD && temperature_c > limit->hold_c;
    if (power_w > fast_share * load->cap_w) {
        clock -= most_down_mhz;
        cause = ERG_CLOCK_CAP;
    } else if (over > 0) {
        clock -= steps_for(over, clock, most_down_mhz);
        cause = ERG_CLOCK_CAP;
    } else if (hot) {
        clock -= step_mhz;
        cause = ERG_CLOCK_HEAT;
    } else if (clock + step_mhz <= highest) {
        clock += fmin(steps_for(-over, clock, most_up_mhz),
                      step_mhz * floor((highest - clock) / step_mhz));
        cause = governor->cause; /* it is still below the requested clock */
    }
    if (clock > highest)
        clock = fmax(highest, clock - most_down_mhz);
    governor->clock_mhz = fmax(clock, load->lowest_mhz);
    assert(isfinite(governor->clock_mhz));
    governor->cause =
        governor->clock_mhz < load->request_mhz - step_mhz ? cause : ERG_CLOCK_REQUEST;
}
