/*
 * Doctor: the abilities of this machine for ergon, with reasons: GPUs with every metric, how their
 * sensors behave, CPU energy, permissions, CUDA's libraries, Slurm, disk.
 *
 * Nothing is changed on the machine: permissions are looked up, never tried.
 */
#ifndef ERG_OBSERVE_DOCTOR_H
#define ERG_OBSERVE_DOCTOR_H

#include "base/memory.h"
#include "base/text.h"
#include "telemetry/energy_log.h"
#include "telemetry/gpu.h"

enum erg_finding_state { ERG_FINDING_OK, ERG_FINDING_LIMITED, ERG_FINDING_MISSING };

struct erg_finding {
    enum erg_finding_state state;
    int gpu; /* index of the GPU that it is about, -1 for the machine */
    const char *subject;
    const char *fact;   /* what was found */
    const char *advice; /* one sentence with the remedy; NULL where there is nothing to do */
};

struct erg_doctor_metric {
    bool valid;
    int64_t value;       /* in the unit of the metric */
    double latency_s;    /* of reading it alone: the median of a few times */
    const char *source;  /* its source, or NULL */
    const char *refusal; /* why it is missing, or NULL */
};

struct erg_doctor_gpu {
    struct erg_gpu_info info;
    bool answers; /* within the patience; if not, nothing below holds */
    bool lost;
    struct erg_doctor_metric metrics[ERG_METRICS];
    struct erg_sensor_traits counter, power;
    size_t clocks; /* at which permitted users can lock it; 0 = the driver lists none */
    int clock_least_mhz, clock_most_mhz;
    double ratio; /* integrated power / energy counter while watched, NaN if not known */
};

struct erg_doctor {
    struct erg_arena arena;
    struct erg_finding *items;
    size_t count, capacity;
    struct erg_doctor_gpu *gpus;
    size_t gpu_count;
};

/*
 * Examines for about `watch_s` (1.5 s shows the steps of every known sensor); a GPU that has not
 * answered three seconds after that is one that hangs. `select` names GPUs as for erg_gpus_open().
 */
void erg_doctor_examine(struct erg_doctor *doctor, const char *select, double watch_s);
void erg_doctor_release(struct erg_doctor *doctor);

/* "ok", "limited", "missing". */
const char *erg_finding_state_name(enum erg_finding_state state);

/* The value of a metric for people: "623 W", "power cap", "1.50 s". */
void erg_doctor_value(struct erg_text *out, enum erg_metric metric, int64_t value);

#endif
