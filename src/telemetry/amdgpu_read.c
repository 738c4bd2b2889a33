/*
 * Reads one AMD GPU from the driver's files. Each read opens the file again, which takes
 * microseconds, because only then is a removed GPU detected.
 */
#include "base/clock.h"
#include "base/text.h"
#include "telemetry/amdgpu_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct amdgpu_gpu *state_of(const struct erg_gpu_query *at)
{
    return at->gpu->handle;
}

static const char *reason_of(int error)
{
    switch (error) {
    case ENOENT:
    case EINVAL:
    case EOPNOTSUPP:
        return "not supported by this GPU or driver";
    case EACCES:
    case EPERM:
        return "no permission, or the GPU is asleep";
    case EBUSY:
        return "the GPU is being reset";
    case ENODEV:
        return "the GPU has fallen off the bus";
    default:
        return "the driver reports an error";
    }
}

static void refuse(const struct erg_gpu_query *at, enum erg_metric metric, int error)
{
    erg_gpu_refuse(at, metric, reason_of(error));
}

/* Up to `size` bytes of a file; *error is 0 or errno. */
static size_t read_bytes(int folder, const char *name, void *bytes, size_t size, int *error)
{
    size_t length = 0;
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC);
    *error = file < 0 ? errno : 0;
    while (file >= 0 && length < size) {
        ssize_t got = read(file, (char *)bytes + length, size - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            *error = errno;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    if (file >= 0)
        close(file);
    return length;
}

int erg_amdgpu_read_text(int folder, const char *name, char *text, size_t size)
{
    int error;
    text[read_bytes(folder, name, text, size - 1, &error)] = '\0';
    text[strcspn(text, "\n")] = '\0';
    erg_utf8_repair(text, size);
    return error;
}

static int read_number(int folder, const char *name, long *value)
{
    char text[32];
    int error = erg_amdgpu_read_text(folder, name, text, sizeof text);
    return error ? error : erg_parse_long(text, value) ? 0 : EIO;
}

/* ---- numbers in files ---- */

/*
 * Stores a file's number, divided, with the time of the middle of the call, or the reason of a
 * failure. False: not stored.
 */
static bool put_number(const struct erg_gpu_query *at, enum erg_metric metric, int folder,
                       const char *name, long divisor)
{
    int64_t before_ns = erg_now_ns();
    long value;
    int error = read_number(folder, name, &value);
    if (error)
        refuse(at, metric, error);
    else
        erg_gpu_put(at, metric, value / divisor, (before_ns + erg_now_ns()) / 2, name);
    return !error;
}

static const struct number {
    enum erg_metric metric;
    const char *name; /* in hwmon: microwatts and hertz */
    long divisor;
} numbers[] = {
    {ERG_METRIC_POWER_INSTANT, "power1_input", 1000},
    {ERG_METRIC_POWER_AVERAGE, "power1_average", 1000},
    {ERG_METRIC_SM_CLOCK, "freq1_input", 1000000},
    {ERG_METRIC_MEMORY_CLOCK, "freq2_input", 1000000},
    {ERG_METRIC_POWER_LIMIT, "power1_cap", 1000},
    {ERG_METRIC_POWER_LIMIT_REQUESTED, "power1_cap", 1000},
    {ERG_METRIC_POWER_LIMIT_DEFAULT, "power1_cap_default", 1000},
    {ERG_METRIC_POWER_LIMIT_MIN, "power1_cap_min", 1000},
    {ERG_METRIC_POWER_LIMIT_MAX, "power1_cap_max", 1000},
};

static void read_numbers(const struct erg_gpu_query *at)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct number *number = &numbers[i];
        if (!erg_gpu_wants(at, number->metric) ||
            put_number(at, number->metric, state_of(at)->hwmon, number->name, number->divisor))
            continue;
        /* GPUs before MI300 report one power only, a mean over milliseconds. */
        if (number->metric == ERG_METRIC_POWER_INSTANT)
            put_number(at, number->metric, state_of(at)->hwmon, "power1_average", 1000);
    }
    if (erg_gpu_wants(at, ERG_METRIC_UTILISATION))
        put_number(at, ERG_METRIC_UTILISATION, state_of(at)->device, "gpu_busy_percent", 1);
    if (erg_gpu_wants(at, ERG_METRIC_MEMORY_UTILISATION))
        put_number(at, ERG_METRIC_MEMORY_UTILISATION, state_of(at)->device, "mem_busy_percent", 1);
}

/* ---- temperatures ---- */

static const char *const inputs[AMDGPU_TEMPERATURES] = {"temp1_input", "temp2_input",
                                                        "temp3_input"};
static const char *const criticals[AMDGPU_TEMPERATURES] = {"temp1_crit", "temp2_crit",
                                                           "temp3_crit"};

static void read_temperature(const struct erg_gpu_query *at, enum erg_metric metric, int sensor)
{
    if (!erg_gpu_wants(at, metric))
        return;
    if (sensor < 0)
        refuse(at, metric, ENOENT);
    else
        put_number(at, metric, state_of(at)->hwmon, inputs[sensor], 1000);
}

static void read_margin(const struct erg_gpu_query *at)
{
    int64_t before_ns = erg_now_ns();
    long least = 0;
    bool any = false;
    for (int i = 0; i < AMDGPU_TEMPERATURES; i++) {
        long now, critical;
        if (read_number(state_of(at)->hwmon, inputs[i], &now) != 0 ||
            read_number(state_of(at)->hwmon, criticals[i], &critical) != 0)
            continue;
        long margin = (critical - now) / 1000;
        if (!any || margin < least)
            least = margin;
        any = true;
    }
    if (any)
        erg_gpu_put(at, ERG_METRIC_MARGIN, least, (before_ns + erg_now_ns()) / 2, "temp*_crit");
    else
        refuse(at, ERG_METRIC_MARGIN, ENOENT);
}

/* ---- memory errors: "ue: 0" and "ce: 3" in lines ---- */

static void read_errors(const struct erg_gpu_query *at)
{
    static const struct {
        enum erg_metric metric;
        const char *key;
    } counts[] = {{ERG_METRIC_ECC_CORRECTED, "ce: "}, {ERG_METRIC_ECC_UNCORRECTED, "ue: "}};
    char text[256];
    int error;
    int64_t before_ns = erg_now_ns();
    text[read_bytes(state_of(at)->device, "ras/umc_err_count", text, sizeof text - 1, &error)] =
        '\0';
    int64_t time_ns = (before_ns + erg_now_ns()) / 2;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *found = error ? NULL : strstr(text, counts[i].key);
        if (!erg_gpu_wants(at, counts[i].metric))
            continue;
        if (found)
            erg_gpu_put(at, counts[i].metric, strtol(found + strlen(counts[i].key), NULL, 10),
                        time_ns, "ras/umc_err_count");
        else
            refuse(at, counts[i].metric, error ? error : ENOENT);
    }
}

/* ---- the table ---- */

static void put_table(const struct erg_gpu_query *at, enum erg_metric metric, int64_t value,
                      int64_t time_ns, const char *source)
{
    if (!erg_gpu_wants(at, metric))
        return;
    if (value < 0)
        refuse(at, metric, ENOENT);
    else
        erg_gpu_put(at, metric, value, time_ns, source);
}

/*
 * The firmware counts the ticks that it spent at a limit. The length of a tick is unknown, but
 * their share of all ticks between two reads is a share of the time between them.
 */
static void count_limited(const struct erg_gpu_query *at, const struct amdgpu_table *table,
                          int64_t time_ns)
{
    static const enum erg_metric metrics[AMDGPU_LIMITS] = {ERG_METRIC_VIOLATION_POWER,
                                                           ERG_METRIC_VIOLATION_THERMAL};
    struct amdgpu_gpu *state = state_of(at);
    bool counts = table->ticks >= 0;
    uint32_t ticks = (uint32_t)(table->ticks - state->last.ticks);
    for (int i = 0; i < AMDGPU_LIMITS; i++) {
        uint32_t limited = (uint32_t)(table->limited_ticks[i] - state->last.limited_ticks[i]);
        if (counts && state->ticking && table->limited_ticks[i] >= 0 &&
            state->last.limited_ticks[i] >= 0 && limited <= ticks && ticks)
            state->limited_ns[i] += (double)(time_ns - state->last_ns) * limited / ticks;
        put_table(at, metrics[i],
                  counts && table->limited_ticks[i] >= 0 ? (int64_t)state->limited_ns[i] : -1,
                  time_ns, "gpu_metrics residency");
    }
    state->ticking = counts;
    state->last = *table;
    state->last_ns = time_ns;
}

static void read_table(const struct erg_gpu_query *at)
{
    unsigned char bytes[4096];
    struct amdgpu_table table = {-1, -1, -1, -1, -1, {-1, -1}};
    int error;
    int64_t before_ns = erg_now_ns();
    size_t length = read_bytes(state_of(at)->device, "gpu_metrics", bytes, sizeof bytes, &error);
    int64_t time_ns = (before_ns + erg_now_ns()) / 2;
    if (!error)
        erg_amdgpu_table_decode(&table, bytes, length); /* on failure the table stays empty */
    put_table(at, ERG_METRIC_ENERGY, table.energy_mj, time_ns, "gpu_metrics energy_accumulator");
    put_table(at, ERG_METRIC_REASONS, table.reasons, time_ns, "gpu_metrics indep_throttle_status");
    put_table(at, ERG_METRIC_NVLINK_TX, table.sent_bytes, time_ns,
              "gpu_metrics xgmi_write_data_acc");
    put_table(at, ERG_METRIC_NVLINK_RX, table.received_bytes, time_ns,
              "gpu_metrics xgmi_read_data_acc");
    if (erg_gpu_wants(at, ERG_METRIC_VIOLATION_POWER) ||
        erg_gpu_wants(at, ERG_METRIC_VIOLATION_THERMAL))
        count_limited(at, &table, time_ns);
}

#define BIT(metric) (UINT64_C(1) << (metric))

void erg_amdgpu_read(const struct erg_gpu_query *at)
{
    static const uint64_t in_table = BIT(ERG_METRIC_ENERGY) | BIT(ERG_METRIC_REASONS) |
                                     BIT(ERG_METRIC_NVLINK_TX) | BIT(ERG_METRIC_NVLINK_RX) |
                                     BIT(ERG_METRIC_VIOLATION_POWER) |
                                     BIT(ERG_METRIC_VIOLATION_THERMAL);
    static const enum erg_metric never[] = {ERG_METRIC_PCIE_TX, ERG_METRIC_PCIE_RX,
                                            ERG_METRIC_MEMORY_POWER, ERG_METRIC_XID};
    const struct amdgpu_gpu *state = state_of(at);
    struct erg_gpu_sample *sample = at->sample;
    if (at->metrics & in_table)
        read_table(at);
    read_numbers(at);
    read_temperature(at, ERG_METRIC_TEMPERATURE, state->die);
    read_temperature(at, ERG_METRIC_MEMORY_TEMPERATURE, state->memory);
    if (erg_gpu_wants(at, ERG_METRIC_MARGIN))
        read_margin(at);
    if (at->metrics & (BIT(ERG_METRIC_ECC_CORRECTED) | BIT(ERG_METRIC_ECC_UNCORRECTED)))
        read_errors(at);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (erg_gpu_wants(at, never[i]))
            refuse(at, never[i], ENOENT);
    /* A file that every GPU has; a folder without it belongs to a removed GPU. */
    char text[32];
    sample->lost = !sample->valid && erg_amdgpu_read_text(state->device, "vendor", text, 32) != 0;
}
