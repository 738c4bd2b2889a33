/*
 * Private to the room.
 */
#ifndef ERG_LAUNCH_INTERNAL_H
#define ERG_LAUNCH_INTERNAL_H

#include "base/memory.h"

#include <stdint.h>

/*
 * This process's environment with the variables of a rank, in our words and in torchrun's, which
 * training scripts read; ends with NULL. Made before the fork, since little is allowed after it.
 */
char **erg_launch_rank_environment(int rank, int ranks, int port, int64_t start_ns,
                                   struct erg_arena *arena);

#endif
