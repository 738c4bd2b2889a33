/*
 * The fake NVML's entry points (fake_nvml.h). Built with FAKE_NVML_OLD it is a library of years
 * ago: older names, no field values, no newer queries.
 */
#include "fake_nvml_calls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- what happens at every call ---- */

enum { CALLS = 64 };

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char name[48];
    unsigned count;
} calls[CALLS];

void fake_count_call(const char *call)
{
    pthread_mutex_lock(&fake_lock);
    int i = 0;
    while (i < CALLS - 1 && calls[i].count && strcmp(calls[i].name, call) != 0)
        i++;
    snprintf(calls[i].name, sizeof calls[i].name, "%s", call);
    calls[i].count++;
    pthread_mutex_unlock(&fake_lock);
}

__attribute__((visibility("default"))) unsigned fake_nvml_calls(const char *call)
{
    unsigned count = 0;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < CALLS; i++)
        if (strcmp(calls[i].name, call) == 0)
            count = calls[i].count;
    pthread_mutex_unlock(&fake_lock);
    return count;
}

static void sleep_s(double duration_s)
{
    struct timespec left = {(time_t)duration_s, (long)((duration_s - floor(duration_s)) * 1e9)};
    while (nanosleep(&left, &left) != 0)
        ;
}

/* Delays and failures that the script asks for; `call` may be a field too. */
int fake_obey(struct fake_gpu *gpu, const char *call)
{
    double at_s = fake_now_s();
    for (size_t i = 0; i < gpu->rule_count; i++) {
        const struct fake_rule *rule = &gpu->rules[i];
        if (strcmp(rule->call, call) != 0 || (rule->file[0] && access(rule->file, F_OK) != 0))
            continue;
        if (rule->kind == FAKE_FAIL && at_s >= rule->from_s && at_s < rule->to_s)
            return rule->result;
        bool hangs = false;
        if (rule->kind == FAKE_HANG && at_s >= rule->from_s) {
            pthread_mutex_lock(&fake_lock);
            hangs = !gpu->hung[i];
            gpu->hung[i] = true;
            pthread_mutex_unlock(&fake_lock);
        }
        for (double end_s = fake_now_s() + rule->duration_s;
             hangs && fake_now_s() < end_s && !atomic_load(&fake_released) &&
             (!rule->file[0] || access(rule->file, F_OK) == 0);)
            sleep_s(0.01);
        if (rule->kind == FAKE_SLOW)
            sleep_s(rule->duration_s);
    }
    return fake_now_s() >= gpu->lost_s ? NVML_GPU_IS_LOST : NVML_SUCCESS;
}

/* ---- library and list ---- */

ENTRY(VERSIONED(nvmlInit_v2, nvmlInit), void)
{
    if (fake_world.count)
        return NVML_SUCCESS; /* a test gave the script */
    const char *path = getenv("ERGON_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return NVML_DRIVER_NOT_LOADED;
    static char text[65536];
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return fake_nvml_script(text) ? NVML_SUCCESS : NVML_DRIVER_NOT_LOADED;
}

#ifndef FAKE_NVML_OLD
ENTRY(nvmlInitWithFlags, uint32_t flags)
{
    (void)flags;
    return nvmlInit_v2();
}
#endif

ENTRY(nvmlShutdown, void)
{
    return NVML_SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int result);
const char *nvmlErrorString(int result)
{
    return result == NVML_DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Some Error";
}

ENTRY(nvmlSystemGetDriverVersion, char *text, uint32_t capacity)
{
    snprintf(text, capacity, "580.65.06");
    return NVML_SUCCESS;
}

ENTRY(VERSIONED(nvmlDeviceGetCount_v2, nvmlDeviceGetCount), uint32_t *count)
{
    *count = fake_world.count;
    return NVML_SUCCESS;
}

ENTRY(VERSIONED(nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetHandleByIndex), uint32_t index,
      nvml_device *device)
{
    if (index >= fake_world.count)
        return NVML_INVALID_ARGUMENT;
    *device = (nvml_device)(void *)&fake_world.gpus[index];
    return fake_obey(&fake_world.gpus[index], "GetHandleByIndex");
}

ENTRY(nvmlDeviceGetUUID, nvml_device device, char *text, uint32_t capacity)
{
    BEGIN(device, "GetUUID");
    if (gpu->uuid[0]) {
        snprintf(text, capacity, "%s", gpu->uuid);
        return NVML_SUCCESS;
    }
    snprintf(text, capacity, "GPU-%c%07u-aaaa-bbbb-cccc-%s", 'a' + (char)gpu->index, gpu->index,
             fake_world.tail);
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetName, nvml_device device, char *text, uint32_t capacity)
{
    BEGIN(device, "GetName");
    snprintf(text, capacity, "%s", gpu->name);
    return NVML_SUCCESS;
}

ENTRY(VERSIONED(nvmlDeviceGetPciInfo_v3, nvmlDeviceGetPciInfo_v2), nvml_device device,
      struct nvml_pci *pci)
{
    BEGIN(device, "GetPciInfo");
    pci->domain = (unsigned)gpu->place[0];
    pci->bus = (unsigned)gpu->place[1];
    pci->device = (unsigned)gpu->place[2];
    return NVML_SUCCESS;
}

/* ---- sensors ---- */

static unsigned long long energy_mj(const struct fake_gpu *gpu)
{
    double now_s = fake_now_s(), step_s = fake_last_step_s(gpu, now_s), before_j = 0;
    unsigned long long first_mj = 5000000;
    if (gpu->followed)
        fake_read_settings();
    for (size_t i = 0; i < gpu->rule_count; i++) {
        const struct fake_rule *rule = &gpu->rules[i];
        if (rule->kind == FAKE_GLITCH && now_s >= rule->from_s && now_s < rule->to_s)
            return rule->bits;
    }
    if (step_s >= gpu->restart_s) {
        before_j = fake_energy_at(gpu, gpu->restart_s);
        first_mj = 0;
    }
    double energy_j = fake_energy_at(gpu, step_s) - before_j;
    return first_mj + (unsigned long long)fmax(0, gpu->gain * 1e3 * energy_j);
}

ENTRY(nvmlDeviceGetTotalEnergyConsumption, nvml_device device, unsigned long long *out)
{
    BEGIN(device, "GetTotalEnergyConsumption");
    *out = energy_mj(gpu);
    return NVML_SUCCESS;
}

static double mean_power_w(const struct fake_gpu *gpu, double until_s, double window_s)
{
    return (fake_energy_at(gpu, until_s) - fake_energy_at(gpu, until_s - window_s)) / window_s;
}

/* Of drivers before the fields: instant. */
ENTRY(nvmlDeviceGetPowerUsage, nvml_device device, uint32_t *power_mw)
{
    BEGIN(device, "GetPowerUsage");
    *power_mw = (uint32_t)lround(
        1e3 * mean_power_w(gpu, fake_last_step_s(gpu, fake_now_s()), gpu->period_s));
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetTemperature, nvml_device device, int sensor, uint32_t *temperature_c)
{
    BEGIN(device, "GetTemperature");
    (void)sensor;
    *temperature_c = (uint32_t)gpu->temperature_c;
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetTemperatureThreshold, nvml_device device, int threshold, uint32_t *threshold_c)
{
    BEGIN(device, "GetTemperatureThreshold");
    if (threshold != NVML_THRESHOLD_SLOWDOWN && threshold != NVML_THRESHOLD_OPERATING)
        return NVML_NOT_SUPPORTED;
    *threshold_c = threshold == NVML_THRESHOLD_SLOWDOWN ? 89 : 85;
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetClockInfo, nvml_device device, int type, uint32_t *clock_mhz)
{
    BEGIN(device, "GetClockInfo");
    pthread_mutex_lock(&fake_lock);
    *clock_mhz = type == NVML_CLOCK_MEMORY ? 3201 : fake_locked_clock(gpu);
    pthread_mutex_unlock(&fake_lock);
    return NVML_SUCCESS;
}

ENTRY(VERSIONED(nvmlDeviceGetCurrentClocksEventReasons, nvmlDeviceGetCurrentClocksThrottleReasons),
      nvml_device device, unsigned long long *reasons)
{
    BEGIN(device, "GetCurrentClocksEventReasons");
    *reasons = fake_reasons_at(gpu, fake_now_s());
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetUtilizationRates, nvml_device device, struct nvml_utilisation *use)
{
    BEGIN(device, "GetUtilizationRates");
    *use = (struct nvml_utilisation){97, 40};
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetViolationStatus, nvml_device device, int policy,
      struct nvml_violation *violation)
{
    BEGIN(device, "GetViolationStatus");
    uint64_t bits = policy == NVML_POLICY_POWER ? ERG_REASON_SW_POWER_CAP
                                                : ERG_REASON_SW_THERMAL | ERG_REASON_HW_THERMAL;
    double time_s = fake_reasons_time(gpu, bits, fake_now_s());
    *violation = (struct nvml_violation){.violation_ns = (unsigned long long)(time_s * 1e9)};
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetEnforcedPowerLimit, nvml_device device, uint32_t *limit_mw)
{
    BEGIN(device, "GetEnforcedPowerLimit");
    *limit_mw = fake_limit_mw(gpu);
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetTotalEccErrors, nvml_device device, int type, int counter,
      unsigned long long *count)
{
    BEGIN(device, "GetTotalEccErrors");
    (void)counter;
    *count = type == NVML_ECC_CORRECTED ? 3 : 0;
    return NVML_SUCCESS;
}

/* ---- critical errors: an event set belongs to one GPU ---- */

ENTRY(nvmlEventSetCreate, nvml_events *events)
{
    *events = (nvml_events)malloc(sizeof(struct fake_gpu *));
    return *events ? NVML_SUCCESS : NVML_UNINITIALIZED;
}

ENTRY(nvmlDeviceRegisterEvents, nvml_device device, unsigned long long types, nvml_events events)
{
    BEGIN(device, "RegisterEvents");
    *(struct fake_gpu **)(void *)events = gpu;
    return types == NVML_EVENT_XID ? NVML_SUCCESS : NVML_NOT_SUPPORTED;
}

ENTRY(VERSIONED(nvmlEventSetWait_v2, nvmlEventSetWait), nvml_events events,
      struct nvml_event *event, uint32_t timeout_ms)
{
    struct fake_gpu *gpu = *(struct fake_gpu **)(void *)events;
    (void)timeout_ms;
    pthread_mutex_lock(&fake_lock);
    bool news = !gpu->xid_told && fake_now_s() >= gpu->xid_s;
    gpu->xid_told |= news;
    pthread_mutex_unlock(&fake_lock);
    if (!news)
        return NVML_TIMEOUT;
    *event = (struct nvml_event){.type = NVML_EVENT_XID, .data = (unsigned)gpu->xid};
    return NVML_SUCCESS;
}

ENTRY(nvmlEventSetFree, nvml_events events)
{
    free(events);
    return NVML_SUCCESS;
}

#ifndef FAKE_NVML_OLD

ENTRY(nvmlDeviceGetTemperatureV, nvml_device device, struct nvml_temperature *temperature)
{
    BEGIN(device, "GetTemperatureV");
    if (temperature->version != 0x100000c)
        return NVML_INVALID_ARGUMENT;
    temperature->value = (int32_t)gpu->temperature_c;
    return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetMarginTemperature, nvml_device device, struct nvml_margin *margin)
{
    BEGIN(device, "GetMarginTemperature");
    if (margin->version != 0x1000008)
        return NVML_INVALID_ARGUMENT;
    margin->value = (int32_t)(87 - gpu->temperature_c);
    return NVML_SUCCESS;
}

/* ---- field values ---- */

static void set_unsigned(struct nvml_field *field, double value)
{
    field->type = NVML_TYPE_UNSIGNED_INT;
    field->value.ui = (uint32_t)lround(value);
}

/* A byte counter in 64 bits, or what 32 bits leave of it beside garbage. */
static void set_counter(const struct fake_gpu *gpu, struct nvml_field *field, double count)
{
    unsigned long long whole = (unsigned long long)count + 0xf0000000u; /* wraps soon */
    field->type = gpu->narrow ? NVML_TYPE_UNSIGNED_INT : NVML_TYPE_UNSIGNED_LONG_LONG;
    field->value.ull = gpu->narrow ? 0xdeadbeef00000000ull | (whole & 0xffffffffu) : whole;
}

static int set_nvlink(const struct fake_gpu *gpu, struct nvml_field *field, double at_s)
{
    bool bytes = field->id == NVML_FIELD_NVLINK_BYTES_TX || field->id == NVML_FIELD_NVLINK_BYTES_RX;
    bool received =
        field->id == NVML_FIELD_NVLINK_DATA_RX || field->id == NVML_FIELD_NVLINK_BYTES_RX;
    double total = gpu->nvlink[received] * at_s;
    if (gpu->link_way == FAKE_NONE || bytes != (gpu->link_way == FAKE_BYTES))
        return NVML_NOT_SUPPORTED;
    if (gpu->link_way == FAKE_TOGETHER) /* the default scope 0 is the first link alone */
        total /= field->scope == NVML_SCOPE_ALL_LINKS ? 1 : gpu->links;
    else if (field->scope >= gpu->links)
        return NVML_INVALID_ARGUMENT;
    else
        total /= gpu->links;
    set_counter(gpu, field, bytes ? total : total / 1024);
    return NVML_SUCCESS;
}

static int set_field(struct fake_gpu *gpu, struct nvml_field *field)
{
    double at_s = fake_now_s(), step_s = fake_last_step_s(gpu, at_s);
    bool part = field->scope == (gpu->module ? NVML_SCOPE_MODULE : NVML_SCOPE_GPU);
    switch (field->id) {
    case NVML_FIELD_MEMORY_TEMPERATURE:
        set_unsigned(field, gpu->memory_temperature_c);
        return NVML_SUCCESS;
    case NVML_FIELD_ENERGY:
        field->type = NVML_TYPE_UNSIGNED_LONG_LONG;
        field->value.ull = energy_mj(gpu);
        return NVML_SUCCESS;
    case NVML_FIELD_POWER_INSTANT:
        set_unsigned(field, 1e3 * mean_power_w(gpu, step_s,
                                               gpu->window_s > 0 ? gpu->window_s : gpu->period_s));
        return part ? NVML_SUCCESS : NVML_NOT_SUPPORTED;
    case NVML_FIELD_POWER_AVERAGE:
        set_unsigned(field,
                     field->scope == NVML_SCOPE_MEMORY ? 0 : 1e3 * mean_power_w(gpu, step_s, 1));
        return part || field->scope == NVML_SCOPE_MEMORY ? NVML_SUCCESS : NVML_NOT_SUPPORTED;
    case NVML_FIELD_POWER_LIMIT_MIN:
        set_unsigned(field, 1e3 * gpu->limits_w[0]);
        return NVML_SUCCESS;
    case NVML_FIELD_POWER_LIMIT_MAX:
    case NVML_FIELD_POWER_LIMIT_DEFAULT:
        set_unsigned(field, 1e3 * gpu->limits_w[field->id == NVML_FIELD_POWER_LIMIT_MAX ? 1 : 2]);
        return NVML_SUCCESS;
    case NVML_FIELD_POWER_LIMIT_REQUESTED:
        set_unsigned(field, fake_limit_mw(gpu));
        return NVML_SUCCESS;
    case NVML_FIELD_PCIE_TX:
    case NVML_FIELD_PCIE_RX:
        set_counter(gpu, field, gpu->pcie[field->id == NVML_FIELD_PCIE_RX] * at_s);
        return NVML_SUCCESS;
    case NVML_FIELD_NVLINK_COUNT:
        set_unsigned(field, gpu->links);
        return NVML_SUCCESS;
    case NVML_FIELD_NVLINK_DATA_TX:
    case NVML_FIELD_NVLINK_DATA_RX:
    case NVML_FIELD_NVLINK_BYTES_TX:
    case NVML_FIELD_NVLINK_BYTES_RX:
        return set_nvlink(gpu, field, at_s);
    default:
        return NVML_NOT_SUPPORTED;
    }
}

/* The same value as another type, beside bytes that mean nothing. */
static void set_type(const struct fake_gpu *gpu, const char *name, struct nvml_field *field)
{
    for (size_t i = 0; i < gpu->rule_count; i++) {
        if (gpu->rules[i].kind != FAKE_TYPE || strcmp(gpu->rules[i].call, name) != 0)
            continue;
        uint32_t value = field->value.ui;
        field->type = gpu->rules[i].result;
        field->value.ull = 0xdeadbeefdeadbeefull;
        if (field->type == NVML_TYPE_DOUBLE)
            field->value.d = value;
        else if (field->type == NVML_TYPE_SIGNED_INT || field->type == NVML_TYPE_UNSIGNED_INT)
            field->value.ui = value;
        else if (field->type == NVML_TYPE_UNSIGNED_SHORT)
            field->value.us = (uint16_t)value;
        else if (field->type < NVML_TYPE_UNSIGNED_SHORT)
            field->value.ull = value;
    }
}

ENTRY(nvmlDeviceGetFieldValues, nvml_device device, int count, struct nvml_field *fields)
{
    BEGIN(device, "GetFieldValues");
    for (int i = 0; i < count; i++) {
        char name[48];
        snprintf(name, sizeof name, "field%u", (unsigned)fields[i].id);
        fake_count_call(name);
        fields[i].result = fake_obey(gpu, name);
        if (fields[i].result == NVML_SUCCESS)
            fields[i].result = set_field(gpu, &fields[i]);
        set_type(gpu, name, &fields[i]);
    }
    return NVML_SUCCESS;
}

/* ---- supported clocks ---- */

static int list_clocks(uint32_t *count, uint32_t *clocks, unsigned from, unsigned to, unsigned step)
{
    uint32_t room = *count, found = 0;
    for (unsigned clock = to; clock >= from; clock -= step, found++)
        if (found < room && clocks)
            clocks[found] = clock;
    *count = found;
    return found > room ? 7 /* NVML_ERROR_INSUFFICIENT_SIZE */ : NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetSupportedMemoryClocks, nvml_device device, uint32_t *count, uint32_t *clocks)
{
    BEGIN(device, "GetSupportedMemoryClocks");
    return list_clocks(count, clocks, 3201, 3201, 15);
}

ENTRY(nvmlDeviceGetSupportedGraphicsClocks, nvml_device device, uint32_t memory_mhz,
      uint32_t *count, uint32_t *clocks)
{
    BEGIN(device, "GetSupportedGraphicsClocks");
    return memory_mhz == 3201 ? list_clocks(count, clocks, 345, 1980, 15) : NVML_NOT_FOUND;
}

#endif
