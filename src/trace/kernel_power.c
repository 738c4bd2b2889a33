/* Energy of the GPUs of a recording over Unix time. */
#include "trace/kernel_power.h"

#include "base/log.h"
#include "base/memory.h"
#include "telemetry/recording.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Time kept before and after the requested one. */
#define MARGIN_NS 5000000000

struct edge {
    int64_t unix_ns;
    double energy_j;
};

struct edges {
    struct edge *items;
    size_t count, capacity;
};

struct erg_kernel_power_gpu {
    struct edges counter, power;
    int64_t last_mj, last_mw; /* the latest reading of each */
    bool reset;               /* the counter went back */
    const struct edges *used;
    size_t at; /* the edge before the moment of the latest call */
};

struct erg_kernel_power {
    struct erg_recording *recording;
    struct erg_kernel_power_gpu *gpus;
    size_t count;
};

static void add_counter(struct erg_kernel_power_gpu *gpu, int64_t unix_ns, int64_t value_mj)
{
    if (gpu->counter.count && value_mj < gpu->last_mj)
        gpu->reset = true;
    if (gpu->counter.count == 0 || value_mj != gpu->last_mj)
        ERG_PUSH(&gpu->counter, items, (struct edge){unix_ns, 1e-3 * (double)value_mj});
    gpu->last_mj = value_mj;
}

static void add_power(struct erg_kernel_power_gpu *gpu, int64_t unix_ns, int64_t value_mw)
{
    double energy_j = 0;
    if (gpu->power.count) {
        const struct edge *last = &gpu->power.items[gpu->power.count - 1];
        if (unix_ns <= last->unix_ns)
            return;
        energy_j = last->energy_j +
                   0.5e-12 * (double)(unix_ns - last->unix_ns) * (double)(value_mw + gpu->last_mw);
    }
    ERG_PUSH(&gpu->power, items, (struct edge){unix_ns, energy_j});
    gpu->last_mw = value_mw;
}

static void add_sample(struct erg_kernel_power *power, const struct erg_sampler_item *item,
                       int64_t unix_ns)
{
    struct erg_kernel_power_gpu *gpu = &power->gpus[item->gpu];
    const struct erg_reading *readings = item->sample.readings;
    const int64_t to_unix_ns = unix_ns - item->sample.start_ns;
    assert(item->gpu < power->count);
    if (erg_gpu_has(&item->sample, ERG_METRIC_ENERGY))
        add_counter(gpu, readings[ERG_METRIC_ENERGY].time_ns + to_unix_ns,
                    readings[ERG_METRIC_ENERGY].value);
    if (erg_gpu_has(&item->sample, ERG_METRIC_POWER_INSTANT))
        add_power(gpu, readings[ERG_METRIC_POWER_INSTANT].time_ns + to_unix_ns,
                  readings[ERG_METRIC_POWER_INSTANT].value);
}

int erg_kernel_power_open(struct erg_kernel_power **power, const char *recording, int64_t from_ns,
                          int64_t to_ns, struct erg_error *err)
{
    struct erg_kernel_power *made = erg_xcalloc(1, sizeof *made);
    struct erg_sampler_item item;
    int64_t unix_ns;
    int more;
    if (erg_recording_open(&made->recording, recording, err) != 0) {
        free(made);
        return -1;
    }
    made->count = erg_recording_gpus(made->recording);
    made->gpus = erg_xcalloc(made->count + 1, sizeof *made->gpus);
    while ((more = erg_recording_next(made->recording, &item, &unix_ns, err)) > 0)
        if (unix_ns >= from_ns - MARGIN_NS && unix_ns <= to_ns + MARGIN_NS)
            add_sample(made, &item, unix_ns);
    for (size_t i = 0; i < made->count; i++) {
        struct erg_kernel_power_gpu *gpu = &made->gpus[i];
        gpu->used = gpu->counter.count > 1 && !gpu->reset ? &gpu->counter : &gpu->power;
    }
    if (more < 0) {
        erg_kernel_power_close(made);
        return -1;
    }
    *power = made;
    return 0;
}

void erg_kernel_power_close(struct erg_kernel_power *power)
{
    if (!power)
        return;
    for (size_t i = 0; i < power->count; i++) {
        free(power->gpus[i].counter.items);
        free(power->gpus[i].power.items);
    }
    free(power->gpus);
    erg_recording_close(power->recording);
    free(power);
}

int erg_kernel_power_find(const struct erg_kernel_power *power, const char *uuid, int32_t device)
{
    for (size_t i = 0; i < power->count; i++) {
        const struct erg_gpu_info *info = erg_recording_gpu(power->recording, i);
        if (*uuid ? strcmp(info->uuid, uuid) == 0 : info->index == device)
            return (int)i;
    }
    return -1;
}

bool erg_kernel_power_covers(const struct erg_kernel_power *power, int gpu, int64_t from_ns,
                             int64_t to_ns)
{
    const struct edges *edges = power->gpus[gpu].used;
    return edges->count > 1 && edges->items[0].unix_ns <= from_ns &&
           edges->items[edges->count - 1].unix_ns >= to_ns;
}

struct erg_kernel_power_gpu *erg_kernel_power_of(struct erg_kernel_power *power, int gpu)
{
    return &power->gpus[gpu];
}

double erg_kernel_power_at(void *context, int64_t unix_ns)
{
    struct erg_kernel_power_gpu *gpu = context;
    const struct edge *edges = gpu->used->items;
    while (gpu->at > 0 && edges[gpu->at].unix_ns > unix_ns)
        gpu->at--;
    while (gpu->at + 2 < gpu->used->count && edges[gpu->at + 1].unix_ns <= unix_ns)
        gpu->at++;
    const struct edge *a = &edges[gpu->at], *b = a + 1;
    if (b->unix_ns == a->unix_ns)
        return a->energy_j;
    return a->energy_j + (b->energy_j - a->energy_j) * (double)(unix_ns - a->unix_ns) /
                             (double)(b->unix_ns - a->unix_ns);
}
