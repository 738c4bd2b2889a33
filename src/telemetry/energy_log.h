/*
 * Energy between two moments, from counters that move in steps and power that is read now and then;
 * every number has its uncertainty. Independent of the kind of sensor.
 *
 * The counter's steps ("edges") are times at which its value is the energy so far. Between two of
 * them only the mean power is known. A load usually changes once or not at all within such a gap,
 * so energy continues at the power of the gap before, and ends at the power of the gap after: the
 * two lines meet where the load changed. Where they do not meet within the gap, energy is linear.
 * The uncertainty is a share of the difference that another course of the power within the gap,
 * between idle and the power limit, could make, plus the effect of not knowing when between two
 * polls each step happened.
 *
 * Source of the counter-edge idea: sensor studies (arXiv 2312.02741) and the published practice of
 * interpolating counter updates; the two lines and the bound are ours.
 */
#ifndef ERG_TELEMETRY_ENERGY_LOG_H
#define ERG_TELEMETRY_ENERGY_LOG_H

#include "telemetry/gpu.h"

#include <stdbool.h>
#include <stddef.h>

struct erg_edge {
    double time_s; /* of a step of the counter: halfway between the polls around it */
    double energy_j;
    double half_s; /* the step lies within this of time_s */
};

struct erg_edge_list {
    struct erg_edge *items;
    size_t count, capacity;
};

/*
 * Energy at a moment, on the line through the edges around it, or through the nearest two if it
 * lies beyond them. Needs at least two edges.
 */
double erg_edges_energy_at(const struct erg_edge_list *edges, double at_s);

/* The measured properties of a sensor. 0: unknown. */
struct erg_sensor_traits {
    double period_s;  /* between changes of the value, median */
    double jitter_s;  /* its median deviation */
    double latency_s; /* of a read, median; of all metrics read with it */
    size_t changes;   /* number of changes that gave these values */
};

/* Energy so far at a moment, with its uncertainty (95 %). */
struct erg_energy_value {
    bool valid;
    size_t run; /* of the counter, which may restart: take no differences between runs */
    double energy_j, uncertainty_j;
    double missed_j2; /* squared energy that power readings before the moment missed */
    double begin_j;   /* if the load did not change shortly before the moment */
    double end_j;     /* if it did not change shortly after */
};

/* One GPU's energy over the last seconds; older readings are dropped. */
struct erg_energy_log;

struct erg_energy_log *erg_energy_log_new(void);
void erg_energy_log_free(struct erg_energy_log *log);

/* Samples in order of time. Samples without energy or power add their other values. */
void erg_energy_log_add(struct erg_energy_log *log, const struct erg_gpu_sample *sample);

/*
 * Power that the GPU does not exceed for long, W: it bounds the energy that a gap may hide. 0:
 * unknown.
 */
void erg_energy_log_set_limit(struct erg_energy_log *log, double limit_w);

/*
 * Energy so far at a moment, from the counter and from integrated power (from each reading to the
 * next, three quarters of a period late, because a reading describes the time before it). Only
 * differences between two moments are meaningful. `settled`: later samples cannot change it,
 * because two edges after the moment were seen. Not valid while the log has no data around the
 * moment.
 */
void erg_energy_log_counter_at(const struct erg_energy_log *log, double at_s,
                               struct erg_energy_value *value, bool *settled);
void erg_energy_log_power_at(const struct erg_energy_log *log, double at_s,
                             struct erg_energy_value *value);

/* How often the counter has restarted, or jumped further than a GPU can use. */
size_t erg_energy_log_run(const struct erg_energy_log *log);

/* The highest power reading of the last seconds, W; 0 without readings. */
double erg_energy_log_highest(const struct erg_energy_log *log);

/*
 * Energy from one moment to another of the same source and run, and its uncertainty. A window
 * shorter than three steps of the counter is `brief`: its energy assumes that the load changes with
 * the window, not just outside it.
 */
void erg_energy_between(const struct erg_energy_value *begin, const struct erg_energy_value *end,
                        bool brief, double *energy_j, double *uncertainty_j);

/* The properties of the counter and of the power reading, as measured so far. */
void erg_energy_log_traits(const struct erg_energy_log *log, struct erg_sensor_traits *counter,
                           struct erg_sensor_traits *power);

#endif
