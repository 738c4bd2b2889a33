/* What ergon plan --gpus says. */
#ifndef ERG_CLI_PLAN_GPUS_H
#define ERG_CLI_PLAN_GPUS_H

#include "ergon/error.h"
#include "hardware/hardware.h"

#include <stddef.h>

struct plan_gpus {
    long *items; /* freed by the caller */
    size_t count, capacity;
};

/*
 * Numbers of GPUs from text like "64", "4,8-16" or "any", rising, each once. A range stands for its
 * numbers of whole nodes, and of parts that divide a node evenly; any: up to the cluster's. On
 * nodes of several kinds a number is that of all kinds together, and no more than there are. Starts
 * from an empty list.
 */
int erg_plan_list_gpus(struct plan_gpus *numbers, const char *text,
                       const struct erg_cluster *cluster, struct erg_error *err);

/* Those of the nodes of all kinds. */
long erg_plan_gpus_of(const struct erg_cluster *cluster);

#endif
