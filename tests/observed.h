/*
 * GPUs without a driver for tests of what is shown of them: names, and samples made by hand.
 */
#ifndef ERGON_TESTS_OBSERVED_H
#define ERGON_TESTS_OBSERVED_H

#include "check.h"

#include "observe/live.h"
#include "telemetry/gpu_internal.h"

/* A list of GPUs to take names from; nothing reads them. */
static inline struct erg_gpus observed_gpus(struct erg_open_gpu *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct erg_gpu_info *info = &items[i].info;
        *info = (struct erg_gpu_info){.vendor = "NVIDIA", .name = "NVIDIA H200"};
        info->index = (int)i;
        snprintf(info->uuid, sizeof info->uuid, "GPU-%08zu", i);
        snprintf(info->pci, sizeof info->pci, "00000000:%02zx:00.0", i + 16);
        snprintf(info->driver, sizeof info->driver, "580.65.06");
    }
    return (struct erg_gpus){.items = items, .count = count, .opened = count};
}

static inline struct erg_sampler_options observed_options(void)
{
    return (struct erg_sampler_options){{50000000, 250000000, 1000000000}};
}

/* A sample that is read in no time. */
static inline struct erg_sampler_item observed_sample(size_t gpu, int64_t time_ns)
{
    return (struct erg_sampler_item){
        .gpu = gpu, .scheduled_ns = time_ns, .sample = {.start_ns = time_ns, .end_ns = time_ns}};
}

static inline void observe_value(struct erg_sampler_item *item, enum erg_metric metric,
                                 int64_t value)
{
    item->sample.readings[metric] = (struct erg_reading){value, item->sample.end_ns};
    item->sample.valid |= UINT64_C(1) << metric;
}

#endif
