/* The GPUs of whichever vendor's driver is there. */
#include "telemetry/amdgpu.h"
#include "telemetry/gpu_internal.h"
#include "telemetry/nvml.h"

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
