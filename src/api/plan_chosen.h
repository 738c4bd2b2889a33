/*
 * The selected point of a plan as a JSON document: what each instruction does and when it starts,
 * beside the points of all methods.
 */
#ifndef ERG_API_PLAN_CHOSEN_H
#define ERG_API_PLAN_CHOSEN_H

#include "plan/plan.h"

/* Owned by the caller. */
json_t *erg_plan_chosen_document(const struct erg_plan *plan);

#endif
