/*
 * The text of ergon probe: the abilities of the machine and the fitted constants, for people and
 * for programs.
 */
#ifndef ERG_PROBE_PROBE_PRINT_H
#define ERG_PROBE_PROBE_PRINT_H

#include "probe/probe.h"

#include <stddef.h>
#include <stdio.h>

struct erg_probe_findings {
    const struct erg_gpu *gpu; /* whose constants were the start */
    const char *board;         /* the GPU that was measured */
    int gpus;                  /* that were measured */
    const struct erg_probe_program *programs;
    size_t program_count;
    const struct erg_probe_ceilings *ceilings;
    const struct erg_probe_fit *fit; /* NULL when nothing was fitted */
    const char *path;                /* of the fitted GPU's file */
};

void erg_probe_print(FILE *out, const struct erg_probe_findings *findings);
void erg_probe_print_json(FILE *out, const struct erg_probe_findings *findings);

#endif
