/*
 * Heat of a machine's GPUs, from a recording of their powers and temperatures: the thermal
 * resistances of their dies and sinks, their time constants, and the couplings between GPUs through
 * the air.
 *
 * Any recording with changing powers is sufficient. Couplings are found only where GPUs worked at
 * different times, as in recordings of ergon probe --thermal.
 */
#ifndef ERG_PROBE_HEAT_FIT_H
#define ERG_PROBE_HEAT_FIT_H

#include "base/text.h"
#include "ergon/error.h"
#include "hardware/hardware.h"
#include "telemetry/gpu.h"
#include "thermal/thermal.h"

#include <stdbool.h>
#include <stddef.h>

/* Powers and temperatures in equal steps of time; [gpu * count + step]. */
struct erg_heat_tracks {
    size_t gpus, count;
    double step_s;
    double *power_w;       /* mean of the step */
    double *temperature_c; /* in its middle; NAN where nothing was read */
    struct erg_gpu_info *infos;
    double hold_c; /* temperature at which a clock falls, by the margins seen; NAN: none were */
    bool is_virtual;
};

/*
 * Reads a recording. ERG_FAILED where a GPU lacks power or temperatures, where there are more GPUs
 * than a chassis may have, or where it is shorter than two minutes.
 */
int erg_heat_tracks_read(struct erg_heat_tracks *tracks, const char *path, struct erg_error *err);
void erg_heat_tracks_release(struct erg_heat_tracks *tracks);

/* ---- who warms whom ---- */

enum erg_heat_coupling {
    ERG_HEAT_APART,   /* no GPU warms another: what was seen leaves no room for it */
    ERG_HEAT_COUPLED, /* some warm others */
    ERG_HEAT_UNKNOWN, /* they worked at the same times */
};

struct erg_heat_pair {
    size_t front, rear;
    double k_per_w;
};

/* The result of linear least squares: temperatures as sums of delayed powers. */
struct erg_heat_survey {
    enum erg_heat_coupling coupling;
    struct erg_heat_pair pairs[ERG_CHASSIS_GPUS]; /* one at most for each rear GPU */
    size_t pair_count;    /* with ERG_HEAT_UNKNOWN: guessed by how they warm, and not their lanes */
    double least_k_per_w; /* what was not seen is less */
    double die_time_s, sink_time_s;
    double die_k_per_w[ERG_CHASSIS_GPUS], sink_k_per_w[ERG_CHASSIS_GPUS], air_c[ERG_CHASSIS_GPUS];
};

/* Uses the steps for which `used` is true. */
void erg_heat_survey(const struct erg_heat_tracks *tracks, const bool *used,
                     struct erg_heat_survey *survey);

/* ---- the fit ---- */

/* How a chassis explains temperatures. */
struct erg_heat_error {
    size_t count;
    double rms_k, worst_k;
};

struct erg_heat_fit {
    struct erg_chassis chassis;
    struct erg_chassis_slot slots[ERG_CHASSIS_GPUS]; /* its own */
    struct erg_heat_survey survey;
    struct erg_heat_error fitted, held_out;
    double until_s; /* fitted to the data before; 0: to all except each fifth half minute */
};

/*
 * Fits to the first `until_s` seconds, or for 0 to all but each fifth half minute; the rest is held
 * out. ERG_FAILED where powers change too little. The fit may not be moved: its chassis points into
 * it. Names of the chassis are borrowed.
 */
int erg_heat_fit(struct erg_heat_fit *fit, const struct erg_heat_tracks *tracks, double until_s,
                 const char *name, struct erg_error *err);

/* How a chassis explains the steps for which `used` (NULL: all) is true, from the temperatures at
 * the beginning on. ERG_FAILED where it has another number of GPUs. */
int erg_heat_explain(const struct erg_chassis *chassis, const struct erg_heat_tracks *tracks,
                     const bool *used, struct erg_heat_error *error, struct erg_error *err);

/* ---- recordings ---- */

/*
 * Records all GPUs of this machine into a file that is not there yet, while each of them works in
 * turn: `command` (ends with NULL) runs with that GPU alone in CUDA_VISIBLE_DEVICES, for turn_s or
 * until it ends; then all rest as long. ERG_FAILED where the command cannot be started or fails
 * within a second. Needs no rights.
 */
int erg_heat_measure(const char *path, const char *const *command, double turn_s,
                     struct erg_error *err);

/* Whether a GPU works at a moment, and how hard: 0 to 1. */
typedef double erg_heat_activity(const void *context, size_t gpu, double at_s);

/* After `begin_s` each GPU in turn works for `load_s`, and then all rest for `rest_s`. */
struct erg_heat_turns {
    double begin_s, load_s, rest_s;
};
erg_heat_activity erg_heat_in_turns; /* context: struct erg_heat_turns */

/*
 * Records GPUs of a chassis in virtual time into a file that is not there yet: powers that leak,
 * regulators of clocks, heat over time, and sensors as on Hopper. GPUs begin at rest.
 */
int erg_heat_emulate(const char *path, const struct erg_chassis *chassis, const struct erg_gpu *gpu,
                     erg_heat_activity *activity, const void *context, double seconds,
                     uint64_t seed, struct erg_error *err);

#endif
