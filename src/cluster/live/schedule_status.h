/* What a controller knows, printed for people at a terminal. */
#ifndef ERG_CLUSTER_LIVE_SCHEDULE_STATUS_H
#define ERG_CLUSTER_LIVE_SCHEDULE_STATUS_H

#include <jansson.h>
#include <stdio.h>

/*
 * The cluster, power, jobs that have GPUs, jobs that wait with the reason and when they should
 * start, and the last notes. `status` is a controller's (cluster/live/controller.h), also one that
 * was read from its file: what it does not say is "-". Times of day are local.
 */
void erg_schedule_status_print(FILE *file, const json_t *status);

#endif
