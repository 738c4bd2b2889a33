/*
 * Heat: the GPUs of one node in the air that cools them.
 *
 * A chassis is a file data/chassis/NAME.yaml: the slots of a node, front or rear in lanes of air,
 * and how warm a watt makes what. Each GPU is two nodes, the die and the sink under it, and air
 * without memory:
 *
 *     C1 dT1/dt = P - (T1 - T2) / R1
 *     C2 dT2/dt = (T1 - T2) / R1 - (T2 - air) / R2
 *
 * The air of a front slot is the inlet's. What front sinks give off warms that of the rear slot of
 * their lane. So in steady state T = inlet + A P, with a matrix A that the slots make.
 *
 * Functions of arrays with one entry per GPU of the node, in the order of the slots; they know
 * nothing of layouts. Temperatures in C, power in W, time in s, clocks in MHz.
 */
#ifndef ERG_THERMAL_H
#define ERG_THERMAL_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ERG_CHASSIS_GPUS = 32 }; /* that a node may have */

enum erg_slot_position { ERG_SLOT_FRONT, ERG_SLOT_REAR };

struct erg_chassis_slot {
    enum erg_slot_position position;
    int lane;
    int sink; /* the slot whose sink it sits on: its own, or that of an earlier one (two dies) */
    double die_k_per_w, sink_k_per_w; /* R1; R2 of the sink at the fan's reference speed */
    double preheat_k;                 /* of its air above the inlet's, by what is no GPU */
};

/* Fan speeds are shares of the speed at which the chassis file gives its resistances. */
struct erg_fan {
    double target_c;   /* of the hottest GPU; 0: the fan is constant, and so is its speed */
    double gain_per_k; /* proportional: speed per K above the target */
    double integral_s; /* time in which the integral adds the same again */
    double period_s;   /* between two decisions */
    double slew_per_s; /* how fast the speed may change */
    double slowest, fastest;
};

enum erg_heat_law {
    ERG_HEAT_HOLD,         /* the clock at which the temperature is `hold_c` */
    ERG_HEAT_PROPORTIONAL, /* the highest clock less a slope above `soft_c` */
};

/* When heat lowers a clock. */
struct erg_heat_limit {
    enum erg_heat_law law;
    double hold_c;                  /* highest operating temperature */
    double slowdown_k;              /* above it the hardware halves the clock */
    double soft_c, slope_mhz_per_k; /* ERG_HEAT_PROPORTIONAL */
};

struct erg_chassis {
    char *name;
    char *confidence; /* how far it was checked, one sentence for people */
    struct erg_chassis_slot *slots;
    unsigned gpus;                               /* slots */
    double die_k_per_w, sink_k_per_w, preheat_k; /* of slots that say nothing else */
    double inlet_c;
    double air_k_per_w; /* kappa: by which a watt of a front GPU warms its lane's air */
    double lane_mix;    /* mu: share of it that goes to the other lanes, in equal parts */
    double die_time_s, sink_time_s; /* R1 C1; R2 C2 at the reference speed */
    double sensor_lag_s;            /* of the temperature reading */
    struct erg_fan fan;
    struct erg_heat_limit limit;
};

/*
 * Loads a chassis by a file's path (with '/' or ending in ".yaml") or a name of the catalogue.
 * ERG_FAILED with file, line and key for a file that makes no sense; unknown names are errors that
 * list what there is.
 */
int erg_chassis_load(struct erg_chassis **chassis, const char *name, struct erg_error *err);
void erg_chassis_free(struct erg_chassis *chassis);

/* A number that changes with anything that changes a temperature or a clock. */
uint64_t erg_chassis_fingerprint(const struct erg_chassis *chassis);

/* Writes it as a file of the catalogue below `heading`, a comment (lines without "#"). */
int erg_chassis_write(const struct erg_chassis *chassis, const char *path, const char *heading,
                      struct erg_error *err);

/* ---- steady state ---- */

/* A[g * gpus + j]: by how many K a watt of GPU j warms GPU g, at a fan speed (1: reference). */
void erg_thermal_matrix(const struct erg_chassis *chassis, double fan_speed, double *k_per_w);

/* Where the temperatures settle under constant powers. Returns the fan's speed: 1 of a constant
 * one, else that at which the hottest GPU has the target's temperature, or the end next to it. */
double erg_thermal_steady(const struct erg_chassis *chassis, const double *power_w,
                          double *temperature_c);

/*
 * What one GPU does, over and over: its power at a clock and a die temperature. `busy_w` is what
 * the power cap regulates, the mean while it works; `mean_w`, what heats it, has its waiting, too.
 * Both rise with the temperature, by less than 1 / A_gg per K, and are finite.
 */
struct erg_thermal_load {
    void (*power)(const void *context, double clock_mhz, double temperature_c, double *busy_w,
                  double *mean_w);
    const void *context;
    double request_mhz; /* no higher clock is asked for */
    double lowest_mhz;  /* no limit goes below it */
    double highest_mhz; /* of the GPU: from which ERG_HEAT_PROPORTIONAL counts down */
    double step_mhz;    /* of clocks, counted down from the request; 0: any clock */
    double cap_w;       /* on busy_w */
};

enum erg_clock_cause { ERG_CLOCK_REQUEST, ERG_CLOCK_CAP, ERG_CLOCK_HEAT };

struct erg_thermal_point {
    double clock_mhz, temperature_c, busy_w, mean_w;
    enum erg_clock_cause cause; /* what sets the clock */
};

/*
 * The highest clock of one GPU at which both its cap and the limit of heat are kept, where its die
 * has `base_c` without power of its own and grows by `k_per_w`. Where no clock keeps them: the
 * lowest.
 */
void erg_thermal_limit(const struct erg_heat_limit *limit, const struct erg_thermal_load *load,
                       double base_c, double k_per_w, struct erg_thermal_point *point);

/* ---- over time ---- */

struct erg_thermal_state {
    const struct erg_chassis *chassis; /* borrowed */
    double time_s;
    double die_c[ERG_CHASSIS_GPUS],
        sink_c[ERG_CHASSIS_GPUS]; /* of shared sinks: their own slot's */
    double fan_speed, fan_integral, fan_due_s;
    double taken_j, removed_j; /* since the beginning: from GPUs, by the air */
};

/* Settled under constant powers since long ago; NULL: as warm as the air, without any power. */
void erg_thermal_begin(struct erg_thermal_state *state, const struct erg_chassis *chassis,
                       const double *power_w);

/* Goes on by dt_s under powers that stay the same meanwhile. For any dt_s: it takes as many steps
 * inside as the time constants need. */
void erg_thermal_step(struct erg_thermal_state *state, const double *power_w, double dt_s);

/*
 * The regulator of one GPU in ticks of 10 ms and steps of 15 MHz: the power, filtered, over the cap
 * or the temperature over its limit lowers the clock, by at most 150 MHz a tick; else it rises, by
 * at most 60. Begin with all zero but clock_mhz. Its time constants are assumed.
 */
struct erg_thermal_governor {
    double clock_mhz;
    double filtered_w;
    bool slowed; /* by the hardware, at half the clock */
    enum erg_clock_cause cause;
};
enum { ERG_GOVERNOR_TICK_MS = 10 };
void erg_governor_tick(struct erg_thermal_governor *governor, const struct erg_heat_limit *limit,
                       const struct erg_thermal_load *load, double power_w, double temperature_c);

#endif
