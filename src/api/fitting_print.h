/* The result of a fit, for people. */
#ifndef ERG_API_FITTING_PRINT_H
#define ERG_API_FITTING_PRINT_H

#include "api/fitting.h"

#include <stdio.h>

void erg_fitting_print(FILE *out, const struct erg_fitting *at);

#endif
