/* A controller that drives the live jobs of a cluster (cluster/live/controller.h), with its page.
 */
#ifndef ERG_SERVE_SCHEDULE_RUN_H
#define ERG_SERVE_SCHEDULE_RUN_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stdio.h>

/* NULL texts were not given. */
struct erg_schedule_input {
    const char *live;    /* the cluster's live file */
    const char *policy;  /* NULL: the live file's */
    const char *journal; /* NULL: next to the live file */
    const char *page;    /* "ADDRESS:PORT" of the page; NULL: no page */
    const char *tariff;
    bool dry_run;     /* changes nothing */
    bool once;        /* runs one cycle */
    bool hand_back;   /* only turns waiting jobs into ordinary ones of Slurm */
    bool until_empty; /* ends when all managed jobs have ended */
    double compress;  /* factor by which time passes faster */
    void (*say)(void *context, const char *line); /* reports each decision and action */
};

/* Runs until a signal ends it; writes the page's address, or the number of returned jobs, to
 * `out`. */
int erg_schedule_run(FILE *out, const struct erg_schedule_input *input, struct erg_error *err);

/* Prints the latest status of the running controller, for people or as JSON. Uses only the member
 * `live`. */
int erg_schedule_status(FILE *out, const struct erg_schedule_input *input, bool json,
                        struct erg_error *err);

#endif
