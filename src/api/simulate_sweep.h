/* ergon simulate --sweep: many simulations by a file (cluster/sweep/sweep.h), here or under Slurm.
 */
#ifndef ERG_API_SIMULATE_SWEEP_H
#define ERG_API_SIMULATE_SWEEP_H

#include "base/given.h"
#include "ergon/error.h"

#include <stdio.h>

struct erg_sweep_input {
    const char *file, *output;
    const char *part;    /* "2/8", or NULL */
    const char *program; /* the command ergon in that script; NULL: as of PATH */
    long slurm;          /* tasks of the script to print; ERG_NOT_GIVEN: print none */
};

/* A part of a sweep prints nothing, and a script has no document. */
int erg_simulate_sweep(FILE *text, FILE *json, const struct erg_sweep_input *request,
                       struct erg_error *err);

#endif
