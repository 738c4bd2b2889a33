/* The frontier of a pipeline's iteration from a measured profile of its stages. */
#ifndef ERG_API_PROFILE_FRONTIER_H
#define ERG_API_PROFILE_FRONTIER_H

#include "ergon/error.h"

#include <stdio.h>

/* Where the answer goes, in each of its forms. */
struct erg_frontier_streams {
    FILE *table, *csv, *json;
};

/* Numbers that are ERG_NOT_GIVEN or NAN are not given (base/given.h). */
struct erg_profile_frontier_input {
    const char *profile; /* the file */
    long microbatches, virtual_stages, points, seed;
    int schedule; /* enum erg_schedule_kind */
    double blocking_power_w, p2p_latency_s, unit_s, deadline_s, energy_budget_j;
    const char *output; /* of all points, as a plan; NULL: none */
};

/* Prints all points, or with a deadline or a budget the one that keeps it. */
int erg_profile_frontier(const struct erg_frontier_streams *out,
                         const struct erg_profile_frontier_input *input, struct erg_error *err);

#endif
