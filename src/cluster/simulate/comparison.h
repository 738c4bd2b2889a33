/*
 * Comparison: one or several simulations of the same trace on the same fleet, as one document for
 * people to look at (report/report.h): the results of each policy for jobs, and the course of the
 * cluster.
 *
 * Schema "ergon.cluster": the fleet, the trace, and for each policy its summary (the document of
 * results.h), the cluster over time in COMPARISON_STEPS equal steps (means over a step), the
 * completion times at every percent of the finished jobs, and which GPUs jobs had: single uses
 * where they are few enough to be seen, else the share of each row of nodes in each step.
 */
#ifndef ERG_CLUSTER_SIMULATE_COMPARISON_H
#define ERG_CLUSTER_SIMULATE_COMPARISON_H

#include "cluster/simulate/simulation.h"

#include <jansson.h>

enum {
    ERG_COMPARISON_STEPS = 360,
    ERG_COMPARISON_ROWS = 80,   /* most rows of nodes */
    ERG_COMPARISON_USES = 4000, /* most GPU uses that are drawn one by one */
};

/* A new document without a policy. Uses only the simulation's fleet and trace. */
json_t *erg_comparison_new(const struct erg_simulation *simulation);

/* Adds a simulation that kept events and samples. */
void erg_comparison_add(json_t *comparison, const struct erg_simulated *result,
                        const struct erg_simulation *simulation);

#endif
