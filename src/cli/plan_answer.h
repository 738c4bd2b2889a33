/*
 * What `ergon plan` answers: one layout, one beside the best, or the best of all, at the highest
 * clock or over clocks, on GPUs of one kind or several.
 */
#ifndef ERG_CLI_PLAN_ANSWER_H
#define ERG_CLI_PLAN_ANSWER_H

#include "api/layout_query.h"

/* The command line; what was not given is NAN, NULL, ERG_NOT_GIVEN or below 0. */
struct plan_values {
    struct erg_layout_wish wish;
    const char *why, *output;
    int export, planner;
    bool slots;
};

/* Choices of the option --export beyond enum erg_export_format. */
enum { PLAN_EXPORT_PROFILE = 2, PLAN_EXPORT_JOB };

/* Everything of one call. */
struct plan_call {
    const struct plan_values *values;
    struct erg_layout_wish wish;
    struct erg_layout_query query;
};

/* Each prints its answer: the best layouts, or the one that was asked for; it beside the best; and
 * frontiers. */
int erg_plan_answer(struct plan_call *call, bool json, struct erg_error *err);
int erg_plan_explain(struct plan_call *call, struct erg_error *err);
int erg_plan_print_profile(const struct plan_call *call, struct erg_error *err);

/* Where the groups of the best layout lie on a node (plan_slots.c). */
int erg_plan_slots(struct plan_call *call, bool json, struct erg_error *err);

/* The published planner's grids (plan_arena.c). */
int erg_plan_arena(const struct plan_call *call, bool json, struct erg_error *err);

#endif
