/*
 * Heat: the GPUs of one node in the air that cools them.
 *
 * A chassis is a file data/chassis/NAME.yaml: the slots of a node, front or rear in lanes of air,
 * and their thermal resistances. Each GPU is two nodes, the die and the sink under it; air has no
 * heat capacity:
 *
 *     C1 dT1/dt = P - (T1 - T2) / R1
 *     C2 dT2/dt = (T1 - T2) / R1 - (T2 - air) / R2
 *
 * The air of a front slot has the inlet's temperature. The heat of front sinks warms the air of the
 * rear slot in their lane. So the steady state is T = inlet + A P, with a matrix A that follows
 * from the slots.
 *
 * Arrays have one entry per GPU of the node, in the order of the slots. Temperatures are in C,
 * power is in W, time in s, clocks in MHz. These functions are independent of layouts.
 */
#ifndef ERG_THERMAL_H
#define ERG_THERMAL_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ERG_CHASSIS_GPUS = 32 }; /* most slots of a node */

enum erg_slot_position { ERG_SLOT_FRONT, ERG_SLOT_REAR };

struct erg_chassis_slot {
    enum erg_slot_position position;
    int lane;
    int sink; /* the slot whose sink it uses: its own, or that of an earlier slot (two dies) */
    double die_k_per_w, sink_k_per_w; /* R1; R2 of the sink at the fan's reference speed */
    double preheat_k;                 /* of its air above the inlet's, from heat sources other than
                                       * GPUs */
};

/* Fan speeds are shares of the speed at which the chassis file gives its resistances. */
struct erg_fan {
    double target_c;   /* target of the hottest GPU; 0: the fan's speed is constant */
    double gain_per_k; /* proportional: speed per K above the target */
    double integral_s; /* time in which the integral part equals the proportional part */
    double period_s;   /* between two decisions */
    double slew_per_s; /* largest change of the speed per second */
    double slowest, fastest;
};

enum erg_heat_law {
    ERG_HEAT_HOLD,         /* the clock at which the temperature is `hold_c` */
    ERG_HEAT_PROPORTIONAL, /* the highest clock minus a slope above `soft_c` */
};

/* The conditions under which heat lowers a clock. */
struct erg_heat_limit {
    enum erg_heat_law law;
    double hold_c;                  /* highest operating temperature */
    double slowdown_k;              /* this much above hold_c, the hardware halves the clock */
    double soft_c, slope_mhz_per_k; /* ERG_HEAT_PROPORTIONAL */
};

struct erg_chassis {
    char *name;
    char *confidence; /* how it was validated, one sentence for people */
    struct erg_chassis_slot *slots;
    unsigned gpus;                               /* number of slots */
    double die_k_per_w, sink_k_per_w, preheat_k; /* defaults of slots */
    double inlet_c;
    double air_k_per_w; /* kappa: warming of the lane's air per watt of a front GPU */
    double lane_mix;    /* mu: share of that warming that goes to the other lanes, in equal parts */
    double die_time_s, sink_time_s; /* R1 C1; R2 C2 at the reference speed */
    double sensor_lag_s;            /* time constant of the temperature reading */
    struct erg_fan fan;
    struct erg_heat_limit limit;
};

/*
 * Loads a chassis by a file's path (with '/' or ending in ".yaml") or a name of the catalogue.
 * Errors: ERG_FAILED with file, line and key for an invalid file; for an unknown name, the message
 * lists the catalogue.
 */
int erg_chassis_load(struct erg_chassis **chassis, const char *name, struct erg_error *err);
void erg_chassis_free(struct erg_chassis *chassis);

/* A hash of everything that changes a temperature or a clock. */
uint64_t erg_chassis_fingerprint(const struct erg_chassis *chassis);

/* Writes a file of the catalogue that starts with the comment `heading` (lines without "#"). */
int erg_chassis_write(const struct erg_chassis *chassis, const char *path, const char *heading,
                      struct erg_error *err);

/* ---- steady state ---- */

/* A[g * gpus + j]: the warming of GPU g in K per watt of GPU j, at a fan speed (1: reference). */
void erg_thermal_matrix(const struct erg_chassis *chassis, double fan_speed, double *k_per_w);

/* Computes the final temperatures under constant powers. Returns the fan's speed: 1 if constant,
 * else the speed at which the hottest GPU has the target temperature, limited to the fan's
 * range. */
double erg_thermal_steady(const struct erg_chassis *chassis, const double *power_w,
                          double *temperature_c);

/*
 * The repeated work of one GPU: its power at a clock and a die temperature. The power cap regulates
 * `busy_w`, the mean while it works; `mean_w` includes waiting and heats the die. Both rise with
 * the temperature, by less than 1 / A_gg per K, and are finite.
 */
struct erg_thermal_load {
    void (*power)(const void *context, double clock_mhz, double temperature_c, double *busy_w,
                  double *mean_w);
    const void *context;
    double request_mhz; /* highest clock to use */
    double lowest_mhz;  /* lower bound of all limits */
    double highest_mhz; /* of the GPU; ERG_HEAT_PROPORTIONAL subtracts from it */
    double step_mhz;    /* step between clocks, counted down from the request; 0: any clock */
    double cap_w;       /* limit of busy_w */
};

enum erg_clock_cause { ERG_CLOCK_REQUEST, ERG_CLOCK_CAP, ERG_CLOCK_HEAT };

struct erg_thermal_point {
    double clock_mhz, temperature_c, busy_w, mean_w;
    enum erg_clock_cause cause; /* the limit that sets the clock */
};

/*
 * The highest clock of one GPU that respects its power cap and the heat limit; the die has `base_c`
 * without power of its own and warms by `k_per_w`. If no clock respects them: the lowest.
 */
void erg_thermal_limit(const struct erg_heat_limit *limit, const struct erg_thermal_load *load,
                       double base_c, double k_per_w, struct erg_thermal_point *point);

/* ---- over time ---- */

struct erg_thermal_state {
    const struct erg_chassis *chassis; /* borrowed */
    double time_s;
    double die_c[ERG_CHASSIS_GPUS],
        sink_c[ERG_CHASSIS_GPUS]; /* of shared sinks, the owner's entry */
    double fan_speed, fan_integral, fan_due_s;
    double taken_j, removed_j; /* since the beginning: energy from GPUs, and removed by the air */
};

/* Starts in the steady state of constant powers; NULL: at the temperature of the air, without
 * power. */
void erg_thermal_begin(struct erg_thermal_state *state, const struct erg_chassis *chassis,
                       const double *power_w);

/* Advances by dt_s under constant powers. Any dt_s is valid: the integration divides it as the time
 * constants require. */
void erg_thermal_step(struct erg_thermal_state *state, const double *power_w, double dt_s);

/*
 * The regulator of one GPU, in ticks of 10 ms and steps of 15 MHz. If the filtered power exceeds
 * the cap or the temperature its limit, it lowers the clock by at most 150 MHz per tick; else it
 * raises it by at most 60. Start with zeros, except clock_mhz. Its time constants are assumed.
 */
struct erg_thermal_governor {
    double clock_mhz;
    double filtered_w;
    bool slowed; /* by the hardware, to half the clock */
    enum erg_clock_cause cause;
};
enum { ERG_GOVERNOR_TICK_MS = 10 };
void erg_governor_tick(struct erg_thermal_governor *governor, const struct erg_heat_limit *limit,
                       const struct erg_thermal_load *load, double power_w, double temperature_c);

#endif
