/*
 * The controller: a policy of the simulator's drives the managed jobs of a real cluster.
 *
 * A pass looks at the resource manager and at the folders of jobs, tells the scheduler what has
 * happened (observe.c), has the policy called where that is due (decide.c), and asks the resource
 * manager for the next actions (reconcile.h). All that is known can be derived anew from these and
 * the journal, so a controller may die at any moment.
 *
 * Two clocks: the engine's, real seconds, by which it waits for the resource manager; and the
 * scheduler's, which runs `compress` times as fast from the moment at which the controller began.
 */
#ifndef ERG_CLUSTER_LIVE_CONTROLLER_H
#define ERG_CLUSTER_LIVE_CONTROLLER_H

#include "cluster/live/live_file.h"
#include "cluster/live/reconcile.h"

#include <jansson.h>

struct erg_controller_setup {
    const struct erg_live_file *file; /* borrowed, like the rest */
    struct erg_live_engine *engine;
    const char *journal; /* path */
    const struct erg_policy *policy;
    const struct erg_tariff *tariff; /* NULL: none */
    double compress;                 /* 1 but in tests */
    bool dry_run;                    /* decides and says so, changes nothing, needs no lock */
    const struct erg_reconcile_limits *limits; /* NULL: as erg_reconcile_limits_init() has them */
    /* A line for each decision and action, without a line's end. */
    void (*say)(void *context, const char *line);
    void *context;
};

struct erg_controller;

int erg_controller_new(struct erg_controller **controller, const struct erg_controller_setup *setup,
                       struct erg_error *err);
void erg_controller_free(struct erg_controller *controller);

/*
 * One pass. `*wait_s`: when the next one is due, in seconds of the engine. A resource manager that
 * does not answer is no failure: the wait grows. Fails where the journal or the policy does, or
 * where another controller has taken over.
 */
int erg_controller_pass(struct erg_controller *controller, double *wait_s, struct erg_error *err);

/* Turns all waiting jobs into ordinary ones of the resource manager's; says how many. */
int erg_controller_hand_back(struct erg_controller *controller, size_t *count,
                             struct erg_error *err);

/* Whether anything is managed that has not ended. */
bool erg_controller_is_busy(const struct erg_controller *controller);

/* What is there, as a document (status.c): a new reference. Also in
 * SPOOL/.controller/status.json after each pass. */
json_t *erg_controller_status(const struct erg_controller *controller);

#endif
