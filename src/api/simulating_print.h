/* The result of a simulation, for people. */
#ifndef ERG_API_SIMULATING_PRINT_H
#define ERG_API_SIMULATING_PRINT_H

#include "api/simulating.h"

#include <stdio.h>

void erg_simulating_print(FILE *out, const struct erg_simulating *at,
                          const struct erg_simulated *result);

#endif
