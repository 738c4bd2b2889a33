/*
 * Results of a simulation as files: a JSON summary, CSV tables of jobs, events and the cluster over
 * time, and a Chrome trace. Times are seconds after the first submission; what never came is empty
 * or null.
 */
#ifndef ERG_CLUSTER_SIMULATE_RESULTS_H
#define ERG_CLUSTER_SIMULATE_RESULTS_H

#include "cluster/simulate/simulation.h"

#include <jansson.h>

/* Schema "ergon.simulation"; a new reference. */
json_t *erg_simulated_document(const struct erg_simulated *result,
                               const struct erg_simulation *simulation);

/* The first key that is missing in such a document, or has no such value; NULL: it is whole. */
const char *erg_simulated_missing(const json_t *document);

/* A Chrome trace (io/trace.h) of a simulation that kept events and samples: a process for each type
 * of GPUs, a thread for each GPU that was the first of a job's on its node. */
int erg_simulated_trace(const struct erg_simulated *result, const struct erg_simulation *simulation,
                        const char *path, struct erg_error *err);

/* summary.json, jobs.csv, and events.csv, cluster.csv and trace.json where the simulation kept what
 * is in them. */
int erg_simulated_write(const struct erg_simulated *result, const struct erg_simulation *simulation,
                        const char *folder, struct erg_error *err);

#endif
