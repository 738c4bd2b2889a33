/*
 * The selected point of a plan as JSON (schema_version 1): for every instruction its option and its
 * start in planned seconds (without the stack's overhead); time and energy of all points of every
 * method; the cost of the whole step if known.
 */
#ifndef ERG_API_PLAN_CHOSEN_H
#define ERG_API_PLAN_CHOSEN_H

#include "plan/plan.h"

/* The caller owns the result. */
json_t *erg_plan_chosen_document(const struct erg_plan *plan);

#endif
