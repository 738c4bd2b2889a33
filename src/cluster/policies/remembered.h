/*
 * The state of jobs that policies save as JSON (policy.h): jobs by name, in the order of
 * submission.
 */
#ifndef ERG_CLUSTER_POLICIES_REMEMBERED_H
#define ERG_CLUSTER_POLICIES_REMEMBERED_H

#include "cluster/name_table.h"
#include "cluster/schedule/policy.h"
#include "io/json.h"

/* The jobs that a newly opened policy takes over. */
struct erg_remembered {
    const struct erg_scheduler *scheduler;
    int *jobs;
    size_t count;
    struct erg_name_table names; /* of the same jobs, in their order */
};

void erg_remembered_init(struct erg_remembered *remembered, const struct erg_scheduler *scheduler);
void erg_remembered_release(struct erg_remembered *remembered);

/* -1: none of them. */
int erg_remembered_find(const struct erg_remembered *remembered, const char *name);

/* A time of an object, not after now, or the default. */
double erg_remembered_time(const json_t *object, const char *key,
                           const struct erg_scheduler *scheduler, double otherwise);

/* Reads an array of the given number of numbers; those that are at least 0 replace the present
 * ones. */
json_t *erg_remembered_array(const double *numbers, size_t count);
void erg_remembered_read_array(const json_t *array, double *numbers, size_t count);

#endif
