/*
 * GPUs as sensors: one interface for all vendors to a GPU's power, energy, heat, clocks and
 * traffic. It uses NVIDIA's library (telemetry/nvml.h) and, where that opens no GPU, the files of
 * AMD's driver (telemetry/amdgpu.h).
 *
 * Every value is a whole number in the unit of its metric, with its time and a validity bit: a
 * sensor that does not exist or fails never gives a zero. Metrics come in classes of cost, so that
 * a slow one is never read at the pace of a fast one.
 *
 * One thread at a time may read a GPU; different GPUs may be read by different threads.
 */
#ifndef ERG_TELEMETRY_GPU_H
#define ERG_TELEMETRY_GPU_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why a clock is lower than asked for: the bits of NVML's clock event reasons. */
enum erg_clock_reason {
    ERG_REASON_IDLE = 0x1,
    ERG_REASON_APPLICATION_CLOCKS = 0x2,
    ERG_REASON_SW_POWER_CAP = 0x4,
    ERG_REASON_HW_SLOWDOWN = 0x8,
    ERG_REASON_SYNC_BOOST = 0x10,
    ERG_REASON_SW_THERMAL = 0x20,
    ERG_REASON_HW_THERMAL = 0x40,
    ERG_REASON_HW_POWER_BRAKE = 0x80,
    ERG_REASON_DISPLAY_CLOCKS = 0x100,
};

/* How long a metric takes to read, and so how often it is read. */
enum erg_metric_cost {
    ERG_COST_FAST,   /* microseconds: every 20-50 ms */
    ERG_COST_MEDIUM, /* up to some milliseconds: every 250 ms */
    ERG_COST_SLOW,   /* longer, or rarely of interest: every 1-5 s */
    ERG_COSTS,
};

enum erg_metric {
    ERG_METRIC_ENERGY,        /* mJ, counter; moves in steps of 10-100 ms */
    ERG_METRIC_POWER_INSTANT, /* mW */
    ERG_METRIC_SM_CLOCK,      /* MHz */
    ERG_METRIC_REASONS,       /* bits of enum erg_clock_reason */

    ERG_METRIC_POWER_AVERAGE,      /* mW, over 1 s */
    ERG_METRIC_TEMPERATURE,        /* degrees C of the GPU */
    ERG_METRIC_MEMORY_TEMPERATURE, /* degrees C */
    ERG_METRIC_MARGIN,             /* degrees C to the nearest slowdown */
    ERG_METRIC_MEMORY_CLOCK,       /* MHz */
    ERG_METRIC_UTILISATION,        /* % of time with a kernel running; coarse */
    ERG_METRIC_MEMORY_UTILISATION, /* % of time with memory traffic; coarse */
    ERG_METRIC_PCIE_TX,            /* bytes, counter */
    ERG_METRIC_PCIE_RX,            /* bytes, counter */
    ERG_METRIC_NVLINK_TX,          /* bytes of all links between GPUs (AMD: XGMI), counter */
    ERG_METRIC_NVLINK_RX,          /* the same, received */

    ERG_METRIC_MEMORY_POWER,          /* mW, average */
    ERG_METRIC_POWER_LIMIT,           /* mW, the enforced limit */
    ERG_METRIC_POWER_LIMIT_REQUESTED, /* mW */
    ERG_METRIC_POWER_LIMIT_DEFAULT,   /* mW */
    ERG_METRIC_POWER_LIMIT_MIN,       /* mW */
    ERG_METRIC_POWER_LIMIT_MAX,       /* mW */
    ERG_METRIC_VIOLATION_POWER,       /* ns below the requested clock because of the power cap,
                                       * counter */
    ERG_METRIC_VIOLATION_THERMAL,     /* ns below the requested clock because of heat, counter */
    ERG_METRIC_ECC_CORRECTED,         /* errors since the driver was loaded, counter */
    ERG_METRIC_ECC_UNCORRECTED,       /* the same */
    ERG_METRIC_XID,                   /* number of the latest critical error since opening, or 0 */

    ERG_METRICS,
};

struct erg_metric_info {
    const char *name; /* with its unit: "energy_mj", the column of an export */
    const char *what; /* for people: "energy counter" */
    enum erg_metric_cost cost;
    bool counter; /* only differences are meaningful */
};

const struct erg_metric_info *erg_metric_info(enum erg_metric metric);

struct erg_reading {
    int64_t value;
    int64_t time_ns; /* erg_now_ns() axis: the sensor's own timestamp, or the middle of the call */
};

struct erg_gpu_sample {
    int64_t start_ns, end_ns; /* of the calls that read it */
    uint64_t valid;           /* bit 1 << metric */
    bool lost;                /* the GPU has fallen off the bus; this is its last sample */
    struct erg_reading readings[ERG_METRICS];
};

static inline bool erg_gpu_has(const struct erg_gpu_sample *sample, enum erg_metric metric)
{
    return sample->valid >> metric & 1;
}

struct erg_gpu_info {
    char vendor[16];
    char name[96];
    char uuid[96];
    char pci[32]; /* "00000000:1b:00.0" */
    char driver[80];
    int index; /* in the vendor library's order, that of the PCI bus */
    /* Why nothing can be read from it, "" for a GPU that works. uuid and pci are then empty. */
    char trouble[96];
};

/* A list of GPUs that are open for reading. */
struct erg_gpus;

/*
 * Opens the GPUs named by `select`: "all", or a list with commas of indices and of UUIDs or unique
 * beginnings of UUIDs ("0,2" or "GPU-8f3a"). NULL takes the list from CUDA_VISIBLE_DEVICES (AMD:
 * ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES among those), and all GPUs if it is not set. In
 * that variable "-1" or "NoDevFiles" ends the list, as for CUDA, and with several kinds of GPUs its
 * indices count in CUDA's order (cuda_order.c). Fails with ERG_NO_DEVICE without a driver or a
 * visible GPU, and with ERG_FAILED for an invalid list; MIG slices are refused, because they share
 * their sensors.
 *
 * A GPU that does not work, or on which the driver hangs while it is opened, is listed with its
 * trouble if all GPUs are selected, and refused if it is named.
 */
int erg_gpus_open(struct erg_gpus **gpus, const char *select, struct erg_error *err);

/* Several owners may share a list; each closes it once, and the last one ends it. */
struct erg_gpus *erg_gpus_retain(struct erg_gpus *gpus);
void erg_gpus_close(struct erg_gpus *gpus);

size_t erg_gpus_count(const struct erg_gpus *gpus);
const struct erg_gpu_info *erg_gpus_info(const struct erg_gpus *gpus, size_t gpu);

/*
 * Reads the metrics whose bit 1 << metric is set in `metrics`. Metrics that cannot be read are
 * missing from sample->valid. May take long, or hang with the driver: call it from a thread that
 * can wait.
 */
void erg_gpu_read(struct erg_gpus *gpus, size_t gpu, uint64_t metrics,
                  struct erg_gpu_sample *sample);

/*
 * The metrics of a class on this GPU, as bits. A 32-bit counter of this GPU is read more often than
 * its class, so that no wrap is missed; its width is known after the first read.
 */
uint64_t erg_gpu_metrics(const struct erg_gpus *gpus, size_t gpu, enum erg_metric_cost cost);

/* The source of a metric's last read ("nvmlDeviceGetFieldValues 186"), NULL before the first
 * one. */
const char *erg_gpu_source(const struct erg_gpus *gpus, size_t gpu, enum erg_metric metric);

/* Why a metric was missing at its last read ("not supported by this GPU"), or NULL. */
const char *erg_gpu_refusal(const struct erg_gpus *gpus, size_t gpu, enum erg_metric metric);

#endif
