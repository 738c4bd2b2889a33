/* Sets clocks and limits through NVML (telemetry/knobs.h). */
#include "telemetry/knobs.h"
#include "telemetry/nvml_internal.h"

#define ASK(state, call, ...)                                                                      \
    ((state)->calls->call ? (state)->calls->call((state)->device, __VA_ARGS__)                     \
                          : (int)NVML_FUNCTION_NOT_FOUND)

static int nvml_bounds(const struct erg_open_gpu *gpu, enum erg_knob knob, int64_t *least,
                       int64_t *most)
{
    const struct nvml_gpu *state = gpu->handle;
    uint32_t low = 0, high = 0, clocks_mhz[64], count = sizeof clocks_mhz / sizeof *clocks_mhz;
    int result = NVML_NOT_SUPPORTED;
    if (knob == ERG_KNOB_POWER)
        result = ASK(state, power_limit_bounds, &low, &high);
    else if (knob == ERG_KNOB_MEMORY)
        result = ASK(state, supported_memory_clocks, &count, clocks_mhz);
    for (uint32_t i = 0; knob == ERG_KNOB_MEMORY && result == NVML_SUCCESS && i < count; i++) {
        low = i == 0 || clocks_mhz[i] < low ? clocks_mhz[i] : low;
        high = clocks_mhz[i] > high ? clocks_mhz[i] : high;
    }
    *least = low;
    *most = high;
    return result;
}

static int nvml_limit_default(const struct erg_open_gpu *gpu, int64_t *limit_mw)
{
    uint32_t found = 0;
    int result = ASK((const struct nvml_gpu *)gpu->handle, power_limit_default, &found);
    *limit_mw = found;
    return result;
}

static int nvml_set(const struct erg_open_gpu *gpu, enum erg_knob knob, int64_t low, int64_t high)
{
    const struct nvml_gpu *state = gpu->handle;
    if (knob == ERG_KNOB_CLOCK)
        return ASK(state, lock_clocks, (uint32_t)low, (uint32_t)high);
    if (knob == ERG_KNOB_MEMORY)
        return ASK(state, lock_memory, (uint32_t)low, (uint32_t)high);
    return ASK(state, set_power_limit, (uint32_t)high);
}

static int nvml_reset(const struct erg_open_gpu *gpu, enum erg_knob knob)
{
    const struct nvml_gpu *state = gpu->handle;
    int (*call)(nvml_device) =
        knob == ERG_KNOB_CLOCK ? state->calls->unlock_clocks : state->calls->unlock_memory;
    int result = call ? call(state->device) : NVML_FUNCTION_NOT_FOUND;
    return result == NVML_GPU_IS_LOST ? NVML_SUCCESS : result; /* it has no settings any more */
}

static int nvml_read_knob(const struct erg_open_gpu *gpu, enum erg_knob knob, int64_t *value)
{
    const struct nvml_gpu *state = gpu->handle;
    uint32_t found = 0;
    int result;
    if (knob == ERG_KNOB_POWER)
        result = ASK(state, power_limit, &found);
    else
        result =
            ASK(state, clock, knob == ERG_KNOB_CLOCK ? NVML_CLOCK_SM : NVML_CLOCK_MEMORY, &found);
    *value = found;
    return result;
}

static int nvml_persistence(const struct erg_open_gpu *gpu, bool *on)
{
    int found = 0;
    int result = ASK((const struct nvml_gpu *)gpu->handle, persistence, &found);
    *on = found != 0;
    return result;
}

static int nvml_set_persistence(const struct erg_open_gpu *gpu, bool on)
{
    return ASK((const struct nvml_gpu *)gpu->handle, set_persistence, on);
}

const struct erg_knob_methods erg_nvml_knob_methods = {
    .bounds = nvml_bounds,
    .limit_default = nvml_limit_default,
    .set = nvml_set,
    .reset = nvml_reset,
    .read = nvml_read_knob,
    .persistence = nvml_persistence,
    .set_persistence = nvml_set_persistence,
    .reason = erg_nvml_reason,
};
