/* Client processes of zeusd's routes, as guests of the daemon. */
#define _GNU_SOURCE /* struct ucred */
#include "serve/zeusd_guests.h"

#include "base/memory.h"
#include "daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Most connections of a user other than root, and most file descriptors of connections. */
enum { OF_USER = 32, FILES = 4096, GUESTS = 128 };

struct erg_zeusd_guest {
    struct erg_daemon_client *client; /* NULL: a free place */
    int pidfd;
    struct erg_daemon_peer peer;
    unsigned requests;    /* in progress */
    pthread_mutex_t lock; /* guards the connection and the members below */
    uint64_t leases[ERG_WIRE_GPUS][ERG_KNOBS];
};

struct erg_zeusd_guests {
    int pipe;
    pthread_mutex_t lock; /* guards all members but those under a guest's own lock */
    struct {
        bool open;
        uid_t uid;
    } files[FILES];
    struct erg_zeusd_guest items[GUESTS];
};

struct erg_zeusd_guests *erg_zeusd_guests_new(int pipe)
{
    struct erg_zeusd_guests *guests = erg_xcalloc(1, sizeof *guests);
    guests->pipe = pipe;
    pthread_mutex_init(&guests->lock, NULL);
    for (size_t i = 0; i < GUESTS; i++)
        pthread_mutex_init(&guests->items[i].lock, NULL);
    return guests;
}

static void forget(struct erg_zeusd_guest *guest)
{
    erg_daemon_disconnect(guest->client);
    close(guest->pidfd);
    guest->client = NULL;
    memset(guest->leases, 0, sizeof guest->leases);
}

void erg_zeusd_guests_free(struct erg_zeusd_guests *guests)
{
    for (size_t i = 0; i < GUESTS; i++) {
        if (guests->items[i].client)
            forget(&guests->items[i]);
        pthread_mutex_destroy(&guests->items[i].lock);
    }
    pthread_mutex_destroy(&guests->lock);
    free(guests);
}

void erg_zeusd_count(struct erg_zeusd_guests *guests, int socket, bool begins)
{
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    unsigned own = 0;
    const bool known = socket >= 0 && socket < FILES &&
                       getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    pthread_mutex_lock(&guests->lock);
    if (socket >= 0 && socket < FILES) {
        guests->files[socket].open = begins;
        guests->files[socket].uid = peer.uid;
    }
    for (size_t i = 0; i < FILES; i++)
        own += guests->files[i].open && guests->files[i].uid == peer.uid;
    pthread_mutex_unlock(&guests->lock);
    if (begins && (!known || (peer.uid != 0 && own > OF_USER)))
        shutdown(socket, SHUT_RDWR);
}

/* ---- identity ---- */

static bool has_ended(const struct erg_zeusd_guest *guest)
{
    struct pollfd wait = {.fd = guest->pidfd, .events = POLLIN};
    return poll(&wait, 1, 0) != 0;
}

/* Since the last request, a process may have entered a job or dropped privileges. */
static bool is_same(const struct erg_daemon_peer *a, const struct erg_daemon_peer *b)
{
    return a->pid == b->pid && a->uid == b->uid && a->group_count == b->group_count &&
           memcmp(a->groups, b->groups, a->group_count * sizeof *a->groups) == 0;
}

/* Returns true if the daemon still has the guest. It drops silent guests without settings if it
 * needs room. */
static bool is_heard(struct erg_zeusd_guest *guest)
{
    struct erg_wire_request request = {.type = ERG_WIRE_HELLO};
    return erg_daemon_exchange(guest->client, &request, NULL, NULL) == 0;
}

static int let_in(struct erg_zeusd_guests *guests, struct erg_zeusd_guest *guest, int pidfd,
                  const struct erg_daemon_peer *peer, struct erg_error *err)
{
    struct erg_daemon_guest entry = {.pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0), .peer = *peer};
    struct erg_wire_hello hello;
    int ends[2] = {-1, -1};
    if (entry.pidfd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        const int code = errno;
        if (entry.pidfd >= 0)
            close(entry.pidfd);
        return erg_fail(err, ERG_FAILED, "accepting a client: %s", strerror(code));
    }
    entry.fd = ends[1];
    if (write(guests->pipe, &entry, sizeof entry) != (ssize_t)sizeof entry) {
        close(entry.pidfd);
        close(ends[0]);
        close(ends[1]);
        return erg_fail(err, ERG_FAILED, "accepting a client: the daemon has ended");
    }
    if (erg_daemon_speak(&guest->client, ends[0], &hello, err) != 0) {
        guest->client = NULL;
        return -1;
    }
    guest->pidfd = pidfd;
    guest->peer = *peer;
    return 0;
}

/* Needs the lock. */
static struct erg_zeusd_guest *find(struct erg_zeusd_guests *guests,
                                    const struct erg_daemon_peer *peer,
                                    struct erg_zeusd_guest **place)
{
    *place = NULL;
    for (size_t i = 0; i < GUESTS; i++) {
        struct erg_zeusd_guest *guest = &guests->items[i];
        if (guest->client && !guest->requests && has_ended(guest))
            forget(guest);
        if (!guest->client && !*place)
            *place = guest;
        if (!guest->client || !is_same(&guest->peer, peer) || has_ended(guest))
            continue;
        if (guest->requests || is_heard(guest))
            return guest;
        forget(guest);
        *place = guest;
    }
    return NULL;
}

struct erg_zeusd_guest *erg_zeusd_guest_of(struct erg_zeusd_guests *guests, int socket,
                                           struct erg_error *err)
{
    struct erg_daemon_peer peer;
    struct erg_zeusd_guest *place;
    int pidfd;
    if (!erg_daemon_peer_of(socket, "/proc", &peer, &pidfd)) {
        erg_fail(err, ERG_FAILED, "the connected process has ended");
        return NULL;
    }
    pthread_mutex_lock(&guests->lock);
    struct erg_zeusd_guest *guest = find(guests, &peer, &place);
    if (guest)
        close(pidfd);
    else if (!place)
        erg_fail(err, ERG_FAILED, "there are too many clients");
    else if (let_in(guests, place, pidfd, &peer, err) == 0)
        guest = place;
    if (!guest)
        close(pidfd);
    else
        guest->requests++;
    pthread_mutex_unlock(&guests->lock);
    return guest;
}

void erg_zeusd_guest_done(struct erg_zeusd_guests *guests, struct erg_zeusd_guest *guest)
{
    pthread_mutex_lock(&guests->lock);
    guest->requests--;
    pthread_mutex_unlock(&guests->lock);
}

/* ---- requests; need the guest's lock ---- */

static unsigned status_of(const struct erg_zeusd_guest *guest)
{
    switch (erg_daemon_said(guest->client)) {
    case ERG_WIRE_DENIED:
    case ERG_WIRE_BUSY:
        return 403;
    case ERG_WIRE_BOUNDS:
        return 400;
    default:
        return 500;
    }
}

static unsigned ask(struct erg_zeusd_guest *guest, struct erg_wire_request *request,
                    struct erg_wire_reader *body, struct erg_error *err)
{
    return erg_daemon_exchange(guest->client, request, body, err) == 0 ? 200 : status_of(guest);
}

static unsigned read_value(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_metric metric,
                           int64_t *value, struct erg_error *err)
{
    struct erg_wire_request request = {
        .type = ERG_WIRE_READ, .index = gpu, .metrics = UINT64_C(1) << metric};
    struct erg_wire_reader body;
    const unsigned status = ask(guest, &request, &body, err);
    if (status != 200)
        return status;
    const uint32_t gpus = erg_wire_get_u32(&body);
    (void)erg_wire_get_u32(&body); /* the client that owns the socket */
    const uint32_t count = erg_wire_get_u32(&body);
    const uint32_t which = erg_wire_get_u32(&body); /* including flags */
    *value = (int64_t)erg_wire_get_u64(&body);
    if (gpus == 1 && count == 1 && (which & 0xffff) == (uint32_t)metric && !body.broken)
        return 200;
    erg_fail(err, ERG_NO_DEVICE, "GPU %u does not report that value", (unsigned)gpu);
    return 500;
}

static unsigned take_lease(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_knob knob,
                           struct erg_error *err)
{
    uint32_t ttl_ms;
    uint64_t *lease = &guest->leases[gpu][knob];
    if (*lease || erg_daemon_take_lease(guest->client, gpu, knob, lease, &ttl_ms, err) == 0)
        return 200;
    *lease = 0;
    return status_of(guest);
}

static unsigned set(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_knob knob, uint32_t least,
                    uint32_t most, bool block, struct erg_error *err)
{
    bool fresh = !guest->leases[gpu][knob];
    for (;;) {
        unsigned status = take_lease(guest, gpu, knob, err);
        if (status != 200)
            return status;
        struct erg_wire_request request = {.type = knob == ERG_KNOB_POWER ? ERG_WIRE_POWER
                                                                          : ERG_WIRE_CLOCK,
                                           .lease = guest->leases[gpu][knob],
                                           .low = least,
                                           .high = most,
                                           .flags = block ? ERG_WIRE_WAIT : 0};
        status = ask(guest, &request, NULL, err);
        if (status == 200)
            return status;
        const bool ended = erg_daemon_said(guest->client) == ERG_WIRE_NO_LEASE;
        if (fresh || ended)
            guest->leases[gpu][knob] = 0;
        if (fresh && !ended) { /* nothing was set: others may set it */
            request.type = ERG_WIRE_RELEASE;
            erg_daemon_exchange(guest->client, &request, NULL, NULL);
        }
        if (fresh || !ended)
            return status;
        fresh = true; /* the process has ended since */
    }
}

static unsigned reset(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_knob knob,
                      struct erg_error *err)
{
    struct erg_wire_request request = {.type = ERG_WIRE_RESET, .lease = guest->leases[gpu][knob]};
    struct erg_wire_gpu there;
    if (request.lease) {
        const unsigned status = ask(guest, &request, NULL, err);
        if (status != 200 && erg_daemon_said(guest->client) != ERG_WIRE_NO_LEASE)
            return status;
        guest->leases[gpu][knob] = 0;
        request.type = ERG_WIRE_RELEASE;
        if (status == 200)
            return ask(guest, &request, NULL, err);
    }
    if (erg_daemon_ask_gpu(guest->client, gpu, &there, err) != 0)
        return status_of(guest);
    if (there.holders[knob] < 0)
        return 200;
    erg_fail(err, ERG_NO_DEVICE, "the %s of GPU %u is held by user %ld", erg_knob_name(knob),
             (unsigned)gpu, (long)there.holders[knob]);
    return 403;
}

/* ---- the same from any thread ---- */

unsigned erg_zeusd_guest_read(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_metric metric,
                              int64_t *value, struct erg_error *err)
{
    pthread_mutex_lock(&guest->lock);
    const unsigned status = read_value(guest, gpu, metric, value, err);
    pthread_mutex_unlock(&guest->lock);
    return status;
}

unsigned erg_zeusd_guest_gpu(struct erg_zeusd_guest *guest, uint32_t gpu,
                             struct erg_wire_gpu *there, struct erg_error *err)
{
    pthread_mutex_lock(&guest->lock);
    const unsigned status =
        erg_daemon_ask_gpu(guest->client, gpu, there, err) == 0 ? 200 : status_of(guest);
    pthread_mutex_unlock(&guest->lock);
    return status;
}

unsigned erg_zeusd_guest_set(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_knob knob,
                             uint32_t least, uint32_t most, bool block, struct erg_error *err)
{
    pthread_mutex_lock(&guest->lock);
    const unsigned status = set(guest, gpu, knob, least, most, block, err);
    pthread_mutex_unlock(&guest->lock);
    return status;
}

unsigned erg_zeusd_guest_reset(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_knob knob,
                               struct erg_error *err)
{
    pthread_mutex_lock(&guest->lock);
    const unsigned status = reset(guest, gpu, knob, err);
    pthread_mutex_unlock(&guest->lock);
    return status;
}
