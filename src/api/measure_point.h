/*
 * Points of a study measured on this machine: each is trained by `ergon train`, a program of its
 * own, on made-up tokens with random weights.
 *
 * A first short run gives the time of a step. The second has as many steps as settle the heat, then
 * the study's repeats, windows of whole steps that take as long as the study says. Where there are
 * GPUs it is recorded into points/ID.rec.
 */
#ifndef ERG_API_MEASURE_POINT_H
#define ERG_API_MEASURE_POINT_H

#include "characterize/study_run.h"

struct erg_measure_context {
    const char *program; /* ergon's own */
    const char *folder;  /* of the study */
    bool lock_clocks;    /* the user asked for it: locks the clocks that points ask for, by
                          * telemetry/clocks.h, while they are trained */
};

/* For erg_study_run.point, one at a time; `context`: a struct erg_measure_context. Beside it the
 * point is emulated into twins/ID.json. */
int erg_measure_point(void *context, const struct erg_study_point *point,
                      struct erg_study_result *result, struct erg_arena *arena,
                      struct erg_error *err);

#endif
