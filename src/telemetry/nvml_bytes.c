/* The byte counters of PCIe and NVLink: 64 or 32 bits, for all links together or for each. */
#include "base/clock.h"
#include "telemetry/nvml_internal.h"

/*
 * No PCIe slot and no single NVLink moves more per direction. At this rate, a 32-bit counter that
 * is read too late may have wrapped unseen.
 */
static const double link_bytes_per_s = 64e9;

/*
 * Adds a counter's bytes, and counts the wraps of a 32-bit counter. False: the counter was read too
 * late to count its wraps, and its sum so far is invalid.
 */
static bool follow(const struct erg_gpu_query *at, enum erg_metric metric, struct nvml_wrap *wrap,
                   const struct nvml_field *field, double unit, double links, int64_t *bytes)
{
    if (field->type != NVML_TYPE_UNSIGNED_INT) {
        *bytes += (int64_t)((double)erg_nvml_field_value(field) * unit);
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

/*
 * Stores the bytes of a metric if they are certain. After an uncertain reading the metric restarts
 * at 0, which all who take differences notice.
 */
static void put_bytes(const struct erg_gpu_query *at, enum erg_metric metric, bool sure,
                      int64_t bytes, int64_t time_ns, const char *source)
{
    int counter = (int)metric - (int)ERG_METRIC_PCIE_TX;
    bool anew = sure && nvml_state(at)->unsure[counter];
    nvml_state(at)->unsure[counter] = !sure;
    for (int link = 0; anew && link < NVML_LINKS_MAX; link++)
        nvml_state(at)->wraps[counter][link].sum = 0;
    if (sure)
        erg_gpu_put(at, metric, anew ? 0 : bytes, time_ns, source);
    else
        erg_gpu_refuse(at, metric, "read too rarely for its 32 bits");
}

void erg_nvml_read_pcie(const struct erg_gpu_query *at)
{
    static const struct {
        enum erg_metric metric;
        uint32_t id;
        const char *source;
    } counters[] = {
        {ERG_METRIC_PCIE_TX, NVML_FIELD_PCIE_TX, "nvmlDeviceGetFieldValues 197"},
        {ERG_METRIC_PCIE_RX, NVML_FIELD_PCIE_RX, "nvmlDeviceGetFieldValues 198"},
    };
    if (!erg_gpu_wants(at, ERG_METRIC_PCIE_TX) && !erg_gpu_wants(at, ERG_METRIC_PCIE_RX))
        return;
    struct nvml_field fields[2] = {{.id = counters[0].id}, {.id = counters[1].id}};
    int64_t before_ns = erg_now_ns();
    erg_nvml_ask_fields(at, fields, 2);
    int64_t middle_ns = (before_ns + erg_now_ns()) / 2;
    for (int i = 0; i < 2; i++) {
        enum erg_metric metric = counters[i].metric;
        int64_t bytes = 0;
        if (fields[i].result != NVML_SUCCESS) {
            erg_nvml_refuse(at, metric, fields[i].result);
            continue;
        }
        bool sure = follow(at, metric, &nvml_state(at)->wraps[i][0], &fields[i], 1, 1, &bytes);
        put_bytes(at, metric, sure, bytes, middle_ns, counters[i].source);
    }
}

/* The ways to read NVLink, cheapest first. */
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

/* Asks for both directions; returns the number of fields, or 0 if no link answers that way. */
static int ask_links(const struct erg_gpu_query *at, enum nvml_links how, struct nvml_field *fields)
{
    int links = how == NVML_LINKS_TOGETHER ? 1 : (int)nvml_state(at)->link_count, answers = 0;
    for (int i = 0; i < 2 * links; i++)
        fields[i] = (struct nvml_field){
            .id = link_ways[how].id[i % 2],
            .scope = how == NVML_LINKS_TOGETHER ? NVML_SCOPE_ALL_LINKS : (uint32_t)(i / 2),
        };
    if (links == 0)
        return 0;
    erg_nvml_ask_fields(at, fields, 2 * links);
    for (int i = 0; i < 2 * links; i++) {
        answers += fields[i].result == NVML_SUCCESS;
        if (fields[i].result == NVML_GPU_IS_LOST)
            at->sample->lost = true;
    }
    nvml_state(at)->links_result = fields[0].result;
    return answers ? 2 * links : 0;
}

static void find_links(const struct erg_gpu_query *at, struct nvml_field *fields)
{
    struct nvml_field count = {.id = NVML_FIELD_NVLINK_COUNT};
    erg_nvml_ask_fields(at, &count, 1);
    int64_t links = count.result == NVML_SUCCESS ? erg_nvml_field_value(&count) : 0;
    nvml_state(at)->link_count = (uint32_t)(links < 0                ? 0
                                            : links > NVML_LINKS_MAX ? NVML_LINKS_MAX
                                                                     : links);
    for (int how = NVML_LINKS_TOGETHER; how <= NVML_LINKS_EACH_BYTES; how++)
        if (ask_links(at, (enum nvml_links)how, fields) > 0) {
            nvml_state(at)->links = (enum nvml_links)how;
            return;
        }
    if (!at->sample->lost)
        nvml_state(at)->links = NVML_LINKS_NONE;
}

void erg_nvml_read_links(const struct erg_gpu_query *at)
{
    static const enum erg_metric metrics[2] = {ERG_METRIC_NVLINK_TX, ERG_METRIC_NVLINK_RX};
    struct nvml_gpu *state = nvml_state(at);
    struct nvml_field fields[2 * NVML_LINKS_MAX];
    if (!erg_gpu_wants(at, metrics[0]) && !erg_gpu_wants(at, metrics[1]))
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
            if (fields[i].result == NVML_SUCCESS) { /* a link that is down gives no value */
                sure &= follow(at, metrics[direction], &state->wraps[2 + direction][i / 2],
                               &fields[i], link_ways[state->links].unit, links, &bytes);
                answers++;
            }
        if (answers == 0)
            erg_nvml_refuse(at, metrics[direction],
                            at->sample->lost ? NVML_GPU_IS_LOST : state->links_result);
        else
            put_bytes(at, metrics[direction], sure, bytes, middle_ns,
                      link_ways[state->links].source);
    }
}
