/*
 * Measures the abilities of the GPUs of this machine, or of emulated ones, or takes them from rows,
 * and fits the constants that explain them.
 */
#ifndef ERG_PROBE_PROBE_RUN_H
#define ERG_PROBE_PROBE_RUN_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct erg_probe_run;

/* Has to outlive the run. */
struct erg_probe_input {
    const char
        *calibrate;   /* a file for the GPU whose constants explain them, "NAME.yaml"; or NULL */
    const char *rows; /* keeps measurements; NULL: next to `calibrate`, if that is set */
    const char *from; /* rows that are there: nothing is measured; or NULL */
    const char *base; /* the GPU to start from; NULL: the catalogue's entry for what is measured */
    bool real;        /* GPUs of this machine are measured, by all ranks */
    bool leads;       /* this is rank 0 */
    int gpus;         /* of a real machine as many as ranks */
    uint64_t seed;
};

/* The caller frees it in every case. */
int erg_probe_run(struct erg_probe_run **run, const struct erg_probe_input *input,
                  struct erg_error *err);
void erg_probe_run_free(struct erg_probe_run *run);

/* Fits and writes the GPU where that is asked for, and prints what was found, for people and as a
 * document. */
int erg_probe_conclude(FILE *text, FILE *json, const struct erg_probe_run *run,
                       struct erg_error *err);

#endif
