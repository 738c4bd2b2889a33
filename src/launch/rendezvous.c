/* Opens a rendezvous, and makes its collective calls (launch/rendezvous.h). */
#include "launch/rendezvous_internal.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MOST_S = 1000000 }; /* of a timeout: its milliseconds travel in 32 bits */

/* Rank 0 has the list of missing ranks, so the others let it report first. */
static const int64_t patience_ns = 2000000000;

/* ---- open and close ---- */

static struct erg_rendezvous *new_rendezvous(const struct erg_launch_environment *env)
{
    struct erg_rendezvous *r = erg_xcalloc(1, sizeof *r);
    assert(env->world > 0 && env->rank >= 0 && env->rank < env->world);
    r->rank = env->rank;
    r->world = env->world;
    r->member_count = env->rank == 0 ? env->world : 1;
    r->members = erg_xcalloc((size_t)r->member_count, sizeof *r->members);
    for (int i = 0; i < r->member_count; i++)
        r->members[i].link.fd = -1;
    r->wake = -1;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    return r;
}

static int meet(struct erg_rendezvous *r, const struct erg_launch_environment *env,
                int64_t deadline_ns, struct erg_error *err)
{
    if (env->rank > 0)
        return erg_meet_connect(&r->members[0].link, env, deadline_ns, err);
    struct erg_link *links = erg_xcalloc((size_t)env->world, sizeof *links);
    for (int i = 0; i < env->world; i++)
        links[i].fd = -1;
    int result = erg_meet_listen(links, env, deadline_ns, err);
    for (int i = 0; i < env->world; i++)
        r->members[i].link = links[i];
    free(links);
    return result;
}

static int start_keeper(struct erg_rendezvous *r, struct erg_error *err)
{
    /* Some ranks may have waited long for the last one: silence counts from now on. */
    for (int i = 0; i < r->member_count; i++)
        r->members[i].link.heard_ns = erg_now_ns();
    r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->wake < 0 || pthread_create(&r->keeper, NULL, erg_rendezvous_keep, r))
        return erg_fail(err, ERG_FAILED, "rank %d cannot start the thread of the rendezvous: %s",
                        r->rank, strerror(errno));
    r->kept = true;
    return 0;
}

int erg_rendezvous_open(struct erg_rendezvous **rendezvous,
                        const struct erg_launch_environment *env, double timeout_s,
                        struct erg_error *err)
{
    struct erg_rendezvous *r = new_rendezvous(env);
    int64_t deadline_ns = erg_now_ns() + (int64_t)(timeout_s * 1e9);
    if (env->world > 1 && (meet(r, env, deadline_ns, err) || start_keeper(r, err))) {
        erg_rendezvous_close(r);
        /* Ranks that all leave because of a signal are not lost, in any order. */
        return erg_interrupted()
                   ? erg_fail(err, ERG_INTERRUPTED, "interrupted while waiting for the other ranks")
                   : -1;
    }
    *rendezvous = r;
    return 0;
}

void erg_rendezvous_close(struct erg_rendezvous *r)
{
    if (!r)
        return;
    if (r->kept) {
        pthread_mutex_lock(&r->lock);
        r->closing = true;
        pthread_mutex_unlock(&r->lock);
        erg_thread_wake(r->wake);
        pthread_join(r->keeper, NULL);
    }
    for (int i = 0; i < r->member_count; i++)
        if (r->members[i].link.fd >= 0)
            erg_link_send(&r->members[i].link, (struct erg_frame){.type = ERG_FRAME_BYE}, NULL, 0);
    for (int i = 0; i < r->member_count; i++) {
        erg_link_finish(&r->members[i].link);
        erg_link_release(&r->members[i].link);
        erg_text_release(&r->members[i].bytes);
    }
    if (r->wake >= 0)
        close(r->wake);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    erg_text_release(&r->result);
    free(r->members);
    free(r);
}

/* ---- calls ---- */

int erg_rendezvous_rank(const struct erg_rendezvous *rendezvous)
{
    return rendezvous->rank;
}

int erg_rendezvous_world(const struct erg_rendezvous *rendezvous)
{
    return rendezvous->world;
}

int erg_rendezvous_check(struct erg_rendezvous *r, struct erg_error *err)
{
    pthread_mutex_lock(&r->lock);
    bool failed = r->failed;
    if (failed && err)
        *err = r->failure;
    pthread_mutex_unlock(&r->lock);
    return failed ? -1 : 0;
}

void erg_rendezvous_abort(struct erg_rendezvous *r, const char *sentence)
{
    pthread_mutex_lock(&r->lock);
    erg_rendezvous_fail(r, "%s", sentence);
    pthread_mutex_unlock(&r->lock);
    if (r->kept)
        erg_thread_wake(r->wake);
}

void erg_rendezvous_tell(struct erg_rendezvous *r, uint64_t progress)
{
    pthread_mutex_lock(&r->lock);
    r->progress = progress;
    pthread_mutex_unlock(&r->lock);
}

void erg_rendezvous_heard(struct erg_rendezvous *r, uint64_t *progress)
{
    pthread_mutex_lock(&r->lock);
    for (int i = 1; i < r->member_count; i++)
        progress[i] = r->members[i].progress;
    progress[0] = r->progress;
    pthread_mutex_unlock(&r->lock);
}

void erg_rendezvous_explain(struct erg_rendezvous *r, struct erg_error *err)
{
    if (!r || r->world == 1 || !*err->message)
        return;
    char sentence[sizeof err->message + 32];
    snprintf(sentence, sizeof sentence, "rank %d: %s", r->rank, err->message);
    pthread_mutex_lock(&r->lock);
    bool own = !r->failed, speaks = r->rank == 0 || (r->rank == 1 && r->orphaned);
    if (own)
        erg_rendezvous_fail(r, "%s", sentence);
    else
        snprintf(err->message, sizeof err->message, "%s", r->failure.message);
    if (!speaks)
        err->message[0] = 0;
    pthread_mutex_unlock(&r->lock);
    if (own)
        erg_thread_wake(r->wake);
}

/* All three calls: every rank contributes `mine` or nothing, and gets all contributions in
 * `all`. */
static int call(struct erg_rendezvous *r, enum erg_call_kind kind, int root, const void *mine,
                size_t count, void *all, double timeout_s, struct erg_error *err)
{
    if (count > ERG_RENDEZVOUS_MOST_BYTES)
        return erg_fail(err, ERG_FAILED, "a %s of %zu bytes is too large: at most %d",
                        erg_call_name(kind), count, ERG_RENDEZVOUS_MOST_BYTES);
    size_t brought = mine ? count : 0;
    assert(root >= 0 && root < r->world);
    size_t result_bytes = kind == ERG_CALL_ALL_GATHER ? (size_t)r->world * count : count;
    if (!(timeout_s < MOST_S))
        timeout_s = MOST_S;
    pthread_mutex_lock(&r->lock);
    struct erg_frame offer = {.type = ERG_FRAME_OFFER,
                              .rank = (uint32_t)r->rank,
                              .kind = (uint32_t)kind,
                              .root = (uint32_t)root,
                              .timeout_ms = (uint32_t)(timeout_s * 1e3),
                              .call = ++r->call,
                              .count = count,
                              .payload_bytes = brought};
    r->waiting = true;
    if (!r->failed && r->rank == 0) {
        erg_rendezvous_take_offer(r, 0, &offer, mine);
    } else if (!r->failed && r->members[0].left) {
        erg_rendezvous_fail(r, "a call cannot complete: rank 0 has left");
    } else if (!r->failed) {
        r->deadline_ns = erg_now_ns() + (int64_t)(timeout_s * 1e9) + patience_ns;
        erg_link_send(&r->members[0].link, offer, mine, brought);
    }
    if (r->kept)
        erg_thread_wake(r->wake);
    while (r->waiting && !r->failed)
        pthread_cond_wait(&r->changed, &r->lock);
    if (!r->waiting && r->result.count != result_bytes)
        erg_rendezvous_fail(r, "rank 0 answered call %llu with %zu bytes instead of %zu",
                            (unsigned long long)r->call, r->result.count, result_bytes);
    else if (!r->waiting && result_bytes)
        memcpy(all, r->result.data, result_bytes);
    /* A call that completed before a failure counts: the others have its result too. */
    bool failed = r->waiting || r->result.count != result_bytes;
    r->waiting = false;
    if (failed && err)
        *err = r->failure;
    pthread_mutex_unlock(&r->lock);
    return failed ? -1 : 0;
}

int erg_rendezvous_barrier(struct erg_rendezvous *rendezvous, double timeout_s,
                           struct erg_error *err)
{
    return rendezvous ? call(rendezvous, ERG_CALL_BARRIER, 0, NULL, 0, NULL, timeout_s, err) : 0;
}

int erg_rendezvous_broadcast(struct erg_rendezvous *rendezvous, int root, void *bytes, size_t count,
                             double timeout_s, struct erg_error *err)
{
    if (!rendezvous)
        return 0;
    const void *mine = rendezvous->rank == root ? bytes : NULL;
    return call(rendezvous, ERG_CALL_BROADCAST, root, mine, count, bytes, timeout_s, err);
}

int erg_rendezvous_all_gather(struct erg_rendezvous *rendezvous, const void *mine, size_t count,
                              void *all, double timeout_s, struct erg_error *err)
{
    if (!rendezvous) {
        memcpy(all, mine, count);
        return 0;
    }
    return call(rendezvous, ERG_CALL_ALL_GATHER, 0, mine, count, all, timeout_s, err);
}

/* The contribution of one rank to an agreement. */
struct agreement {
    int result;
    struct erg_error err;
};

int erg_rendezvous_agree(struct erg_rendezvous *r, int result, struct erg_error *err)
{
    if (!r || r->world == 1)
        return result;
    struct agreement own;
    memset(&own, 0, sizeof own); /* all of it is sent */
    own.result = result;
    if (result != 0) {
        own.err.status = err->status;
        memcpy(own.err.message, err->message, strlen(err->message));
    }
    struct agreement *all = erg_xcalloc((size_t)r->world, sizeof *all);
    int agreed =
        erg_rendezvous_all_gather(r, &own, sizeof own, all, ERG_RENDEZVOUS_PATIENCE_S, err);
    for (int i = 0; i < r->world && agreed == 0; i++)
        if (all[i].result != 0) {
            *err = all[i].err;
            if (r->rank != 0)
                err->message[0] = 0; /* one rank reports it for all */
            agreed = -1;
        }
    free(all);
    return agreed;
}
