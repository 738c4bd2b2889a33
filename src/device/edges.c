/*
 * Sensor log: keeps samples of counters, and computes energy between two moments from their steps.
 */
#include "device/edges.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

void erg_sensor_log_init(struct erg_sensor_log *log, size_t gpus)
{
    *log = (struct erg_sensor_log){
        .gpus = gpus,
        .watched = gpus,
        .edges = erg_xcalloc(gpus, sizeof *log->edges),
        .last = erg_xcalloc(gpus, sizeof *log->last),
        .now = erg_xcalloc(gpus, sizeof *log->now),
    };
    erg_sensor_log_clear(log);
}

void erg_sensor_log_release(struct erg_sensor_log *log)
{
    for (size_t g = 0; g < log->gpus; g++)
        free(log->edges[g].items);
    free(log->edges);
    free(log->polls.items);
    free(log->last);
    free(log->now);
    *log = (struct erg_sensor_log){0};
}

void erg_sensor_log_clear(struct erg_sensor_log *log)
{
    for (size_t g = 0; g < log->gpus; g++)
        log->edges[g].count = 0;
    log->polls.count = 0;
    log->valid = UINT32_MAX;
}

int erg_sensor_log_poll(struct erg_sensor_log *log, struct erg_device *device,
                        struct erg_error *err)
{
    if (erg_device_sense(device, log->now, err) != 0)
        return -1;
    struct erg_poll poll = {.temperature_c = -INFINITY};
    for (size_t g = 0; g < log->watched; g++) {
        const struct erg_sample *now = &log->now[g], *last = &log->last[g];
        log->valid &= now->valid;
        poll.time_s += (double)now->time_ns * 1e-9 / (double)log->watched;
        poll.power_w += now->power_w / (double)log->watched;
        poll.clock_mhz += (double)now->clock_mhz / (double)log->watched;
        poll.temperature_c = fmax(poll.temperature_c, now->temperature_c);
        poll.reasons |= now->reasons;
        if (log->polls.count && now->energy_mj != last->energy_mj)
            ERG_PUSH(&log->edges[g], items,
                     (struct erg_edge){0.5e-9 * (double)(now->time_ns + last->time_ns),
                                       (double)now->energy_mj * 1e-3,
                                       0.5e-9 * (double)(now->time_ns - last->time_ns)});
    }
    ERG_PUSH(&log->polls, items, poll);
    struct erg_sample *swapped = log->last;
    log->last = log->now;
    log->now = swapped;
    return 0;
}

bool erg_sensor_log_energy(const struct erg_sensor_log *log, double start_s, double end_s,
                           double *energy_j)
{
    *energy_j = 0;
    for (size_t g = 0; g < log->watched; g++) {
        const struct erg_edge_list *edges = &log->edges[g];
        if (edges->count < 2)
            return false;
        *energy_j += (erg_edges_energy_at(edges, end_s) - erg_edges_energy_at(edges, start_s)) /
                     (double)log->watched;
    }
    return true;
}

double erg_sensor_log_period(const struct erg_sensor_log *log)
{
    double longest_s = 0;
    for (size_t g = 0; g < log->watched; g++) {
        const struct erg_edge_list *edges = &log->edges[g];
        if (edges->count >= 2) {
            double span_s = edges->items[edges->count - 1].time_s - edges->items[0].time_s;
            longest_s = fmax(longest_s, span_s / (double)(edges->count - 1));
        }
    }
    return longest_s;
}

struct erg_poll erg_sensor_log_mean(const struct erg_sensor_log *log, double start_s, double end_s)
{
    struct erg_poll mean = {.temperature_c = -INFINITY}, nearest = {0};
    double weight = 0, distance = INFINITY, middle = 0.5 * (start_s + end_s);
    for (size_t i = 0; i < log->polls.count; i++) {
        const struct erg_poll *poll = &log->polls.items[i];
        if (fabs(poll->time_s - middle) < distance) {
            distance = fabs(poll->time_s - middle);
            nearest = *poll;
        }
        if (poll->time_s < start_s || poll->time_s > end_s)
            continue;
        /* A reading holds until the next one: polls are denser at the ends of a window. */
        double next_s = i + 1 < log->polls.count ? poll[1].time_s : end_s;
        double held_s = fmax(fmin(next_s, end_s) - poll->time_s, 1e-9);
        weight += held_s;
        mean.time_s += held_s * poll->time_s;
        mean.power_w += held_s * poll->power_w;
        mean.clock_mhz += held_s * poll->clock_mhz;
        mean.temperature_c = fmax(mean.temperature_c, poll->temperature_c);
        mean.reasons |= poll->reasons;
    }
    if (weight <= 0)
        return nearest;
    mean.time_s /= weight;
    mean.power_w /= weight;
    mean.clock_mhz /= weight;
    return mean;
}
