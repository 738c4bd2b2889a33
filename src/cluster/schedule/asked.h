/*
 * What a job asked for, in shapes; for policies that give each job the GPUs of its request.
 */
#ifndef ERG_CLUSTER_SCHEDULE_ASKED_H
#define ERG_CLUSTER_SCHEDULE_ASKED_H

#include "cluster/schedule/scheduler.h"

/* The best locality of as many GPUs as a job asked for, on a type; -1: it cannot run so. */
int erg_asked_shape(const struct erg_scheduler *scheduler, int job, int type);

/*
 * The type that a job asked for if it can run on it. A job that named none gets the one on which it
 * is fastest. -1: it cannot run with as many GPUs as it asked for.
 */
int erg_asked_type(const struct erg_scheduler *scheduler, int job);

/*
 * Types on which a job can run with as many GPUs as it asked for, the fastest first, equals in the
 * order of the fleet, one by one: the next after `after` (-1: the first); -1: there is none.
 */
int erg_asked_next_type(const struct erg_scheduler *scheduler, int job, int after);

/* Places a job on a shape or, where there is no room, on ever more nodes. */
bool erg_fit_relaxed(struct erg_scheduler *scheduler, int job, int shape,
                     enum erg_node_order order);

#endif
