/*
 * Gavel and Sia as the published comparison of Arena has them (scheduler.h: replays), which departs
 * from their papers: what policy_gavel.c and policy_sia.c do when a comparison is replayed.
 */
#ifndef ERG_CLUSTER_REPLAY_INTERNAL_H
#define ERG_CLUSTER_REPLAY_INTERNAL_H

#include "cluster/policy.h"

/* How many jobs one decision may change beside the one that it admits. */
enum { REPLAY_CHANGES_MOST = 3 };

/* The best locality of the GPUs that a job is to have; -1: there is none. */
struct replay_change {
    int job, shape;
};

/*
 * Moves running jobs, in this order, and then places a waiting one: on those shapes or, where there
 * is no room, on twice as many nodes, with such plans. False, and nothing has changed, where one
 * finds no room.
 */
bool replay_apply(struct erg_scheduler *scheduler, const struct replay_change *changes, int count,
                  const struct replay_change *admitted, enum erg_plans plans);

struct replay_gavel;
struct replay_gavel *replay_gavel_new(const struct erg_scheduler *scheduler);
void replay_gavel_decide(struct replay_gavel *replay, struct erg_scheduler *scheduler,
                         const struct erg_occasion *occasion);
void replay_gavel_free(struct replay_gavel *replay);

struct replay_sia;
struct replay_sia *replay_sia_new(const struct erg_scheduler *scheduler);
void replay_sia_decide(struct replay_sia *replay, struct erg_scheduler *scheduler,
                       const struct erg_occasion *occasion);
void replay_sia_free(struct replay_sia *replay);

#endif
