/* Messages between ranks, moved by the rank while it waits for one, and by a thread while it
 * computes. */
#include "launch/peers_internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "launch/rendezvous_internal.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- queues ---- */

static void queue_init(struct erg_message_queue *queue)
{
    queue->first = NULL;
    queue->end = &queue->first;
}

static void push(struct erg_message_queue *queue, struct erg_message *message)
{
    *queue->end = message;
    queue->end = &message->next;
}

/* The first message of a channel, taken out; NULL: there is none. */
static struct erg_message *pull(struct erg_message_queue *queue, uint32_t channel)
{
    for (struct erg_message **at = &queue->first; *at; at = &(*at)->next) {
        struct erg_message *message = *at;
        if (message->head.channel != channel)
            continue;
        *at = message->next;
        if (queue->end == &message->next)
            queue->end = at;
        return message;
    }
    return NULL;
}

static void message_free(struct erg_message *message)
{
    if (message)
        free(message->bytes);
    free(message);
}

static void queue_release(struct erg_message_queue *queue)
{
    while (queue->first) {
        struct erg_message *message = queue->first;
        queue->first = message->next;
        message_free(message);
    }
}

/* ---- moving bytes ---- */

static bool is_over(ssize_t count)
{
    return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static size_t left_of(const struct erg_message *message)
{
    assert(message->moved <= sizeof message->head + (size_t)message->head.bytes);
    return sizeof message->head + (size_t)message->head.bytes - message->moved;
}

/* The parts of a message that are still to be sent: its head and its bytes, each if any is left. */
static size_t list_parts(struct erg_message *message, struct iovec *parts)
{
    const size_t head = sizeof message->head;
    size_t count = 0, moved = message->moved;
    if (moved < head)
        parts[count++] = (struct iovec){(unsigned char *)&message->head + moved, head - moved};
    moved = moved > head ? moved - head : 0;
    if (moved < message->head.bytes)
        parts[count++] =
            (struct iovec){message->bytes + moved, (size_t)message->head.bytes - moved};
    return count;
}

/* Messages; `count` bytes of them were sent. */
static void take_off(struct erg_peer *peer, size_t count)
{
    while (peer->out.first) {
        struct erg_message *message = peer->out.first;
        assert(message->moved < sizeof message->head + (size_t)message->head.bytes);
        size_t left = left_of(message), gone = count < left ? count : left;
        message->moved += gone;
        count -= gone;
        if (gone < left)
            return;
        peer->out.first = message->next;
        if (!peer->out.first)
            peer->out.end = &peer->out.first;
        message_free(message);
        if (count == 0)
            return;
    }
}

/* Sends as much as the socket accepts: a message in one piece, so that its receiver wakes once. */
static void send_some(struct erg_peer *peer)
{
    enum { PARTS = 32 };
    while (peer->out.first && !peer->lost) {
        struct iovec parts[PARTS];
        struct msghdr all = {.msg_iov = parts};
        size_t count = 0;
        for (struct erg_message *m = peer->out.first; m && count + 2 <= PARTS; m = m->next)
            count += list_parts(m, parts + count);
        all.msg_iovlen = count;
        ssize_t sent = sendmsg(peer->fd, &all, MSG_NOSIGNAL);
        if (sent <= 0) {
            peer->lost = is_over(sent);
            return;
        }
        take_off(peer, (size_t)sent);
    }
}

/* The message that comes has got `count` more bytes, at most those that it lacks; it may be whole.
 */
static void advance(struct erg_peers *peers, struct erg_peer *peer, size_t count)
{
    struct erg_message *message = peer->coming;
    message->moved += count;
    assert(message->moved <= sizeof message->head || message->bytes);
    if (message->moved < sizeof message->head)
        return;
    if (!message->bytes)
        message->bytes = erg_xmalloc((size_t)message->head.bytes + !message->head.bytes);
    if (left_of(message) > 0)
        return;
    peer->coming = NULL;
    push(&peer->in, message);
    peers->come++;
}

/* Deals bytes out to the message that comes and those behind it. */
static void deal_out(struct erg_peers *peers, struct erg_peer *peer, const unsigned char *bytes,
                     size_t count)
{
    const size_t head = sizeof(struct erg_message_head);
    while (count > 0) {
        if (!peer->coming)
            peer->coming = erg_xcalloc(1, sizeof *peer->coming);
        struct erg_message *message = peer->coming;
        bool in_head = message->moved < head;
        size_t left = in_head ? head - message->moved : left_of(message);
        size_t part = count < left ? count : left;
        memcpy(in_head ? (unsigned char *)&message->head + message->moved
                       : message->bytes + (message->moved - head),
               bytes, part);
        bytes += part;
        count -= part;
        advance(peers, peer, part);
    }
}

/* Receives available data with a limited number of reads, so that others get their turn. */
static void receive_some(struct erg_peers *peers, struct erg_peer *peer)
{
    for (int reads = 0; reads < 16 && !peer->lost; reads++) {
        struct erg_message *message = peer->coming;
        bool large = message && message->bytes && left_of(message) >= sizeof peers->buffer;
        size_t room = large ? left_of(message) : sizeof peers->buffer;
        void *to = large ? message->bytes + (message->moved - sizeof message->head) : peers->buffer;
        ssize_t count = recv(peer->fd, to, room, 0);
        if (count <= 0) {
            peer->lost = is_over(count);
            return;
        }
        if (large)
            advance(peers, peer, (size_t)count);
        else
            deal_out(peers, peer, peers->buffer, (size_t)count);
        if ((size_t)count < room)
            return; /* no more data yet */
    }
}

static bool has_unsent(const struct erg_peers *peers)
{
    for (int i = 0; i < peers->world; i++)
        if (peers->peers[i].out.first && !peers->peers[i].lost)
            return true;
    return false;
}

/* What `fds` of the peers waits for, if it waits. */
static void fill_fds(const struct erg_peers *peers, struct pollfd *fds, bool waits)
{
    for (int i = 0; i < peers->world; i++) {
        const struct erg_peer *peer = &peers->peers[i];
        fds[i] = (struct pollfd){.fd = peer->lost || !waits ? -1 : peer->fd,
                                 .events = (short)(POLLIN | (peer->out.first ? POLLOUT : 0))};
    }
}

static void serve(struct erg_peers *peers, const struct pollfd *fds)
{
    for (int i = 0; i < peers->world; i++) {
        if (fds[i].revents & ~POLLOUT)
            receive_some(peers, &peers->peers[i]);
        if (fds[i].revents & POLLOUT)
            send_some(&peers->peers[i]);
    }
}

/* The thread rests while the rank serves its connections itself, and for a moment after that: the
 * rank is mostly back before, and has been spared the switch to the thread and back. */
static bool may_rest(const struct erg_peers *peers)
{
    enum { REST_NS = 5000000 };
    if (peers->closing)
        return false;
    return peers->waits || (!has_unsent(peers) && erg_now_ns() - peers->left_ns < REST_NS);
}

static void *move(void *argument)
{
    enum { REST_MS = 5, LONG_MS = 1000 };
    struct erg_peers *peers = argument;
    struct pollfd *fds = erg_xcalloc((size_t)peers->world + 1, sizeof *fds);
    int64_t deadline_ns = INT64_MAX;
    pthread_mutex_lock(&peers->lock);
    while (!peers->closing || (has_unsent(peers) && erg_now_ns() < deadline_ns)) {
        bool rests = may_rest(peers);
        fill_fds(peers, fds, !rests);
        fds[peers->world] = (struct pollfd){.fd = peers->wake, .events = POLLIN};
        pthread_mutex_unlock(&peers->lock);
        poll(fds, (nfds_t)peers->world + 1, rests ? REST_MS : LONG_MS);
        uint64_t wakes;
        if (fds[peers->world].revents) {
            ssize_t ignored = read(peers->wake, &wakes, sizeof wakes);
            (void)ignored;
        }
        pthread_mutex_lock(&peers->lock);
        if (!peers->waits) /* else the rank would wait for what has already come */
            serve(peers, fds);
        if (peers->closing && deadline_ns == INT64_MAX)
            deadline_ns = erg_now_ns() + 1000000000;
    }
    pthread_mutex_unlock(&peers->lock);
    free(fds);
    return NULL;
}

/* ---- open and close ---- */

int erg_peers_open(struct erg_peers **out, struct erg_rendezvous *rendezvous, double timeout_s,
                   struct erg_error *err)
{
    struct erg_peers *peers = erg_xcalloc(1, sizeof *peers);
    peers->rendezvous = rendezvous;
    peers->rank = rendezvous->rank;
    peers->world = rendezvous->world;
    peers->peers = erg_xcalloc((size_t)peers->world, sizeof *peers->peers);
    for (int i = 0; i < peers->world; i++) {
        peers->peers[i].fd = -1;
        queue_init(&peers->peers[i].in);
        queue_init(&peers->peers[i].out);
    }
    peers->fds = erg_xcalloc((size_t)peers->world, sizeof *peers->fds);
    pthread_mutex_init(&peers->lock, NULL);
    peers->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int result = peers->wake < 0 ? erg_fail(err, ERG_FAILED, "rank %d has no descriptor left: %s",
                                            peers->rank, strerror(errno))
                                 : erg_peers_connect(peers, timeout_s, err);
    if (result == 0 && erg_thread_start(&peers->mover, move, peers) != 0)
        result = erg_fail(err, ERG_FAILED, "rank %d cannot start the thread of its connections",
                          peers->rank);
    peers->runs = result == 0;
    if (result == 0)
        *out = peers;
    else
        erg_peers_close(peers);
    return result;
}

void erg_peers_close(struct erg_peers *peers)
{
    if (!peers)
        return;
    if (peers->runs) {
        pthread_mutex_lock(&peers->lock);
        peers->closing = true;
        pthread_mutex_unlock(&peers->lock);
        erg_thread_wake(peers->wake);
        pthread_join(peers->mover, NULL);
    }
    for (int i = 0; i < peers->world; i++) {
        struct erg_peer *peer = &peers->peers[i];
        if (peer->fd >= 0)
            close(peer->fd);
        queue_release(&peer->in);
        queue_release(&peer->out);
        message_free(peer->coming);
    }
    if (peers->wake >= 0)
        close(peers->wake);
    pthread_mutex_destroy(&peers->lock);
    free(peers->fds);
    free(peers->peers);
    free(peers);
}

/* ---- messages ---- */

int erg_peers_rank(const struct erg_peers *peers)
{
    return peers->rank;
}

void erg_peers_send(struct erg_peers *peers, int rank, uint32_t channel, const void *bytes,
                    size_t count)
{
    assert(rank >= 0 && rank < peers->world && rank != peers->rank);
    struct erg_peer *peer = &peers->peers[rank];
    struct erg_message *message = erg_xcalloc(1, sizeof *message);
    message->head = (struct erg_message_head){count, channel, 0};
    message->bytes = erg_xmalloc(count + !count);
    memcpy(message->bytes, bytes, count);
    pthread_mutex_lock(&peers->lock);
    bool first = !peer->out.first;
    push(&peer->out, message);
    if (first)
        send_some(peer);
    bool left = first && peer->out.first;
    pthread_mutex_unlock(&peers->lock);
    if (left)
        erg_thread_wake(peers->wake);
}

bool erg_peers_has(struct erg_peers *peers, int rank, uint32_t channel)
{
    bool found = false;
    pthread_mutex_lock(&peers->lock);
    assert(rank >= 0 && rank < peers->world);
    for (const struct erg_message *m = peers->peers[rank].in.first; m && !found; m = m->next)
        found = m->head.channel == channel;
    pthread_mutex_unlock(&peers->lock);
    return found;
}

void *erg_peers_take(struct erg_peers *peers, int rank, uint32_t channel, size_t *count)
{
    pthread_mutex_lock(&peers->lock);
    struct erg_message *message = pull(&peers->peers[rank].in, channel);
    pthread_mutex_unlock(&peers->lock);
    assert(message);
    void *bytes = message->bytes;
    *count = (size_t)message->head.bytes;
    free(message);
    return bytes;
}

/* The rank of a connection that is lost, -1: none. */
static int lost_rank(const struct erg_peers *peers)
{
    for (int i = 0; i < peers->world; i++)
        if (peers->peers[i].lost)
            return i;
    return -1;
}

int erg_peers_wait(struct erg_peers *peers, struct erg_error *err)
{
    enum { MOMENT_NS = 50000000, MS_NS = 1000000 };
    int64_t until_ns = erg_now_ns() + MOMENT_NS, left_ns = MOMENT_NS;
    pthread_mutex_lock(&peers->lock);
    peers->waits = true;
    while (peers->come == peers->seen && left_ns > 0) {
        fill_fds(peers, peers->fds, true);
        pthread_mutex_unlock(&peers->lock);
        poll(peers->fds, (nfds_t)peers->world, (int)((left_ns + MS_NS - 1) / MS_NS));
        pthread_mutex_lock(&peers->lock);
        serve(peers, peers->fds);
        peers->left_ns = erg_now_ns();
        left_ns = until_ns - peers->left_ns;
    }
    peers->waits = false;
    int lost = peers->come == peers->seen ? lost_rank(peers) : -1;
    peers->seen = peers->come;
    pthread_mutex_unlock(&peers->lock);
    /* The rendezvous has the reason of a lost connection, but may get it some moments later. */
    int moments = 20;
    do {
        if (erg_rendezvous_check(peers->rendezvous, err) != 0)
            return -1;
        if (lost >= 0)
            erg_sleep_ns(MOMENT_NS);
    } while (lost >= 0 && --moments > 0);
    if (lost >= 0)
        return erg_fail(err, ERG_FAILED, "rank %d has lost its connection to rank %d", peers->rank,
                        lost);
    return 0;
}
