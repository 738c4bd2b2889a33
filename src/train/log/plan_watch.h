/*
 * Plan watch: the plan.json that the scheduler of a job may rewrite at any time
 * (docs/formats/live.md). Rank 0 looks whether the file has changed, and reads it only then.
 */
#ifndef ERG_TRAIN_LOG_PLAN_WATCH_H
#define ERG_TRAIN_LOG_PLAN_WATCH_H

#include "train/engine/trainer.h"

#include <stdbool.h>
#include <sys/stat.h>

/* All-zero: there is no file. */
struct erg_plan_watch {
    char *path;
    struct stat seen; /* of the file that was read last */
    bool warned;      /* of the file as it is */
};

void erg_plan_watch_open(struct erg_plan_watch *watch, const char *path); /* NULL: none */

/*
 * Whether there is a plan that was not read before: its number, from 1; how many times as long
 * as at the fastest operating point an iteration is to take, 1 where the plan does not say; and the
 * power of a GPU, a limit only in a plan with `capped`. A file that is missing, cannot be read, is
 * no plan, or belongs neither to this user, nor to root, nor to the owner of the spool, two folders
 * above, is a warning, once until there is a plan again.
 */
bool erg_plan_watch_look(struct erg_plan_watch *watch, struct erg_train_pace *pace);

void erg_plan_watch_close(struct erg_plan_watch *watch);

#endif
