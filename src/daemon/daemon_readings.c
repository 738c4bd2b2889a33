/* Readings of sensors, for single requests and for subscriptions. */
#include "base/clock.h"
#include "base/memory.h"
#include "daemon/daemon_internal.h"

#include <stdlib.h>
#include <string.h>

static const int64_t hang_ns = 1000000000, fastest_ns = 5000000;

/* Called by the sampler's writer. */
static void put(void *context, const struct erg_sampler_item *item)
{
    struct erg_daemon *daemon = context;
    struct erg_gpu_sample *latest = &daemon->readings[item->gpu];
    pthread_mutex_lock(&daemon->readings_lock);
    for (enum erg_metric metric = 0; metric < ERG_METRICS; metric++)
        if (erg_gpu_has(&item->sample, metric))
            latest->readings[metric] = item->sample.readings[metric];
    latest->valid |= item->sample.valid;
    if (item->sample.lost)
        latest->valid = 0;
    pthread_mutex_unlock(&daemon->readings_lock);
}

int erg_daemon_readings_start(struct erg_daemon *daemon, struct erg_error *err)
{
    struct erg_sampler_sink sink = {.put = put, .context = daemon};
    struct erg_sampler_options options = erg_sampler_options_default();
    int64_t period_ns = daemon->config.period_ns;
    options.period_ns[ERG_COST_FAST] = period_ns;
    for (int cost = ERG_COST_MEDIUM; cost < ERG_COSTS; cost++)
        if (options.period_ns[cost] < period_ns)
            options.period_ns[cost] = period_ns;
    pthread_mutex_init(&daemon->readings_lock, NULL);
    daemon->readings = erg_xcalloc(daemon->count, sizeof *daemon->readings);
    return erg_sampler_start(&daemon->sampler, daemon->gpus, &options, &sink, err);
}

void erg_daemon_readings_stop(struct erg_daemon *daemon)
{
    if (daemon->sampler)
        erg_sampler_stop(daemon->sampler);
    free(daemon->readings);
}

/* Whether a client may read a GPU's sensors. */
static bool may_read(const struct erg_daemon *daemon, const struct erg_daemon_connection *who,
                     size_t gpu)
{
    return !daemon->config.members_only ||
           erg_daemon_rule_of(&daemon->config, daemon->grants, &who->peer, gpu);
}

/* Adds one GPU to the packet; values that do not fit are left out. */
static void put_gpu(struct erg_daemon *daemon, size_t gpu, uint64_t metrics)
{
    struct erg_wire_writer *writer = &daemon->writer;
    struct erg_sampler_stats stats;
    erg_sampler_stats(daemon->sampler, gpu, &stats);
    bool answers = stats.busy_ns < hang_ns && !stats.lost &&
                   erg_daemon_worker_busy_ns(daemon->items[gpu].worker) < hang_ns;
    const struct erg_gpu_sample *sample = &daemon->readings[gpu];
    uint64_t found = answers ? sample->valid & metrics & ((UINT64_C(1) << ERG_METRICS) - 1) : 0;
    bool whether = metrics >> ERG_WIRE_ANSWERS & 1;
    erg_wire_put_u32(writer, (uint32_t)gpu);
    erg_wire_put_u32(writer, (uint32_t)__builtin_popcountll(found) + whether);
    for (unsigned metric = 0; metric < ERG_METRICS; metric++)
        if (found >> metric & 1) {
            erg_wire_put_u16(writer, (uint16_t)metric);
            erg_wire_put_u16(writer, 0);
            erg_wire_put_u64(writer, (uint64_t)sample->readings[metric].value);
            erg_wire_put_u64(writer, (uint64_t)sample->readings[metric].time_ns);
        }
    if (whether) {
        erg_wire_put_u16(writer, ERG_WIRE_ANSWERS);
        erg_wire_put_u16(writer, 0);
        erg_wire_put_u64(writer, answers);
        erg_wire_put_u64(writer, (uint64_t)erg_now_ns());
    }
}

/* The GPUs in [first, end) that the client may see, as far as they fit. */
static void put_reading(struct erg_daemon *daemon, const struct erg_daemon_connection *to,
                        size_t first, size_t end, uint64_t metrics)
{
    struct erg_wire_writer *writer = &daemon->writer;
    size_t at = writer->count, count = 0;
    erg_wire_put_u32(writer, 0);
    pthread_mutex_lock(&daemon->readings_lock);
    for (size_t i = first; i < end && i < daemon->count; i++) {
        size_t before = writer->count;
        if (!may_read(daemon, to, i))
            continue;
        put_gpu(daemon, i, metrics);
        if (writer->full) {
            writer->count = before;
            writer->full = false;
            break;
        }
        count++;
    }
    pthread_mutex_unlock(&daemon->readings_lock);
    writer->bytes[at] = (unsigned char)count; /* at most ERG_WIRE_GPUS */
}

void erg_daemon_read(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                     const struct erg_wire_request *request)
{
    bool all = request->index == UINT32_MAX;
    size_t first = all ? 0 : request->index, end = all ? daemon->count : first + 1;
    if (first >= daemon->count) {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_BOUNDS, 0,
                          "there is no GPU %zu, expected 0 to %zu", first, daemon->count - 1);
        return;
    }
    if (!all && !may_read(daemon, from, first)) {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_DENIED, 0,
                          "sensors of GPU %zu are only for users who match a rule", first);
        return;
    }
    erg_wire_begin_answer(&daemon->writer, request->type, request->sequence, ERG_WIRE_DONE, 0, "");
    put_reading(daemon, from, first, end, request->metrics);
    erg_daemon_send(daemon, from, false);
}

/* The shortest period that a subscriber may request: shorter while it holds a lease. */
static int64_t least_period_ns(struct erg_daemon *daemon, const struct erg_daemon_connection *who)
{
    return erg_daemon_has_lease(daemon, who) ? fastest_ns : daemon->config.period_ns;
}

void erg_daemon_subscribe(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                          const struct erg_wire_request *request)
{
    int64_t period_ns = (int64_t)request->period_ms * 1000000;
    int64_t least_ns = least_period_ns(daemon, from);
    if (request->period_ms && period_ns < least_ns) {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_BOUNDS, 0,
                          "every %u ms: expected %.0f ms or more", (unsigned)request->period_ms,
                          1e-6 * (double)least_ns);
        return;
    }
    from->metrics = request->period_ms ? request->metrics : 0;
    from->period_ns = period_ns;
    from->next_ns = erg_now_ns();
    erg_daemon_answer(daemon, from, request, ERG_WIRE_DONE, 0, "%s", "");
}

int64_t erg_daemon_publish(struct erg_daemon *daemon, int64_t now_ns)
{
    int64_t next_ns = INT64_MAX;
    for (size_t i = 0; i < daemon->used; i++) {
        struct erg_daemon_connection *to = &daemon->connections[i];
        if (to->fd < 0 || to->doomed || !to->metrics)
            continue;
        if (to->period_ns < least_period_ns(daemon, to))
            to->period_ns = daemon->config.period_ns; /* a lease that allowed less has ended */
        if (to->period_ns < daemon->config.period_ns)
            erg_sampler_look_closely(daemon->sampler, now_ns + 2 * to->period_ns);
        if (to->next_ns <= now_ns) {
            erg_wire_begin(&daemon->writer, ERG_WIRE_READING, 0);
            erg_wire_put_u32(&daemon->writer, to->lost);
            put_reading(daemon, to, 0, daemon->count, to->metrics);
            to->lost += !erg_daemon_send(daemon, to, true);
            to->next_ns += to->period_ns;
            if (to->next_ns <= now_ns) /* late: no reading is sent twice */
                to->next_ns = now_ns + to->period_ns;
        }
        next_ns = to->next_ns < next_ns ? to->next_ns : next_ns;
    }
    return next_ns;
}
