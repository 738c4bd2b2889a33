/* The result of a simulation, for people. */
#ifndef ERG_API_SIMULATE_PRINT_H
#define ERG_API_SIMULATE_PRINT_H

#include "api/simulate_call.h"

#include <stdio.h>

void erg_simulate_print(FILE *out, const struct erg_simulate_call *at,
                        const struct erg_simulated *result);

#endif
