/* Requests of clients other than leases and readings: the daemon, GPUs, grants. */
#include "base/clock.h"
#include "daemon/daemon_internal.h"
#include "ergon/ergon.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void erg_daemon_answer(struct erg_daemon *daemon, struct erg_daemon_connection *to,
                       const struct erg_wire_request *request, enum erg_wire_status status,
                       int driver, const char *format, ...)
{
    char text[ERG_WIRE_TEXT];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    erg_wire_begin_answer(&daemon->writer, request->type, request->sequence, status, driver, text);
    erg_daemon_send(daemon, to, false);
}

static void answer_hello(struct erg_daemon *daemon, struct erg_daemon_connection *to,
                         const struct erg_wire_request *request)
{
    struct erg_wire_hello hello = {.least_version = ERG_WIRE_VERSION,
                                   .most_version = ERG_WIRE_VERSION,
                                   .gpus = (uint32_t)daemon->count,
                                   .time_ns = erg_now_ns(),
                                   .software = "ergon " ERG_VERSION};
    memcpy(hello.daemon, daemon->id, sizeof hello.daemon);
    erg_wire_begin_answer(&daemon->writer, request->type, request->sequence, ERG_WIRE_DONE, 0, "");
    erg_wire_put_hello(&daemon->writer, &hello);
    erg_daemon_send(daemon, to, false);
}

/* The GPU's bounds, narrowed to those of the client's rule. */
static void fill_bounds(const struct erg_daemon_rule *rule, const struct erg_knob_bounds *bounds,
                        struct erg_wire_gpu *gpu)
{
    for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++) {
        int64_t least = bounds->least[knob], most = bounds->most[knob];
        if (rule && rule->may >> knob & 1 &&
            erg_daemon_bounds_of(rule, bounds, knob, &least, &most))
            gpu->rights |= 1u << knob;
        gpu->least[knob] = (uint32_t)least;
        gpu->most[knob] = (uint32_t)most;
    }
    gpu->limit_default_mw = (uint32_t)bounds->limit_default_mw;
}

static void answer_gpu(struct erg_daemon *daemon, struct erg_daemon_connection *to,
                       const struct erg_wire_request *request)
{
    size_t index = request->index;
    if (index >= daemon->count) {
        erg_daemon_answer(daemon, to, request, ERG_WIRE_BOUNDS, 0,
                          "there is no GPU %zu, expected 0 to %zu", index, daemon->count - 1);
        return;
    }
    const struct erg_daemon_gpu *item = &daemon->items[index];
    const struct erg_gpu_info *info = erg_gpus_info(daemon->gpus, index);
    const struct erg_knob_bounds *bounds = erg_daemon_worker_bounds(item->worker);
    struct erg_wire_gpu gpu = {0};
    snprintf(gpu.uuid, sizeof gpu.uuid, "%s", info->uuid);
    snprintf(gpu.name, sizeof gpu.name, "%s", info->name);
    if (bounds)
        fill_bounds(erg_daemon_rule_of(&daemon->config, daemon->grants, &to->peer, index), bounds,
                    &gpu);
    for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++) {
        const struct erg_daemon_lease *lease = &item->leases[knob];
        bool held = lease->state == ERG_LEASE_HELD || lease->state == ERG_LEASE_BEGINS;
        gpu.holders[knob] = held ? (int64_t)lease->peer.uid : -1;
    }
    pthread_mutex_lock(&daemon->readings_lock);
    const struct erg_gpu_sample *reading = &daemon->readings[index];
    if (erg_gpu_has(reading, ERG_METRIC_POWER_LIMIT))
        gpu.limit_now_mw = (uint32_t)reading->readings[ERG_METRIC_POWER_LIMIT].value;
    pthread_mutex_unlock(&daemon->readings_lock);
    erg_wire_begin_answer(&daemon->writer, request->type, request->sequence, ERG_WIRE_DONE, 0, "");
    erg_wire_put_gpu(&daemon->writer, &gpu);
    erg_daemon_send(daemon, to, false);
}

/* ---- grants ---- */

static struct erg_daemon_grant *grant_of(struct erg_daemon *daemon, uint32_t job)
{
    for (size_t i = 0; i < ERG_DAEMON_GRANTS; i++)
        if (daemon->grants[i].job == job)
            return &daemon->grants[i];
    return NULL;
}

static void change_grant(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                         const struct erg_wire_request *request)
{
    bool grants = request->type == ERG_WIRE_GRANT;
    uint64_t all = daemon->count < 64 ? (UINT64_C(1) << daemon->count) - 1 : UINT64_MAX;
    struct erg_daemon_grant *grant = request->job ? grant_of(daemon, request->job) : NULL;
    /* In tests the daemon's own user stands for root. */
    if (from->peer.uid != 0 && from->peer.uid != geteuid()) {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_DENIED, 0,
                          "only root may make and revoke grants");
        return;
    }
    if (!request->job || (grants && (request->gpus & ~all || !request->gpus))) {
        erg_daemon_answer(
            daemon, from, request, ERG_WIRE_BOUNDS, 0,
            "a grant needs the number of a job and GPUs of this machine, which has %zu",
            daemon->count);
        return;
    }
    if (grants && !grant)
        grant = grant_of(daemon, 0);
    if (grants && !grant) {
        erg_daemon_answer(
            daemon, from, request, ERG_WIRE_BUSY, 0,
            "there are %d grants already, expected an epilog that revokes those of ended jobs",
            ERG_DAEMON_GRANTS);
        return;
    }
    if (grants)
        *grant = (struct erg_daemon_grant){request->job, request->uid, request->gpus};
    else if (grant)
        *grant = (struct erg_daemon_grant){0};
    erg_daemon_files_write_grants(daemon);
    if (grants)
        erg_daemon_audit_line(daemon->audit, "grant",
                              ",\"job\":%" PRIu32 ",\"uid\":%" PRIu32 ",\"gpus\":\"%" PRIx64 "\"",
                              request->job, request->uid, request->gpus);
    else
        erg_daemon_audit_line(daemon->audit, "revoke", ",\"job\":%" PRIu32, request->job);
    erg_daemon_leases_judge(daemon, grants ? "the grant was changed" : "the grant was revoked");
    erg_daemon_answer(daemon, from, request, ERG_WIRE_DONE, 0, "%s", "");
}

/* ---- all of them ---- */

static void answer_lease(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                         const struct erg_wire_request *request)
{
    size_t gpu;
    enum erg_knob knob;
    if (!erg_daemon_lease_of(daemon, from, request, &gpu, &knob))
        return;
    if (request->type == ERG_WIRE_RELEASE)
        erg_daemon_lease_end(daemon, gpu, knob, 0, "released");
    erg_daemon_answer(daemon, from, request, ERG_WIRE_DONE, 0, "%s", "");
}

void erg_daemon_request(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                        const void *bytes, size_t count, int64_t received_ns)
{
    struct erg_wire_request request;
    enum erg_wire_status status = erg_wire_read_request(&request, bytes, count);
    from->heard_ns = received_ns;
    if (status != ERG_WIRE_DONE) {
        erg_daemon_answer(daemon, from, &request, status, 0,
                          "that packet of %zu bytes is not a request of version %d", count,
                          ERG_WIRE_VERSION);
        from->doomed = true;
        return;
    }
    switch (request.type) {
    case ERG_WIRE_HELLO:
        answer_hello(daemon, from, &request);
        break;
    case ERG_WIRE_GPU:
        answer_gpu(daemon, from, &request);
        break;
    case ERG_WIRE_LEASE:
        erg_daemon_leases_outcomes(daemon);
        erg_daemon_lease_ask(daemon, from, &request);
        break;
    case ERG_WIRE_KEEP:
    case ERG_WIRE_RELEASE:
        erg_daemon_leases_outcomes(daemon);
        answer_lease(daemon, from, &request);
        break;
    case ERG_WIRE_CLOCK:
    case ERG_WIRE_POWER:
        erg_daemon_lease_set(daemon, from, &request, received_ns);
        break;
    case ERG_WIRE_RESET:
        erg_daemon_lease_reset(daemon, from, &request, received_ns);
        break;
    case ERG_WIRE_READ:
        erg_daemon_read(daemon, from, &request);
        break;
    case ERG_WIRE_SUBSCRIBE:
        erg_daemon_subscribe(daemon, from, &request);
        break;
    case ERG_WIRE_GRANT:
    case ERG_WIRE_REVOKE:
        change_grant(daemon, from, &request);
        break;
    default:
        erg_daemon_answer(daemon, from, &request, ERG_WIRE_MALFORMED, 0,
                          "requests of type %u are not supported by this version", request.type);
    }
}
