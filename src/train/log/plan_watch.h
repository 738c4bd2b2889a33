/*
 * Plan watch: the plan.json that the scheduler of a job may rewrite at any time
 * (docs/formats/live.md). Rank 0 checks whether the file has changed, and reads it only then.
 */
#ifndef ERG_TRAIN_LOG_PLAN_WATCH_H
#define ERG_TRAIN_LOG_PLAN_WATCH_H

#include "train/engine/trainer.h"

#include <stdbool.h>
#include <sys/stat.h>

/* All-zero: there is no file. */
struct erg_plan_watch {
    char *path;
    struct stat seen; /* of the latest file read */
    bool warned;      /* a warning about the current file was given */
};

void erg_plan_watch_open(struct erg_plan_watch *watch, const char *path); /* NULL: none */

/*
 * Whether there is a new plan. *pace: its number, from 1; the slowdown of an iteration compared
 * with the fastest operating point, 1 by default; and the power of a GPU, a limit only in a plan
 * with `capped`. A file that is missing, unreadable or invalid, or that belongs neither to this
 * user, nor to root, nor to the owner of the spool, two folders above, gives one warning until
 * there is a plan again.
 */
bool erg_plan_watch_look(struct erg_plan_watch *watch, struct erg_train_pace *pace);

void erg_plan_watch_close(struct erg_plan_watch *watch);

#endif
