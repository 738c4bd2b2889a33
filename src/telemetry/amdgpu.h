/*
 * AMD GPUs behind the door of telemetry/gpu.h, as Linux' amdgpu driver shows them in sysfs.
 *
 * AMD SMI reads the same files. Its structures change from release to release, the files do not,
 * and they are there without ROCm: so they are read directly. Power, limits, clocks, temperatures
 * and utilisation are numbers in text (hwmon); energy, bytes over XGMI and throttling come from
 * gpu_metrics, a table whose layout goes by its revision (amdgpu_table.c).
 *
 * Missing are the PCIe counters, power of the memory and critical errors, which the driver does not
 * give or only at the price of a second, and clocks cannot be locked. Written from the facts of the
 * kernel's documentation (gpu/amdgpu/thermal) and headers (kgd_pp_interface.h, amdgpu_smu.h of
 * Linux 6.18), and tested on a made-up tree only: it has not yet run on a real AMD GPU.
 */
#ifndef ERG_TELEMETRY_AMDGPU_H
#define ERG_TELEMETRY_AMDGPU_H

#include "telemetry/gpu.h"

/*
 * All GPUs of the driver, in the order of the PCI bus. `root` is the driver's folder; NULL:
 * $ERGON_AMDGPU, or /sys/bus/pci/drivers/amdgpu. ERG_NO_DEVICE where there is no driver or no GPU.
 */
int erg_amdgpu_open(struct erg_gpus **gpus, const char *root, struct erg_error *err);

#endif
