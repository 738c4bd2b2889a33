/* The parts of the launcher of ranks. Private to the room. */
#ifndef ERG_LAUNCH_INTERNAL_H
#define ERG_LAUNCH_INTERNAL_H

#include "base/memory.h"
#include "ergon/error.h"

#include <stdint.h>
#include <sys/types.h>

/* How the ranks that this machine's launcher starts meet. */
struct erg_launch_meeting {
    int listener, port; /* a socket that listens there before any rank is started */
    int torchrun_port;  /* another one, free when it was chosen: MASTER_PORT */
    char secret[33];    /* 128 random bits */
    int64_t start_ns;
};

/*
 * This process's environment with the variables of a rank, in our words and in torchrun's, which
 * training scripts read; ends with NULL. Made before the fork, since little is allowed after it.
 */
char **erg_launch_rank_environment(int rank, int ranks, const struct erg_launch_meeting *meeting,
                                   struct erg_arena *arena);

struct erg_warden {
    int link; /* closes with the launcher, however that ends; -1: there is none */
    pid_t pid;
};

/* For up to `groups` process groups at a time. Call it before threads are started. */
int erg_warden_start(struct erg_warden *warden, int groups, struct erg_error *err);

/* From now on a process group is to be killed if the launcher dies; no longer if negative. */
void erg_warden_tell(const struct erg_warden *warden, pid_t group);

/* Groups that are watched now are killed. */
void erg_warden_end(struct erg_warden *warden);

#endif
