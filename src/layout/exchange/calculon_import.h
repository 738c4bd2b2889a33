/* Converts files of Calculon to ergon's files (layout/exchange/calculon.h). */
#ifndef ERG_LAYOUT_EXCHANGE_CALCULON_IMPORT_H
#define ERG_LAYOUT_EXCHANGE_CALCULON_IMPORT_H

#include "ergon/error.h"

#include <stdio.h>

struct erg_calculon_input {
    const char *model, *system; /* Calculon's files */
    const char *folder;         /* for config.json, gpu.yaml, engine.yaml and job.yaml */
    long gpus, batch;           /* ERG_NOT_GIVEN: one node; a sequence for each GPU */
};

/* Writes the files, and prints their content, for people and as a document. */
int erg_calculon_import(FILE *out, FILE *json, const struct erg_calculon_input *input,
                        struct erg_error *err);

#endif
