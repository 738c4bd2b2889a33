/* The results of a study, for people: its points, its findings, or the list of its runs. */
#ifndef ERG_API_CHARACTERIZING_PRINT_H
#define ERG_API_CHARACTERIZING_PRINT_H

#include "api/characterizing.h"

#include <stdio.h>

void erg_characterizing_print_points(FILE *out, const struct erg_characterizing *at);
void erg_characterizing_print_findings(FILE *out, const struct erg_characterizing *at);
void erg_characterizing_print_list(FILE *out, const struct erg_characterizing *at);

#endif
