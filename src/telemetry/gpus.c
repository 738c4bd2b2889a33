/* GPUs of any vendor whose driver is present: lists, metrics and single values. */
#include "telemetry/gpu.h"

#include "base/clock.h"
#include "base/memory.h"
#include "telemetry/gpu_internal.h"

#include <stdlib.h>
#include <string.h>

static const struct erg_metric_info metric_infos[ERG_METRICS] = {
    [ERG_METRIC_ENERGY] = {"energy_mj", "energy counter", ERG_COST_FAST, true},
    [ERG_METRIC_POWER_INSTANT] = {"power_inst_mw", "instant power", ERG_COST_FAST, false},
    [ERG_METRIC_SM_CLOCK] = {"sm_mhz", "SM clock", ERG_COST_FAST, false},
    [ERG_METRIC_REASONS] = {"reasons_hex", "clock event reasons", ERG_COST_FAST, false},
    [ERG_METRIC_POWER_AVERAGE] = {"power_avg_mw", "average power", ERG_COST_MEDIUM, false},
    [ERG_METRIC_TEMPERATURE] = {"temp_gpu_c", "GPU temperature", ERG_COST_MEDIUM, false},
    [ERG_METRIC_MEMORY_TEMPERATURE] = {"temp_mem_c", "memory temperature", ERG_COST_MEDIUM, false},
    [ERG_METRIC_MARGIN] = {"margin_c", "thermal margin", ERG_COST_MEDIUM, false},
    [ERG_METRIC_MEMORY_CLOCK] = {"mem_mhz", "memory clock", ERG_COST_MEDIUM, false},
    [ERG_METRIC_UTILISATION] = {"util_gpu", "GPU utilisation", ERG_COST_MEDIUM, false},
    [ERG_METRIC_MEMORY_UTILISATION] = {"util_mem", "memory utilisation", ERG_COST_MEDIUM, false},
    [ERG_METRIC_PCIE_TX] = {"pcie_tx_b", "PCIe bytes sent", ERG_COST_MEDIUM, true},
    [ERG_METRIC_PCIE_RX] = {"pcie_rx_b", "PCIe bytes received", ERG_COST_MEDIUM, true},
    [ERG_METRIC_NVLINK_TX] = {"nvl_tx_b", "NVLink bytes sent", ERG_COST_MEDIUM, true},
    [ERG_METRIC_NVLINK_RX] = {"nvl_rx_b", "NVLink bytes received", ERG_COST_MEDIUM, true},
    [ERG_METRIC_MEMORY_POWER] = {"power_mem_mw", "memory power", ERG_COST_SLOW, false},
    [ERG_METRIC_POWER_LIMIT] = {"limit_mw", "enforced power limit", ERG_COST_SLOW, false},
    [ERG_METRIC_POWER_LIMIT_REQUESTED] = {"limit_requested_mw", "requested power limit",
                                          ERG_COST_SLOW, false},
    [ERG_METRIC_POWER_LIMIT_DEFAULT] = {"limit_default_mw", "default power limit", ERG_COST_SLOW,
                                        false},
    [ERG_METRIC_POWER_LIMIT_MIN] = {"limit_min_mw", "lowest power limit", ERG_COST_SLOW, false},
    [ERG_METRIC_POWER_LIMIT_MAX] = {"limit_max_mw", "highest power limit", ERG_COST_SLOW, false},
    [ERG_METRIC_VIOLATION_POWER] = {"viol_power_ns", "time held down by the power cap",
                                    ERG_COST_SLOW, true},
    [ERG_METRIC_VIOLATION_THERMAL] = {"viol_therm_ns", "time held down by heat", ERG_COST_SLOW,
                                      true},
    [ERG_METRIC_ECC_CORRECTED] = {"ecc_corrected", "corrected memory errors", ERG_COST_SLOW, true},
    [ERG_METRIC_ECC_UNCORRECTED] = {"ecc_uncorrected", "uncorrected memory errors", ERG_COST_SLOW,
                                    true},
    [ERG_METRIC_XID] = {"xid", "latest critical error", ERG_COST_SLOW, false},
};

const struct erg_metric_info *erg_metric_info(enum erg_metric metric)
{
    return &metric_infos[metric];
}

int erg_gpus_open(struct erg_gpus **gpus, const char *select, struct erg_error *err)
{
    struct erg_gpus *found;
    struct erg_error nvidia, amd;
    if (erg_nvml_open(&found, &nvidia) != 0 && erg_amdgpu_open(&found, NULL, &amd) != 0)
        return erg_fail(err, ERG_NO_DEVICE, "%s; %s", nvidia.message, amd.message);
    if (erg_gpus_select(found, select, err) != 0) {
        erg_gpus_close(found);
        return -1;
    }
    *gpus = found;
    return 0;
}

struct erg_gpus *erg_gpus_new(const struct erg_vendor *vendor, size_t count)
{
    struct erg_gpus *gpus = erg_xcalloc(1, sizeof *gpus);
    gpus->vendor = vendor;
    gpus->items = erg_xcalloc(count, sizeof *gpus->items);
    gpus->count = gpus->opened = count;
    atomic_init(&gpus->owners, 1);
    return gpus;
}

struct erg_gpus *erg_gpus_retain(struct erg_gpus *gpus)
{
    atomic_fetch_add(&gpus->owners, 1);
    return gpus;
}

void erg_gpus_close(struct erg_gpus *gpus)
{
    if (!gpus || atomic_fetch_sub(&gpus->owners, 1) > 1)
        return;
    gpus->vendor->close(gpus);
    free(gpus->items);
    free(gpus);
}

size_t erg_gpus_count(const struct erg_gpus *gpus)
{
    return gpus->count;
}

const struct erg_gpu_info *erg_gpus_info(const struct erg_gpus *gpus, size_t gpu)
{
    return &gpus->items[gpu].info;
}

void erg_gpu_read(struct erg_gpus *gpus, size_t gpu, uint64_t metrics,
                  struct erg_gpu_sample *sample)
{
    struct erg_open_gpu *item = &gpus->items[gpu];
    *sample = (struct erg_gpu_sample){.start_ns = erg_now_ns(), .lost = item->info.trouble[0]};
    if (!sample->lost)
        gpus->vendor->read(&(struct erg_gpu_query){item, sample, metrics});
    sample->end_ns = erg_now_ns();
}

uint64_t erg_gpu_metrics(const struct erg_gpus *gpus, size_t gpu, enum erg_metric_cost cost)
{
    uint64_t narrow = atomic_load(&gpus->items[gpu].narrow), metrics = 0;
    for (int m = 0; m < ERG_METRICS; m++) {
        enum erg_metric_cost due = narrow >> m & 1 ? ERG_COST_FAST : metric_infos[m].cost;
        if (due == cost)
            metrics |= UINT64_C(1) << m;
    }
    return metrics;
}

const char *erg_gpu_source(const struct erg_gpus *gpus, size_t gpu, enum erg_metric metric)
{
    return atomic_load(&gpus->items[gpu].sources[metric]);
}

const char *erg_gpu_refusal(const struct erg_gpus *gpus, size_t gpu, enum erg_metric metric)
{
    const struct erg_open_gpu *item = &gpus->items[gpu];
    return item->info.trouble[0] ? item->info.trouble : atomic_load(&item->refusals[metric]);
}

/*
 * Only temperatures and their margin can be negative: a negative counter exceeded 63 bits. No GPU
 * draws 20 kW, and one that answers draws more than 0.
 */
static bool is_plausible(enum erg_metric metric, int64_t value)
{
    bool heat = metric == ERG_METRIC_TEMPERATURE || metric == ERG_METRIC_MEMORY_TEMPERATURE ||
                metric == ERG_METRIC_MARGIN;
    bool power = metric == ERG_METRIC_POWER_INSTANT || metric == ERG_METRIC_POWER_AVERAGE;
    if (power)
        return value > 0 && value <= 20000000;
    return heat || (value >= 0 && (metric != ERG_METRIC_MEMORY_POWER || value <= 20000000));
}

void erg_gpu_put(const struct erg_gpu_query *at, enum erg_metric metric, int64_t value,
                 int64_t time_ns, const char *source)
{
    if (!is_plausible(metric, value)) {
        erg_gpu_refuse(at, metric, "the driver returned an impossible number");
        return;
    }
    at->sample->readings[metric] = (struct erg_reading){value, time_ns};
    at->sample->valid |= UINT64_C(1) << metric;
    atomic_store_explicit(&at->gpu->sources[metric], source, memory_order_relaxed);
    erg_gpu_refuse(at, metric, NULL);
}

void erg_gpu_refuse(const struct erg_gpu_query *at, enum erg_metric metric, const char *reason)
{
    atomic_store_explicit(&at->gpu->refusals[metric], reason, memory_order_relaxed);
}
