/*
 * An engine's constants fitted to measured iterations, of a table and of runs of training, with the
 * machine that they were measured on.
 */
#ifndef ERG_API_FIT_CALL_H
#define ERG_API_FIT_CALL_H

#include "hardware/engine.h"
#include "layout/time/fit.h"

#include <jansson.h>

/* Texts that are NULL are not given. */
struct erg_fit_input {
    const char *rows;        /* a table; NULL: only runs */
    const char *const *runs; /* folders of runs */
    size_t run_count;
    const char *engine;        /* whose constants are the start */
    const char *job, *cluster; /* one of them; neither: that of the first run */
    const char *keys;          /* of the constants, with commas between */
    const char *output;        /* for the engine that was fitted */
    long folds;
};

struct erg_fit_call {
    const struct erg_fit_input *input;
    struct erg_fit_rows rows;  /* of the table, then of the runs */
    struct erg_cluster of_run; /* of the first run */
    struct erg_gpu gpu;        /* that all rows were measured on: its numbers alone */
    struct erg_engine *start;
    struct erg_time_machine machine;
    char *list;                                   /* the keys, cut at their commas */
    const char *keys[ERG_FIT_MOST_CONSTANTS + 2]; /* one too many is refused where they are used */
    struct erg_fit fit;
};

/* Reads, fits, and writes the engine. The caller releases it in any case; the input must outlive
 * it. */
int erg_fit_call_run(struct erg_fit_call *at, const struct erg_fit_input *input,
                     struct erg_error *err);
void erg_fit_call_release(struct erg_fit_call *at);

/* A constant in the unit of an engine's file. */
double erg_fitting_unit(const struct erg_engine *engine, const char *key);

/* The fitted engine's prediction of a row: seconds, and joules of all its GPUs at the highest
 * clock; and the measured tokens/s. */
double erg_fitting_s(const struct erg_fit_call *at, size_t row);
double erg_fitting_j(const struct erg_fit_call *at, const struct erg_fit_row *row);
double erg_fitting_rate(const struct erg_fit_row *row);

/* Schema "ergon.fit"; owned by the caller. */
json_t *erg_fit_call_document(const struct erg_fit_call *at);

#endif
