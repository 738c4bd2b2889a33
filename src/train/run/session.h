/* Session: what the command line says of a run (ergon/train.h) before its first step. */
#ifndef ERG_TRAIN_RUN_SESSION_H
#define ERG_TRAIN_RUN_SESSION_H

#include "ergon/train.h"
#include "job/job.h"
#include "train/run/run_plan.h"

/* All live as long as the run. The name is "host", or the GPU's. */
const struct erg_job *erg_train_job(const struct erg_train *train);
const char *erg_train_device_name(const struct erg_train *train);
/* What the plan of the run expects of a step; expected->plan is NULL where there is none. */
const struct erg_run_expected *erg_train_expected(const struct erg_train *train);

extern const char *const erg_train_type_names[]; /* by enum erg_train_type, ends with NULL */

#endif
