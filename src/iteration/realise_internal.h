/*
 * Turns the continuous plans that the sweep passes into plans of measured options, on all cores:
 * plans do not depend on each other, and each takes longer than the whole sweep.
 */
#ifndef ERG_ITERATION_REALISE_INTERNAL_H
#define ERG_ITERATION_REALISE_INTERNAL_H

#include "iteration/rounding_internal.h"

#include <stdatomic.h>
#include <stdbool.h>

struct realiser {
    const struct erg_iteration_request *request;
    const struct option_tables *tables;
    struct erg_iteration *iteration; /* gets the plans */
    size_t plan_capacity;
    const struct timecost_problem *problem;
    struct rounding_cycles cycles; /* found when first needed */
    size_t expected;               /* plans in all, at most */
    struct {
        struct wanted *items;
        size_t count, capacity;
    } wanted;                 /* kept until they are much to keep */
    struct erg_frontier hull; /* of wanted: time and cost beyond waiting; recipe = index */
    atomic_size_t done;
};

/*
 * A plan of planned_energy_j for planned_time_s, to be realised within deadline_s; it is copied.
 * Plans that may really run (`will_run`) are searched more than those that show what is possible.
 */
void erg_realiser_want(struct realiser *realiser, const struct timecost_plan *plan,
                       double planned_time_s, double planned_energy_j, double deadline_s,
                       bool will_run);

/* Realises what is left. Fails only when interrupted; the plans are then worth nothing. */
int erg_realiser_finish(struct realiser *realiser, struct erg_error *err);
void erg_realiser_release(struct realiser *realiser); /* not the iteration */

#endif
