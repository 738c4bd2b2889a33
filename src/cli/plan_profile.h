/* What ergon plan --export profile prints: a job's frontiers for ergon simulate --profiles. */
#ifndef ERG_CLI_PLAN_PROFILE_H
#define ERG_CLI_PLAN_PROFILE_H

#include "base/text.h"
#include "layout/energy/choice.h"

/*
 * Appends rows of prof_optimal.csv (cluster/speeds.h) with their header: for each number of GPUs of
 * the request's searches the frontier over layouts and clocks, at most six points from the fastest
 * to the least energy, or a row that says that nothing fits. `gpu` is the type's name,
 * `gpus_per_node` that of its nodes. All searches must ask for the same batch.
 */
int erg_plan_profile(struct erg_text *out, const struct erg_layout_choice_request *request,
                     const char *gpu, int gpus_per_node, struct erg_error *err);

#endif
