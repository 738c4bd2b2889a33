/* The clocks of a rank that follows a plan: a table for people, or a JSON document. */
#ifndef ERG_HOOKS_PROGRAMME_PRINT_H
#define ERG_HOOKS_PROGRAMME_PRINT_H

#include "hooks/programme.h"

#include <stdbool.h>
#include <stdio.h>

/*
 * A request for a plan's file; members as in struct erg_programme_input and erg_programme_bound().
 */
struct erg_programme_shown_input {
    const char *plan, *method;
    size_t number; /* of the point, from 1; 0: the selected one */
    long stage;
    double dwell_s, least_change_mhz;
    bool clocks_only;
};

/* Prints both forms. */
int erg_programme_print(FILE *text, FILE *json, const struct erg_programme_shown_input *input,
                        struct erg_error *err);

#endif
