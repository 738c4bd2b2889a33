/*
 * Private to the room.
 */
#ifndef ERG_LAUNCH_INTERNAL_H
#define ERG_LAUNCH_INTERNAL_H

#include "base/memory.h"

#include <stdint.h>

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

#endif
