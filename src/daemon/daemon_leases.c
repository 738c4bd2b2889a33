/* Leases: changes under them, and their end. */
#include "base/clock.h"
#include "base/log.h"
#include "daemon/daemon_internal.h"

#include <assert.h>
#include <inttypes.h>

enum { TRIES = 100, GPU_LOST = 15 };
static const int64_t try_ns = 100000000;
static const int64_t most_ns = 1000000000; /* limit by which one client's targets delay others */

/* ---- changes ---- */

struct erg_daemon_lease *erg_daemon_lease_of(struct erg_daemon *daemon,
                                             struct erg_daemon_connection *from,
                                             const struct erg_wire_request *request, size_t *gpu,
                                             enum erg_knob *knob)
{
    *gpu = request->lease >> 8 & 0xff;
    *knob = request->lease & 0xff;
    if (*gpu < daemon->count && *knob >= 1 && *knob < ERG_KNOBS) {
        struct erg_daemon_lease *lease = &daemon->items[*gpu].leases[*knob];
        if (lease->state == ERG_LEASE_HELD && lease->id == request->lease &&
            erg_daemon_asker_of(daemon, &lease->owner) == from)
            return lease;
    }
    erg_daemon_answer(
        daemon, from, request, ERG_WIRE_NO_LEASE, 0,
        "this connection holds no such lease, expected one that it was granted and that "
        "has not ended");
    return NULL;
}

/*
 * Gives a target to the worker, which sets it when the pace allows, and answers a request that need
 * not wait for that.
 */
static void give(struct erg_daemon *daemon, struct erg_daemon_connection *from, size_t gpu,
                 enum erg_knob knob, const struct erg_wire_request *request,
                 struct erg_daemon_target *target)
{
    struct erg_daemon_gpu *item = &daemon->items[gpu];
    assert(gpu < daemon->count && knob >= 1 && knob < ERG_KNOBS);
    struct erg_daemon_lease *lease = &item->leases[knob];
    int64_t now_ns = target->received_ns;
    assert(target->low <= target->high);
    erg_daemon_leases_outcomes(daemon);
    if (lease->id != target->lease || lease->state != ERG_LEASE_HELD)
        return; /* the GPU was lost in the meantime, and its holder was notified */
    struct erg_daemon_target waiting = erg_daemon_worker_waiting(item->worker, knob);
    if (waiting.task != ERG_TASK_NONE && waiting.lease == target->lease) {
        target->due_ns = waiting.due_ns; /* replaces it */
    } else {
        const struct erg_daemon_config *config = &daemon->config;
        int64_t own_ns = erg_pace_reserve(&lease->rate_ns, now_ns, config->changes_per_s,
                                          config->burst, most_ns);
        /* A client that exceeds its own rate does not use the shared one. */
        int64_t node_ns = own_ns > now_ns + most_ns ? own_ns
                                                    : erg_pace_reserve(&daemon->rate_ns, now_ns,
                                                                       config->node_changes_per_s,
                                                                       config->burst, most_ns);
        target->due_ns = own_ns > node_ns ? own_ns : node_ns;
    }
    bool limited = target->due_ns > now_ns;
    target->connection = (int)(from - daemon->connections);
    target->generation = from->generation;
    target->sequence = request->sequence;
    lease->touched = true;
    lease->limited += limited;
    erg_daemon_worker_give(item->worker, knob, target);
    if (target->wait) {
        return; /* the answer comes when the driver has it */
    } else if (limited) {
        erg_daemon_answer(
            daemon, from, request, ERG_WIRE_LIMITED, 0,
            "changes come too fast, expected at most %g a second for a lease and %g for "
            "all; this one happens in %.0f ms, unless a newer one replaces it",
            daemon->config.changes_per_s, daemon->config.node_changes_per_s,
            1e-6 * (double)(target->due_ns - now_ns));
    } else {
        struct erg_wire_change change = {.received_ns = target->received_ns};
        erg_wire_begin_answer(&daemon->writer, request->type, request->sequence, ERG_WIRE_DONE, 0,
                              "");
        if (request->type != ERG_WIRE_RESET)
            erg_wire_put_change(&daemon->writer, &change);
        erg_daemon_send(daemon, from, false);
    }
}

void erg_daemon_lease_set(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                          const struct erg_wire_request *request, int64_t received_ns)
{
    size_t gpu;
    enum erg_knob knob;
    struct erg_daemon_lease *lease = erg_daemon_lease_of(daemon, from, request, &gpu, &knob);
    if (!lease)
        return;
    const struct erg_knob_bounds *bounds = erg_daemon_worker_bounds(daemon->items[gpu].worker);
    bool power = request->type == ERG_WIRE_POWER;
    struct erg_daemon_target target = {.task = ERG_TASK_SET,
                                       .low = power ? request->high : request->low,
                                       .high = request->high,
                                       .lease = lease->id,
                                       .wait = request->flags & ERG_WIRE_WAIT,
                                       .look = request->flags & ERG_WIRE_LOOK,
                                       .received_ns = received_ns};
    const char *unit = power ? "mW" : "MHz";
    if (power != (knob == ERG_KNOB_POWER)) {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_BOUNDS, 0,
                          "the lease is for the %s, expected a request for that",
                          erg_knob_name(knob));
        return;
    }
    if (target.low > target.high || target.low < lease->least || target.high > lease->most) {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_BOUNDS, 0,
                          "%" PRId64 " to %" PRId64 " %s: expected %" PRId64 " to %" PRId64
                          " %s, and the lower one first",
                          target.low, target.high, unit, lease->least, lease->most, unit);
        return;
    }
    if (knob == ERG_KNOB_CLOCK &&
        (!erg_knob_has_clock(bounds, target.low) || !erg_knob_has_clock(bounds, target.high))) {
        erg_daemon_answer(daemon, from, request, ERG_WIRE_BOUNDS, 0,
                          "%" PRId64 " to %" PRId64 " MHz: GPU %zu has no such clock, expected two "
                          "from its list",
                          target.low, target.high, gpu);
        return;
    }
    lease->low = lease->changes && lease->low < target.low ? lease->low : target.low;
    lease->high = lease->changes && lease->high > target.high ? lease->high : target.high;
    lease->sum += (double)target.high;
    lease->changes++;
    give(daemon, from, gpu, knob, request, &target);
}

/* The value of a knob after its lease: low and high, 0 for no lock. */
static int64_t standing_of(const struct erg_daemon *daemon, size_t gpu, enum erg_knob knob)
{
    const struct erg_daemon_config *config = &daemon->config;
    const struct erg_daemon_gpu *item = &daemon->items[gpu];
    const struct erg_knob_bounds *bounds = erg_daemon_worker_bounds(item->worker);
    int64_t before_mw = item->leases[knob].before_mw;
    if (knob == ERG_KNOB_CLOCK)
        return config->standing_mhz;
    if (knob == ERG_KNOB_MEMORY)
        return 0;
    if (config->standing_power == ERG_STANDING_VALUE)
        return config->standing_mw;
    return config->standing_power == ERG_STANDING_DEFAULT && bounds && bounds->limit_default_mw
               ? bounds->limit_default_mw
               : before_mw;
}

void erg_daemon_lease_reset(struct erg_daemon *daemon, struct erg_daemon_connection *from,
                            const struct erg_wire_request *request, int64_t received_ns)
{
    size_t gpu;
    enum erg_knob knob;
    struct erg_daemon_lease *lease = erg_daemon_lease_of(daemon, from, request, &gpu, &knob);
    if (!lease)
        return;
    int64_t value = standing_of(daemon, gpu, knob);
    struct erg_daemon_target target = {.task = ERG_TASK_RESET,
                                       .low = value,
                                       .high = value,
                                       .lease = lease->id,
                                       .wait = true,
                                       .received_ns = received_ns};
    give(daemon, from, gpu, knob, request, &target);
}

/* ---- the end ---- */

static void audit_end(struct erg_daemon *daemon, size_t gpu, enum erg_knob knob, const char *reset)
{
    const struct erg_daemon_lease *lease = &daemon->items[gpu].leases[knob];
    char comm[200];
    erg_daemon_audit_line(
        daemon->audit, "end",
        ",\"uid\":%ld,\"pid\":%ld,\"comm\":\"%s\",\"job\":%" PRIu32
        ",\"gpu\":\"%s\",\"index\":%zu,\"what\":\"%s\",\"reason\":\"%s\",\"changes\":%" PRIu64
        ",\"superseded\":%" PRIu64 ",\"limited\":%" PRIu64 ",\"least\":%" PRId64
        ",\"most\":%" PRId64 ",\"mean\":%.1f,\"seconds\":%.3f,\"reset\":\"%s\"",
        lease->id ? (long)lease->peer.uid : -1, (long)lease->peer.pid,
        erg_text_escape_json(comm, sizeof comm, lease->peer.comm), lease->peer.job,
        erg_gpus_info(daemon->gpus, gpu)->uuid, gpu, erg_knob_name(knob), lease->reason,
        lease->changes, lease->superseded, lease->limited, lease->low, lease->high,
        lease->changes ? lease->sum / (double)lease->changes : 0,
        1e-9 * (double)(erg_now_ns() - lease->begin_ns), reset);
}

/* The knob was reset, or all attempts failed. */
static void finish(struct erg_daemon *daemon, size_t gpu, enum erg_knob knob, const char *reset)
{
    struct erg_daemon_gpu *item = &daemon->items[gpu];
    struct erg_daemon_lease *lease = &item->leases[knob];
    if (lease->told || lease->left_behind)
        audit_end(daemon, gpu, knob, reset);
    assert(lease->state == ERG_LEASE_ENDS || lease->state == ERG_LEASE_HELD);
    lease->state = ERG_LEASE_FREE;
    erg_daemon_files_write_leases(daemon);
    struct erg_daemon_asker waiter = lease->waiter;
    lease->waiter.connection = -1;
    erg_daemon_lease_begin(daemon, gpu, knob, &waiter);
    erg_daemon_release_claim(item);
}

static void give_back(struct erg_daemon *daemon, size_t gpu, enum erg_knob knob, int64_t due_ns)
{
    int64_t value = standing_of(daemon, gpu, knob);
    struct erg_daemon_target target = {.task = ERG_TASK_RESET,
                                       .low = value,
                                       .high = value,
                                       .lease = daemon->items[gpu].leases[knob].id,
                                       .connection = -1,
                                       .due_ns = due_ns};
    erg_daemon_worker_give(daemon->items[gpu].worker, knob, &target);
}

void erg_daemon_lease_end(struct erg_daemon *daemon, size_t gpu, enum erg_knob knob, unsigned event,
                          const char *reason)
{
    struct erg_daemon_lease *lease = &daemon->items[gpu].leases[knob];
    if (lease->state == ERG_LEASE_FREE || lease->state == ERG_LEASE_ENDS)
        return;
    struct erg_daemon_connection *owner = erg_daemon_asker_of(daemon, &lease->owner);
    if (owner && lease->state == ERG_LEASE_BEGINS) {
        struct erg_wire_request request = {.type = ERG_WIRE_LEASE,
                                           .sequence = lease->owner.sequence};
        erg_daemon_answer(daemon, owner, &request, ERG_WIRE_DENIED, 0, "%s", reason);
    } else if (owner && event) {
        erg_wire_begin(&daemon->writer, ERG_WIRE_LEASE_EVENT, 0);
        erg_wire_put_u64(&daemon->writer, lease->id);
        erg_wire_put_u32(&daemon->writer, event);
        erg_wire_put_text(&daemon->writer, reason);
        erg_daemon_send(daemon, owner, false);
    }
    lease->reason = reason;
    lease->tries = 0;
    bool begun = lease->state == ERG_LEASE_HELD;
    if (lease->touched) {
        lease->state = ERG_LEASE_ENDS;
        give_back(daemon, gpu, knob, 0);
    } else if (begun) {
        finish(daemon, gpu, knob, "not needed");
    } else {
        lease->state = ERG_LEASE_FREE;
        erg_daemon_release_claim(&daemon->items[gpu]);
    }
}

void erg_daemon_lease_restore(struct erg_daemon *daemon, size_t gpu, enum erg_knob knob,
                              int64_t before_mw)
{
    struct erg_daemon_lease *lease = &daemon->items[gpu].leases[knob];
    if (lease->state != ERG_LEASE_FREE)
        return;
    *lease = (struct erg_daemon_lease){.state = ERG_LEASE_ENDS,
                                       .owner = {.connection = -1},
                                       .waiter = {.connection = -1},
                                       .before_mw = before_mw,
                                       .touched = true,
                                       .told = true,
                                       .begin_ns = erg_now_ns(),
                                       .reason = "left by a daemon that was killed"};
    give_back(daemon, gpu, knob, 0);
}

static void lose_gpu(struct erg_daemon *daemon, size_t gpu)
{
    if (daemon->items[gpu].lost)
        return;
    daemon->items[gpu].lost = true;
    for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++)
        erg_daemon_lease_end(daemon, gpu, knob, ERG_WIRE_GPU_LOST,
                             "the GPU has fallen off the bus");
}

void erg_daemon_leases_end_of(struct erg_daemon *daemon, const struct erg_daemon_connection *owner,
                              const char *reason)
{
    for (size_t i = 0; i < daemon->count; i++)
        for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++) {
            struct erg_daemon_lease *lease = &daemon->items[i].leases[knob];
            if (lease->state != ERG_LEASE_FREE &&
                erg_daemon_asker_of(daemon, &lease->owner) == owner)
                erg_daemon_lease_end(daemon, i, knob, 0, reason);
        }
}

void erg_daemon_leases_judge(struct erg_daemon *daemon, const char *reason)
{
    for (size_t i = 0; i < daemon->count; i++)
        for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++) {
            struct erg_daemon_lease *lease = &daemon->items[i].leases[knob];
            int64_t least, most;
            if (lease->state != ERG_LEASE_HELD && lease->state != ERG_LEASE_BEGINS)
                continue;
            const struct erg_daemon_rule *rule =
                erg_daemon_rule_of(&daemon->config, daemon->grants, &lease->peer, i);
            if (!rule || !(rule->may >> knob & 1) ||
                !erg_daemon_bounds_of(rule, erg_daemon_worker_bounds(daemon->items[i].worker), knob,
                                      &least, &most) ||
                least != lease->least || most != lease->most)
                erg_daemon_lease_end(daemon, i, knob, ERG_WIRE_REVOKED, reason);
        }
}

int64_t erg_daemon_leases_expire(struct erg_daemon *daemon, int64_t now_ns)
{
    int64_t next_ns = now_ns + 1000000000;
    for (size_t i = 0; i < daemon->count; i++) {
        struct erg_sampler_stats stats = {0};
        if (daemon->looked_ns + 1000000000 <= now_ns)
            erg_sampler_stats(daemon->sampler, i, &stats);
        if (stats.lost)
            lose_gpu(daemon, i);
        for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++) {
            struct erg_daemon_lease *lease = &daemon->items[i].leases[knob];
            const struct erg_daemon_connection *owner =
                lease->state == ERG_LEASE_HELD ? erg_daemon_asker_of(daemon, &lease->owner) : NULL;
            if (!owner)
                continue;
            int64_t heard_ns = owner->guest ? INT64_MAX : owner->heard_ns + lease->ttl_ns;
            int64_t longest_ns = lease->begin_ns + daemon->config.longest_ns;
            int64_t end_ns = heard_ns < longest_ns ? heard_ns : longest_ns;
            if (end_ns <= now_ns)
                erg_daemon_lease_end(daemon, i, knob, ERG_WIRE_EXPIRED,
                                     end_ns == longest_ns ? "the longest time of a lease is over"
                                                          : "its holder was silent for too long");
            else if (end_ns < next_ns)
                next_ns = end_ns;
        }
    }
    if (daemon->looked_ns + 1000000000 <= now_ns)
        daemon->looked_ns = now_ns;
    return next_ns;
}

bool erg_daemon_has_lease(struct erg_daemon *daemon, const struct erg_daemon_connection *who)
{
    for (size_t i = 0; i < daemon->count; i++)
        for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++)
            if (daemon->items[i].leases[knob].state != ERG_LEASE_FREE &&
                (erg_daemon_asker_of(daemon, &daemon->items[i].leases[knob].owner) == who ||
                 erg_daemon_asker_of(daemon, &daemon->items[i].leases[knob].waiter) == who))
                return true;
    return false;
}

bool erg_daemon_leases_are_free(const struct erg_daemon *daemon)
{
    for (size_t i = 0; i < daemon->count; i++)
        for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++)
            if (daemon->items[i].leases[knob].state != ERG_LEASE_FREE ||
                daemon->items[i].leases[knob].left_behind)
                return false;
    return true;
}

/* ---- results of workers ---- */

static void answer_change(struct erg_daemon *daemon, const struct erg_daemon_outcome *outcome)
{
    const struct erg_daemon_target *target = &outcome->target;
    struct erg_daemon_asker asker = {.connection = target->connection,
                                     .generation = target->generation};
    struct erg_daemon_connection *to = erg_daemon_asker_of(daemon, &asker);
    bool reset = target->task == ERG_TASK_RESET;
    struct erg_wire_request request = {.type = reset                             ? ERG_WIRE_RESET
                                               : outcome->knob == ERG_KNOB_POWER ? ERG_WIRE_POWER
                                                                                 : ERG_WIRE_CLOCK,
                                       .sequence = target->sequence};
    if (!to || !target->wait)
        return;
    if (outcome->superseded) {
        erg_daemon_answer(daemon, to, &request, ERG_WIRE_SUPERSEDED, 0,
                          "a newer target replaced this one before it was set");
    } else if (outcome->failed) {
        erg_daemon_answer(daemon, to, &request, ERG_WIRE_REFUSED, outcome->driver, "%s",
                          outcome->text);
    } else {
        struct erg_wire_change change = {target->received_ns, outcome->begin_ns, outcome->end_ns,
                                         (uint32_t)outcome->seen};
        erg_wire_begin_answer(&daemon->writer, request.type, request.sequence, ERG_WIRE_DONE,
                              outcome->driver, "");
        if (!reset)
            erg_wire_put_change(&daemon->writer, &change);
        erg_daemon_send(daemon, to, false);
    }
}

static void audit_change(struct erg_daemon *daemon, size_t gpu,
                         const struct erg_daemon_outcome *outcome)
{
    struct erg_daemon_gpu *item = &daemon->items[gpu];
    if (!daemon->config.audit_every || !erg_daemon_audit_may(daemon->audit, &item->told_ns))
        return;
    erg_daemon_audit_line(daemon->audit, "change",
                          ",\"index\":%zu,\"what\":\"%s\",\"low\":%" PRId64 ",\"high\":%" PRId64
                          ",\"driver\":%d,\"ms\":%.3f",
                          gpu, erg_knob_name(outcome->knob), outcome->target.low,
                          outcome->target.high, outcome->driver,
                          1e-6 * (double)(outcome->end_ns - outcome->begin_ns));
}

/* Handles the reset of a knob. */
static void gave_back(struct erg_daemon *daemon, size_t gpu,
                      const struct erg_daemon_outcome *outcome)
{
    struct erg_daemon_lease *lease = &daemon->items[gpu].leases[outcome->knob];
    if (lease->state != ERG_LEASE_ENDS || lease->id != outcome->target.lease)
        return;
    bool lost = outcome->failed && outcome->driver == GPU_LOST;
    lease->left_behind = false;
    if (outcome->failed && !lost && ++lease->tries < TRIES) {
        give_back(daemon, gpu, outcome->knob, erg_now_ns() + try_ns);
        return;
    }
    lease->left_behind = outcome->failed && !lost;
    if (lease->left_behind)
        erg_log(ERG_LOG_ERROR, "restoring the %s of GPU %zu failed: %s",
                erg_knob_name(outcome->knob), gpu, outcome->text);
    finish(daemon, gpu, outcome->knob, lost ? "lost" : outcome->failed ? "failed" : "done");
}

static void take_outcome(struct erg_daemon *daemon, size_t gpu,
                         const struct erg_daemon_outcome *outcome)
{
    struct erg_daemon_lease *lease = &daemon->items[gpu].leases[outcome->knob];
    if (outcome->target.task == ERG_TASK_PREPARE) {
        erg_daemon_lease_begun(daemon, gpu, outcome);
    } else if (outcome->target.task == ERG_TASK_RESET && outcome->target.connection < 0) {
        gave_back(daemon, gpu, outcome);
    } else {
        if (lease->id == outcome->target.lease)
            lease->superseded += outcome->superseded;
        answer_change(daemon, outcome);
        if (!outcome->superseded)
            audit_change(daemon, gpu, outcome);
        if (outcome->failed && outcome->driver == GPU_LOST)
            lose_gpu(daemon, gpu);
    }
}

void erg_daemon_leases_outcomes(struct erg_daemon *daemon)
{
    struct erg_daemon_outcome outcome;
    for (size_t i = 0; i < daemon->count; i++)
        while (erg_daemon_worker_take(daemon->items[i].worker, &outcome))
            take_outcome(daemon, i, &outcome);
}
