/* Shared by the files of the plan only. */
#ifndef ERG_PLAN_INTERNAL_H
#define ERG_PLAN_INTERNAL_H

#include "io/json.h"
#include "plan/plan.h"

/* The instructions of a stage, in execution order. */
struct erg_plan_order {
    struct erg_instruction *items;
    size_t count;
};

/* The options of a stage's instructions. */
struct erg_plan_recipe {
    uint32_t *items;
    size_t count;
};

/* The powers of the scale, from where the stages lie. */
void erg_plan_set_powers(struct erg_plan *plan);

/* The two halves of erg_plan_complete(); the second overwrites what follows from the first. */
int erg_plan_complete_schedule(struct erg_plan *plan, struct erg_error *err);
void erg_plan_complete_points(struct erg_plan *plan);

/* The options of every virtual stage and direction, as the solver has them. */
struct erg_plan_tables {
    struct erg_frontier *items;
    size_t count;
};

/* `pace` [stages], or NULL: the factor on the planned time of each stage's options. */
struct erg_plan_tables erg_plan_tables_new(const struct erg_plan *plan, const double *pace);
void erg_plan_tables_release(struct erg_plan_tables *tables);

/* A plan from `root`: first the data of the pipeline, then every index and sum. */
int erg_plan_check(struct erg_plan *plan, const struct erg_json_place *root, struct erg_error *err);

#endif
