/* The selected point of a plan for people: the instructions of every stage, and how each runs. */
#ifndef ERG_REPORT_TEXT_PLAN_POINT_H
#define ERG_REPORT_TEXT_PLAN_POINT_H

#include "plan/plan.h"

#include <stdio.h>

void erg_plan_point_print(FILE *out, const struct erg_plan *plan);

#endif
