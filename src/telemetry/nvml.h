/*
 * NVML: NVIDIA's management library behind the door of telemetry/gpu.h.
 *
 * The library is opened at run time (libnvidia-ml.so.1, or what $ERGON_NVML names), so one binary
 * runs anywhere. An entry point that a driver lacks falls back to its older version, and what no
 * version gives is a missing value. Facts of the interface: NVIDIA's NVML API reference and the
 * public nvml.h of CUDA 12 and 13.
 */
#ifndef ERG_TELEMETRY_NVML_H
#define ERG_TELEMETRY_NVML_H

#include "telemetry/gpu.h"

/* All GPUs of the driver. ERG_NO_DEVICE where the library, the driver or every GPU is missing. */
int erg_nvml_open(struct erg_gpus **gpus, struct erg_error *err);

#endif
