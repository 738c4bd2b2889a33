/*
 * Counts from a controller's status (cluster/live): GPUs and nodes by type and state, jobs by
 * phase. A status may come from a file, so any part of it may be missing.
 */
#ifndef ERG_CLUSTER_LIVE_SCHEDULE_COUNTS_H
#define ERG_CLUSTER_LIVE_SCHEDULE_COUNTS_H

#include "io/json.h"

#include <stdbool.h>
#include <stddef.h>

enum erg_schedule_use {
    ERG_GPU_MANAGED,
    ERG_GPU_FOREIGN, /* used by a job that is not managed */
    ERG_GPU_FREE,
    ERG_GPU_UNAVAILABLE, /* unused, but its node is not up */
    ERG_GPU_USES
};

/* "managed", … */
extern const char *const erg_gpu_use_names[ERG_GPU_USES];

struct erg_schedule_counts {
    struct erg_schedule_type {
        const char *name; /* owned by the status */
        size_t gpus[ERG_GPU_USES];
    } * types;                        /* in the order of their first nodes */
    size_t count, capacity;           /* of types */
    size_t gpus[ERG_GPU_USES], nodes; /* of all types */
};

/* To be released. */
void erg_schedule_count(struct erg_schedule_counts *counts, const json_t *status);
void erg_schedule_counts_release(struct erg_schedule_counts *counts);

/* The first: a job has GPUs or will get them; the second: it has ended and has none. */
bool erg_schedule_has_gpus(const json_t *job);
bool erg_schedule_is_over(const json_t *job);

/* A member of an object; "" or false if it is missing. */
const char *erg_schedule_string(const json_t *object, const char *key);
bool erg_schedule_flag(const json_t *object, const char *key);

#endif
