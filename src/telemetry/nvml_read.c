/*
 * Reads one GPU through NVML. One call asks for all fields; each is decoded by the type that came
 * with it, and only if its own result is a success.
 */
#include "base/clock.h"
#include "telemetry/nvml_internal.h"

#include <math.h>
#include <string.h>
#include <time.h>

const char *erg_nvml_reason(int result)
{
    switch (result) {
    case NVML_NOT_SUPPORTED:
    case NVML_INVALID_ARGUMENT: /* older drivers return this for unknown fields */
    case NVML_NOT_FOUND:
        return "not supported by this GPU or driver";
    case NVML_FUNCTION_NOT_FOUND:
        return "not in this driver's library";
    case NVML_NO_PERMISSION:
        return "no permission";
    case NVML_GPU_IS_LOST:
        return "the GPU has fallen off the bus";
    case NVML_RESET_REQUIRED:
        return "the GPU needs a reset";
    case NVML_TIMEOUT:
        return "the driver timed out";
    case NVML_DRIVER_NOT_LOADED:
        return "the driver is not loaded";
    case NVML_NO_NUMBER:
        return "the driver returned a number in an unknown form";
    default:
        return "the driver reports an error";
    }
}

void erg_nvml_refuse(const struct erg_gpu_query *at, enum erg_metric metric, int result)
{
    if (result == NVML_GPU_IS_LOST)
        at->sample->lost = true;
    erg_gpu_refuse(at, metric, erg_nvml_reason(result));
}

/* Makes the call and stores `value` with the time of its middle, or the reason for a failure. */
#define READ(at, metric, source, call, value)                                                      \
    do {                                                                                           \
        if (erg_gpu_wants(at, metric)) {                                                           \
            int64_t read_before_ns = erg_now_ns();                                                 \
            int read_result = (call);                                                              \
            if (read_result == NVML_SUCCESS)                                                       \
                erg_gpu_put(at, metric, (int64_t)(value), (read_before_ns + erg_now_ns()) / 2,     \
                            source);                                                               \
            else                                                                                   \
                erg_nvml_refuse(at, metric, read_result);                                          \
        }                                                                                          \
    } while (0)

#define HAS(at, member) (nvml_state(at)->calls->member != NULL)
#define ASK(at, member, ...)                                                                       \
    (HAS(at, member) ? nvml_state(at)->calls->member(nvml_state(at)->device, __VA_ARGS__)          \
                     : NVML_FUNCTION_NOT_FOUND)

/* ---- fields ---- */

static bool is_number(const struct nvml_field *field)
{
    static const double most = 9e18; /* in 64 bits */
    if (field->type == NVML_TYPE_DOUBLE)
        return fabs(field->value.d) < most;
    return field->type > NVML_TYPE_DOUBLE && field->type <= NVML_TYPE_UNSIGNED_SHORT;
}

int erg_nvml_ask_fields(const struct erg_gpu_query *at, struct nvml_field *fields, int count)
{
    for (int i = 0; i < count; i++)
        fields[i].result = NVML_NOT_SUPPORTED; /* in case the library leaves one untouched */
    int result = ASK(at, field_values, count, fields);
    for (int i = 0; i < count; i++)
        if (result != NVML_SUCCESS)
            fields[i].result = result;
        else if (fields[i].result == NVML_SUCCESS && !is_number(&fields[i]))
            fields[i].result = NVML_NO_NUMBER;
    return result;
}

int64_t erg_nvml_field_value(const struct nvml_field *field)
{
    switch (field->type) {
    case NVML_TYPE_DOUBLE:
        return (int64_t)llround(field->value.d);
    case NVML_TYPE_UNSIGNED_INT:
        return field->value.ui;
    case NVML_TYPE_UNSIGNED_LONG:
        return (int64_t)field->value.ul;
    case NVML_TYPE_SIGNED_LONG_LONG:
        return field->value.sll;
    case NVML_TYPE_SIGNED_INT:
        return field->value.si;
    case NVML_TYPE_UNSIGNED_SHORT:
        return field->value.us;
    default:
        return (int64_t)field->value.ull;
    }
}

/* The field's own timestamp on our clock if it is plausible, otherwise the middle of the call. */
static int64_t field_time(const struct nvml_field *field, int64_t before_ns, int64_t after_ns)
{
    struct timespec calendar;
    clock_gettime(CLOCK_REALTIME, &calendar);
    int64_t calendar_ns = (int64_t)calendar.tv_sec * 1000000000 + calendar.tv_nsec;
    int64_t age_ns = calendar_ns - field->timestamp_us * 1000;
    bool sane = field->timestamp_us > 0 && age_ns >= 0 && age_ns <= 5000000000;
    int64_t stamp_ns = after_ns - age_ns;
    return sane && stamp_ns < before_ns ? stamp_ns : (before_ns + after_ns) / 2;
}

/* Metrics of one field each. */
static const struct field_metric {
    enum erg_metric metric;
    uint32_t id;
    const char *source, *module_source; /* the second for power of the whole module */
} field_metrics[] = {
    {ERG_METRIC_POWER_INSTANT, NVML_FIELD_POWER_INSTANT, "nvmlDeviceGetFieldValues 186",
     "nvmlDeviceGetFieldValues 186, whole module"},
    {ERG_METRIC_POWER_AVERAGE, NVML_FIELD_POWER_AVERAGE, "nvmlDeviceGetFieldValues 185",
     "nvmlDeviceGetFieldValues 185, whole module"},
    {ERG_METRIC_MEMORY_TEMPERATURE, NVML_FIELD_MEMORY_TEMPERATURE, "nvmlDeviceGetFieldValues 82",
     NULL},
    {ERG_METRIC_MEMORY_POWER, NVML_FIELD_POWER_AVERAGE, "nvmlDeviceGetFieldValues 185, memory",
     NULL},
    {ERG_METRIC_POWER_LIMIT_MIN, NVML_FIELD_POWER_LIMIT_MIN, "nvmlDeviceGetFieldValues 187", NULL},
    {ERG_METRIC_POWER_LIMIT_MAX, NVML_FIELD_POWER_LIMIT_MAX, "nvmlDeviceGetFieldValues 188", NULL},
    {ERG_METRIC_POWER_LIMIT_DEFAULT, NVML_FIELD_POWER_LIMIT_DEFAULT, "nvmlDeviceGetFieldValues 189",
     NULL},
    {ERG_METRIC_POWER_LIMIT_REQUESTED, NVML_FIELD_POWER_LIMIT_REQUESTED,
     "nvmlDeviceGetFieldValues 192", NULL},
};
enum { FIELD_METRICS = sizeof field_metrics / sizeof *field_metrics };

/*
 * Used if the field is refused. On GPUs before Ampere this is the instant power, on others the mean
 * of a second.
 */
static void read_power_usage(const struct erg_gpu_query *at)
{
    uint32_t power_mw = 0;
    int64_t before_ns = erg_now_ns();
    if (!erg_gpu_wants(at, ERG_METRIC_POWER_INSTANT) ||
        erg_gpu_has(at->sample, ERG_METRIC_POWER_INSTANT))
        return;
    int result = ASK(at, power, &power_mw);
    if (result == NVML_SUCCESS)
        erg_gpu_put(at, ERG_METRIC_POWER_INSTANT, power_mw, (before_ns + erg_now_ns()) / 2,
                    "nvmlDeviceGetPowerUsage");
    else if (result == NVML_GPU_IS_LOST) /* otherwise the field's reason stays */
        erg_nvml_refuse(at, ERG_METRIC_POWER_INSTANT, result);
}

static void read_fields(const struct erg_gpu_query *at)
{
    struct nvml_field fields[FIELD_METRICS] = {0};
    const struct field_metric *asked[FIELD_METRICS];
    int count = 0;
    for (int i = 0; i < FIELD_METRICS; i++) {
        const struct field_metric *metric = &field_metrics[i];
        if (!erg_gpu_wants(at, metric->metric))
            continue;
        fields[count].id = metric->id;
        if (metric->module_source)
            fields[count].scope = nvml_state(at)->power_scope;
        if (metric->metric == ERG_METRIC_MEMORY_POWER)
            fields[count].scope = NVML_SCOPE_MEMORY;
        asked[count++] = metric;
    }
    if (count == 0)
        return;
    int64_t before_ns = erg_now_ns();
    erg_nvml_ask_fields(at, fields, count);
    int64_t after_ns = erg_now_ns();
    bool whole = nvml_state(at)->power_scope ==
                 NVML_SCOPE_GPU; /* the module's power was not yet requested */
    for (int i = 0; i < count; i++) {
        bool module = fields[i].scope == NVML_SCOPE_MODULE && asked[i]->module_source;
        int64_t value = erg_nvml_field_value(&fields[i]);
        /* GPUs without a sensor for memory power report 0. */
        if (asked[i]->metric == ERG_METRIC_MEMORY_POWER && value == 0 &&
            fields[i].result == NVML_SUCCESS)
            fields[i].result = NVML_NOT_SUPPORTED;
        if (fields[i].result == NVML_SUCCESS)
            erg_gpu_put(at, asked[i]->metric, value, field_time(&fields[i], before_ns, after_ns),
                        module ? asked[i]->module_source : asked[i]->source);
        else
            erg_nvml_refuse(at, asked[i]->metric, fields[i].result);
        /*
         * Superchips may report only the power of CPU and GPU together: the next read asks for
         * that.
         */
        if (asked[i]->metric == ERG_METRIC_POWER_INSTANT && !module &&
            fields[i].result == NVML_NOT_SUPPORTED)
            nvml_state(at)->power_scope = NVML_SCOPE_MODULE;
    }
    if (!whole || nvml_state(at)->power_scope == NVML_SCOPE_GPU)
        read_power_usage(at);
}

/* ---- metrics with their own call ---- */

static void read_energy(const struct erg_gpu_query *at)
{
    unsigned long long energy_mj = 0;
    if (HAS(at, total_energy)) {
        READ(at, ERG_METRIC_ENERGY, "nvmlDeviceGetTotalEnergyConsumption",
             ASK(at, total_energy, &energy_mj), energy_mj);
        return;
    }
    struct nvml_field field = {.id = NVML_FIELD_ENERGY};
    READ(at, ERG_METRIC_ENERGY, "nvmlDeviceGetFieldValues 83",
         (erg_nvml_ask_fields(at, &field, 1), field.result), erg_nvml_field_value(&field));
}

/* The lower of the two temperatures at which the driver and the hardware reduce clocks. */
static int lowest_threshold(const struct erg_gpu_query *at, uint32_t *lowest_c)
{
    static const int thresholds[] = {NVML_THRESHOLD_OPERATING, NVML_THRESHOLD_SLOWDOWN};
    int result = NVML_FUNCTION_NOT_FOUND;
    for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds; i++) {
        uint32_t threshold_c = 0;
        int asked = ASK(at, threshold, thresholds[i], &threshold_c);
        if (asked == NVML_SUCCESS && (result != NVML_SUCCESS || threshold_c < *lowest_c))
            *lowest_c = threshold_c;
        if (result != NVML_SUCCESS)
            result = asked;
    }
    return result;
}

static void read_heat(const struct erg_gpu_query *at)
{
    struct nvml_temperature modern = {.version = NVML_VERSION(struct nvml_temperature, 1),
                                      .sensor = NVML_SENSOR_GPU};
    struct nvml_margin margin = {.version = NVML_VERSION(struct nvml_margin, 1)};
    uint32_t temperature_c = 0, lowest_c = 0;
    READ(at, ERG_METRIC_TEMPERATURE, "nvmlDeviceGetTemperatureV", ASK(at, temperature_v, &modern),
         modern.value);
    if (!erg_gpu_has(at->sample, ERG_METRIC_TEMPERATURE))
        READ(at, ERG_METRIC_TEMPERATURE, "nvmlDeviceGetTemperature",
             ASK(at, temperature, NVML_SENSOR_GPU, &temperature_c), temperature_c);
    READ(at, ERG_METRIC_MARGIN, "nvmlDeviceGetMarginTemperature", ASK(at, margin, &margin),
         margin.value);
    if (!erg_gpu_has(at->sample, ERG_METRIC_MARGIN) && /* as on GPUs before Hopper */
        erg_gpu_has(at->sample, ERG_METRIC_TEMPERATURE))
        READ(at, ERG_METRIC_MARGIN, "nvmlDeviceGetTemperatureThreshold",
             lowest_threshold(at, &lowest_c),
             lowest_c - at->sample->readings[ERG_METRIC_TEMPERATURE].value);
}

static void read_clocks(const struct erg_gpu_query *at)
{
    uint32_t clock_mhz = 0;
    unsigned long long reasons = 0;
    READ(at, ERG_METRIC_SM_CLOCK, "nvmlDeviceGetClockInfo",
         ASK(at, clock, NVML_CLOCK_SM, &clock_mhz), clock_mhz);
    READ(at, ERG_METRIC_MEMORY_CLOCK, "nvmlDeviceGetClockInfo",
         ASK(at, clock, NVML_CLOCK_MEMORY, &clock_mhz), clock_mhz);
    READ(at, ERG_METRIC_REASONS, "nvmlDeviceGetCurrentClocksEventReasons",
         ASK(at, reasons, &reasons), reasons);
}

static void read_utilisation(const struct erg_gpu_query *at)
{
    struct nvml_utilisation use = {0};
    const char *source = "nvmlDeviceGetUtilizationRates";
    READ(at, ERG_METRIC_UTILISATION, source, ASK(at, utilisation, &use), use.gpu);
    READ(at, ERG_METRIC_MEMORY_UTILISATION, source, ASK(at, utilisation, &use), use.memory);
}

static void read_violation(const struct erg_gpu_query *at, enum erg_metric metric, int policy,
                           uint32_t field_id, const char *field_source)
{
    struct nvml_violation violation = {0};
    struct nvml_field field = {.id = field_id};
    READ(at, metric, "nvmlDeviceGetViolationStatus", ASK(at, violation, policy, &violation),
         violation.violation_ns);
    if (!erg_gpu_has(at->sample, metric))
        READ(at, metric, field_source, (erg_nvml_ask_fields(at, &field, 1), field.result),
             erg_nvml_field_value(&field));
}

static void read_limit_and_errors(const struct erg_gpu_query *at)
{
    uint32_t limit_mw = 0;
    unsigned long long errors = 0;
    READ(at, ERG_METRIC_POWER_LIMIT, "nvmlDeviceGetEnforcedPowerLimit",
         ASK(at, enforced_limit, &limit_mw), limit_mw);
    READ(at, ERG_METRIC_ECC_CORRECTED, "nvmlDeviceGetTotalEccErrors",
         ASK(at, ecc_errors, NVML_ECC_CORRECTED, NVML_ECC_VOLATILE, &errors), errors);
    READ(at, ERG_METRIC_ECC_UNCORRECTED, "nvmlDeviceGetTotalEccErrors",
         ASK(at, ecc_errors, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &errors), errors);
}

static void read_xid(const struct erg_gpu_query *at)
{
    struct nvml_gpu *state = nvml_state(at);
    struct nvml_event event = {0};
    if (!erg_gpu_wants(at, ERG_METRIC_XID))
        return;
    if (!state->events) {
        erg_nvml_refuse(at, ERG_METRIC_XID, NVML_NOT_SUPPORTED);
        return;
    }
    /* The driver reports each event once; this reads all that are pending. */
    int result;
    while ((result = state->calls->events_wait(state->events, &event, 0)) == NVML_SUCCESS)
        state->xid = (int64_t)event.data;
    if (result == NVML_TIMEOUT)
        erg_gpu_put(at, ERG_METRIC_XID, state->xid, erg_now_ns(), "nvmlEventSetWait");
    else
        erg_nvml_refuse(at, ERG_METRIC_XID, result);
}

void erg_nvml_read(const struct erg_gpu_query *at)
{
    read_energy(at); /* first: its time matters most */
    read_fields(at);
    read_clocks(at);
    read_heat(at);
    read_utilisation(at);
    erg_nvml_read_pcie(at);
    erg_nvml_read_links(at);
    read_violation(at, ERG_METRIC_VIOLATION_POWER, NVML_POLICY_POWER, NVML_FIELD_VIOLATION_POWER,
                   "nvmlDeviceGetFieldValues 74");
    read_violation(at, ERG_METRIC_VIOLATION_THERMAL, NVML_POLICY_THERMAL,
                   NVML_FIELD_VIOLATION_THERMAL, "nvmlDeviceGetFieldValues 75");
    read_limit_and_errors(at);
    read_xid(at);
}
