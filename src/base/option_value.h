/*
 * Values of options: the text of one, its range, and the sentence about a wrong one. The command
 * line reads all its numbers so; a managed job's options for ergon train are read by the same
 * rules at its submission. `option`: its name without dashes. ERG_USAGE for a wrong value.
 */
#ifndef ERG_BASE_OPTION_VALUE_H
#define ERG_BASE_OPTION_VALUE_H

#include "ergon/error.h"

/* The ranges of options that choose a point of a plan: its number, seconds and joules. */
#define ERG_POINT_RANGE 1, 1e9
#define ERG_POINT_TIME_RANGE 1e-9, 1e15
#define ERG_POINT_ENERGY_RANGE 1e-9, 1e18

/* Equal bounds: any value. */
int erg_option_check_range(const char *option, const char *text, double value, double least,
                           double most, struct erg_error *err);

/* A whole number, or any one, in the range. */
int erg_option_long(long *number, const char *option, const char *text, double least, double most,
                    struct erg_error *err);
int erg_option_double(double *number, const char *option, const char *text, double least,
                      double most, struct erg_error *err);

/* Fails if more than one of --point, --deadline and --energy-budget are given. */
int erg_option_check_points(int given, struct erg_error *err);

#endif
