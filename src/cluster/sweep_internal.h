/* Shared by the files of sweeps only. */
#ifndef ERG_CLUSTER_SWEEP_INTERNAL_H
#define ERG_CLUSTER_SWEEP_INTERNAL_H

#include "cluster/sweep.h"

enum { SWEEP_FAIR, SWEEP_ARTIFACT };

/* What `rounds` counts; the rounds of the published comparison. */
#define SWEEP_ROUND_S 300

#endif
