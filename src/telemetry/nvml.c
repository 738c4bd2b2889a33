/*
 * NVML: NVIDIA's management library for telemetry/gpu.h.
 *
 * The library is opened at run time (libnvidia-ml.so.1, or $ERGON_NVML), so one binary runs
 * anywhere. If a driver lacks an entry point, its older version is used; a value that no version
 * provides is missing. Facts of the interface: NVIDIA's NVML API reference and the public nvml.h of
 * CUDA 12 and 13.
 */
#include "telemetry/nvml_internal.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CALL(member) offsetof(struct nvml_calls, member)

/* The newest name first. Versions that differ in more than their name are separate members. */
static const struct entry_point {
    size_t offset;
    bool required;
    const char *names[2];
} entry_points[] = {
    {CALL(init), true, {"nvmlInit_v2", "nvmlInit"}},
    {CALL(shutdown), true, {"nvmlShutdown"}},
    {CALL(error_string), false, {"nvmlErrorString"}},
    {CALL(driver_version), false, {"nvmlSystemGetDriverVersion"}},
    {CALL(device_count), true, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}},
    {CALL(device_by_index), true, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"}},
    {CALL(uuid), true, {"nvmlDeviceGetUUID"}},
    {CALL(name), false, {"nvmlDeviceGetName"}},
    {CALL(pci_info), false, {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"}},
    {CALL(field_values), false, {"nvmlDeviceGetFieldValues"}},
    {CALL(total_energy), false, {"nvmlDeviceGetTotalEnergyConsumption"}},
    {CALL(power), false, {"nvmlDeviceGetPowerUsage"}},
    {CALL(temperature_v), false, {"nvmlDeviceGetTemperatureV"}},
    {CALL(temperature), false, {"nvmlDeviceGetTemperature"}},
    {CALL(margin), false, {"nvmlDeviceGetMarginTemperature"}},
    {CALL(threshold), false, {"nvmlDeviceGetTemperatureThreshold"}},
    {CALL(clock), false, {"nvmlDeviceGetClockInfo"}},
    {CALL(reasons),
     false,
     {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}},
    {CALL(utilisation), false, {"nvmlDeviceGetUtilizationRates"}},
    {CALL(violation), false, {"nvmlDeviceGetViolationStatus"}},
    {CALL(enforced_limit), false, {"nvmlDeviceGetEnforcedPowerLimit"}},
    {CALL(ecc_errors), false, {"nvmlDeviceGetTotalEccErrors"}},
    {CALL(events_create), false, {"nvmlEventSetCreate"}},
    {CALL(events_register), false, {"nvmlDeviceRegisterEvents"}},
    {CALL(events_wait), false, {"nvmlEventSetWait_v2", "nvmlEventSetWait"}},
    {CALL(events_free), false, {"nvmlEventSetFree"}},
    {CALL(supported_memory_clocks), false, {"nvmlDeviceGetSupportedMemoryClocks"}},
    {CALL(supported_clocks), false, {"nvmlDeviceGetSupportedGraphicsClocks"}},
    {CALL(lock_clocks), false, {"nvmlDeviceSetGpuLockedClocks"}},
    {CALL(unlock_clocks), false, {"nvmlDeviceResetGpuLockedClocks"}},
    {CALL(lock_memory), false, {"nvmlDeviceSetMemoryLockedClocks"}},
    {CALL(unlock_memory), false, {"nvmlDeviceResetMemoryLockedClocks"}},
    {CALL(power_limit), false, {"nvmlDeviceGetPowerManagementLimit"}},
    {CALL(power_limit_default), false, {"nvmlDeviceGetPowerManagementDefaultLimit"}},
    {CALL(power_limit_bounds), false, {"nvmlDeviceGetPowerManagementLimitConstraints"}},
    {CALL(set_power_limit), false, {"nvmlDeviceSetPowerManagementLimit"}},
    {CALL(persistence), false, {"nvmlDeviceGetPersistenceMode"}},
    {CALL(set_persistence), false, {"nvmlDeviceSetPersistenceMode"}},
};

static int load(struct nvml_library *library, const char *path, struct erg_error *err)
{
    library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library->handle)
        return erg_fail(err, ERG_NO_DEVICE,
                        "looking for NVIDIA GPUs: their management library cannot be opened (%s), "
                        "expected that of the NVIDIA driver",
                        dlerror());
    for (size_t i = 0; i < sizeof entry_points / sizeof *entry_points; i++) {
        const struct entry_point *entry = &entry_points[i];
        void *symbol = dlsym(library->handle, entry->names[0]);
        if (!symbol && entry->names[1])
            symbol = dlsym(library->handle, entry->names[1]);
        if (!symbol && entry->required)
            return erg_fail(err, ERG_NO_DEVICE,
                            "looking for NVIDIA GPUs: '%s' has no %s, expected a management "
                            "library of a driver of the last ten years",
                            path, entry->names[0]);
        memcpy((char *)&library->calls + entry->offset, &symbol, sizeof symbol);
    }
    return 0;
}

static const char *error_text(const struct nvml_calls *calls, int result)
{
    const char *text = calls->error_string ? calls->error_string(result) : NULL;
    return text ? text : erg_nvml_reason(result);
}

static void nvml_close(struct erg_gpus *gpus)
{
    struct nvml_library *library = gpus->library;
    for (size_t i = 0; i < gpus->opened; i++)
        erg_nvml_gpu_free(gpus->items[i].handle);
    library->calls.shutdown();
    dlclose(library->handle);
    free(library);
}

static const char *const visible[] = {"CUDA_VISIBLE_DEVICES", NULL};
static const struct erg_vendor nvidia = {.clocks = &erg_nvml_clock_methods,
                                         .knobs = &erg_nvml_knob_methods,
                                         .visible = visible,
                                         .order = erg_cuda_order,
                                         .read = erg_nvml_read,
                                         .close = nvml_close};

static int list_gpus(struct erg_gpus **gpus, struct nvml_library *library, struct erg_error *err)
{
    uint32_t count = 0;
    int result = library->calls.device_count(&count);
    if (result != NVML_SUCCESS || count == 0)
        return erg_fail(
            err, ERG_NO_DEVICE, "looking for NVIDIA GPUs: the driver shows none (%s), expected one",
            result == NVML_SUCCESS ? "it counts 0" : error_text(&library->calls, result));
    *gpus = erg_gpus_new(&nvidia, count);
    (*gpus)->library = library;
    erg_nvml_open_gpus(*gpus);
    for (uint32_t i = 0; i < count; i++)
        if (!(*gpus)->items[i].info.trouble[0])
            return 0;
    return erg_fail(err, ERG_NO_DEVICE,
                    "looking for NVIDIA GPUs: none of %u works (GPU 0: %s), expected a working one",
                    (unsigned)count, (*gpus)->items[0].info.trouble);
}

static int start(struct nvml_library *library, struct erg_error *err)
{
    const char *path = getenv("ERGON_NVML");
    if (load(library, path ? path : "libnvidia-ml.so.1", err) != 0)
        return -1;
    int result = library->calls.init();
    if (result == NVML_SUCCESS)
        return 0;
    return erg_fail(err, ERG_NO_DEVICE,
                    "looking for NVIDIA GPUs: the driver does not answer (%s), expected a loaded "
                    "driver that this user may access",
                    error_text(&library->calls, result));
}

int erg_nvml_open(struct erg_gpus **out, struct erg_error *err)
{
    struct nvml_library *library = erg_xcalloc(1, sizeof *library);
    struct erg_gpus *gpus = NULL;
    bool started = start(library, err) == 0;
    if (started && list_gpus(&gpus, library, err) == 0) {
        *out = gpus;
        return 0;
    }
    if (gpus) {
        erg_gpus_close(gpus);
        return -1;
    }
    if (started)
        library->calls.shutdown();
    if (library->handle)
        dlclose(library->handle);
    free(library);
    return -1;
}
