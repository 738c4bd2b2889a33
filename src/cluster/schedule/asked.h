/* The request of a job as shapes, for policies that give each job its requested GPUs. */
#ifndef ERG_CLUSTER_SCHEDULE_ASKED_H
#define ERG_CLUSTER_SCHEDULE_ASKED_H

#include "cluster/schedule/scheduler.h"

/* The shape with the best locality for a job's requested number of GPUs on a type; -1: the job
 * cannot run so. */
int erg_asked_shape(const struct erg_scheduler *scheduler, int job, int type);

/*
 * The requested type, if the job can run on it; for a job without one, the type on which it is
 * fastest. -1: the job cannot run on its requested number of GPUs.
 */
int erg_asked_type(const struct erg_scheduler *scheduler, int job);

/*
 * Iterates over the types on which a job can run with its requested number of GPUs, the fastest
 * first, equal ones in the order of the fleet: returns the type after `after` (-1: the first); -1:
 * the end.
 */
int erg_asked_next_type(const struct erg_scheduler *scheduler, int job, int after);

/* Samples/s of a job with its requested GPUs on a type; 0: it cannot run so. */
double erg_asked_speed(const struct erg_scheduler *scheduler, int job, int type);

/* Places a job on its requested number of GPUs of a type, on as few nodes as possible. */
bool erg_asked_fit(struct erg_scheduler *scheduler, int job, int type, enum erg_node_order order);

/* The same on the fastest type that has room; -1: none has. */
int erg_asked_fit_anywhere(struct erg_scheduler *scheduler, int job, enum erg_node_order order);

#endif
