/*
 * The selected point of a plan as a JSON document: the option and the start of each instruction,
 * and the points of all methods.
 */
#ifndef ERG_API_PLAN_CHOSEN_H
#define ERG_API_PLAN_CHOSEN_H

#include "plan/plan.h"

/* The caller owns the result. */
json_t *erg_plan_chosen_document(const struct erg_plan *plan);

#endif
