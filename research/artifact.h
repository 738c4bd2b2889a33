/*
 * The published comparison of Arena (EuroSys'26 artifact), quirks included: its accounting, the
 * speeds that it took from its profiles, and its versions of policies.
 *
 * Everything happens at multiples of 300 s. A fifth of a trace's iterations is run. Progress is all
 * seconds executed so far over the present iteration time, rounded down: rescaling rewrites
 * history. A restart takes 150 s per GPU, at most 600 s (10 and 40 s for Arena, which prunes the
 * search for a plan): up to 300 s of that lower the throughput of one round and cost no progress;
 * beyond that, two rounds count no throughput, and one of them no progress. Deadlines are 5 times
 * as far away. Speeds have 3 decimals of samples per second: 0.003 instead of 1 / 290 where a
 * sample takes 290 s.
 */
#ifndef ERG_RESEARCH_ARTIFACT_H
#define ERG_RESEARCH_ARTIFACT_H

#include "cluster/simulate/simulation.h"

/* What a simulation is given: `rules` as its accounting, which policies find again in their
 * scheduler, and `speeds`. */
struct artifact {
    struct erg_accounting rules; /* the first member */
    struct erg_speeds *speeds;
    /* The same of data parallel plans only: a replica on each GPU must fit into its memory. */
    struct erg_speeds *data_parallel;
};

/*
 * DIR/prof_optimal.csv as the library reads it, and DIR/dp_mem.csv (model, param_num, global_batch,
 * num_gpus, dp_replica_mem_gb: -1 = does not fit). Data parallel plans must have 1.2 times the
 * memory of a replica within 0.8 of the GPU's, and are as fast on any nodes; without the second
 * file all plans count as data parallel. To be released, also after a failure.
 */
int artifact_load(struct artifact *artifact, const char *folder, const struct erg_fleet *fleet,
                  const struct erg_job_trace *trace, struct erg_error *err);
void artifact_release(struct artifact *artifact);

/* Its rules, without speeds. */
extern const struct erg_accounting artifact_accounting;

/* To 3 decimals, as it keeps its numbers. */
double artifact_round(double value);

/* All time of a job that counted until now. */
double artifact_executed(const struct erg_work *work, double now_s);

/* The artifact whose rules a scheduler follows. */
const struct artifact *artifact_of(const struct erg_scheduler *scheduler);

/* Its versions of policies, and variants that leave out a part of Arena; ends with NULL. */
extern const struct erg_policy *const artifact_policies[];

/* One of those, or of the library where the artifact has none of its own. */
int artifact_policy_find(const struct erg_policy **policy, const char *name, struct erg_error *err);

#endif
