/*
 * Results of a simulation as files: a JSON summary, CSV tables of jobs, events and the cluster over
 * time, and a Chrome trace. Times are seconds after the first submission; times that never came are
 * empty or null.
 */
#ifndef ERG_CLUSTER_SIMULATE_RESULTS_H
#define ERG_CLUSTER_SIMULATE_RESULTS_H

#include "base/text.h"
#include "cluster/simulate/simulation.h"

#include <jansson.h>

/* Schema "ergon.simulation"; a new reference. */
json_t *erg_simulated_document(const struct erg_simulated *result,
                               const struct erg_simulation *simulation);

/* The first key of such a document that is missing or has an invalid value; NULL: none. */
const char *erg_simulated_missing(const json_t *document);

/* A row of events.csv. */
struct erg_event_row {
    double at_s;
    enum erg_record_kind kind;
    const char *job;  /* "": none */
    int node;         /* -1: none */
    const char *type; /* of its GPUs; NULL: none, and the other members are undefined */
    int nodes, gpus_per_node, point;
    const struct erg_slice *slices;
    int slices_count;
};

/* Adds the header of events.csv, or a row. */
void erg_event_header(struct erg_text *out);
void erg_event_row_add(struct erg_text *out, const struct erg_event_row *row);

/* A Chrome trace (io/trace.h) of a simulation that kept events and samples: a process for each GPU
 * type, a thread for each GPU that was the first of a job's on its node. */
int erg_simulated_trace(const struct erg_simulated *result, const struct erg_simulation *simulation,
                        const char *path, struct erg_error *err);

/* Writes summary.json, jobs.csv, and, if the simulation kept their data, events.csv, cluster.csv
 * and trace.json. */
int erg_simulated_write(const struct erg_simulated *result, const struct erg_simulation *simulation,
                        const char *folder, struct erg_error *err);

#endif
