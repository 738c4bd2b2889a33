#include "launch/rendezvous.h"

#include "base/clock.h"
#include "base/memory.h"
#include "launch/wire_internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const int64_t beat_ns = 500000000;
/* Rank 0 knows who is missing: the others let it say so first. */
static const int64_t patience_ns = 2000000000;

enum kind { BARRIER, BROADCAST, ALL_GATHER };
static const char *const kind_names[] = {"barrier", "broadcast", "all-gather"};

/* Another rank as this one sees it. */
struct member {
    struct erg_link link;
    bool left;              /* in peace */
    bool offered;           /* rank 0 only: has come to the call under way, with */
    struct erg_frame offer; /* what it wants */
    struct erg_text bytes;  /* and what it brings */
};

struct erg_rendezvous {
    int rank, world;
    /* Rank 0: by rank, the first one being itself. Others: rank 0 only. */
    struct member *members;
    int member_count;
    int wake; /* eventfd: something to do for the keeper */
    pthread_t keeper;
    bool kept; /* whether the keeper runs */

    pthread_mutex_t lock; /* of all that follows and of members */
    pthread_cond_t changed;
    bool closing, failed;
    struct erg_error failure;
    uint64_t call; /* number of the latest call of this rank */
    bool waiting;
    int64_t deadline_ns; /* of the call under way, at rank 0 that of the first who came */
    struct erg_text result;
};

/* ---- failures ---- */

/* Keeps the first failure and tells the others. */
static void fail_all(struct erg_rendezvous *r, const char *sentence, size_t length)
{
    if (r->failed)
        return;
    r->failed = true;
    erg_fail(&r->failure, ERG_FAILED, "%.*s", (int)length, sentence);
    for (int i = 0; i < r->member_count; i++)
        if (r->members[i].link.fd >= 0)
            erg_link_send(&r->members[i].link, (struct erg_frame){.type = ERG_FRAME_ABORT},
                          r->failure.message, strlen(r->failure.message));
    pthread_cond_broadcast(&r->changed);
}

__attribute__((format(printf, 2, 3))) static void fail_with(struct erg_rendezvous *r,
                                                            const char *format, ...)
{
    char sentence[sizeof r->failure.message];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    fail_all(r, sentence, strlen(sentence));
}

/* ---- calls at rank 0 ---- */

static const char *kind_name(uint32_t kind)
{
    return kind < sizeof kind_names / sizeof *kind_names ? kind_names[kind] : "unknown call";
}

/* Whether all want the same; the failure says who does not. */
static bool offers_agree(struct erg_rendezvous *r, int rank)
{
    const struct erg_frame *offer = &r->members[rank].offer;
    for (int i = 0; i < r->world; i++) {
        const struct erg_frame *other = &r->members[i].offer;
        if (!r->members[i].offered || i == rank)
            continue;
        if (other->call == offer->call && other->kind == offer->kind &&
            other->root == offer->root && other->count == offer->count)
            return true; /* and with all before it */
        fail_with(r,
                  "the ranks disagree: rank %d wants a %s of %llu bytes from root %u as its call "
                  "%llu, but rank %d a %s of %llu bytes from root %u as its call %llu",
                  i, kind_name(other->kind), (unsigned long long)other->count, other->root,
                  (unsigned long long)other->call, rank, kind_name(offer->kind),
                  (unsigned long long)offer->count, offer->root, (unsigned long long)offer->call);
        return false;
    }
    return true;
}

/* Answers once all have come. */
static void complete_call(struct erg_rendezvous *r)
{
    for (int i = 0; i < r->world; i++) {
        if (r->members[i].left) {
            fail_with(r, "a call cannot complete: rank %d has left", i);
            return;
        }
        if (!r->members[i].offered)
            return;
    }
    const struct erg_frame *offer = &r->members[0].offer;
    r->result.count = 0;
    for (int i = 0; i < r->world; i++) {
        struct member *member = &r->members[i];
        if (member->bytes.count)
            erg_text_add_bytes(&r->result, member->bytes.data, member->bytes.count);
        member->bytes.count = 0;
        member->offered = false;
    }
    for (int i = 1; i < r->world; i++)
        erg_link_send(&r->members[i].link,
                      (struct erg_frame){.type = ERG_FRAME_RESULT, .call = offer->call},
                      r->result.data, r->result.count);
    r->waiting = false;
    pthread_cond_broadcast(&r->changed);
}

static bool any_offered(const struct erg_rendezvous *r)
{
    for (int i = 0; i < r->world; i++)
        if (r->members[i].offered)
            return true;
    return false;
}

static void take_offer(struct erg_rendezvous *r, int rank, const struct erg_frame *frame,
                       const void *payload)
{
    struct member *member = &r->members[rank];
    int64_t deadline_ns = erg_now_ns() + (int64_t)frame->timeout_ms * 1000000;
    if (!any_offered(r) || deadline_ns < r->deadline_ns)
        r->deadline_ns = deadline_ns;
    member->offer = *frame;
    member->offered = true;
    member->bytes.count = 0;
    if (frame->payload_bytes)
        erg_text_add_bytes(&member->bytes, payload, (size_t)frame->payload_bytes);
    if (offers_agree(r, rank))
        complete_call(r);
}

static void fail_late(struct erg_rendezvous *r)
{
    struct erg_text missing = {0};
    const struct erg_frame *offer = NULL;
    for (int i = 0; i < r->world; i++) {
        if (r->members[i].offered)
            offer = &r->members[i].offer;
        else
            erg_text_printf(&missing, "%s%d", missing.count ? ", " : "", i);
    }
    fail_with(r, "the %s (call %llu) did not complete in time; missing: rank %s",
              kind_name(offer->kind), (unsigned long long)offer->call, missing.data);
    erg_text_release(&missing);
}

/* ---- the keeper: the thread that owns the sockets ---- */

static int rank_of(const struct erg_rendezvous *r, int member)
{
    return r->rank == 0 ? member : 0;
}

static void take_frame(struct erg_rendezvous *r, int i, const struct erg_frame *frame,
                       const char *payload)
{
    switch ((enum erg_frame_type)frame->type) {
    case ERG_FRAME_BEAT:
        break;
    case ERG_FRAME_OFFER:
        if (r->rank == 0)
            take_offer(r, i, frame, payload);
        break;
    case ERG_FRAME_RESULT:
        r->result.count = 0;
        if (frame->payload_bytes)
            erg_text_add_bytes(&r->result, payload, (size_t)frame->payload_bytes);
        r->waiting = false;
        pthread_cond_broadcast(&r->changed);
        break;
    case ERG_FRAME_ABORT:
        fail_all(r, payload, (size_t)frame->payload_bytes);
        break;
    case ERG_FRAME_BYE:
        r->members[i].left = true;
        if (r->rank == 0 ? any_offered(r) : r->waiting)
            fail_with(r, "a call cannot complete: rank %d has left", rank_of(r, i));
        break;
    case ERG_FRAME_HELLO:
    case ERG_FRAME_WELCOME:
        fail_with(r, "rank %d sent what only belongs to the beginning", rank_of(r, i));
        break;
    }
}

/* Everything of one member that can be done without waiting. */
static void attend(struct erg_rendezvous *r, int i)
{
    struct member *member = &r->members[i];
    if (member->link.fd < 0)
        return;
    bool open = erg_link_fill(&member->link);
    struct erg_frame frame;
    const char *payload;
    int next;
    while ((next = erg_link_next(&member->link, &frame, &payload)) > 0)
        take_frame(r, i, &frame, payload);
    if (next < 0)
        fail_with(r, "rank %d sent bytes that are no frame of the rendezvous", rank_of(r, i));
    open = open && erg_link_flush(&member->link) && next == 0 && !member->left;
    if (open && erg_now_ns() - member->link.heard_ns > ERG_RENDEZVOUS_SILENCE_S * 1000000000LL) {
        open = false;
        fail_with(r, "rank %d was lost: no sign of life for %d s", rank_of(r, i),
                  ERG_RENDEZVOUS_SILENCE_S);
    }
    if (open)
        return;
    if (!member->left)
        fail_with(r, "rank %d was lost: its connection closed", rank_of(r, i));
    erg_link_release(&member->link);
}

static void check_deadline(struct erg_rendezvous *r, int64_t now_ns)
{
    if (r->failed || now_ns < r->deadline_ns)
        return;
    if (r->rank == 0 && any_offered(r))
        fail_late(r);
    else if (r->rank != 0 && r->waiting)
        fail_with(r, "rank %d got no answer from rank 0 to its call %llu in time", r->rank,
                  (unsigned long long)r->call);
}

static void *keep(void *argument)
{
    struct erg_rendezvous *r = argument;
    struct pollfd *fds = erg_xcalloc((size_t)r->member_count + 1, sizeof *fds);
    int64_t next_beat_ns = 0;
    for (;;) {
        pthread_mutex_lock(&r->lock);
        int64_t now_ns = erg_now_ns();
        bool beat = now_ns >= next_beat_ns;
        if (beat)
            next_beat_ns = now_ns + beat_ns;
        for (int i = 0; i < r->member_count; i++) {
            if (beat && r->members[i].link.fd >= 0)
                erg_link_send(&r->members[i].link, (struct erg_frame){.type = ERG_FRAME_BEAT}, NULL,
                              0);
            attend(r, i);
        }
        check_deadline(r, now_ns);
        bool closing = r->closing;
        /* What attending to one member made us tell another one goes out before waiting. */
        for (int i = 0; i < r->member_count; i++) {
            struct erg_link *link = &r->members[i].link;
            bool broken = link->fd >= 0 && !erg_link_flush(link); /* seen when it is read next */
            short events = (short)(POLLIN | (erg_link_unsent(link) && !broken ? POLLOUT : 0));
            fds[i] = (struct pollfd){.fd = link->fd, .events = events};
        }
        fds[r->member_count] = (struct pollfd){.fd = r->wake, .events = POLLIN};
        pthread_mutex_unlock(&r->lock);
        if (closing)
            break;
        poll(fds, (nfds_t)r->member_count + 1, 100);
        uint64_t woken;
        if (fds[r->member_count].revents && read(r->wake, &woken, sizeof woken) < 0)
            continue; /* somebody else's wake: nothing lost */
    }
    free(fds);
    return NULL;
}

static void wake(struct erg_rendezvous *r)
{
    uint64_t one = 1;
    while (write(r->wake, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* ---- open and close ---- */

static struct erg_rendezvous *new_rendezvous(const struct erg_launch_environment *env)
{
    struct erg_rendezvous *r = erg_xcalloc(1, sizeof *r);
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
    if (r->wake < 0 || pthread_create(&r->keeper, NULL, keep, r))
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
        return -1;
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
        wake(r);
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

int erg_rendezvous_check(struct erg_rendezvous *r, struct erg_error *err)
{
    pthread_mutex_lock(&r->lock);
    bool failed = r->failed;
    if (failed && err)
        *err = r->failure;
    pthread_mutex_unlock(&r->lock);
    return failed ? -1 : 0;
}

/* All three calls: every rank brings `mine` or nothing, and gets what all brought into `all`. */
static int call(struct erg_rendezvous *r, enum kind kind, int root, const void *mine, size_t count,
                void *all, double timeout_s, struct erg_error *err)
{
    if (count > ERG_RENDEZVOUS_MOST_BYTES)
        return erg_fail(err, ERG_FAILED, "a %s of %zu bytes is too large: at most %d",
                        kind_names[kind], count, ERG_RENDEZVOUS_MOST_BYTES);
    size_t brought = mine ? count : 0;
    size_t result_bytes = kind == ALL_GATHER ? (size_t)r->world * count : count;
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
        take_offer(r, 0, &offer, mine);
    } else if (!r->failed && r->members[0].left) {
        fail_with(r, "a call cannot complete: rank 0 has left");
    } else if (!r->failed) {
        r->deadline_ns = erg_now_ns() + (int64_t)(timeout_s * 1e9) + patience_ns;
        erg_link_send(&r->members[0].link, offer, mine, brought);
    }
    if (r->kept)
        wake(r);
    while (r->waiting && !r->failed)
        pthread_cond_wait(&r->changed, &r->lock);
    if (!r->waiting && r->result.count != result_bytes)
        fail_with(r, "rank 0 answered call %llu with %zu bytes instead of %zu",
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
    return call(rendezvous, BARRIER, 0, NULL, 0, NULL, timeout_s, err);
}

int erg_rendezvous_broadcast(struct erg_rendezvous *rendezvous, int root, void *bytes, size_t count,
                             double timeout_s, struct erg_error *err)
{
    const void *mine = rendezvous->rank == root ? bytes : NULL;
    return call(rendezvous, BROADCAST, root, mine, count, bytes, timeout_s, err);
}

int erg_rendezvous_all_gather(struct erg_rendezvous *rendezvous, const void *mine, size_t count,
                              void *all, double timeout_s, struct erg_error *err)
{
    return call(rendezvous, ALL_GATHER, 0, mine, count, all, timeout_s, err);
}
