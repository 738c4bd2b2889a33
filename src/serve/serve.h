/*
 * Serves metrics of all GPUs to Prometheus and other scrapers, and the clocks of a plan to other
 * trainers (hooks/plan_server.h), over HTTP.
 */
#ifndef ERG_SERVE_SERVE_H
#define ERG_SERVE_SERVE_H

#include "ergon/error.h"

#include <stddef.h>
#include <stdio.h>

/* The addresses and sources to serve; NULL: not given. */
struct erg_serve_options {
    const char *listen; /* "ADDRESS:PORT" */
    const char *gpus;   /* as for erg_gpus_open() */
    const char *plan;   /* a file; NULL: only metrics */
    size_t point;       /* number of the plan's point, from 1; 0: its selected one */
    const char *record; /* folder for the results that trainers report */
    const char *token;  /* file with a token: only requests that contain it are answered */
    long interval_ms;   /* time between two readings of power */
};

/* Writes the addresses to `out`, and answers until a signal ends it. */
int erg_serve(FILE *out, const struct erg_serve_options *options, struct erg_error *err);

#endif
