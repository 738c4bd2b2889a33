/*
 * What "ergon plan" is asked on a cluster of several kinds of GPUs: the kinds, and a search for
 * each number of GPUs and each set of kinds.
 */
#ifndef ERG_CLI_PLAN_MIXING_H
#define ERG_CLI_PLAN_MIXING_H

#include "cli/plan_answer.h"
#include "layout/energy/mixed.h"

/* Everything of one call. */
struct plan_mixing {
    struct planning *at;
    struct erg_gpu *gpus[ERG_MIXED_MOST_KINDS]; /* of another cluster's more nodes, else NULL */
    struct erg_engine *engines[ERG_MIXED_MOST_KINDS];
    struct erg_mixed_kind kinds[ERG_MIXED_MOST_KINDS];
    size_t kind_count;
    /* By numbers of GPUs, and where there are several by the kinds that are used; one for each of
     * the planning's. */
    struct erg_mixed_search *searches;
    struct erg_layout_source source;
    struct erg_layout_found found;
};

/* Replaces the planning's searches, one for each of its own. To be released, also after a failure.
 */
int erg_plan_mixing_init(struct plan_mixing *mixing, struct planning *at,
                         const struct erg_cluster *cluster, struct erg_error *err);
void erg_plan_mixing_release(struct plan_mixing *mixing);

#endif
