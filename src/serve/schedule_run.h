/* A controller that drives the live jobs of a cluster (cluster/live/controller.h), with its page.
 */
#ifndef ERG_SERVE_SCHEDULE_RUN_H
#define ERG_SERVE_SCHEDULE_RUN_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stdio.h>

/* Texts that are NULL are not given. */
struct erg_schedule_wish {
    const char *live;    /* the cluster's live file */
    const char *policy;  /* NULL: the live file's */
    const char *journal; /* NULL: next to the live file */
    const char *page;    /* "ADDRESS:PORT" to show the cluster at; NULL: nowhere */
    const char *tariff;
    bool dry_run;     /* changes nothing */
    bool once;        /* one pass */
    bool hand_back;   /* only turns waiting jobs into ordinary ones of Slurm */
    bool until_empty; /* ends when all managed jobs have */
    double compress;  /* factor by which seconds pass faster */
    void (*say)(void *context, const char *line); /* each decision and action */
};

/* Until a signal ends it; the page's address, or how many jobs were handed back, goes to `out`. */
int erg_schedule_run(FILE *out, const struct erg_schedule_wish *wish, struct erg_error *err);

/* Prints the latest status of the running controller, for people or as its JSON. Only `live` is
 * read. */
int erg_schedule_status(FILE *out, const struct erg_schedule_wish *wish, bool json,
                        struct erg_error *err);

#endif
