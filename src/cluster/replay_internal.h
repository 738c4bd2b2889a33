/*
 * Gavel and Sia as the published comparison of Arena has them (scheduler.h: replays), which departs
 * from their papers: what policy_gavel.c and policy_sia.c do when a comparison is replayed.
 */
#ifndef ERG_CLUSTER_REPLAY_INTERNAL_H
#define ERG_CLUSTER_REPLAY_INTERNAL_H

#include "cluster/policy.h"

struct replay_gavel;
struct replay_gavel *replay_gavel_new(const struct erg_scheduler *scheduler);
void replay_gavel_decide(struct replay_gavel *replay, struct erg_scheduler *scheduler,
                         const struct erg_occasion *occasion);
void replay_gavel_free(struct replay_gavel *replay);

#endif
