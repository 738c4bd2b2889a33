/*
 * Reading one GPU through NVML. Fields are asked for in one batch and decoded one by one, each by
 * the type it came with and only if its own result is a success.
 */
#include "base/clock.h"
#include "telemetry/nvml_internal.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* No PCIe slot and no single NVLink moves more per direction; a counter of 32 bits that is read too
 * late for that may have wrapped unseen. */
static const double link_bytes_per_s = 64e9;

const char *nvml_reason(int result)
{
    switch (result) {
    case NVML_NOT_SUPPORTED:
    case NVML_INVALID_ARGUMENT: /* what older drivers say to fields that they do not know */
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
    default:
        return "the driver reports an error";
    }
}

/* A read under way. */
struct reading {
    struct erg_gpu *gpu;
    struct nvml_gpu *state;
    struct erg_gpu_sample *sample;
    uint64_t metrics;
};

static bool wanted(const struct reading *at, enum erg_metric metric)
{
    return at->metrics >> metric & 1;
}

static void put(const struct reading *at, enum erg_metric metric, int64_t value, int64_t time_ns,
                const char *source)
{
    erg_gpu_put(at->gpu, at->sample, metric, value, time_ns, source);
}

static void refuse(const struct reading *at, enum erg_metric metric, int result)
{
    if (result == NVML_GPU_IS_LOST)
        at->sample->lost = true;
    erg_gpu_refuse(at->gpu, metric, nvml_reason(result));
}

/* Calls, and puts `value` at the middle of the call or says why not. */
#define READ(at, metric, source, call, value)                                                      \
    do {                                                                                           \
        if (wanted(at, metric)) {                                                                  \
            int64_t read_before_ns = erg_now_ns();                                                 \
            int read_result = (call);                                                              \
            if (read_result == NVML_SUCCESS)                                                       \
                put(at, metric, (int64_t)(value), (read_before_ns + erg_now_ns()) / 2, source);    \
            else                                                                                   \
                refuse(at, metric, read_result);                                                   \
        }                                                                                          \
    } while (0)

#define HAS(at, member) ((at)->state->calls->member != NULL)
#define ASK(at, member, ...)                                                                       \
    (HAS(at, member) ? (at)->state->calls->member((at)->state->device, __VA_ARGS__)                \
                     : NVML_FUNCTION_NOT_FOUND)

/* ---- fields ---- */

static int ask_fields(const struct reading *at, struct nvml_field *fields, int count)
{
    for (int i = 0; i < count; i++)
        fields[i].result = NVML_NOT_SUPPORTED; /* should the library leave one untouched */
    int result = ASK(at, field_values, count, fields);
    if (result != NVML_SUCCESS)
        for (int i = 0; i < count; i++)
            fields[i].result = result;
    return result;
}

static int64_t field_value(const struct nvml_field *field)
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

/* The field's own stamp on our clock if it makes sense, else the middle of the call. */
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

/* Simple metrics of one field each. */
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

static void read_fields(const struct reading *at)
{
    struct nvml_field fields[FIELD_METRICS] = {0};
    const struct field_metric *asked[FIELD_METRICS];
    int count = 0;
    for (int i = 0; i < FIELD_METRICS; i++) {
        const struct field_metric *metric = &field_metrics[i];
        if (!wanted(at, metric->metric))
            continue;
        fields[count].id = metric->id;
        if (metric->module_source)
            fields[count].scope = at->state->power_scope;
        if (metric->metric == ERG_METRIC_MEMORY_POWER)
            fields[count].scope = NVML_SCOPE_MEMORY;
        asked[count++] = metric;
    }
    if (count == 0)
        return;
    int64_t before_ns = erg_now_ns();
    ask_fields(at, fields, count);
    int64_t after_ns = erg_now_ns();
    for (int i = 0; i < count; i++) {
        bool module = fields[i].scope == NVML_SCOPE_MODULE && asked[i]->module_source;
        int64_t value = field_value(&fields[i]);
        /* Parts without a sensor for the memory's power answer 0. */
        if (asked[i]->metric == ERG_METRIC_MEMORY_POWER && value == 0 &&
            fields[i].result == NVML_SUCCESS)
            fields[i].result = NVML_NOT_SUPPORTED;
        if (fields[i].result == NVML_SUCCESS)
            put(at, asked[i]->metric, value, field_time(&fields[i], before_ns, after_ns),
                module ? asked[i]->module_source : asked[i]->source);
        else
            refuse(at, asked[i]->metric, fields[i].result);
        /* Superchips may know the power of CPU and GPU together only: the next read asks that. */
        if (asked[i]->metric == ERG_METRIC_POWER_INSTANT && !module &&
            fields[i].result == NVML_NOT_SUPPORTED)
            at->state->power_scope = NVML_SCOPE_MODULE;
    }
}

/* ---- byte counters ---- */

/*
 * Adds what a counter moved since its last reading. A counter of 32 bits that was read too late to
 * know how often it wrapped starts anew: returns false, this reading is not valid.
 */
static bool follow(const struct reading *at, enum erg_metric metric, struct nvml_wrap *wrap,
                   const struct nvml_field *field, double unit, double links, int64_t *bytes)
{
    if (field->type != NVML_TYPE_UNSIGNED_INT) {
        *bytes += (int64_t)((double)field_value(field) * unit);
        return true;
    }
    atomic_fetch_or(&at->gpu->narrow, UINT64_C(1) << metric);
    int64_t now_ns = erg_now_ns();
    double most = (double)(now_ns - wrap->last_ns) * 1e-9 * link_bytes_per_s * links;
    bool sure = !wrap->seen || most < 4294967296.0 * unit;
    if (wrap->seen)
        wrap->sum += (uint32_t)(field->value.ui - wrap->last); /* modulo 2^32: the wrap is free */
    *wrap = (struct nvml_wrap){true, field->value.ui, now_ns, wrap->sum};
    *bytes += (int64_t)((double)wrap->sum * unit);
    return sure;
}

static void read_pcie(const struct reading *at)
{
    static const struct {
        enum erg_metric metric;
        uint32_t id;
        const char *source;
    } counters[] = {
        {ERG_METRIC_PCIE_TX, NVML_FIELD_PCIE_TX, "nvmlDeviceGetFieldValues 197"},
        {ERG_METRIC_PCIE_RX, NVML_FIELD_PCIE_RX, "nvmlDeviceGetFieldValues 198"},
    };
    if (!wanted(at, ERG_METRIC_PCIE_TX) && !wanted(at, ERG_METRIC_PCIE_RX))
        return;
    struct nvml_field fields[2] = {{.id = counters[0].id}, {.id = counters[1].id}};
    int64_t before_ns = erg_now_ns();
    ask_fields(at, fields, 2);
    int64_t middle_ns = (before_ns + erg_now_ns()) / 2;
    for (int i = 0; i < 2; i++) {
        int64_t bytes = 0;
        if (fields[i].result != NVML_SUCCESS)
            refuse(at, counters[i].metric, fields[i].result);
        else if (follow(at, counters[i].metric, &at->state->wraps[i][0], &fields[i], 1, 1, &bytes))
            put(at, counters[i].metric, bytes, middle_ns, counters[i].source);
    }
}

/* How each way of reading NVLink asks, beginning with the cheapest. */
static const struct link_way {
    uint32_t id[2]; /* sent, received */
    double unit;    /* bytes */
    const char *source;
} link_ways[] = {
    [NVML_LINKS_TOGETHER] = {{NVML_FIELD_NVLINK_DATA_TX, NVML_FIELD_NVLINK_DATA_RX},
                             1024,
                             "nvmlDeviceGetFieldValues 138/139, all links"},
    [NVML_LINKS_EACH] = {{NVML_FIELD_NVLINK_DATA_TX, NVML_FIELD_NVLINK_DATA_RX},
                         1024,
                         "nvmlDeviceGetFieldValues 138/139, link by link"},
    [NVML_LINKS_EACH_BYTES] = {{NVML_FIELD_NVLINK_BYTES_TX, NVML_FIELD_NVLINK_BYTES_RX},
                               1,
                               "nvmlDeviceGetFieldValues 202/204, link by link"},
};

/* Asks both directions; the number of fields, or 0 when no link answers that way. */
static int ask_links(const struct reading *at, enum nvml_links how, struct nvml_field *fields)
{
    int links = how == NVML_LINKS_TOGETHER ? 1 : (int)at->state->link_count, answers = 0;
    for (int i = 0; i < 2 * links; i++)
        fields[i] = (struct nvml_field){
            .id = link_ways[how].id[i % 2],
            .scope = how == NVML_LINKS_TOGETHER ? NVML_SCOPE_ALL_LINKS : (uint32_t)(i / 2),
        };
    if (links == 0)
        return 0;
    ask_fields(at, fields, 2 * links);
    for (int i = 0; i < 2 * links; i++) {
        answers += fields[i].result == NVML_SUCCESS;
        if (fields[i].result == NVML_GPU_IS_LOST)
            at->sample->lost = true;
    }
    at->state->links_result = fields[0].result;
    return answers ? 2 * links : 0;
}

static void find_links(const struct reading *at, struct nvml_field *fields)
{
    struct nvml_field count = {.id = NVML_FIELD_NVLINK_COUNT};
    ask_fields(at, &count, 1);
    int64_t links = count.result == NVML_SUCCESS ? field_value(&count) : 0;
    at->state->link_count = (uint32_t)(links < 0                ? 0
                                       : links > NVML_LINKS_MAX ? NVML_LINKS_MAX
                                                                : links);
    for (int how = NVML_LINKS_TOGETHER; how <= NVML_LINKS_EACH_BYTES; how++)
        if (ask_links(at, (enum nvml_links)how, fields) > 0) {
            at->state->links = (enum nvml_links)how;
            return;
        }
    if (!at->sample->lost)
        at->state->links = NVML_LINKS_NONE;
}

static void read_nvlink(const struct reading *at)
{
    static const enum erg_metric metrics[2] = {ERG_METRIC_NVLINK_TX, ERG_METRIC_NVLINK_RX};
    struct nvml_gpu *state = at->state;
    struct nvml_field fields[2 * NVML_LINKS_MAX];
    if (!wanted(at, metrics[0]) && !wanted(at, metrics[1]))
        return;
    if (state->links == NVML_LINKS_UNKNOWN)
        find_links(at, fields);
    int64_t before_ns = erg_now_ns();
    bool known = state->links != NVML_LINKS_UNKNOWN && state->links != NVML_LINKS_NONE;
    int count = known ? ask_links(at, state->links, fields) : 0;
    int64_t middle_ns = (before_ns + erg_now_ns()) / 2;
    double links = state->links == NVML_LINKS_TOGETHER ? NVML_LINKS_MAX : 1;
    for (int direction = 0; direction < 2; direction++) {
        int64_t bytes = 0;
        bool sure = true;
        int answers = 0;
        for (int i = direction; i < count; i += 2)
            if (fields[i].result == NVML_SUCCESS) { /* a link that is down answers nothing */
                sure &= follow(at, metrics[direction], &state->wraps[2 + direction][i / 2],
                               &fields[i], link_ways[state->links].unit, links, &bytes);
                answers++;
            }
        if (answers == 0)
            refuse(at, metrics[direction],
                   at->sample->lost ? NVML_GPU_IS_LOST : state->links_result);
        else if (sure)
            put(at, metrics[direction], bytes, middle_ns, link_ways[state->links].source);
    }
}

/* ---- calls of their own ---- */

static void read_energy(const struct reading *at)
{
    unsigned long long energy_mj = 0;
    if (HAS(at, total_energy)) {
        READ(at, ERG_METRIC_ENERGY, "nvmlDeviceGetTotalEnergyConsumption",
             ASK(at, total_energy, &energy_mj), energy_mj);
        return;
    }
    struct nvml_field field = {.id = NVML_FIELD_ENERGY};
    READ(at, ERG_METRIC_ENERGY, "nvmlDeviceGetFieldValues 83",
         (ask_fields(at, &field, 1), field.result), field_value(&field));
}

static void read_heat(const struct reading *at)
{
    struct nvml_temperature modern = {.version = NVML_VERSION(struct nvml_temperature, 1),
                                      .sensor = NVML_SENSOR_GPU};
    struct nvml_margin margin = {.version = NVML_VERSION(struct nvml_margin, 1)};
    uint32_t temperature_c = 0;
    READ(at, ERG_METRIC_TEMPERATURE, "nvmlDeviceGetTemperatureV", ASK(at, temperature_v, &modern),
         modern.value);
    if (!erg_gpu_has(at->sample, ERG_METRIC_TEMPERATURE))
        READ(at, ERG_METRIC_TEMPERATURE, "nvmlDeviceGetTemperature",
             ASK(at, temperature, NVML_SENSOR_GPU, &temperature_c), temperature_c);
    READ(at, ERG_METRIC_MARGIN, "nvmlDeviceGetMarginTemperature", ASK(at, margin, &margin),
         margin.value);
}

static void read_clocks(const struct reading *at)
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

static void read_utilisation(const struct reading *at)
{
    struct nvml_utilisation use = {0};
    const char *source = "nvmlDeviceGetUtilizationRates";
    READ(at, ERG_METRIC_UTILISATION, source, ASK(at, utilisation, &use), use.gpu);
    READ(at, ERG_METRIC_MEMORY_UTILISATION, source, ASK(at, utilisation, &use), use.memory);
}

static void read_violation(const struct reading *at, enum erg_metric metric, int policy,
                           uint32_t field_id, const char *field_source)
{
    struct nvml_violation violation = {0};
    struct nvml_field field = {.id = field_id};
    READ(at, metric, "nvmlDeviceGetViolationStatus", ASK(at, violation, policy, &violation),
         violation.violation_ns);
    if (!erg_gpu_has(at->sample, metric))
        READ(at, metric, field_source, (ask_fields(at, &field, 1), field.result),
             field_value(&field));
}

static void read_limit_and_errors(const struct reading *at)
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

static void read_xid(const struct reading *at)
{
    struct nvml_gpu *state = at->state;
    struct nvml_event event = {0};
    if (!wanted(at, ERG_METRIC_XID))
        return;
    if (!state->events) {
        refuse(at, ERG_METRIC_XID, NVML_NOT_SUPPORTED);
        return;
    }
    /* Each is told once; all that have come are taken. */
    int result;
    while ((result = state->calls->events_wait(state->events, &event, 0)) == NVML_SUCCESS)
        state->xid = (int64_t)event.data;
    if (result == NVML_TIMEOUT)
        put(at, ERG_METRIC_XID, state->xid, erg_now_ns(), "nvmlEventSetWait");
    else
        refuse(at, ERG_METRIC_XID, result);
}

void nvml_read(struct erg_gpu *gpu, uint64_t metrics, struct erg_gpu_sample *sample)
{
    struct reading at = {gpu, gpu->handle, sample, metrics};
    read_energy(&at); /* first: its time matters most */
    read_fields(&at);
    read_clocks(&at);
    read_heat(&at);
    read_utilisation(&at);
    read_pcie(&at);
    read_nvlink(&at);
    read_violation(&at, ERG_METRIC_VIOLATION_POWER, NVML_POLICY_POWER, NVML_FIELD_VIOLATION_POWER,
                   "nvmlDeviceGetFieldValues 74");
    read_violation(&at, ERG_METRIC_VIOLATION_THERMAL, NVML_POLICY_THERMAL,
                   NVML_FIELD_VIOLATION_THERMAL, "nvmlDeviceGetFieldValues 75");
    read_limit_and_errors(&at);
    read_xid(&at);
}
