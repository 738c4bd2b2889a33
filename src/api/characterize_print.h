/* The results of a study, for people: its points, its findings, or the list of its runs. */
#ifndef ERG_API_CHARACTERIZE_PRINT_H
#define ERG_API_CHARACTERIZE_PRINT_H

#include "api/characterize_call.h"

#include <stdio.h>

void erg_characterize_print_points(FILE *out, const struct erg_characterize_call *at);
void erg_characterize_print_findings(FILE *out, const struct erg_characterize_call *at);
void erg_characterize_print_list(FILE *out, const struct erg_characterize_call *at);

#endif
