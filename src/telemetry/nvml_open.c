/*
 * Opens the GPUs of a driver. The call for a GPU wakes the GPU up, which takes seconds, and on a
 * broken GPU it may never return. So a thread opens each GPU. A thread that hangs is left behind,
 * and cleans up after itself if it ever returns.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "telemetry/nvml_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver wakes GPUs up one after the other, so this counts from the latest answer. */
static const int64_t patience_ns = 10000000000;

/* State shared by the threads and the waiting caller; the last of them frees it. */
struct openings {
    struct erg_gpus *gpus; /* kept: the library must not be closed under a thread */
    pthread_mutex_t lock;  /* protects all below */
    pthread_cond_t news;   /* on the monotonic clock */
    size_t owners, threads, done;
    bool given_up; /* later answers are too late */
    struct opening {
        struct openings *all;
        pthread_t thread;
        bool started, done;
        struct erg_gpu_info info;
        struct nvml_gpu *state; /* NULL until it is open */
    } items[];
};

void erg_nvml_gpu_free(struct nvml_gpu *state)
{
    if (state && state->events)
        state->calls->events_free(state->events);
    free(state);
}

/* ---- one GPU ---- */

static void describe(const struct nvml_gpu *state, struct erg_gpu_info *info)
{
    const struct nvml_calls *calls = state->calls;
    struct nvml_pci pci = {0};
    if (!calls->name || calls->name(state->device, info->name, sizeof info->name) != 0)
        info->name[0] = '\0';
    erg_utf8_repair(info->name, sizeof info->name);
    erg_utf8_repair(info->uuid, sizeof info->uuid);
    if (calls->pci_info && calls->pci_info(state->device, &pci) == 0)
        snprintf(info->pci, sizeof info->pci, "%08x:%02x:%02x.0", (unsigned)pci.domain,
                 (unsigned)pci.bus, (unsigned)pci.device);
}

/* Critical errors are reported as events; a driver without them works otherwise. */
static void watch_errors(struct nvml_gpu *state)
{
    const struct nvml_calls *calls = state->calls;
    if (!calls->events_create || !calls->events_register || !calls->events_wait ||
        !calls->events_free || calls->events_create(&state->events) != NVML_SUCCESS) {
        state->events = NULL;
        return;
    }
    if (calls->events_register(state->device, NVML_EVENT_XID, state->events) != NVML_SUCCESS) {
        calls->events_free(state->events);
        state->events = NULL;
    }
}

static struct nvml_gpu *open_gpu(const struct nvml_calls *calls, uint32_t index,
                                 struct erg_gpu_info *info)
{
    nvml_device device;
    int result = calls->device_by_index(index, &device);
    if (result == NVML_SUCCESS)
        result = calls->uuid(device, info->uuid, sizeof info->uuid);
    if (result != NVML_SUCCESS) {
        *info = (struct erg_gpu_info){0};
        snprintf(info->trouble, sizeof info->trouble, "%s", erg_nvml_reason(result));
        return NULL;
    }
    struct nvml_gpu *state = erg_xcalloc(1, sizeof *state);
    state->calls = calls;
    state->device = device;
    describe(state, info);
    watch_errors(state);
    return state;
}

/* ---- all of them ---- */

/* Called with the lock held; releases it. */
static void leave(struct openings *openings)
{
    bool last = --openings->owners == 0;
    pthread_mutex_unlock(&openings->lock);
    if (!last)
        return;
    erg_gpus_close(openings->gpus);
    pthread_mutex_destroy(&openings->lock);
    pthread_cond_destroy(&openings->news);
    free(openings);
}

static void *run(void *argument)
{
    struct opening *item = argument;
    struct openings *openings = item->all;
    const struct nvml_library *library = openings->gpus->library;
    struct erg_gpu_info info = {0};
    struct nvml_gpu *state = open_gpu(&library->calls, (uint32_t)(item - openings->items), &info);
    pthread_mutex_lock(&openings->lock);
    if (openings->given_up) {
        erg_nvml_gpu_free(state);
    } else {
        item->info = info;
        item->state = state;
        item->done = true;
        openings->done++;
        pthread_cond_signal(&openings->news);
    }
    leave(openings);
    return NULL;
}

static struct openings *start(struct erg_gpus *gpus)
{
    struct openings *openings =
        erg_xcalloc(1, sizeof *openings + gpus->count * sizeof *openings->items);
    erg_condition_init(&openings->news);
    pthread_mutex_init(&openings->lock, NULL);
    openings->gpus = erg_gpus_retain(gpus);
    openings->owners = 1;
    pthread_mutex_lock(&openings->lock);
    for (size_t i = 0; i < gpus->count; i++) {
        struct opening *item = &openings->items[i];
        item->all = openings;
        item->started = erg_thread_start(&item->thread, run, item) == 0;
        openings->threads += item->started; /* without a thread it looks like a GPU that hangs */
        openings->owners += item->started;
    }
    pthread_mutex_unlock(&openings->lock);
    return openings;
}

static void take(struct erg_open_gpu *gpu, int index, const struct opening *opening,
                 const char *driver)
{
    struct erg_gpu_info *info = &gpu->info;
    if (opening->done)
        pthread_join(opening->thread, NULL);
    else if (opening->started)
        pthread_detach(opening->thread);
    gpu->handle = opening->state;
    *info = opening->info;
    info->index = index;
    snprintf(info->vendor, sizeof info->vendor, "NVIDIA");
    snprintf(info->driver, sizeof info->driver, "%s", driver);
    if (!info->name[0])
        snprintf(info->name, sizeof info->name, "unknown GPU");
    if (!opening->done)
        snprintf(info->trouble, sizeof info->trouble, "the driver did not answer when opening it");
}

void erg_nvml_open_gpus(struct erg_gpus *gpus)
{
    const struct nvml_calls *calls = &((struct nvml_library *)gpus->library)->calls;
    char driver[sizeof((struct erg_gpu_info *)0)->driver] = "";
    if (calls->driver_version && calls->driver_version(driver, sizeof driver) != NVML_SUCCESS)
        driver[0] = '\0';
    erg_utf8_repair(driver, sizeof driver);
    struct openings *openings = start(gpus);
    pthread_mutex_lock(&openings->lock);
    for (bool news = true; news && openings->done < openings->threads;) {
        int64_t until_ns = erg_now_ns() + patience_ns;
        size_t before = openings->done;
        while (openings->done == before &&
               erg_condition_wait(&openings->news, &openings->lock, until_ns))
            ;
        news = openings->done > before;
    }
    openings->given_up = true;
    for (size_t i = 0; i < gpus->count; i++)
        take(&gpus->items[i], (int)i, &openings->items[i], driver);
    leave(openings);
}
