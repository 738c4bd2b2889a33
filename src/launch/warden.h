/*
 * The warden: a process that outlives the launcher's death by as long as it takes to kill what the
 * launcher had started. The kernel can do that for the ranks alone (PR_SET_PDEATHSIG); what they
 * started themselves, such as loaders of data, would keep its memory and its GPU.
 */
#ifndef ERG_LAUNCH_WARDEN_H
#define ERG_LAUNCH_WARDEN_H

#include "ergon/error.h"

#include <sys/types.h>

struct erg_warden {
    int link; /* closes with the launcher, however that ends; -1: there is none */
    pid_t pid;
};

/* For up to `groups` process groups at a time. To be called before threads are started. */
int erg_warden_start(struct erg_warden *warden, int groups, struct erg_error *err);

/* From now on a process group is to be killed if the launcher dies, or no longer. */
void erg_warden_watch(const struct erg_warden *warden, pid_t group);
void erg_warden_forget(const struct erg_warden *warden, pid_t group);

/* Groups that are watched now are killed. */
void erg_warden_end(struct erg_warden *warden);

#endif
