/* Reads the traces of ranks, and sweeps over the kernels of each GPU. */
#include "trace/kernel_import.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "trace/exchange_wait.h"
#include "trace/kernel_power.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Times above this count from 1970: profilers that give no base time write them. */
#define UNIX_NS 1000000000000000000

enum { GPUS_MOST = 1 << 16 };

struct kernel_importing {
    struct erg_kernel_lanes *lanes;
    struct erg_kernel_names *names;
    struct erg_interval_sort *sort;
    struct erg_exchange_waits *waits;
    const char *file;
    size_t number; /* of the file */
    size_t first;  /* lane of this file */
};

static struct erg_kernel_lane *lane_of(struct kernel_importing *importing, int32_t device)
{
    struct erg_kernel_lanes *lanes = importing->lanes;
    for (size_t i = importing->first; i < lanes->count; i++)
        if (lanes->items[i].device == device)
            return &lanes->items[i];
    if (lanes->count == GPUS_MOST)
        return NULL;
    ERG_PUSH(lanes, items,
             (struct erg_kernel_lane){.number = importing->number,
                                      .file = importing->file,
                                      .device = device,
                                      .first_ns = INT64_MAX,
                                      .last_ns = INT64_MIN});
    return &lanes->items[lanes->count - 1];
}

static int add(void *context, const struct erg_kernel_record *given, struct erg_error *err)
{
    struct kernel_importing *importing = context;
    struct erg_kernel_record record = *given;
    if (!erg_kernel_names_apply(importing->names, &record)) {
        importing->lanes->left_out++;
        return 0;
    }
    struct erg_kernel_lane *lane = lane_of(importing, record.device);
    if (!lane)
        return erg_fail(err, ERG_FAILED, "%s: more than %d GPUs in all files together",
                        importing->file, GPUS_MOST);
    const size_t category = record.category;
    const struct erg_kernel_interval interval = {
        .start_ns = record.start_ns,
        .end_ns = record.end_ns,
        .lane = (uint32_t)(lane - importing->lanes->items),
        .category = (uint8_t)category,
        .computes = erg_kernel_computes(&record),
    };
    assert(category < ERG_CATEGORIES && record.sub < ERG_SUBS);
    lane->first_ns = record.start_ns < lane->first_ns ? record.start_ns : lane->first_ns;
    lane->last_ns = record.end_ns > lane->last_ns ? record.end_ns : lane->last_ns;
    lane->sub_ns[category][record.sub] += (double)(record.end_ns - record.start_ns);
    lane->sub_count[category][record.sub]++;
    if (record.wait_ns >= 0) {
        lane->wait_ns[category] += (double)record.wait_ns;
        lane->waits[category]++;
    }
    erg_exchange_waits_add(importing->waits, interval.lane, &record);
    return erg_interval_sort_put(importing->sort, &interval, err);
}

/* "rank-12.json": the rank in a file's name, or -1. */
static int rank_of_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *at = strstr(slash ? slash + 1 : path, "rank");
    if (!at)
        return -1;
    at += strlen("rank");
    at += *at == '-' || *at == '_';
    size_t digits = strspn(at, "0123456789");
    return digits > 0 && digits < 8 ? atoi(at) : -1;
}

static int read_file(struct kernel_importing *importing, const char *file, size_t number,
                     struct erg_error *err)
{
    struct erg_kernel_lanes *lanes = importing->lanes;
    struct erg_kineto_about about;
    importing->file = file;
    importing->number = number;
    importing->first = lanes->count;
    if (erg_kineto_read(&about, file, add, importing, err) != 0)
        return -1;
    for (size_t i = importing->first; i < lanes->count; i++) {
        struct erg_kernel_lane *lane = &lanes->items[i];
        int named = rank_of_name(file);
        lane->rank = about.rank >= 0 ? about.rank : named >= 0 ? named : (int)number;
        lane->has_unix = about.has_base || lane->first_ns > UNIX_NS;
        lane->unix_ns = about.has_base ? about.base_ns : 0;
        for (size_t k = 0; k < about.device_count; k++)
            if (about.devices[k].id == lane->device)
                memcpy(lane->uuid, about.devices[k].uuid, sizeof lane->uuid);
    }
    return 0;
}

/* ---- waits ---- */

static bool unix_of_lane(void *context, uint32_t lane, int64_t *time_ns)
{
    const struct erg_kernel_lanes *lanes = context;
    *time_ns = lanes->items[lane].unix_ns;
    return lanes->items[lane].has_unix;
}

static void add_wait(void *context, uint32_t lane, enum erg_kernel_category category,
                     int64_t wait_ns)
{
    const struct erg_kernel_lanes *lanes = context;
    lanes->items[lane].wait_ns[category] += (double)wait_ns;
    lanes->items[lane].waits[category]++;
}

/* ---- energy ---- */

/* A GPU's energy over the times of a file. */
struct shifted {
    struct erg_kernel_power_gpu *gpu; /* NULL: unknown */
    int64_t unix_ns;
};

static double energy_at(void *context, int64_t time_ns)
{
    const struct shifted *shifted = context;
    return erg_kernel_power_at(shifted->gpu, shifted->unix_ns + time_ns);
}

static int open_power(struct erg_kernel_power **power, const struct erg_kernel_lanes *lanes,
                      const char *recording, struct erg_error *err)
{
    int64_t from_ns = INT64_MAX, to_ns = INT64_MIN;
    for (size_t i = 0; i < lanes->count; i++) {
        const struct erg_kernel_lane *lane = &lanes->items[i];
        if (!lane->has_unix)
            return erg_fail(err, ERG_FAILED,
                            "%s: its times are not Unix times, so the recording cannot "
                            "be joined; expected the key baseTimeNanoseconds, which PyTorch's "
                            "profiler writes since 2.3",
                            lane->file);
        if (lane->unix_ns + lane->first_ns < from_ns)
            from_ns = lane->unix_ns + lane->first_ns;
        if (lane->unix_ns + lane->last_ns > to_ns)
            to_ns = lane->unix_ns + lane->last_ns;
    }
    return erg_kernel_power_open(power, recording, from_ns, to_ns, err);
}

static int find_gpus(struct shifted *shifts, struct erg_kernel_power *power,
                     const struct erg_kernel_lanes *lanes, const char *recording,
                     struct erg_error *err)
{
    size_t joined = 0;
    for (size_t i = 0; i < lanes->count; i++) {
        const struct erg_kernel_lane *lane = &lanes->items[i];
        int gpu = erg_kernel_power_find(power, lane->uuid, lane->device);
        shifts[i].unix_ns = lane->unix_ns;
        if (gpu >= 0 && erg_kernel_power_covers(power, gpu, lane->unix_ns + lane->first_ns,
                                                lane->unix_ns + lane->last_ns)) {
            shifts[i].gpu = erg_kernel_power_of(power, gpu);
            joined++;
            continue;
        }
        erg_log(ERG_LOG_WARNING, "%s: no energy of GPU %d: the recording '%s' has %s", lane->file,
                lane->device, recording,
                gpu < 0 ? "no such GPU" : "no readings of it for some time of the trace");
    }
    return joined ? 0
                  : erg_fail(err, ERG_FAILED,
                             "the recording '%s' contains no GPU's energy at the times of the "
                             "traces; expected one made on the same node at the same time",
                             recording);
}

/* ---- all ---- */

static int by_place(const void *left, const void *right)
{
    const struct erg_kernel_lane *a = left, *b = right;
    return a->number != b->number ? (a->number > b->number) - (a->number < b->number)
                                  : (a->device > b->device) - (a->device < b->device);
}

static int sweep_all(struct erg_kernel_lanes *lanes, struct erg_interval_sort *sort,
                     struct shifted *shifts, struct erg_error *err)
{
    struct erg_kernel_sweep **sweeps = erg_xcalloc(lanes->count + 1, sizeof *sweeps);
    struct erg_kernel_interval interval;
    int more;
    for (size_t i = 0; i < lanes->count; i++)
        sweeps[i] = erg_kernel_sweep_new(shifts[i].gpu ? energy_at : NULL, &shifts[i]);
    while ((more = erg_interval_sort_take(sort, &interval, err)) > 0)
        erg_kernel_sweep_add(sweeps[interval.lane], &interval);
    for (size_t i = 0; i < lanes->count; i++)
        erg_kernel_sweep_end(sweeps[i], &lanes->items[i].time);
    free(sweeps);
    return more;
}

static int measure(struct kernel_importing *importing, const char *recording, struct erg_error *err)
{
    struct erg_kernel_lanes *lanes = importing->lanes;
    struct erg_kernel_power *power = NULL;
    struct shifted *shifts = erg_xcalloc(lanes->count + 1, sizeof *shifts);
    int result = 0;
    if (recording && (open_power(&power, lanes, recording, err) != 0 ||
                      find_gpus(shifts, power, lanes, recording, err) != 0))
        result = -1;
    if (result == 0)
        result = sweep_all(lanes, importing->sort, shifts, err);
    erg_kernel_power_close(power);
    free(shifts);
    return result;
}

int erg_kernel_import(struct erg_kernel_lanes *lanes, const char *const *files, size_t file_count,
                      enum erg_kernel_rule rule, const char *recording, struct erg_error *err)
{
    struct kernel_importing importing = {.lanes = lanes};
    int result = erg_kernel_names_load(&importing.names, rule, err);
    *lanes = (struct erg_kernel_lanes){0};
    if (result != 0)
        return -1;
    importing.sort = erg_interval_sort_new(0);
    importing.waits = erg_exchange_waits_new();
    for (size_t i = 0; i < file_count && result == 0; i++) {
        erg_progress("traces", i, file_count);
        result = read_file(&importing, files[i], i, err);
    }
    if (result == 0 && lanes->count == 0)
        result = erg_fail(err, ERG_FAILED, "%s: no kernel that the rule counts", files[0]);
    if (result == 0 && !erg_exchange_waits_find(importing.waits, unix_of_lane, add_wait, lanes))
        erg_log(ERG_LOG_WARNING, "the traces have more than %d exchanges: their waits are unknown",
                ERG_EXCHANGES_MOST);
    if (result == 0)
        result = measure(&importing, recording, err);
    if (result == 0)
        qsort(lanes->items, lanes->count, sizeof *lanes->items, by_place);
    erg_progress("traces", file_count, file_count);
    erg_interval_sort_free(importing.sort);
    erg_exchange_waits_free(importing.waits);
    erg_kernel_names_free(importing.names);
    return result;
}

void erg_kernel_lanes_release(struct erg_kernel_lanes *lanes)
{
    free(lanes->items);
    *lanes = (struct erg_kernel_lanes){0};
}
