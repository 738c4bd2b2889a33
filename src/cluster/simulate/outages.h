/*
 * Outages: the times of nodes' failures and repairs, from a file or drawn.
 *
 * A file has the columns node (numbered across all types, from 0), from_s and to_s, in seconds
 * after the first submission; an empty to_s means that the node stays down.
 */
#ifndef ERG_CLUSTER_SIMULATE_OUTAGES_H
#define ERG_CLUSTER_SIMULATE_OUTAGES_H

#include "cluster/simulate/simulation.h"

struct erg_outages {
    struct erg_outage *items;
    size_t count, capacity;
};

/* Fails if a node is not in the fleet, or if its outages overlap. */
int erg_outages_load(struct erg_outages *outages, const char *path, const struct erg_fleet *fleet,
                     struct erg_error *err);

/*
 * Each node fails after times that are exponentially distributed around a mean, and is back after a
 * fixed time; until `until_s`. A node's outages depend only on the seed and its number, so that a
 * larger fleet has the outages of a smaller one.
 */
void erg_outages_draw(struct erg_outages *outages, const struct erg_fleet *fleet, double mean_s,
                      double repair_s, double until_s, uint64_t seed);
void erg_outages_release(struct erg_outages *outages);

#endif
