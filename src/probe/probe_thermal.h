/* ergon probe --thermal: the heat of a machine's GPUs, as a chassis. */
#ifndef ERG_PROBE_PROBE_THERMAL_H
#define ERG_PROBE_PROBE_THERMAL_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct erg_probe_thermal {
    const char *from;      /* a recording that is there; NULL: one is made */
    const char *keep;      /* of the one that is made; NULL: it is removed */
    const char *calibrate; /* the chassis' file; NULL: none is written */
    const char *base; /* a chassis: what is emulated; else it explains, and nothing is fitted */
    bool emulated;
    double turn_s, until_s; /* NAN: not given */
    uint64_t seed;
    const char *const *command; /* that loads a GPU; NULL: ergon probe */
    const char *program;        /* the command ergon; NULL: as of PATH */
};

/* Prints what was found, for people and as a document. */
int erg_probe_thermal(FILE *text, FILE *json, const struct erg_probe_thermal *request,
                      struct erg_error *err);

#endif
