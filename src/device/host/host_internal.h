/* The host as a device: what its files share. */
#ifndef ERG_DEVICE_HOST_INTERNAL_H
#define ERG_DEVICE_HOST_INTERNAL_H

#include "device/host/host.h"

/* Runs one kernel now. */
void erg_host_run(bool float32, const struct erg_kernel *kernel);

#endif
