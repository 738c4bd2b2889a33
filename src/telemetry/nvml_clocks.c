/*
 * Locks the SM clock through NVML. NVML locks the graphics clock, which equals the SM clock on
 * every GPU that has locks (Volta and newer).
 */
#include "base/memory.h"
#include "base/statistics.h"
#include "telemetry/clocks.h"
#include "telemetry/nvml_internal.h"

#include <stdlib.h>

/* Reports why the driver refused `what` ("locking the SM clock"). */
static int refuse(const struct erg_open_gpu *gpu, const char *what, int result,
                  struct erg_error *err)
{
    const char *expected = "expected a GPU that answers";
    if (result == NVML_NO_PERMISSION)
        expected = "expected root, or a user whom the administrator allows to change clocks";
    else if (result == NVML_NOT_SUPPORTED)
        expected = "expected a whole GPU of the Volta generation or newer";
    else if (result == NVML_FUNCTION_NOT_FOUND)
        expected = "expected a newer driver";
    return erg_fail(err, ERG_NO_DEVICE, "%s of GPU %d (%s): %s, %s", what, gpu->info.index,
                    gpu->info.name, erg_nvml_reason(result), expected);
}

/* Fills a list from one of NVML's two-step queries; `memory_mhz` 0: memory clocks. */
static int list_clocks(const struct nvml_gpu *state, uint32_t memory_mhz, uint32_t **clocks_mhz,
                       uint32_t *count)
{
    const struct nvml_calls *calls = state->calls;
    int result = NVML_INSUFFICIENT_SIZE;
    *clocks_mhz = NULL;
    *count = 256; /* GPUs have 100 to 200; the driver returns the number if 256 is too few */
    while (result == NVML_INSUFFICIENT_SIZE) {
        *clocks_mhz = erg_xrealloc(*clocks_mhz, *count, sizeof **clocks_mhz);
        result = memory_mhz ? calls->supported_clocks(state->device, memory_mhz, count, *clocks_mhz)
                            : calls->supported_memory_clocks(state->device, count, *clocks_mhz);
    }
    if (result == NVML_SUCCESS && *count == 0)
        result = NVML_NOT_SUPPORTED;
    return result;
}

static int nvml_supported(const struct erg_open_gpu *gpu, struct erg_clock_list *list,
                          struct erg_error *err)
{
    const struct nvml_gpu *state = gpu->handle;
    uint32_t *clocks_mhz = NULL, count, memory_mhz = 0;
    int result = NVML_FUNCTION_NOT_FOUND;
    if (state->calls->supported_clocks && state->calls->supported_memory_clocks)
        result = list_clocks(state, 0, &clocks_mhz, &count);
    if (result == NVML_SUCCESS) {
        /* Work runs at the highest memory clock; the lower ones are for idling. */
        for (uint32_t i = 0; i < count; i++)
            memory_mhz = clocks_mhz[i] > memory_mhz ? clocks_mhz[i] : memory_mhz;
        free(clocks_mhz);
        result = list_clocks(state, memory_mhz, &clocks_mhz, &count);
    }
    if (result != NVML_SUCCESS) {
        free(clocks_mhz);
        return refuse(gpu, "listing the SM clocks", result, err);
    }
    list->clocks_mhz = erg_xcalloc(count, sizeof *list->clocks_mhz);
    list->count = count;
    for (uint32_t i = 0; i < count; i++)
        list->clocks_mhz[i] = (int)clocks_mhz[i];
    free(clocks_mhz);
    qsort(list->clocks_mhz, list->count, sizeof *list->clocks_mhz, erg_compare_ints);
    return 0;
}

static int nvml_lock(const struct erg_open_gpu *gpu, int clock_mhz, struct erg_error *err)
{
    const struct nvml_gpu *state = gpu->handle;
    uint32_t both = (uint32_t)clock_mhz;
    int result = state->calls->lock_clocks ? state->calls->lock_clocks(state->device, both, both)
                                           : NVML_FUNCTION_NOT_FOUND;
    return result == NVML_SUCCESS ? 0 : refuse(gpu, "locking the SM clock", result, err);
}

static int nvml_unlock(const struct erg_open_gpu *gpu, struct erg_error *err)
{
    const struct nvml_gpu *state = gpu->handle;
    int result = state->calls->unlock_clocks ? state->calls->unlock_clocks(state->device)
                                             : NVML_FUNCTION_NOT_FOUND;
    if (result == NVML_GPU_IS_LOST)
        return 0; /* a GPU that has fallen off the bus holds no lock */
    return result == NVML_SUCCESS ? 0 : refuse(gpu, "unlocking the SM clock", result, err);
}

static int nvml_read_clock(const struct erg_open_gpu *gpu, int *clock_mhz, struct erg_error *err)
{
    const struct nvml_gpu *state = gpu->handle;
    uint32_t found_mhz = 0;
    int result = state->calls->clock ? state->calls->clock(state->device, NVML_CLOCK_SM, &found_mhz)
                                     : NVML_FUNCTION_NOT_FOUND;
    *clock_mhz = (int)found_mhz;
    return result == NVML_SUCCESS ? 0 : refuse(gpu, "reading the SM clock", result, err);
}

const struct erg_clock_methods erg_nvml_clock_methods = {
    .supported = nvml_supported,
    .lock = nvml_lock,
    .unlock = nvml_unlock,
    .read = nvml_read_clock,
};
