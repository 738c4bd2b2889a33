/* Prints the state of a controller for people at a terminal. */
#ifndef ERG_CLUSTER_LIVE_SCHEDULE_STATUS_H
#define ERG_CLUSTER_LIVE_SCHEDULE_STATUS_H

#include <jansson.h>
#include <stdio.h>

/*
 * The cluster, power, jobs with GPUs, waiting jobs with the reason and their expected start, and
 * the last notes. `status` comes from a controller (cluster/live/controller.h) or its file; missing
 * values are "-". Times of day are local.
 */
void erg_schedule_status_print(FILE *file, const json_t *status);

#endif
