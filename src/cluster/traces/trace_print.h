/* Writes traces as text: drawn from a recipe, or imported from a log. */
#ifndef ERG_CLUSTER_TRACES_TRACE_PRINT_H
#define ERG_CLUSTER_TRACES_TRACE_PRINT_H

#include "ergon/error.h"

#include <stdint.h>
#include <stdio.h>

/* For the cluster's file, with the models of a folder of profiles. */
int erg_trace_print(FILE *out, const char *cluster, const char *profiles, const char *recipe,
                    uint64_t seed, struct erg_error *err);

/* The same of another cluster's log; what was left out or drawn is logged. */
int erg_trace_print_import(FILE *out, const char *cluster, const char *profiles, const char *log,
                           uint64_t seed, struct erg_error *err);

#endif
