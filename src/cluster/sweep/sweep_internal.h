/* Internal to sweeps. */
#ifndef ERG_CLUSTER_SWEEP_INTERNAL_H
#define ERG_CLUSTER_SWEEP_INTERNAL_H

#include "cluster/sweep/sweep.h"

/* The unit of `rounds`. */
#define SWEEP_ROUND_S 300

/* The summary of a point, a new reference, or NULL where the store has none; a damaged one is an
 * error. */
int erg_sweep_point_get(const struct erg_sweep *sweep, struct erg_documents *store,
                        const struct erg_sweep_point *point, json_t **summary,
                        struct erg_error *err);

/* ---- jobs that were not served ---- */

struct sweep_unserved_job {
    unsigned cluster, trace, cap, policy; /* for any load and seed */
    int job;                              /* index in the trace that was read */
    int fate;                             /* enum erg_unserved_fate */
};

struct sweep_unserved {
    struct sweep_unserved_job *items;
    size_t count, capacity;
};

/* Adds the jobs in a point's summary. */
void erg_sweep_unserved_read(struct sweep_unserved *list, const struct erg_sweep *sweep,
                             const struct erg_sweep_point *point, const json_t *summary);

/* Removes duplicates; sorts by cluster, cap, trace, job and policy. */
void erg_sweep_unserved_settle(struct sweep_unserved *list);

/* The jobs of a point's cluster, cap and trace (of all traces if they are pooled). */
json_t *erg_sweep_unserved_document(const struct sweep_unserved *list,
                                    const struct erg_sweep *sweep,
                                    const struct erg_sweep_point *group);

#endif
