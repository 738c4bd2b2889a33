/* How peers find each other: each rank listens, and connects to those before it. */
#define _GNU_SOURCE /* accept4 */
#include "launch/peers_internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "launch/proof_internal.h"
#include "launch/rendezvous_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TOKEN_BYTES = 32, SPARE_STRANGERS = 32 };

/* The first message of a rank. */
struct hello {
    unsigned char token[TOKEN_BYTES];
    uint32_t rank;
};

/* A connection that has not identified itself yet. */
struct caller {
    int fd;
    size_t heard;
    struct hello hello;
};

struct gathering {
    struct erg_peers *peers;
    unsigned char token[TOKEN_BYTES];
    struct sockaddr_storage *addresses; /* [world] of those that listen */
    int listener, expected;             /* ranks that have yet to call */
    int64_t deadline_ns;
    struct caller *items;
    size_t count, capacity;
};

static int fail_errno(const struct gathering *gathering, const char *what, struct erg_error *err)
{
    return erg_fail(err, ERG_FAILED, "rank %d cannot %s: %s", gathering->peers->rank, what,
                    strerror(errno));
}

/* The address by which other ranks reach this one: that of its connection to rank 0, or, of rank 0,
 * the one that the ranks have called. */
static int own_address(const struct erg_peers *peers, struct sockaddr_storage *own,
                       struct erg_error *err)
{
    const struct erg_rendezvous *r = peers->rendezvous;
    socklen_t size = sizeof *own;
    memset(own, 0, sizeof *own);
    if (getsockname(r->members[peers->rank == 0].link.fd, (struct sockaddr *)own, &size) != 0)
        return erg_fail(err, ERG_FAILED, "rank %d does not know its address: %s", peers->rank,
                        strerror(errno));
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)own;
    if (own->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        memcpy(&four.sin_addr, six->sin6_addr.s6_addr + 12, 4);
        memset(own, 0, sizeof *own);
        memcpy(own, &four, sizeof four);
    }
    return 0;
}

static in_port_t *port_of(struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)address)->sin6_port
                                          : &((struct sockaddr_in *)address)->sin_port;
}

static socklen_t size_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

/* Listens at this rank's address and sends the address to all; the token is rank 0's. */
static int exchange_addresses(struct gathering *gathering, double timeout_s, struct erg_error *err)
{
    struct erg_peers *peers = gathering->peers;
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    if (own_address(peers, &own, err) != 0)
        return -1;
    *port_of(&own) = 0;
    gathering->listener = socket(own.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (gathering->listener < 0 ||
        bind(gathering->listener, (struct sockaddr *)&own, size_of(&own)) != 0 ||
        listen(gathering->listener, SOMAXCONN) != 0 ||
        getsockname(gathering->listener, (struct sockaddr *)&own, &size) != 0)
        return fail_errno(gathering, "listen for other ranks", err);
    if (peers->rank == 0 && erg_random_bytes(gathering->token, TOKEN_BYTES, err) != 0)
        return -1;
    return erg_rendezvous_broadcast(peers->rendezvous, 0, gathering->token, TOKEN_BYTES, timeout_s,
                                    err) ||
                   erg_rendezvous_all_gather(peers->rendezvous, &own, sizeof own,
                                             gathering->addresses, timeout_s, err)
               ? -1
               : 0;
}

static void keep(struct erg_peers *peers, int rank, int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peers->peers[rank].fd = fd;
}

static int call_rank(struct gathering *gathering, int rank, struct erg_error *err)
{
    struct sockaddr_storage *to = &gathering->addresses[rank];
    struct hello hello = {.rank = (uint32_t)gathering->peers->rank};
    memcpy(hello.token, gathering->token, TOKEN_BYTES);
    int fd = erg_link_connect((struct sockaddr *)to, size_of(to), gathering->deadline_ns);
    /* A new connection's buffer takes a hello at once. */
    if (fd < 0 || send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
        erg_fail(err, ERG_FAILED, "rank %d cannot connect to rank %d: %s", gathering->peers->rank,
                 rank, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    keep(gathering->peers, rank, fd);
    return 0;
}

static void drop(struct gathering *gathering, size_t index)
{
    if (gathering->items[index].fd >= 0)
        close(gathering->items[index].fd);
    memmove(gathering->items + index, gathering->items + index + 1,
            (--gathering->count - index) * sizeof *gathering->items);
}

static void accept_some(struct gathering *gathering)
{
    for (;;) {
        int fd = accept4(gathering->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            erg_sleep_ns(50000000); /* no descriptor is left for now */
        if (fd < 0)
            return;
        if (gathering->count >= (size_t)gathering->expected + SPARE_STRANGERS)
            drop(gathering, 0);
        ERG_PUSH(gathering, items, (struct caller){.fd = fd});
    }
}

/* Whether a caller is a rank that was expected. */
static bool is_expected(const struct gathering *gathering, const struct hello *hello)
{
    const struct erg_peers *peers = gathering->peers;
    return erg_proof_equal(hello->token, gathering->token) && hello->rank > (uint32_t)peers->rank &&
           hello->rank < (uint32_t)peers->world && peers->peers[hello->rank].fd < 0;
}

static void hear_callers(struct gathering *gathering)
{
    for (size_t i = gathering->count; i > 0; i--) {
        struct caller *caller = &gathering->items[i - 1];
        ssize_t count = recv(caller->fd, (char *)&caller->hello + caller->heard,
                             sizeof caller->hello - caller->heard, 0);
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            continue;
        caller->heard += count > 0 ? (size_t)count : 0;
        if (count > 0 && caller->heard < sizeof caller->hello)
            continue;
        if (count > 0 && is_expected(gathering, &caller->hello)) {
            keep(gathering->peers, (int)caller->hello.rank, caller->fd);
            gathering->expected--;
            caller->fd = -1;
        }
        drop(gathering, i - 1);
    }
}

static int await_callers(struct gathering *gathering, struct erg_error *err)
{
    while (gathering->expected > 0) {
        struct pollfd *fds = erg_xcalloc(gathering->count + 1, sizeof *fds);
        fds[0] = (struct pollfd){.fd = gathering->listener, .events = POLLIN};
        for (size_t i = 0; i < gathering->count; i++)
            fds[i + 1] = (struct pollfd){.fd = gathering->items[i].fd, .events = POLLIN};
        poll(fds, (nfds_t)gathering->count + 1, 50);
        free(fds);
        if (erg_rendezvous_check(gathering->peers->rendezvous, err) != 0)
            return -1;
        if (erg_now_ns() > gathering->deadline_ns)
            return erg_fail(err, ERG_FAILED, "rank %d waited in vain for %d other ranks to connect",
                            gathering->peers->rank, gathering->expected);
        accept_some(gathering);
        hear_callers(gathering);
    }
    return 0;
}

int erg_peers_connect(struct erg_peers *peers, double timeout_s, struct erg_error *err)
{
    struct gathering gathering = {.peers = peers,
                                  .listener = -1,
                                  .expected = peers->world - 1 - peers->rank,
                                  .deadline_ns = erg_now_ns() + (int64_t)(timeout_s * 1e9)};
    if (peers->world == 1)
        return 0;
    gathering.addresses = erg_xcalloc((size_t)peers->world, sizeof *gathering.addresses);
    int result = exchange_addresses(&gathering, timeout_s, err);
    for (int rank = 0; rank < peers->rank && result == 0; rank++)
        result = call_rank(&gathering, rank, err);
    if (result == 0)
        result = await_callers(&gathering, err);
    while (gathering.count)
        drop(&gathering, gathering.count - 1);
    if (gathering.listener >= 0)
        close(gathering.listener);
    free(gathering.items);
    free(gathering.addresses);
    return result;
}
