/* The connections of ergon serve: limits, deadlines, and those whose answer waits. */
#define _GNU_SOURCE /* POLLRDHUP */
#include "serve/serve_connections.h"

#include "base/clock.h"
#include "base/memory.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { NOT_CLOSED_YET = 16 };

void erg_serve_connections_init(struct erg_serve_connections *connections,
                                const struct erg_serve_limits *limits)
{
    *connections = (struct erg_serve_connections){.limits = *limits};
    pthread_mutex_init(&connections->lock, NULL);
    connections->count = limits->together + limits->held + NOT_CLOSED_YET;
    connections->items = erg_xcalloc(connections->count, sizeof *connections->items);
}

void erg_serve_connections_release(struct erg_serve_connections *connections)
{
    pthread_mutex_destroy(&connections->lock);
    free(connections->items);
}

/* IPv4 addresses as IPv6 writes them; zero for other families. */
static struct in6_addr address_of(const struct sockaddr *address)
{
    struct in6_addr found = {0};
    if (address && address->sa_family == AF_INET6) {
        found = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    } else if (address && address->sa_family == AF_INET) {
        found.s6_addr[10] = found.s6_addr[11] = 0xff;
        memcpy(found.s6_addr + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr,
               4);
    }
    return found;
}

/* The server's thread notices the end and closes the connection. */
static void end(struct erg_serve_connection *item)
{
    item->closing = true;
    shutdown(item->file, SHUT_RDWR);
}

/* Ends the oldest if there are more than `most`: of one address or, if it is NULL, of all. */
static void make_room(struct erg_serve_connections *connections, const struct in6_addr *address,
                      size_t most)
{
    struct erg_serve_connection *oldest = NULL;
    size_t count = 0;
    for (size_t i = 0; i < connections->count; i++) {
        struct erg_serve_connection *item = &connections->items[i];
        if (!item->file || item->closing || item->request ||
            (address && memcmp(address, &item->address, sizeof *address) != 0))
            continue;
        count++;
        if (!oldest || item->number < oldest->number)
            oldest = item;
    }
    if (count > most)
        end(oldest);
}

static void add(struct erg_serve_connections *connections, struct MHD_Connection *connection,
                void **own)
{
    const union MHD_ConnectionInfo *file =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *client =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct erg_serve_connection *item = connections->items;
    while (item < connections->items + connections->count && item->file)
        item++;
    if (!file || item == connections->items + connections->count)
        return;
    *item =
        (struct erg_serve_connection){.file = file->connect_fd,
                                      .address = address_of(client ? client->client_addr : NULL),
                                      .since_ns = erg_now_ns(),
                                      .number = ++connections->come};
    *own = item;
    struct in6_addr address = item->address;
    make_room(connections, &address, connections->limits.of_address);
    make_room(connections, NULL, connections->limits.together);
}

static void drop(struct erg_serve_connections *connections, struct erg_serve_connection *item)
{
    connections->held -= item->request != NULL;
    *item = (struct erg_serve_connection){0};
}

void erg_serve_notice(void *context, struct MHD_Connection *connection, void **own,
                      enum MHD_ConnectionNotificationCode code)
{
    struct erg_serve_connections *connections = context;
    pthread_mutex_lock(&connections->lock);
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        add(connections, connection, own);
    else if (*own)
        drop(connections, *own);
    pthread_mutex_unlock(&connections->lock);
}

/* Needs the lock; returns NULL if there is no free place. */
static struct erg_serve_connection *item_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *own =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return own ? own->socket_context : NULL;
}

void erg_serve_answered(struct erg_serve_connections *connections,
                        struct MHD_Connection *connection)
{
    pthread_mutex_lock(&connections->lock);
    struct erg_serve_connection *item = item_of(connection);
    if (item) {
        item->since_ns = erg_now_ns();
        connections->held -= item->request != NULL;
        item->request = NULL;
    }
    pthread_mutex_unlock(&connections->lock);
}

void erg_serve_close_late(struct erg_serve_connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    int64_t now_ns = erg_now_ns();
    for (size_t i = 0; i < connections->count; i++) {
        struct erg_serve_connection *item = &connections->items[i];
        if (item->file && !item->closing && !item->request &&
            now_ns - item->since_ns > ERG_SERVE_DEADLINE_S * 1000000000LL)
            end(item);
    }
    pthread_mutex_unlock(&connections->lock);
}

/* ---- held connections ---- */

bool erg_serve_hold(struct erg_serve_connections *connections, struct MHD_Connection *connection,
                    void *request)
{
    pthread_mutex_lock(&connections->lock);
    struct erg_serve_connection *item = item_of(connection);
    const bool holds = item && !item->closing && connections->held < connections->limits.held;
    if (holds) {
        int on = 1; /* so that machines that vanish are noticed */
        (void)setsockopt(item->file, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        item->request = request;
        connections->held++;
    }
    pthread_mutex_unlock(&connections->lock);
    return holds;
}

size_t erg_serve_find_gone(struct erg_serve_connections *connections, void **requests, size_t most)
{
    size_t found = 0;
    pthread_mutex_lock(&connections->lock);
    for (size_t i = 0; i < connections->count && found < most; i++) {
        const struct erg_serve_connection *item = &connections->items[i];
        struct pollfd now = {.fd = item->file, .events = POLLRDHUP};
        if (item->request && poll(&now, 1, 0) > 0)
            requests[found++] = item->request;
    }
    pthread_mutex_unlock(&connections->lock);
    return found;
}
