/* The thread that keeps the connections of a rendezvous, and the calls that rank 0 completes. */
#include "launch/rendezvous_internal.h"

#include "base/clock.h"
#include "base/memory.h"

#include <assert.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t beat_ns = 500000000;

const char *erg_call_name(uint32_t kind)
{
    static const char *const names[] = {"barrier", "broadcast", "all-gather"};
    return kind < sizeof names / sizeof *names ? names[kind] : "unknown call";
}

/* ---- failures ---- */

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

void erg_rendezvous_fail(struct erg_rendezvous *r, const char *format, ...)
{
    char sentence[sizeof r->failure.message];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    fail_all(r, sentence, strlen(sentence));
}

/* ---- calls at rank 0 ---- */

/* Whether all want the same; the failure names the others. */
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
        erg_rendezvous_fail(
            r,
            "the ranks disagree: rank %d wants a %s of %llu bytes from root %u as its call "
            "%llu, but rank %d a %s of %llu bytes from root %u as its call %llu",
            i, erg_call_name(other->kind), (unsigned long long)other->count, other->root,
            (unsigned long long)other->call, rank, erg_call_name(offer->kind),
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
            erg_rendezvous_fail(r, "a call cannot complete: rank %d has left", i);
            return;
        }
        if (!r->members[i].offered)
            return;
    }
    const struct erg_frame *offer = &r->members[0].offer;
    r->result.count = 0;
    for (int i = 0; i < r->world; i++) {
        struct erg_member *member = &r->members[i];
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

void erg_rendezvous_take_offer(struct erg_rendezvous *r, int rank, const struct erg_frame *frame,
                               const void *payload)
{
    struct erg_member *member = &r->members[rank];
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
    assert(offer); /* the deadline is that of an offer */
    erg_rendezvous_fail(r, "the %s (call %llu) did not complete in time; missing: rank %s",
                        erg_call_name(offer->kind), (unsigned long long)offer->call, missing.data);
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
        r->members[i].progress = frame->count;
        break;
    case ERG_FRAME_OFFER:
        if (r->rank == 0)
            erg_rendezvous_take_offer(r, i, frame, payload);
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
            erg_rendezvous_fail(r, "a call cannot complete: rank %d has left", rank_of(r, i));
        break;
    case ERG_FRAME_HELLO:
    case ERG_FRAME_CHALLENGE:
    case ERG_FRAME_PROOF:
    case ERG_FRAME_WELCOME:
        erg_rendezvous_fail(r, "rank %d sent what only belongs to the beginning", rank_of(r, i));
        break;
    }
}

/* Everything of one member that can be done without waiting. */
static void attend(struct erg_rendezvous *r, int i)
{
    struct erg_member *member = &r->members[i];
    if (member->link.fd < 0)
        return;
    bool open = erg_link_fill(&member->link);
    struct erg_frame frame;
    const char *payload;
    int next;
    while ((next = erg_link_next(&member->link, &frame, &payload)) > 0)
        take_frame(r, i, &frame, payload);
    if (next < 0)
        erg_rendezvous_fail(r, "rank %d sent bytes that are not a frame of the rendezvous",
                            rank_of(r, i));
    open = open && erg_link_flush(&member->link) && next == 0 && !member->left;
    bool failed = r->failed;
    if (open && erg_now_ns() - member->link.heard_ns > ERG_RENDEZVOUS_SILENCE_S * 1000000000LL) {
        open = false;
        erg_rendezvous_fail(r, "rank %d was lost: no sign of life for %d s", rank_of(r, i),
                            ERG_RENDEZVOUS_SILENCE_S);
    }
    if (open)
        return;
    if (!member->left)
        erg_rendezvous_fail(r, "rank %d was lost: its connection closed", rank_of(r, i));
    r->orphaned = r->orphaned || (r->rank != 0 && r->failed && !failed);
    erg_link_release(&member->link);
}

static void check_deadline(struct erg_rendezvous *r, int64_t now_ns)
{
    if (r->failed || now_ns < r->deadline_ns)
        return;
    if (r->rank == 0 && any_offered(r))
        fail_late(r);
    else if (r->rank != 0 && r->waiting)
        erg_rendezvous_fail(r, "rank %d got no answer from rank 0 to its call %llu in time",
                            r->rank, (unsigned long long)r->call);
}

void *erg_rendezvous_keep(void *argument)
{
    struct erg_rendezvous *r = argument;
    struct pollfd *fds = erg_xcalloc((size_t)r->member_count + 1, sizeof *fds);
    int64_t next_beat_ns = 0, last_ns = erg_now_ns();
    for (;;) {
        pthread_mutex_lock(&r->lock);
        int64_t now_ns = erg_now_ns();
        /* A process that was itself stopped or starved cannot tell that others were silent. */
        bool overslept = now_ns - last_ns > 1000000000;
        for (int i = 0; overslept && i < r->member_count; i++)
            r->members[i].link.heard_ns = now_ns;
        last_ns = now_ns;
        bool beat = now_ns >= next_beat_ns;
        if (beat)
            next_beat_ns = now_ns + beat_ns;
        for (int i = 0; i < r->member_count; i++) {
            if (beat && r->members[i].link.fd >= 0)
                erg_link_send(&r->members[i].link,
                              (struct erg_frame){.type = ERG_FRAME_BEAT, .count = r->progress},
                              NULL, 0);
            attend(r, i);
        }
        check_deadline(r, now_ns);
        bool closing = r->closing;
        /* Attending to one member may have queued messages for another one: they go out before we
         * wait. */
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
            continue; /* a wake for another thread: nothing lost */
    }
    free(fds);
    return NULL;
}
