/*
 * Submissions to Slurm. The submitter gives each job a comment that no other job has, so that the
 * job is found again where the answer of sbatch is lost.
 */
#ifndef ERG_CLUSTER_LIVE_SLURM_SUBMIT_H
#define ERG_CLUSTER_LIVE_SLURM_SUBMIT_H

#include "cluster/live/live_engine.h"

/* A job of this user. */
struct erg_slurm_found {
    uint32_t id; /* 0: there is none */
    enum erg_live_state state;
    char state_text[32], nodes[80]; /* as Slurm prints them; nodes "": none */
};

/* Searches for the job with a comment; of several, one that is not over. Returns DONE also where
 * there is none. */
enum erg_engine_answer erg_slurm_find(struct erg_slurm_found *found, const char *comment,
                                      struct erg_error *err);

/* Returns true if there is no such job, or if it has ended. */
bool erg_slurm_is_over(const struct erg_slurm_found *found);

/*
 * Runs sbatch with this process's environment. `words` begin with "sbatch", contain --parsable and
 * --comment=`comment`, and end with NULL. DONE: *id is the job's. LATER: the job was not found, and
 * may still come, since Slurm has not answered.
 */
enum erg_engine_answer erg_slurm_submit(uint32_t *id, const char *const *words, const char *comment,
                                        struct erg_error *err);

#endif
