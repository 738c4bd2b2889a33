/*
 * Metrics of all GPUs for Prometheus and others to scrape, and the clocks of a plan for other
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
    const char *gpus;   /* as of erg_gpus_open() */
    const char *plan;   /* a file; NULL: metrics alone */
    size_t point;       /* of the plan, from 1 on; 0: its selected one */
    const char *record; /* a folder for what trainers report */
    const char *token;  /* a file: only requests that bring its token are answered */
    long interval_ms;   /* between two readings of power */
};

/* Writes the addresses to `out`, and answers until a signal ends it. */
int erg_serve(FILE *out, const struct erg_serve_options *options, struct erg_error *err);

#endif
