/*
 * Shared between the files of the thermal room: how air and fans couple the slots of a chassis.
 */
#ifndef ERG_THERMAL_INTERNAL_H
#define ERG_THERMAL_INTERNAL_H

#include "thermal/thermal.h"

/* Of the resistance from a sink to the air. */
double erg_thermal_sink_factor(double fan_speed);

/* Of the air of a slot, before GPUs warm it. */
double erg_thermal_inlet(const struct erg_chassis *chassis, unsigned slot);

unsigned erg_thermal_lanes(const struct erg_chassis *chassis);

/* By how many K a watt that the sink of slot `from` gives off warms the air of `slot`, at the fan's
 * reference speed. */
double erg_thermal_air(const struct erg_chassis *chassis, unsigned lanes, unsigned slot,
                       unsigned from);

#endif
