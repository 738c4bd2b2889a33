/* ergon simulate --sweep: many simulations by a file (cluster/sweep/sweep.h), here or under Slurm.
 */
#ifndef ERG_CLI_SIMULATE_SWEEP_H
#define ERG_CLI_SIMULATE_SWEEP_H

#include "cli/options.h"

struct simulate_sweep {
    const char *file, *output;
    const char *part; /* "2/8", or NULL */
    long slurm;       /* print the script of so many tasks; ERG_NOT_GIVEN: do not */
};

int simulate_sweep(const struct simulate_sweep *request, bool json, struct erg_error *err);

#endif
