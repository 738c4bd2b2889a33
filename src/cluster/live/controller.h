/*
 * The controller: a policy of the simulator manages the jobs of a real cluster.
 *
 * A cycle reads the state of the resource manager and the folders of jobs, reports events to the
 * scheduler (observe.c), calls the policy when that is due (decide.c), and requests the next
 * actions from the resource manager (reconcile.h). All state can be derived again from these
 * sources and the journal, so a controller may die at any moment.
 *
 * There are two clocks: the engine's, in real seconds, for waits for the resource manager; and the
 * scheduler's, which runs `compress` times as fast, from the first start with this journal.
 */
#ifndef ERG_CLUSTER_LIVE_CONTROLLER_H
#define ERG_CLUSTER_LIVE_CONTROLLER_H

#include "cluster/live/live_file.h"
#include "cluster/live/reconcile.h"

#include <jansson.h>

struct erg_controller_setup {
    const struct erg_live_file *file; /* borrowed, like the other pointers */
    struct erg_live_engine *engine;
    const char *journal; /* path */
    const struct erg_policy *policy;
    const struct erg_tariff *tariff; /* NULL: none */
    double compress;                 /* 1 except in tests */
    bool dry_run;                    /* decides and reports decisions, changes nothing, needs no
                                      * lock */
    const struct erg_reconcile_limits *limits; /* NULL: the defaults of
                                                * erg_reconcile_limits_init() */
    /* Receives a line for each decision and action, without a line break. */
    void (*say)(void *context, const char *line);
    void *context;
};

struct erg_controller;

int erg_controller_new(struct erg_controller **controller, const struct erg_controller_setup *setup,
                       struct erg_error *err);
void erg_controller_free(struct erg_controller *controller);

/*
 * One cycle. `*wait_s`: time until the next one, on the engine's clock. A resource manager that
 * does not answer is not an error: the wait increases. Fails on errors of the journal or the
 * policy, or if another controller has taken over.
 */
int erg_controller_pass(struct erg_controller *controller, double *wait_s, struct erg_error *err);

/* Turns all waiting jobs into ordinary jobs of the resource manager; *count is their number. */
int erg_controller_hand_back(struct erg_controller *controller, size_t *count,
                             struct erg_error *err);

/* Returns true if any managed job has not ended. */
bool erg_controller_is_busy(const struct erg_controller *controller);

/* The present state as a document (status.c): a new reference. Each cycle also writes it to
 * SPOOL/.controller/status.json. */
json_t *erg_controller_status(const struct erg_controller *controller);

#endif
