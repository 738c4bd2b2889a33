/* Internal to the thermal room: the coupling of the slots of a chassis by air and fans. */
#ifndef ERG_THERMAL_INTERNAL_H
#define ERG_THERMAL_INTERNAL_H

#include "thermal/thermal.h"

/* Factor on the resistance from a sink to the air, relative to the reference fan speed. */
double erg_thermal_sink_factor(double fan_speed);

/* Temperature of a slot's air without the heat of GPUs. */
double erg_thermal_inlet(const struct erg_chassis *chassis, unsigned slot);

unsigned erg_thermal_lanes(const struct erg_chassis *chassis);

/* Warming of the air of `slot` in K per watt of the sink of slot `from`, at the fan's reference
 * speed. */
double erg_thermal_air(const struct erg_chassis *chassis, unsigned lanes, unsigned slot,
                       unsigned from);

/* ---- comparison of placements (slots_search.c) ---- */

#define ERG_SLOTS_BETTER 1e-7 /* a smaller relative gain counts as none */

/* The first value decides; where those are equal, the second one. */
bool erg_slots_is_better(const double a[2], const double b[2]);

/* The chassis with slots that are all alike, in air of this temperature. */
void erg_slots_alike(struct erg_chassis *alike, struct erg_chassis_slot slots[ERG_CHASSIS_GPUS],
                     const struct erg_chassis *chassis, double mean_c);

#endif
