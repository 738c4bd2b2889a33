/*
 * The fake NVML's settings: clock locks, limits, persistence, and what its GPUs make of them. With
 * a log they are those of all processes.
 */
#include "fake_nvml_calls.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- what is set ---- */

/* The lock held. */
static void take_setting(struct fake_gpu *gpu, const char *what, unsigned low, unsigned high,
                         int64_t at_ns)
{
    if (strcmp(what, "set") == 0 || strcmp(what, "reset") == 0) {
        gpu->before_min_mhz = gpu->locked_min_mhz;
        gpu->before_max_mhz = gpu->locked_max_mhz;
        gpu->locked_min_mhz = low;
        gpu->locked_max_mhz = high;
        gpu->locked_ns = at_ns;
    } else if (strcmp(what, "limit") == 0) {
        gpu->set_limit_mw = high;
    } else if (strncmp(what, "mem", 3) == 0) {
        gpu->memory_mhz = high;
    } else {
        gpu->persistence = high;
    }
    fake_follow(gpu, 1e-9 * (double)(at_ns - fake_world.start_ns));
}

/* Settings of all processes that are new in the log. The lock held. */
static void read_log(void)
{
    FILE *log = fake_world.log[0] ? fopen(fake_world.log, "r") : NULL;
    char line[128], what[16];
    if (!log)
        return;
    fseek(log, fake_world.log_read, SEEK_SET);
    while (fgets(line, sizeof line, log) && strchr(line, '\n')) { /* else it is being written */
        unsigned index, low = 0, high = 0;
        long long at_ns = 0;
        fake_world.log_read += (long)strlen(line);
        if (sscanf(line, "%*d %15s %u %u %u %lld", what, &index, &low, &high, &at_ns) >= 2 &&
            index < fake_world.count)
            take_setting(&fake_world.gpus[index], what, low, high, at_ns);
    }
    fclose(log);
}

void fake_read_settings(void)
{
    pthread_mutex_lock(&fake_lock);
    read_log();
    pthread_mutex_unlock(&fake_lock);
}

uint32_t fake_limit_mw(struct fake_gpu *gpu)
{
    pthread_mutex_lock(&fake_lock);
    read_log();
    uint32_t limit_mw = gpu->set_limit_mw ? gpu->set_limit_mw : (uint32_t)(gpu->limit_w * 1e3);
    pthread_mutex_unlock(&fake_lock);
    return limit_mw;
}

static double within(double clock_mhz, unsigned low, unsigned high)
{
    return high && clock_mhz > high ? high : clock_mhz < low ? low : clock_mhz;
}

/* The SM clock as the locks leave it; a new one shows when it has settled. The lock held. */
unsigned fake_locked_clock(struct fake_gpu *gpu)
{
    read_log();
    double natural = gpu->clock_mhz;
    if (gpu->stuck)
        return (unsigned)natural;
    double now = within(natural, gpu->locked_min_mhz, gpu->locked_max_mhz);
    double before = within(natural, gpu->before_min_mhz, gpu->before_max_mhz);
    double settle_s = gpu->settle_s[now < before];
    double since_s = fake_now_s() - 1e-9 * (double)(gpu->locked_ns - fake_world.start_ns);
    return (unsigned)fmin(gpu->locked_ns && since_s < settle_s ? before : now, gpu->arbitrate_mhz);
}

/* ---- settings ---- */

static int note(struct fake_gpu *gpu, const char *what, unsigned low, unsigned high)
{
    if (gpu->nolocks)
        return NVML_NO_PERMISSION;
    struct timespec now;
    pthread_mutex_lock(&fake_lock);
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (!fake_world.log[0])
        take_setting(gpu, what, low, high, now_ns);
    int log = fake_world.log[0] ? open(fake_world.log, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
    if (log >= 0) {
        dprintf(log, "%ld %s %u %u %u %lld\n", (long)getpid(), what, gpu->index, low, high,
                (long long)now_ns);
        close(log);
    }
    pthread_mutex_unlock(&fake_lock);
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceSetGpuLockedClocks, nvml_device device, uint32_t low, uint32_t high)
{
    BEGIN(device, "SetGpuLockedClocks");
    return low > high ? NVML_INVALID_ARGUMENT : note(gpu, "set", low, high);
}

ENTRY(nvmlDeviceResetGpuLockedClocks, nvml_device device)
{
    BEGIN(device, "ResetGpuLockedClocks");
    return note(gpu, "reset", 0, 0);
}

#ifndef FAKE_NVML_OLD
ENTRY(nvmlDeviceSetMemoryLockedClocks, nvml_device device, uint32_t low, uint32_t high)
{
    BEGIN(device, "SetMemoryLockedClocks");
    return low > high ? NVML_INVALID_ARGUMENT : note(gpu, "memset", low, high);
}

ENTRY(nvmlDeviceResetMemoryLockedClocks, nvml_device device)
{
    BEGIN(device, "ResetMemoryLockedClocks");
    return note(gpu, "memreset", 0, 0);
}

ENTRY(nvmlDeviceSetPersistenceMode, nvml_device device, int on)
{
    BEGIN(device, "SetPersistenceMode");
    return note(gpu, "persist", (unsigned)on, (unsigned)on);
}

ENTRY(nvmlDeviceGetPersistenceMode, nvml_device device, int *on)
{
    BEGIN(device, "GetPersistenceMode");
    pthread_mutex_lock(&fake_lock);
    read_log();
    *on = (int)gpu->persistence;
    pthread_mutex_unlock(&fake_lock);
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetArchitecture, nvml_device device, uint32_t *architecture)
{
    BEGIN(device, "GetArchitecture");
    (void)gpu;
    *architecture = 9; /* Hopper */
    return NVML_SUCCESS;
}
#endif

ENTRY(nvmlDeviceGetPowerManagementLimit, nvml_device device, uint32_t *limit_mw)
{
    BEGIN(device, "GetPowerManagementLimit");
    *limit_mw = fake_limit_mw(gpu);
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetPowerManagementDefaultLimit, nvml_device device, uint32_t *limit_mw)
{
    BEGIN(device, "GetPowerManagementDefaultLimit");
    *limit_mw = (uint32_t)(gpu->limits_w[2] * 1e3);
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetPowerManagementLimitConstraints, nvml_device device, uint32_t *least_mw,
      uint32_t *most_mw)
{
    BEGIN(device, "GetPowerManagementLimitConstraints");
    *least_mw = (uint32_t)(gpu->limits_w[0] * 1e3);
    *most_mw = (uint32_t)(gpu->limits_w[1] * 1e3);
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceSetPowerManagementLimit, nvml_device device, uint32_t limit_mw)
{
    BEGIN(device, "SetPowerManagementLimit");
    return limit_mw < gpu->limits_w[0] * 1e3 || limit_mw > gpu->limits_w[1] * 1e3
               ? NVML_INVALID_ARGUMENT
               : note(gpu, "limit", limit_mw, limit_mw);
}
