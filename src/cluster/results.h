/*
 * Results of a simulation as files: a JSON summary, and CSV tables of jobs, events and the cluster
 * over time. Times are seconds after the first submission; what never came is empty or null.
 */
#ifndef ERG_CLUSTER_RESULTS_H
#define ERG_CLUSTER_RESULTS_H

#include "cluster/simulate.h"

#include <jansson.h>

/* Schema "ergon.simulation"; a new reference. */
json_t *erg_simulated_document(const struct erg_simulated *result,
                               const struct erg_simulation *simulation);

/* summary.json, jobs.csv, and events.csv and cluster.csv where the simulation kept them. */
int erg_simulated_write(const struct erg_simulated *result, const struct erg_simulation *simulation,
                        const char *folder, struct erg_error *err);

#endif
