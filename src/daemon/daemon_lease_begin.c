/* Begins leases: rights, bounds, the claim against runs that lock directly, the file of leases. */
#include "base/clock.h"
#include "daemon/daemon_internal.h"
#include "telemetry/claim.h"

#include <inttypes.h>
#include <unistd.h>

static const int64_t hang_ns = 1000000000;

/* Logs a refusal in the audit, at most 20 per second. */
static void audit_refusal(struct erg_daemon *daemon, const struct erg_daemon_peer *peer, size_t gpu,
                          enum erg_knob knob, const char *reason)
{
    char comm[200], why[600];
    if (!erg_daemon_audit_may(daemon->audit, &daemon->refusals_ns))
        return;
    erg_daemon_audit_line(daemon->audit, "refused",
                          ",\"uid\":%lu,\"pid\":%ld,\"comm\":\"%s\",\"job\":%" PRIu32
                          ",\"index\":%zu,\"what\":\"%s\",\"reason\":\"%s\"",
                          (unsigned long)peer->uid, (long)peer->pid,
                          erg_text_escape_json(comm, sizeof comm, peer->comm), peer->job, gpu,
                          erg_knob_name(knob), erg_text_escape_json(why, sizeof why, reason));
}

bool erg_daemon_bounds_of(const struct erg_daemon_rule *rule, const struct erg_knob_bounds *bounds,
                          enum erg_knob knob, int64_t *least, int64_t *most)
{
    *least = rule->least[knob] > bounds->least[knob] ? rule->least[knob] : bounds->least[knob];
    *most = rule->most[knob] < bounds->most[knob] ? rule->most[knob] : bounds->most[knob];
    return bounds->most[knob] > 0 && *least <= *most;
}

static void refuse(struct erg_daemon *daemon, const struct erg_daemon_asker *asker,
                   enum erg_wire_status status, int driver, const char *text)
{
    struct erg_daemon_connection *to = erg_daemon_asker_of(daemon, asker);
    struct erg_wire_request request = {.type = ERG_WIRE_LEASE, .sequence = asker->sequence};
    if (to)
        erg_daemon_answer(daemon, to, &request, status, driver, "%s", text);
}

void erg_daemon_release_claim(struct erg_daemon_gpu *item)
{
    for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++)
        if (item->leases[knob].state != ERG_LEASE_FREE || item->leases[knob].left_behind)
            return;
    if (item->claim >= 0)
        close(item->claim);
    item->claim = -1;
}

static bool take_claim(struct erg_daemon *daemon, size_t gpu, struct erg_error *err)
{
    struct erg_daemon_gpu *item = &daemon->items[gpu];
    const struct erg_gpu_info *info = erg_gpus_info(daemon->gpus, gpu);
    char folder[256];
    if (item->claim >= 0)
        return true;
    erg_claim_folder(folder, sizeof folder);
    return erg_claim_take(folder, info->uuid, info->index, getpid(), &item->claim, err) == 0;
}

void erg_daemon_lease_begin(struct erg_daemon *daemon, size_t gpu, enum erg_knob knob,
                            const struct erg_daemon_asker *asker)
{
    struct erg_daemon_gpu *item = &daemon->items[gpu];
    struct erg_daemon_lease *lease = &item->leases[knob];
    struct erg_daemon_connection *from = erg_daemon_asker_of(daemon, asker);
    const struct erg_knob_bounds *bounds = erg_daemon_worker_bounds(item->worker);
    struct erg_error error;
    if (!from || daemon->stop)
        return;
    const struct erg_daemon_rule *rule =
        erg_daemon_rule_of(&daemon->config, daemon->grants, &from->peer, gpu);
    struct erg_daemon_lease begun = {.state = ERG_LEASE_BEGINS,
                                     .id = ++daemon->next_lease << 16 | gpu << 8 | knob,
                                     .owner = *asker,
                                     .waiter = {.connection = -1},
                                     .peer = from->peer,
                                     .begin_ns = erg_now_ns(),
                                     .ttl_ns = asker->ttl_ns,
                                     /*
                                      * The knob's paces, and a reset that failed, outlive the
                                      * lease.
                                      */
                                     .rate_ns = lease->rate_ns,
                                     .begins_ns = lease->begins_ns,
                                     .before_mw = lease->before_mw,
                                     .left_behind = lease->left_behind,
                                     .touched = lease->left_behind};
    if (!rule || !(rule->may >> knob & 1)) {
        refuse(daemon, asker, ERG_WIRE_DENIED, 0, "no rule allows this any more");
    } else if (!bounds || !erg_daemon_bounds_of(rule, bounds, knob, &begun.least, &begun.most)) {
        refuse(daemon, asker, ERG_WIRE_BOUNDS, 0,
               "the GPU supports no value within the bounds of the rule");
    } else if (!take_claim(daemon, gpu, &error)) {
        audit_refusal(daemon, &from->peer, gpu, knob, error.message);
        refuse(daemon, asker, ERG_WIRE_BUSY, 0, error.message);
    } else {
        struct erg_daemon_target look = {
            .task = ERG_TASK_PREPARE, .lease = begun.id, .connection = -1};
        *lease = begun;
        erg_daemon_worker_give(item->worker, knob, &look);
    }
}

void erg_daemon_lease_begun(struct erg_daemon *daemon, size_t gpu,
                            const struct erg_daemon_outcome *outcome)
{
    struct erg_daemon_gpu *item = &daemon->items[gpu];
    struct erg_daemon_lease *lease = &item->leases[outcome->knob];
    if (lease->state != ERG_LEASE_BEGINS || lease->id != outcome->target.lease ||
        outcome->superseded)
        return;
    struct erg_daemon_connection *to = erg_daemon_asker_of(daemon, &lease->owner);
    if (!lease->left_behind)
        lease->before_mw = outcome->seen;
    lease->state = ERG_LEASE_HELD;
    bool written = to && !outcome->failed && erg_daemon_files_write_leases(daemon);
    if (!written) {
        lease->state = ERG_LEASE_FREE;
        erg_daemon_release_claim(item);
        if (to)
            refuse(daemon, &lease->owner, ERG_WIRE_REFUSED, outcome->driver,
                   outcome->failed ? outcome->text : "the daemon cannot write its file of leases");
        return;
    }
    char comm[200];
    const struct erg_daemon_peer *peer = &lease->peer;
    lease->told = erg_daemon_audit_may(daemon->audit, &item->leases_ns);
    if (lease->told)
        erg_daemon_audit_line(daemon->audit, "lease",
                              ",\"uid\":%lu,\"pid\":%ld,\"comm\":\"%s\",\"job\":%" PRIu32
                              ",\"gpu\":\"%s\",\"index\":%zu,\"what\":\"%s\",\"least\":%" PRId64
                              ",\"most\":%" PRId64,
                              (unsigned long)peer->uid, (long)peer->pid,
                              erg_text_escape_json(comm, sizeof comm, peer->comm), peer->job,
                              erg_gpus_info(daemon->gpus, gpu)->uuid, gpu,
                              erg_knob_name(outcome->knob), lease->least, lease->most);
    erg_wire_begin_answer(&daemon->writer, ERG_WIRE_LEASE, lease->owner.sequence, ERG_WIRE_DONE, 0,
                          "");
    erg_wire_put_u64(&daemon->writer, lease->id);
    erg_wire_put_u32(&daemon->writer, (uint32_t)lease->least);
    erg_wire_put_u32(&daemon->writer, (uint32_t)lease->most);
    erg_wire_put_u32(&daemon->writer, (uint32_t)(lease->ttl_ns / 1000000));
    erg_daemon_send(daemon, to, false);
}

void erg_daemon_lease_ask(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                          const struct erg_wire_request *request)
{
    enum erg_knob knob = request->knob;
    size_t gpu = request->index;
    if (gpu >= daemon->count || knob < 1 || knob >= ERG_KNOBS) {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_BOUNDS, 0,
                          "there is no GPU %zu with a knob %d, expected GPU 0 to %zu and knob 1 to "
                          "%d",
                          gpu, (int)knob, daemon->count - 1, ERG_KNOBS - 1);
        return;
    }
    struct erg_daemon_gpu *item = &daemon->items[gpu];
    struct erg_daemon_lease *lease = &item->leases[knob];
    int64_t ttl_ns = (int64_t)request->ttl_ms * 1000000;
    struct erg_daemon_asker asker = {
        .connection = (int)(from - daemon->connections),
        .generation = from->generation,
        .sequence = request->sequence,
        .ttl_ns = ttl_ns > 0 && ttl_ns < daemon->config.ttl_ns ? ttl_ns : daemon->config.ttl_ns};
    /* A process may have joined its job after it connected. */
    from->peer.job = erg_daemon_job_of_process(daemon->options->proc, from->peer.pid, from->pidfd);
    const struct erg_daemon_rule *rule =
        erg_daemon_rule_of(&daemon->config, daemon->grants, &from->peer, gpu);
    if (!rule || !(rule->may >> knob & 1)) {
        audit_refusal(daemon, &from->peer, gpu, knob, "no rule allows it");
        erg_daemon_answer(daemon, from, request, ERG_WIRE_DENIED, 0,
                          "no rule lets user %lu (job %" PRIu32 ") set the %s of GPU %zu; the "
                          "administrator can add one",
                          (unsigned long)from->peer.uid, from->peer.job, erg_knob_name(knob), gpu);
    } else if (item->lost || erg_daemon_worker_busy_ns(item->worker) > hang_ns) {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_LOST, 0,
                          "GPU %zu is lost or its driver hangs, expected one that answers", gpu);
    } else if (lease->state != ERG_LEASE_HELD && lease->state != ERG_LEASE_BEGINS &&
               erg_pace_reserve(&lease->begins_ns, from->heard_ns, daemon->config.changes_per_s,
                                daemon->config.burst, 0) > from->heard_ns) {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_BUSY, 0,
                          "leases of the %s of GPU %zu begin too often, expected at most %g a "
                          "second",
                          erg_knob_name(knob), gpu, daemon->config.changes_per_s);
    } else if (lease->state == ERG_LEASE_FREE) {
        erg_daemon_lease_begin(daemon, gpu, knob, &asker);
    } else if (lease->state == ERG_LEASE_ENDS && !erg_daemon_asker_of(daemon, &lease->waiter)) {
        lease->waiter = asker; /* answered when the driver has reset the old lease's setting */
    } else {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_BUSY, 0,
                          "the %s of GPU %zu is held by user %lu (process %ld)",
                          erg_knob_name(knob), gpu, (unsigned long)lease->peer.uid,
                          (long)lease->peer.pid);
    }
}
