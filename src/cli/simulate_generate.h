/* ergon simulate CLUSTER.yaml --generate RECIPE.yaml: a trace on standard output. */
#ifndef ERG_CLI_SIMULATE_GENERATE_H
#define ERG_CLI_SIMULATE_GENERATE_H

#include "cli/options.h"

#include <stdint.h>

struct simulate_generate {
    const char *cluster, *recipe, *profiles;
    uint64_t seed;
};

int simulate_generate(const struct simulate_generate *request, struct erg_error *err);

#endif
