/* The result of a fit, for people. */
#ifndef ERG_API_FIT_PRINT_H
#define ERG_API_FIT_PRINT_H

#include "api/fit_call.h"

#include <stdio.h>

void erg_fit_print(FILE *out, const struct erg_fit_call *at);

#endif
