/* The request of a job, in shapes; for policies that give each job the GPUs of its request. */
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

/* Samples/s of a job with its requested GPUs on a type; 0: it cannot run so. */
double erg_asked_speed(const struct erg_scheduler *scheduler, int job, int type);

/* Places a job on its requested number of GPUs of a type, on few nodes or, where these are not
 * free, on more and more. */
bool erg_asked_fit(struct erg_scheduler *scheduler, int job, int type, enum erg_node_order order);

/* The same on the fastest type that has room; -1: none has. */
int erg_asked_fit_anywhere(struct erg_scheduler *scheduler, int job, enum erg_node_order order);

#endif
