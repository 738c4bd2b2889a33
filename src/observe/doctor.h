/*
 * Doctor: checks what this machine supports, with reasons: GPUs with every metric, properties of
 * their sensors, CPU energy, permissions, CUDA's libraries, Slurm, disk.
 *
 * Changes nothing on the machine: looks permissions up, never tries them.
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
    int gpu; /* index of the GPU; -1: the machine */
    const char *subject;
    const char *fact;   /* what was found */
    const char *advice; /* one sentence with the remedy; NULL: nothing to do */
};

struct erg_doctor_metric {
    bool valid;
    int64_t value;       /* in the unit of the metric */
    double latency_s;    /* median of a few reads of this metric alone */
    const char *source;  /* its source, or NULL */
    const char *refusal; /* why it is missing, or NULL */
};

struct erg_doctor_gpu {
    struct erg_gpu_info info;
    bool answers; /* answered in time; if not, nothing below is valid */
    bool lost;
    struct erg_doctor_metric metrics[ERG_METRICS];
    struct erg_sensor_traits counter, power;
    size_t clocks; /* number of clocks that permitted users can lock; 0: the driver lists none */
    int clock_least_mhz, clock_most_mhz;
    double ratio; /* integrated power / energy counter during the check; NaN: unknown */
};

struct erg_doctor {
    struct erg_arena arena;
    struct erg_finding *items;
    size_t count, capacity;
    struct erg_doctor_gpu *gpus;
    size_t gpu_count;
};

/*
 * Takes about `watch_s` (1.5 s shows the steps of every known sensor); a GPU that has not answered
 * three seconds after that counts as hanging. `select`: as for erg_gpus_open().
 */
void erg_doctor_examine(struct erg_doctor *doctor, const char *select, double watch_s);
void erg_doctor_release(struct erg_doctor *doctor);

/* "ok", "limited", "missing". */
const char *erg_finding_state_name(enum erg_finding_state state);

/* The value of a metric for people: "623 W", "power cap", "1.50 s". */
void erg_doctor_value(struct erg_text *out, enum erg_metric metric, int64_t value);

#endif
