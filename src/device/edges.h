/*
 * Edges: a log of sensor samples that gives the energy between two moments, although the counter
 * moves in steps. Private to the device room.
 */
#ifndef ERG_DEVICE_EDGES_H
#define ERG_DEVICE_EDGES_H

#include "device/device.h"
#include "telemetry/energy_log.h"

struct erg_poll {
    double time_s;
    double power_w;       /* mean over the watched GPUs */
    double clock_mhz;     /* the same */
    double temperature_c; /* hottest */
    uint32_t reasons;     /* of any */
};

struct erg_poll_list {
    struct erg_poll *items;
    size_t count, capacity;
};

struct erg_sensor_log {
    size_t gpus;    /* of the device */
    size_t watched; /* the first GPUs, which are polled; default: all; set it before a poll */
    struct erg_edge_list *edges; /* one per GPU */
    struct erg_poll_list polls;
    struct erg_sample *last, *now;
    uint32_t valid; /* fields that every sample of every watched GPU had */
};

void erg_sensor_log_init(struct erg_sensor_log *log, size_t gpus);
void erg_sensor_log_release(struct erg_sensor_log *log);
void erg_sensor_log_clear(struct erg_sensor_log *log);

/* Reads the device once. */
int erg_sensor_log_poll(struct erg_sensor_log *log, struct erg_device *device,
                        struct erg_error *err);

/*
 * Mean energy of the watched GPUs between two moments, J: linear between the steps around each of
 * them. False if fewer than two steps of one GPU were seen.
 */
bool erg_sensor_log_energy(const struct erg_sensor_log *log, double start_s, double end_s,
                           double *energy_j);

/*
 * Mean time between steps of the counter, for the GPU with the longest; 0 before the second step.
 */
double erg_sensor_log_period(const struct erg_sensor_log *log);

/* Mean over the polls in [start_s, end_s], or the nearest poll if there is none. */
struct erg_poll erg_sensor_log_mean(const struct erg_sensor_log *log, double start_s, double end_s);

#endif
